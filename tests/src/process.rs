//! Child processes with a deadline.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Ended {
        match status.code() {
            Some(code) => Ended::Code(code),
            None => Ended::Signal(status.signal().unwrap_or(0)),
        }
    }
}

/// A process that has ended, with what it wrote.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub ended: Ended,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
    /// Fails the test unless the process ended with this exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Finished {
        assert_eq!(
            self.ended,
            Ended::Code(code),
            "--- standard output:\n{}--- standard error:\n{}",
            self.out(),
            self.err()
        );
        self
    }
}

/// Kills a process when its time is over, until dropped.
pub(crate) struct Watchdog(Arc<AtomicBool>);

impl Watchdog {
    pub(crate) fn over(pid: u32, limit: Duration) -> (Watchdog, Arc<AtomicBool>) {
        let done = Arc::new(AtomicBool::new(false));
        let bitten = Arc::new(AtomicBool::new(false));
        let (d, b) = (done.clone(), bitten.clone());
        thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < limit {
                if d.load(Ordering::Acquire) {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
            b.store(true, Ordering::Release);
            // SAFETY: plain system call; the pid is not reused before its parent, us, has waited, after which `done` is set.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        });
        (Watchdog(done), bitten)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Feeds `input`, collects what the child writes, and waits for it; it is killed, and the test fails, after `limit`.
#[track_caller]
pub fn finish(mut child: Child, input: &[u8], limit: Duration) -> Finished {
    let (dog, bitten) = Watchdog::over(child.id(), limit);
    let stdin = child.stdin.take();
    let input = input.to_vec();
    let feeder = thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // The child may end without reading it all.
            let _ = std::io::Write::write_all(&mut stdin, &input);
        }
    });
    let output = child.wait_with_output().expect("the child can be waited for");
    drop(dog);
    let _ = feeder.join();
    let finished = Finished { ended: output.status.into(), stdout: output.stdout, stderr: output.stderr };
    assert!(
        !bitten.load(Ordering::Acquire),
        "not finished after {limit:?}; standard output:\n{}\nstandard error:\n{}",
        finished.out(),
        finished.err()
    );
    finished
}

/// Runs a command with nothing on its standard input.
#[track_caller]
pub fn within(limit: Duration, command: &mut Command) -> Finished {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?} cannot be started: {e}"));
    finish(child, b"", limit)
}

/// What is in a `.gz` file, by the tool that everybody has.
///
/// # Panics
/// If it is none.
pub fn unpack(path: &Path) -> Vec<u8> {
    within(Duration::from_secs(600), Command::new("gzip").arg("-dc").arg(path)).code(0).stdout
}
