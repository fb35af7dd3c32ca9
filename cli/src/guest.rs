//! The guest as a child process that neither it, nor its parent, nor a terminal can tell from the real thing.
//!
//! Rules:
//! - The guest starts with the signal mask and dispositions that we were started with, not with the ones that Rust's runtime sets
//!   (`SIGPIPE` ignored). Standard streams, environment, working folder, process group are inherited.
//! - A signal that a process sends to us is passed on to the guest. One that a terminal makes reaches the whole
//!   process group, the guest too, and is not sent twice. Either way it does not end us: the guest decides.
//! - How the guest ends is how we end: its exit code, or death by the same signal ([`End::leave`]).
//! - Spawn from the main thread, before there are other threads.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::exec;
use crate::{Error, Result};

/// Signals that are passed on. Not SIGCHLD (ours), nor the job control signals, which the terminal sends to all.
const FORWARDED: &[i32] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGWINCH,
    libc::SIGURG,
    libc::SIGIO,
    libc::SIGPWR,
];

/// Whether SIGPIPE was ignored before Rust's runtime ignored it.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
/// Process id of the running guest, 0 if there is none. Read by the signal handler; Relaxed: the value is all.
static GUEST: AtomicI32 = AtomicI32::new(0);

extern "C" fn look_at_sigpipe() {
    // SAFETY: all-zero is a valid `sigaction`; a null `act` only reads into `old`.
    let ignored = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    };
    PIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Runs before `main`, and so before Rust's runtime touches SIGPIPE.
#[used]
// SAFETY: the section holds pointers to functions without arguments, which this is; it touches nothing that needs
// the runtime.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_sigpipe;

extern "C" fn pass_on(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let guest = GUEST.load(Ordering::Relaxed);
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO; `kill` and errno are async-signal-safe.
    unsafe {
        // Positive codes are the kernel's own doing: a terminal, which has told the guest already.
        if guest > 0 && (*info).si_code <= 0 {
            let errno = *libc::__errno_location();
            libc::kill(guest, signal);
            *libc::__errno_location() = errno;
        }
    }
}

/// A running guest.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

/// How a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Code(u8),
    Signal(i32),
}

/// Starts the guest. Signals to us are the guest's from here on.
pub fn spawn(mut command: Command) -> Result<Running> {
    let pipe_was_ignored = PIPE_WAS_IGNORED.load(Ordering::Relaxed);
    // SAFETY: `sigset_t`s are filled by the calls before they are read; the closure runs between fork and exec and
    // makes only async-signal-safe calls on values that it owns.
    let old_mask = unsafe {
        let mut ours: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut ours);
        for &signal in FORWARDED {
            libc::sigaddset(&mut ours, signal);
        }
        // Held back until the handlers stand, so that none gets lost or ends us alone.
        libc::pthread_sigmask(libc::SIG_BLOCK, &ours, &mut old);
        command.pre_exec(move || {
            libc::signal(libc::SIGPIPE, if pipe_was_ignored { libc::SIG_IGN } else { libc::SIG_DFL });
            libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
            Ok(())
        });
        old
    };
    let result = command.spawn().map_err(|e| exec::spawn_error(&command, e));
    if let Ok(child) = &result {
        GUEST.store(child.id() as i32, Ordering::Relaxed);
        for &signal in FORWARDED {
            // SAFETY: as above; `pass_on` has the signature that SA_SIGINFO asks for and is async-signal-safe.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                // Ignored by our parent's will (nohup, a shell's background job): stays so for both.
                if old.sa_sigaction != libc::SIG_IGN {
                    let mut new: libc::sigaction = std::mem::zeroed();
                    new.sa_sigaction = pass_on as *const () as usize;
                    new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                    libc::sigaction(signal, &new, std::ptr::null_mut());
                }
            }
        }
    }
    // SAFETY: `old_mask` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old_mask, std::ptr::null_mut()) };
    Ok(Running { child: result? })
}

impl Running {
    /// Process id of QEMU.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the guest's end. If it stops itself (SIGSTOP) we stop too, so that whoever watches us sees it.
    pub fn wait(&mut self) -> Result<End> {
        let id = self.child.id() as i32;
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place; `id` is our own child, not yet waited for.
            let got = unsafe { libc::waitpid(id, &mut status, libc::WUNTRACED) };
            if got < 0 {
                let e = std::io::Error::last_os_error();
                if e.kind() == std::io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(Error::Bug(format!("waiting for QEMU (process {id}): {e}")));
            }
            if libc::WIFSTOPPED(status) {
                if libc::WSTOPSIG(status) == libc::SIGSTOP {
                    // SAFETY: plain system calls on our own process and our child.
                    unsafe {
                        libc::raise(libc::SIGSTOP);
                        libc::kill(id, libc::SIGCONT);
                    }
                }
                continue;
            }
            GUEST.store(0, Ordering::Relaxed);
            return Ok(End::of(ExitStatus::from_raw(status)));
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Code(code) => write!(f, "exit code {code}"),
            End::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

impl End {
    pub fn of(status: ExitStatus) -> End {
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(code as u8),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => End::Code(125),
        }
    }

    /// Ends this process as the guest ended: with its code, or killed by its signal.
    pub fn leave(self) -> ExitCode {
        match self {
            End::Code(code) => ExitCode::from(code),
            End::Signal(signal) => {
                use std::io::Write;
                let _ = std::io::stdout().flush();
                // SAFETY: plain system calls; all structures are valid. No core of ours beside the guest's.
                unsafe {
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_CORE, &none);
                    libc::signal(signal, libc::SIG_DFL);
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::sigemptyset(&mut set);
                    libc::sigaddset(&mut set, signal);
                    libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
                    libc::raise(signal);
                }
                // Only reached for signals that do not kill.
                ExitCode::from(128u8.wrapping_add(signal as u8))
            }
        }
    }
}
