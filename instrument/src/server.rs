//! Serving consumers: the socket, who is attached, which streams live.
//!
//! One thread accepts consumers and notices those that die. It blocks all signals: the guest's are for the guest's threads. The lock is
//! held over `fork`, so that the child finds the state whole; the child serves at a socket of its own, and goes on
//! using the connections that it inherited.

use crate::guest_fds::{keep_on_exec, raise};
use pipe::layout::{Bell, MAX_CONSUMERS};
use pipe::producer::{StreamMemory, fatal, ring_bell};
use pipe::wire::{self, Message};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

struct Attached {
    socket: OwnedFd,
    bell_fd: OwnedFd,
    bell: memmap2::MmapRaw,
    lossy: bool,
}

impl Attached {
    fn bell(&self) -> &Bell {
        // SAFETY: the mapping is a page; a bell is two atomics at its start.
        unsafe { &*self.bell.as_ptr().cast() }
    }
}

struct State {
    listener: Option<OwnedFd>,
    path: Option<PathBuf>,
    attached: [Option<Attached>; MAX_CONSUMERS],
    /// How many have come, with those that have left.
    came: usize,
    streams: Vec<Arc<StreamMemory>>,
    /// The block table, once it exists.
    table: Option<RawFd>,
    program: Vec<u8>,
    parent: u32,
}

struct Server {
    state: Mutex<State>,
    changed: Condvar,
}

static SERVER: Server = Server { state: Mutex::new(State::new()), changed: Condvar::new() };

impl State {
    const fn new() -> Self {
        State {
            listener: None,
            path: None,
            attached: [const { None }; MAX_CONSUMERS],
            came: 0,
            streams: Vec::new(),
            table: None,
            program: Vec::new(),
            parent: 0,
        }
    }

    fn process_message(&self, place: usize) -> Message {
        Message::new(wire::PROCESS, place as u64, u64::from(self.parent), &self.program)
    }

    /// Tells one consumer of this process.
    fn introduce(&self, place: usize) -> io::Result<()> {
        let (Some(a), Some(table)) = (&self.attached[place], self.table) else {
            return Ok(());
        };
        // SAFETY: plain system call; a new descriptor or an error.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
        if pidfd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new and ours.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd as RawFd) };
        wire::send(a.socket.as_raw_fd(), &self.process_message(place), &[table, pidfd.as_raw_fd()], 0)?;
        ring_bell(a.bell(), true);
        Ok(())
    }

    /// Sends a stream that the consumer is attached to.
    fn announce(&self, place: usize, stream: &StreamMemory) -> io::Result<()> {
        let Some(a) = &self.attached[place] else {
            return Ok(());
        };
        let m = Message::new(wire::STREAM, u64::from(stream.tid), u64::from(stream.vcpu), b"");
        wire::send(a.socket.as_raw_fd(), &m, &[stream.fd().as_raw_fd()], 0)?;
        ring_bell(a.bell(), true);
        Ok(())
    }

    fn drop_consumer(&mut self, place: usize) {
        self.attached[place] = None;
        for s in &self.streams {
            s.detach(place);
        }
    }

    /// `f` for each consumer; one that cannot be reached is dropped.
    fn for_each(&mut self, f: impl Fn(&State, usize) -> io::Result<()>) {
        for place in 0..MAX_CONSUMERS {
            if self.attached[place].is_some() && f(self, place).is_err() {
                self.drop_consumer(place);
            }
        }
    }

    fn place(&self) -> Option<usize> {
        self.attached.iter().position(|a| a.is_none())
    }

    /// Takes a consumer in that has connected.
    fn welcome(&mut self, socket: OwnedFd) {
        let refuse = |why: &str| {
            let _ = wire::send(
                socket.as_raw_fd(),
                &Message::new(wire::REFUSED, 0, 0, why.as_bytes()),
                &[],
                libc::MSG_DONTWAIT,
            );
        };
        // A peer that connects and says nothing must not hold the server.
        let timeout = libc::timeval { tv_sec: 2, tv_usec: 0 };
        // SAFETY: plain system call on our descriptor.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const timeout).cast(),
                size_of::<libc::timeval>() as u32,
            );
        }
        let (message, mut fds) = match wire::receive(socket.as_raw_fd(), 0) {
            Ok(Some(m)) => m,
            Ok(None) => return,
            Err(e) => return refuse(&e.to_string()),
        };
        if message.header.kind != wire::ATTACH || fds.len() != 1 {
            return refuse("an ATTACH message with one descriptor is expected");
        }
        let Some(place) = self.place() else {
            return refuse(&format!("{MAX_CONSUMERS} consumers are attached already"));
        };
        let bell_fd = fds.remove(0);
        // SAFETY: an all-zero stat is valid; fstat fills it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: plain system calls on our descriptor.
        let (status, seals) = unsafe {
            (libc::fstat(bell_fd.as_raw_fd(), &mut stat), libc::fcntl(bell_fd.as_raw_fd(), libc::F_GET_SEALS))
        };
        if status < 0 || stat.st_size < 4096 || seals & libc::F_SEAL_SHRINK == 0 {
            return refuse("the doorbell must be a memfd of a page, sealed against shrinking");
        }
        let bell = match memmap2::MmapOptions::new().len(4096).map_raw(&bell_fd) {
            Ok(b) => b,
            Err(e) => return refuse(&format!("the doorbell cannot be mapped: {e}")),
        };
        let (Ok(socket), Ok(bell_fd)) = (raise(socket), raise(bell_fd)) else {
            return;
        };
        self.attached[place] = Some(Attached { socket, bell_fd, bell, lossy: message.header.a == 1 });
        self.came += 1;
        let streams = self.streams.clone();
        // Before the first answer: from then on the consumer may count on every event.
        for s in &streams {
            s.attach(place, message.header.a == 1);
        }
        let told = self.introduce(place).and_then(|()| streams.iter().try_for_each(|s| self.announce(place, s)));
        if told.is_err() {
            self.drop_consumer(place);
        }
    }
}

