//! `trapline new`: a crate to begin with, outside of this repository.

use std::fs;
use std::path::Path;

use crate::error::At;
use crate::home::Home;
use crate::{Error, Result};

/// What a new crate holds. `@NAME@`, `@TYPE@`, `@DEPENDENCY(crate)@` are filled in.
const FILES: [(&str, &str); 7] = [
    ("Cargo.toml", include_str!("../template/Cargo.toml.in")),
    ("README.md", include_str!("../template/README.md.in")),
    (".gitignore", "/target\n"),
    ("src/lib.rs", include_str!("../template/lib.rs.in")),
    ("src/qemu.rs", include_str!("../template/qemu.rs.in")),
    ("src/consume.rs", include_str!("../template/consume.rs.in")),
    ("src/main.rs", include_str!("../template/main.rs.in")),
];

/// Makes the crate and returns what to do next.
pub fn make(home: &Home, path: &Path, git: Option<&str>) -> Result<String> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c));
    if !good {
        return Err(Error::Usage {
            what: format!("'{}' does not end in a crate's name", path.display()),
            hint: "lower-case letters, digits, - and _, a letter first: trapline new my-analyzer".into(),
        });
    }
    if path.exists() {
        return Err(Error::Usage {
            what: format!("'{}' is there already", path.display()),
            hint: "name a folder that is not; nothing was changed".into(),
        });
    }
    let source = |package: &str, folder: &str| match git {
        Some(url) => format!("git = \"{url}\", package = \"{package}\""),
        None => format!("path = {:?}, package = \"{package}\"", home.root().join(folder)),
    };
    let ident = name.replace('-', "_");
    let kind: String = ident
        .split('_')
        .map(|part| {
            let mut chars = part.chars();
            chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect::<String>()
        })
        .collect();
    let fill = |text: &str| {
        text.replace("@NAME@", name)
            .replace("@IDENT@", &ident)
            .replace("@TYPE@", &kind)
            .replace("@INSTRUMENT@", &source("trapline-instrument", "instrument"))
            .replace("@CONSUMER@", &source("trapline-consumer", "consumer"))
    };
    fs::create_dir_all(path.join("src")).at("make", path)?;
    for (file, text) in FILES {
        let to = path.join(file);
        fs::write(&to, fill(text)).at("write", &to)?;
    }
    let shown =
        if path.is_absolute() || path.starts_with("..") { path.to_path_buf() } else { Path::new(".").join(path) };
    Ok(format!(
        "{} is made: README.md says what is where. Next:\n\n  trapline run --analyzer {} -- sha256sum /bin/bash\n",
        path.display(),
        shown.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_would_refuse_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        for bad in ["", "Stores", "1st", "a b", "a/..", "ä"] {
            assert!(make(&home, &dir.path().join(bad), None).is_err(), "{bad}");
        }
        assert!(make(&home, &dir.path().join("my-stores"), None).unwrap().contains("my-stores"));
        let lib = fs::read_to_string(dir.path().join("my-stores/src/qemu.rs")).unwrap();
        assert!(lib.contains("struct MyStores") && !lib.contains('@'), "{lib}");
        // A second time would overwrite.
        assert!(make(&home, &dir.path().join("my-stores"), None).is_err());
        make(&home, &dir.path().join("other"), Some("https://example.org/t.git")).unwrap();
        let toml = fs::read_to_string(dir.path().join("other/Cargo.toml")).unwrap();
        assert!(toml.contains("git = \"https://example.org/t.git\"") && !toml.contains("path ="), "{toml}");
    }
}
