//! Progress of long steps, on standard error.
//!
//! On a terminal each step is a bar that its end turns into one line. Elsewhere (a file, CI) it is a plain line at
//! the start, one at each tenth of the way, and one at the end, so that a log stays short and shows that things move.
//! Standard output is never touched: it is the guest's.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One long step. Dropped without [`Step::done`], it leaves no "done" behind.
pub struct Step {
    what: String,
    started: Instant,
    total: u64,
    output: Output,
}

enum Output {
    Bar(ProgressBar),
    /// The last tenth that was printed, and when.
    Lines {
        tenth: u64,
    },
}

impl Step {
    /// `what` is read as "what … done", such as "Building qemu-x86_64".
    pub fn new(what: impl Into<String>) -> Step {
        let what = what.into();
        let output = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(spinner());
            bar.set_prefix(what.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
            Output::Bar(bar)
        } else {
            eprintln!("trapline: {what}");
            Output::Lines { tenth: 0 }
        };
        Step { what, started: Instant::now(), total: 0, output }
    }

    /// So many of so many are done. The total may change on the way.
    pub fn set(&mut self, done: u64, total: u64) {
        match &mut self.output {
            Output::Bar(bar) => {
                if self.total == 0 {
                    bar.set_style(filled());
                }
                bar.set_length(total);
                bar.set_position(done.min(total));
            }
            Output::Lines { tenth } => {
                let now = (done * 10).checked_div(total).unwrap_or(0);
                if now > *tenth && now < 10 {
                    eprintln!("trapline: {} … {}0 % ({:.0} s)", self.what, now, self.started.elapsed().as_secs_f32());
                }
                *tenth = now.max(*tenth);
            }
        }
        self.total = total;
    }

    /// What is being worked on just now; shown on terminals only.
    pub fn note(&self, note: impl Into<String>) {
        if let Output::Bar(bar) = &self.output {
            bar.set_message(note.into());
        }
    }

    /// The step succeeded; leaves one line.
    pub fn done(self) {
        let line = format!("trapline: {} … done ({:.1} s)", self.what, self.started.elapsed().as_secs_f32());
        match &self.output {
            Output::Bar(bar) => {
                bar.finish_and_clear();
                eprintln!("{line}");
            }
            Output::Lines { .. } => eprintln!("{line}"),
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Output::Bar(bar) = &self.output {
            bar.finish_and_clear();
        }
    }
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}").unwrap_or(ProgressStyle::default_spinner())
}

fn filled() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} {bar:30} {pos}/{len} {elapsed} (ETA {eta}) {wide_msg}")
        .unwrap_or(ProgressStyle::default_bar())
}

/// `[12/348] Compiling …` as ninja prints it: (done, total, what).
pub fn ninja(line: &str) -> Option<(u64, u64, &str)> {
    let rest = line.trim_start().strip_prefix('[')?;
    let (done, rest) = rest.split_once('/')?;
    let (total, what) = rest.split_once(']')?;
    let (done, total) = (done.trim().parse().ok()?, total.trim().parse().ok()?);
    (done <= total && total > 0).then_some((done, total, what.trim_start()))
}

/// `dlstatus:1:20.5:Retrieving …` and `pmstatus:…` as apt prints them with `APT::Status-Fd`: (kind, percent, what).
pub fn apt(line: &str) -> Option<(&str, f64, &str)> {
    let (kind, rest) = line.split_once(':')?;
    if !matches!(kind, "dlstatus" | "pmstatus") {
        return None;
    }
    let mut parts = rest.splitn(3, ':');
    let _package = parts.next()?;
    let percent: f64 = parts.next()?.trim().parse().ok()?;
    let what = parts.next()?;
    ((0.0..=100.0).contains(&percent)).then_some((kind, percent, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninja_lines() {
        assert_eq!(ninja("[12/348] Compiling C object a.o"), Some((12, 348, "Compiling C object a.o")));
        assert_eq!(ninja("[ 2/ 10] x"), Some((2, 10, "x")));
        assert_eq!(ninja("[1/1] "), Some((1, 1, "")));
        for bad in
            ["", "[", "[1]", "[1/0] x", "[3/2] x", "[a/b] x", "warning: [-Wfoo]", "[-1/5] x", "ninja: no work to do."]
        {
            assert_eq!(ninja(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn apt_lines() {
        assert_eq!(apt("dlstatus:1:20.5:Retrieving file 1 of 3"), Some(("dlstatus", 20.5, "Retrieving file 1 of 3")));
        assert_eq!(apt("pmstatus:libglib2.0-dev:amd64:50:Unpacking"), None);
        assert_eq!(apt("pmstatus:gcc:50:Unpacking gcc: now"), Some(("pmstatus", 50.0, "Unpacking gcc: now")));
        for bad in ["", "Get:1 http://x y", "dlstatus:1:900:x", "dlstatus:1:x:y", "dlstatus:1"] {
            assert_eq!(apt(bad), None, "{bad:?}");
        }
    }
}