fn lock() -> MutexGuard<'static, State> {
    SERVER.state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bind(path: &Path) -> io::Result<OwnedFd> {
    // Checks the length with a good message.
    SocketAddr::from_pathname(path)?;
    // SAFETY: plain system calls; `address` is valid for them.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = *from as libc::c_char;
        }
        if libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) < 0
            || libc::listen(fd.as_raw_fd(), 16) < 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(fd)
    }
}

/// Starts a thread that gets none of the guest's signals.
fn spawn_quiet(f: impl FnOnce() + Send + 'static) {
    // SAFETY: plain calls on local signal sets.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let started = std::thread::Builder::new().name("trapline".into()).stack_size(256 << 10).spawn(f);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    if let Err(e) = started {
        fatal(&format!("the server thread cannot be started: {e}"));
    }
}

fn serve() {
    loop {
        let mut polled: Vec<libc::pollfd> = Vec::new();
        let mut places = Vec::new();
        {
            let state = lock();
            let fd = state.listener.as_ref().map_or(-1, |l| l.as_raw_fd());
            polled.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            for (place, a) in state.attached.iter().enumerate() {
                if let Some(a) = a {
                    polled.push(libc::pollfd { fd: a.socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 });
                    places.push(place);
                }
            }
        }
        // SAFETY: `polled` is a live array.
        let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 500) };
        if n <= 0 {
            continue;
        }
        let mut state = lock();
        for (p, &place) in polled[1..].iter().zip(&places) {
            let same = state.attached[place].as_ref().is_some_and(|a| a.socket.as_raw_fd() == p.fd);
            if p.revents != 0 && same {
                state.drop_consumer(place);
            }
        }
        if polled[0].revents != 0 {
            // SAFETY: plain system call; the result is new and ours.
            let fd =
                unsafe { libc::accept4(polled[0].fd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
            if fd >= 0 {
                // SAFETY: as above.
                state.welcome(unsafe { OwnedFd::from_raw_fd(fd) });
                SERVER.changed.notify_all();
                drop(state);
                crate::runtime::late_consumer();
            }
        }
    }
}

/// Starts serving at `path`. Errors: the path is too long, exists, or its folder cannot be written.
pub(crate) fn start(path: Option<&str>, table: RawFd, program: &[u8]) -> io::Result<()> {
    let mut state = lock();
    state.table = Some(table);
    state.program = program.to_vec();
    if let Some(path) = path {
        state.listener = Some(raise(bind(Path::new(path))?)?);
        state.path = Some(path.into());
    }
    drop(state);
    spawn_quiet(serve);
    Ok(())
}

