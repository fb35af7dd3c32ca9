//! Running other people's commands: with a log, a progress step, and a death that takes them along.
//!
//! Rules:
//! - Everything that such a command prints goes to its log, and the log is kept. On failure the error names it and shows its end.
//! - A child dies with us (`PR_SET_PDEATHSIG`), or it would go on writing into the cache without the lock.
//! - Children never read the terminal: standard input is `/dev/null`.
//! - Nothing of the caller's Python or ninja settings leaks in.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::error::At;
use crate::progress::Step;
use crate::{Error, Result};

/// Lines of a log that an error shows.
const TAIL: usize = 20;

/// A command that is to be logged and die with us. Speaks English, so that its output can be parsed.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env("LC_ALL", "C.UTF-8")
        .env_remove("LANGUAGE")
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .env_remove("PIP_USER")
        .env_remove("PIP_TARGET")
        .env_remove("PIP_PREFIX")
        .env_remove("VIRTUAL_ENV")
        .env_remove("NINJA_STATUS")
        .env_remove("MAKEFLAGS")
        .stdin(Stdio::null());
    die_with_us(&mut command);
    command
}

/// The child gets SIGTERM when we die.
pub fn die_with_us(command: &mut Command) {
    let us = std::process::id();
    // SAFETY: the closure runs between fork and exec and only makes two async-signal-safe system calls.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // We may have died in between.
            if libc::getppid() as u32 != us {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Runs to the end, both outputs into `log`, each line also to `each`. Fails if the command does.
pub fn logged(
    mut command: Command,
    what: &str,
    log: &Path,
    step: &mut Step,
    mut each: impl FnMut(&mut Step, &str),
) -> Result<()> {
    if let Some(parent) = log.parent() {
        crate::cache::create_dir(parent)?;
    }
    let mut file = File::create(log).at("create", log)?;
    writeln!(file, "$ {}", shown(&command)).at("write", log)?;
    let (reader, writer) = std::io::pipe().at("open a pipe for", log)?;
    command.stdout(writer.try_clone().at("open a pipe for", log)?).stderr(writer);
    let mut child = command.spawn().map_err(|e| spawn_error(&command, e))?;
    // `command` still holds the pipe's writing ends; without this we would wait for ourselves.
    drop(command);

    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut written = Ok(());
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Error::io("read the output for", log, e)),
        }
        if written.is_ok() {
            written = file.write_all(&line);
        }
        let text = String::from_utf8_lossy(&line);
        // Progress that overwrites its line ends in '\r'; the last of them is the newest.
        for part in text.trim_end().split('\r').filter(|p| !p.is_empty()) {
            each(step, part);
        }
    }
    let status = child.wait().at("wait for the command of", log)?;
    if status.success() {
        return written.at("write", log);
    }
    Err(failure(what, &status, log))
}

/// The error for a command that failed after writing `log`.
pub fn failure(what: &str, status: &ExitStatus, log: &Path) -> Error {
    let tail = tail(log);
    if tail.contains("No space left on device") || tail.contains("Disk quota exceeded") {
        let folder = log.parent().unwrap_or(Path::new("/")).to_path_buf();
        let free = crate::cache::free_space(&folder);
        return Error::NoSpace { folder, free, doing: format!("{what} (log: {})", log.display()) };
    }
    Error::Step {
        what: what.to_string(),
        status: status.to_string(),
        log: log.to_path_buf(),
        tail,
        hint: "nothing half-made is left; mend what the log says and run the same command again".into(),
    }
}

/// Runs quietly and gives standard output, or nothing if the command cannot be had or fails.
pub fn output(mut command: Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the command can be had and succeeds.
pub fn succeeds(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

pub fn spawn_error(command: &Command, source: std::io::Error) -> Error {
    Error::Spawn { command: command.get_program().to_string_lossy().into_owned(), source }
}

/// The command as one could type it.
pub fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|a| {
            let a = a.to_string_lossy();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
            if !a.is_empty() && a.chars().all(plain) {
                a.into_owned()
            } else {
                format!("'{}'", a.replace('\'', r"'\''"))
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, log: &Path) -> (Result<()>, Vec<String>) {
        let mut seen = Vec::new();
        let mut c = command("/bin/sh");
        c.args(["-c", script]);
        let r = logged(c, "the test", log, &mut Step::new("test"), |_, l| seen.push(l.to_string()));
        (r, seen)
    }

    #[test]
    fn both_outputs_are_logged_and_failure_shows_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("x.log");
        let (r, seen) = run("echo one; echo two >&2", &log);
        assert!(r.is_ok());
        assert_eq!(seen, ["one", "two"]);
        let (r, _) = run("seq 100; exit 3", &log);
        let message = r.unwrap_err().to_string();
        assert!(message.contains("x.log") && message.contains("100") && message.contains("81"), "{message}");
        assert!(!message.contains("80\n"), "{message}");
    }

    #[test]
    fn a_full_disk_in_the_log_is_told_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let (r, _) = run("echo 'cc1: No space left on device'; exit 1", &dir.path().join("x.log"));
        assert!(matches!(r, Err(Error::NoSpace { .. })));
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let mut c = Command::new("cc");
        c.args(["-o", "a b", "it's"]);
        assert_eq!(shown(&c), r"cc -o 'a b' 'it'\''s'");
    }
}
