//! What the README tells people to type works.

use std::fs;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{checkout, trapline, within};

/// The commands of the README's `sh` blocks, one string each.
fn commands() -> Vec<String> {
    let text = fs::read_to_string(checkout().join("README.md")).expect("README.md");
    let (mut all, mut inside, mut pending) = (Vec::new(), false, String::new());
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside && ["```sh", "```bash", "```console", "```shell"].contains(&line.trim());
            continue;
        }
        let line = line.trim().trim_start_matches("$ ");
        if !inside || line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        match line.strip_suffix('\\') {
            Some(start) => pending.push_str(start),
            None => all.push(std::mem::take(&mut pending) + line),
        }
    }
    all
}

/// Splits at blanks, as the README needs it.
fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().map(|w| w.trim_matches(['\'', '"'])).collect()
}

#[test]
fn readme_has_the_two_commands() {
    let all = commands();
    assert!(
        all.iter().any(|c| c.starts_with("cargo run --release -- run ")),
        "the one that shows what it is for: {all:?}"
    );
    assert!(all.iter().any(|c| c.contains("-p trapline-tests")), "the one that runs the tests: {all:?}");
}

#[test]
fn every_command_of_the_readme_works() {
    for command in commands() {
        let words = words(&command);
        let ours = match words.as_slice() {
            // The tests: we are in them.
            ["cargo", "run", rest @ ..] if rest.contains(&"trapline-tests") => {
                let manifest = fs::read_to_string(checkout().join("tests/Cargo.toml")).unwrap();
                assert!(manifest.contains("name = \"trapline-tests\""));
                continue;
            }
            ["cargo", "run", "--release", "--", rest @ ..] => rest,
            ["trapline", rest @ ..] => rest,
            // The way to the checkout.
            ["cd", ..] | ["git", "clone", ..] => continue,
            ["cargo", "install", "--path", folder, ..] => {
                assert!(checkout().join(folder).join("Cargo.toml").exists(), "{command}");
                continue;
            }
            _ => panic!("the test does not know this kind of command: {command}"),
        };
        // All are valid as they stand.
        let parsed =
            trapline::cli::command().try_get_matches_from(std::iter::once("trapline").chain(ours.iter().copied()));
        parsed.unwrap_or_else(|e| panic!("{command}: {e}"));
        if ours.first() == Some(&"run") {
            let f =
                within(Duration::from_secs(3000), Command::new(trapline()).current_dir(checkout()).args(ours)).code(0);
            assert!(!f.out().is_empty() && !f.err().is_empty(), "{command}: the guest's output and the result");
        }
    }
}

/// The book's page on analyzers has what their crates say of themselves.
#[test]
fn the_book_lists_every_analyzer_with_its_own_words() {
    let page = fs::read_to_string(checkout().join("docs/src/analyzers.md")).expect("the page");
    for entry in fs::read_dir(checkout().join("analyzers")).expect("analyzers").filter_map(|e| e.ok()) {
        let Ok(own) = fs::read_to_string(entry.path().join("README.md")) else { continue };
        assert!(page.contains(&own.replacen("# ", "## ", 1)), "{} is not on the page as it is", entry.path().display());
    }
}