/// Waits until `count` consumers have come. One that has left again is not waited for: it has failed, and the guest goes on without it.
pub(crate) fn wait_for(count: usize) {
    let mut state = lock();
    while state.came < count {
        state = SERVER.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A stream has begun.
pub(crate) fn add(stream: &Arc<StreamMemory>) {
    let mut state = lock();
    state.streams.push(stream.clone());
    state.for_each(|s, place| {
        if let Some(a) = &s.attached[place] {
            stream.attach(place, a.lossy);
        }
        s.announce(place, stream)
    });
}

/// A stream has ended; consumers keep its memory as long as they need it.
pub(crate) fn remove(stream: &Arc<StreamMemory>) {
    lock().streams.retain(|s| !Arc::ptr_eq(s, stream));
}

/// Rings all bells.
pub(crate) fn notify(wake: bool) {
    for a in lock().attached.iter().flatten() {
        ring_bell(a.bell(), wake);
    }
}

/// The lowest of our descriptors that is not below `from`; -1 if there is none. The guest must not close them.
pub(crate) fn next_own_fd(from: i32) -> i32 {
    let state = lock();
    let attached = state.attached.iter().flatten().flat_map(|a| [a.socket.as_raw_fd(), a.bell_fd.as_raw_fd()]);
    state
        .listener
        .iter()
        .map(|l| l.as_raw_fd())
        .chain(state.table)
        .chain(attached)
        .chain(state.streams.iter().map(|s| s.fd().as_raw_fd()))
        .filter(|&fd| fd >= from)
        .min()
        .unwrap_or(-1)
}

/// The process ends: nobody can attach any more.
pub(crate) fn stop() {
    let mut state = lock();
    state.listener = None;
    if let Some(path) = state.path.take() {
        let _ = std::fs::remove_file(path);
    }
}

/// Locks the state for `fork`.
pub(crate) fn fork_prepare() -> ForkLock {
    ForkLock(lock())
}

/// The state's lock while the process forks.
pub(crate) struct ForkLock(MutexGuard<'static, State>);

impl ForkLock {
    /// In the child: the parent's streams are not ours, its connections are. Serves at `PATH.PID`.
    pub fn child(self, parent: u32) {
        let mut state = self.0;
        state.streams.clear();
        state.listener = None;
        state.parent = parent;
        if let Some(old) = state.path.take() {
            let mut path = old.into_os_string();
            path.push(format!(".{}", std::process::id()));
            let path = PathBuf::from(path);
            // Without a socket of its own only late consumers are out.
            if let Ok(listener) = bind(&path).and_then(raise) {
                state.listener = Some(listener);
                state.path = Some(path);
            }
        }
        state.for_each(State::introduce);
        drop(state);
        spawn_quiet(serve);
    }
}

/// Keeps what the next image needs open over `execve` and describes it; undone by [`exec_undo`].
pub(crate) fn exec_prepare() -> String {
    let state = lock();
    let mut text = Vec::new();
    if let Some(l) = &state.listener {
        keep_on_exec(l.as_raw_fd(), true);
        text.push(format!("l:{}", l.as_raw_fd()));
    }
    for (place, a) in state.attached.iter().enumerate() {
        if let Some(a) = a {
            keep_on_exec(a.socket.as_raw_fd(), true);
            keep_on_exec(a.bell_fd.as_raw_fd(), true);
            text.push(format!("{place}:{}:{}:{}", a.socket.as_raw_fd(), a.bell_fd.as_raw_fd(), u8::from(a.lossy)));
        }
    }
    text.push(format!("p:{}", state.parent));
    text.join("/")
}

/// The `execve` failed.
pub(crate) fn exec_undo() {
    let state = lock();
    if let Some(l) = &state.listener {
        keep_on_exec(l.as_raw_fd(), false);
    }
    for a in state.attached.iter().flatten() {
        keep_on_exec(a.socket.as_raw_fd(), false);
        keep_on_exec(a.bell_fd.as_raw_fd(), false);
    }
}

/// In the new image: takes over what [`exec_prepare`] described.
pub(crate) fn inherit(text: &str, path: Option<&str>, table: RawFd, program: &[u8]) -> Result<(), String> {
    let bad = || format!("-trapline inherit={text}: not written by Trapline");
    let mut state = lock();
    state.table = Some(table);
    state.program = program.to_vec();
    state.path = path.map(PathBuf::from);
    let own = |n: &str| -> Result<OwnedFd, String> {
        let fd: RawFd = n.parse().map_err(|_| bad())?;
        keep_on_exec(fd, false);
        // SAFETY: plain system call that tells whether the descriptor is open.
        if fd < 3 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(bad());
        }
        // SAFETY: open, and left to us by the previous image.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    for part in text.split('/') {
        let fields: Vec<&str> = part.split(':').collect();
        match fields[..] {
            ["l", fd] => state.listener = Some(own(fd)?),
            ["p", pid] => state.parent = pid.parse().map_err(|_| bad())?,
            [place, socket, bell_fd, lossy] => {
                let place: usize = place.parse().map_err(|_| bad())?;
                let bell_fd = own(bell_fd)?;
                let bell = memmap2::MmapOptions::new()
                    .len(4096)
                    .map_raw(&bell_fd)
                    .map_err(|e| format!("a consumer's doorbell cannot be mapped: {e}"))?;
                let slot = state.attached.get_mut(place).ok_or_else(bad)?;
                *slot = Some(Attached { socket: own(socket)?, bell_fd, bell, lossy: lossy == "1" });
            }
            _ => return Err(bad()),
        }
    }
    state.for_each(State::introduce);
    drop(state);
    spawn_quiet(serve);
    Ok(())
}
