//! Messages between QEMU and its consumers: how descriptors and what belongs to them change hands.
//!
//! A consumer connects to the Unix socket (`SOCK_SEQPACKET`, one message a packet) and sends [`ATTACH`] with its
//! doorbell; the producer answers [`PROCESS`] and then [`STREAM`] for each stream that lives, and goes on sending
//! one for each new stream. A forked child inherits the connection and sends its own `PROCESS` and
//! `STREAM` messages on it; so does a followed `execve`. The connection ends when the last process of the family has gone.
//! A process that cannot serve (wrong version, no free place) answers [`REFUSED`] with the reason as text.

use crate::layout::VERSION;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// First word of each message.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TRPL");

/// Consumer to producer: `a` = 1 if lossy; text: the consumer's name; descriptors: its doorbell (a memfd with a [`crate::layout::Bell`]).
pub const ATTACH: u32 = 1;
/// Producer to consumer: a process; `a` = the consumer's place in the streams' lines, `b` = parent's pid or 0;
/// text: the program's path; descriptors: the block table, a pidfd of the process.
pub const PROCESS: u32 = 2;
/// Producer to consumer: a stream; `a` = thread id, `b` = number of the vCPU in its process; descriptors: the stream's memory.
pub const STREAM: u32 = 3;
/// Producer to consumer: it cannot serve; text: why.
pub const REFUSED: u32 = 4;

/// The fixed part of a message; text follows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// [`ATTACH`], …
    pub kind: u32,
    /// The sending process.
    pub pid: u32,
    /// By kind.
    pub a: u64,
    /// By kind.
    pub b: u64,
}

/// A message with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The fixed part.
    pub header: Header,
    /// The text, UTF-8 or a path's bytes.
    pub text: Vec<u8>,
}

/// Longest text.
pub const MAX_TEXT: usize = 4096;
const MAX_FDS: usize = 4;
const HEADER: usize = size_of::<Header>();

impl Message {
    /// A message of this version from this process.
    pub fn new(kind: u32, a: u64, b: u64, text: &[u8]) -> Self {
        Message {
            header: Header { magic: MAGIC, version: VERSION, kind, pid: std::process::id(), a, b },
            text: text[..text.len().min(MAX_TEXT)].to_vec(),
        }
    }
}

#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a message with its descriptors. `flags`: `MSG_DONTWAIT` or 0. A peer that is gone is an `EPIPE` error, never a signal.
pub fn send(socket: RawFd, message: &Message, fds: &[RawFd], flags: i32) -> io::Result<()> {
    assert!(fds.len() <= MAX_FDS);
    let mut bytes = Vec::with_capacity(HEADER + message.text.len());
    let h = &message.header;
    for word in [h.magic, h.version, h.kind, h.pid] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [h.a, h.b] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(&message.text);
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    // SAFETY: an all-zero msghdr is valid; every pointer set below outlives the call.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = size_of_val(fds) as u32;
        msg.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE only computes.
        msg.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as _;
        // SAFETY: `control` is aligned and large enough for MAX_FDS descriptors.
        unsafe {
            let c = libc::CMSG_FIRSTHDR(&msg);
            (*c).cmsg_level = libc::SOL_SOCKET;
            (*c).cmsg_type = libc::SCM_RIGHTS;
            (*c).cmsg_len = libc::CMSG_LEN(payload) as _;
            std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(c), size_of_val(fds));
        }
    }
    loop {
        // SAFETY: `msg` points to live buffers.
        let n = unsafe { libc::sendmsg(socket, &msg, libc::MSG_NOSIGNAL | flags) };
        if n >= 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Receives a message; `None` at the end of the connection. What is not a message of this version is an
/// `InvalidData` error that names both versions. `flags`: `MSG_DONTWAIT` or 0.
pub fn receive(socket: RawFd, flags: i32) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = vec![0u8; HEADER + MAX_TEXT];
    let mut control = Control([0; 64]);
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero msghdr is valid; every pointer set below outlives the call.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.0.as_mut_ptr().cast();
    msg.msg_controllen = size_of::<Control>() as _;
    let n = loop {
        // SAFETY: `msg` points to live buffers.
        let n = unsafe { libc::recvmsg(socket, &mut msg, libc::MSG_CMSG_CLOEXEC | flags) };
        if n >= 0 {
            break n as usize;
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel wrote well-formed control messages into `control`; each descriptor in it is new and ours.
    unsafe {
        let mut c = libc::CMSG_FIRSTHDR(&msg);
        while !c.is_null() {
            if (*c).cmsg_level == libc::SOL_SOCKET && (*c).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*c).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(c).cast::<RawFd>();
                for i in 0..count {
                    fds.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            c = libc::CMSG_NXTHDR(&msg, c);
        }
    }
    if n == 0 {
        return Ok(None);
    }
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if n < HEADER {
        return Err(bad(format!("a message of {n} bytes, shorter than its header")));
    }
    let u32_at = |i: usize| u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    let u64_at = |i: usize| (0..8).fold(0u64, |v, k| v | u64::from(bytes[i + k]) << (8 * k));
    let header = Header {
        magic: u32_at(0),
        version: u32_at(4),
        kind: u32_at(8),
        pid: u32_at(12),
        a: u64::from_ne_bytes(u64_at(16).to_le_bytes()),
        b: u64::from_ne_bytes(u64_at(24).to_le_bytes()),
    };
    if header.magic != MAGIC {
        return Err(bad("the peer does not speak Trapline's protocol".into()));
    }
    if header.version != VERSION {
        return Err(bad(format!(
            "the peer speaks version {} of Trapline's protocol, this program version {VERSION}: rebuild the older of the two",
            header.version
        )));
    }
    bytes.truncate(n);
    let text = bytes.split_off(HEADER);
    Ok(Some((Message { header, text }, fds)))
}

/// A doorbell or any other memory object for handing over: sealed against shrinking, closed on exec.
pub fn memfd(name: &std::ffi::CStr, size: u64) -> io::Result<OwnedFd> {
    // SAFETY: `name` is NUL-terminated.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain system calls on our descriptor.
    unsafe {
        if libc::ftruncate(fd.as_raw_fd(), size as libc::off_t) < 0
            || libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(fd)
}

/// Makes the pages of `len` bytes at `at` of a shared mapping exist, so that lack of memory is an error here and not a
/// SIGBUS later. No descriptor is needed: the guest may have closed it.
///
/// # Safety
/// The range lies inside a writable mapping; its words may be in use by others.
pub unsafe fn populate(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: the kernel faults the pages in without changing them.
    if unsafe { libc::madvise(at.cast(), len, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Kernels before 5.14: the pages come when they are touched.
        e if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        e => Err(e),
    }
}
