//! The reading side against the writing side: order, back-pressure, open chunks, losses, death, and what must be refused.

use pipe::Error;
use pipe::layout::{AccessEntry, INSN_TRACED, InsnEntry, STREAM_HEADER, STREAM_MAGIC, VERSION, end, kind};
use pipe::producer::{Cursor, Shape, StreamMemory, Writer, ring_bell};
use pipe::receiver::{Part, Polled, Receiver};
use pipe::table_writer::{NewBlock, TableWriter};
use pipe::wire::{self, Message};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHAPE: Shape = Shape { chunk_size: 64 << 10, chunk_count: 2 };

/// QEMU's side, with one block that has one slot.
struct Producer {
    socket: OwnedFd,
    bell: Arc<memmap2::MmapRaw>,
    lossy: bool,
    table: TableWriter,
    id: u32,
}

fn socketpair() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: two descriptors' room.
    let r = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) };
    assert_eq!(r, 0);
    // SAFETY: new and ours.
    unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) }
}

fn pidfd() -> OwnedFd {
    // SAFETY: a plain system call; a new descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd as RawFd)
    }
}

impl Producer {
    /// Takes a consumer in and tells it of this process.
    fn welcome(socket: OwnedFd) -> Producer {
        let (message, fds) = wire::receive(socket.as_raw_fd(), 0).unwrap().unwrap();
        assert_eq!(message.header.kind, wire::ATTACH);
        let bell = memmap2::MmapOptions::new().len(4096).map_raw(&fds[0]).unwrap();
        let mut table = TableWriter::create("x86_64", "test", "10.0.13", 8, false, false).unwrap();
        let insns = [InsnEntry { pc_off: 0, len: 2, flags: INSN_TRACED, first_access: 0 }];
        let accesses = [AccessEntry { insn: 0, slot: 1, size: 8, flags: 0 }];
        let block =
            NewBlock { flags: 0, pc: 0x1000, slot_words: 1, insns: &insns, accesses: &accesses, code: &[0x8b, 7] };
        let id = table.define(&block).unwrap();
        let p = Producer { socket, bell: Arc::new(bell), lossy: message.header.a == 1, table, id };
        p.send(wire::PROCESS, 0, b"/bin/test", &[p.table.fd().as_raw_fd(), pidfd().as_raw_fd()]);
        p
    }

    fn send(&self, kind: u32, a: u64, text: &[u8], fds: &[RawFd]) {
        wire::send(self.socket.as_raw_fd(), &Message::new(kind, a, 0, text), fds, 0).unwrap();
    }

    fn stream(&self, shape: Shape) -> Vcpu<'_> {
        let memory = Arc::new(StreamMemory::create(shape, 77, 0).unwrap());
        memory.attach(0, self.lossy);
        self.send(wire::STREAM, 77, b"", &[memory.fd().as_raw_fd()]);
        let bell = self.bell.clone();
        // SAFETY: a mapped page that starts with a bell.
        let ring = Box::new(move |wake| ring_bell(unsafe { &*bell.as_ptr().cast() }, wake));
        let (mut cursor, mut limit) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut c = Cursor { cursor: &mut cursor, limit: &mut limit };
        let writer = Writer::new(memory, ring, &mut c, &self.table);
        Vcpu { producer: self, writer, cursor, limit }
    }
}

struct Vcpu<'p> {
    producer: &'p Producer,
    writer: Writer,
    cursor: *mut u64,
    limit: *mut u64,
}

impl Vcpu<'_> {
    /// Runs the block, as emitted code would.
    fn block(&mut self, value: u64) {
        let mut c = Cursor { cursor: &mut self.cursor, limit: &mut self.limit };
        if *c.cursor > *c.limit {
            self.writer.refill(&mut c, 16, &self.producer.table);
        }
        // SAFETY: the check above left room for two words.
        unsafe {
            let at = self.cursor;
            std::sync::atomic::AtomicU64::from_ptr(at)
                .store(u64::from(self.producer.id), std::sync::atomic::Ordering::Release);
            at.add(1).write(value);
            self.cursor = at.add(2);
        }
    }

    fn event(&mut self, kind: u8, payload: &[u64]) {
        let mut c = Cursor { cursor: &mut self.cursor, limit: &mut self.limit };
        self.writer.event(&mut c, kind, payload, &self.producer.table);
    }

    fn end(&mut self) {
        let mut c = Cursor { cursor: &mut self.cursor, limit: &mut self.limit };
        self.writer.end(&mut c, end::EXIT, 0, &self.producer.table);
    }
}

/// The values of the blocks of a part.
fn values(part: &Part) -> Vec<u64> {
    let words: Vec<u64> = part.words().iter().collect();
    let mut at = 0;
    let mut out = Vec::new();
    while at < words.len() {
        if words[at] as u32 != 0 {
            out.push(words[at + 1]);
            at += 2;
        } else {
            at += 1 + (words[at] >> 40) as usize;
        }
    }
    out
}

/// Reads until `done` or the end; waits at most ten seconds.
fn read(receiver: &mut Receiver, mut each: impl FnMut(Part) -> bool) -> Result<u64, Error> {
    let start = Instant::now();
    let mut ended = 0;
    loop {
        assert!(start.elapsed() < Duration::from_secs(20), "it hangs");
        match receiver.poll()? {
            Polled::Part(part) => {
                if each(part) {
                    return Ok(ended);
                }
            }
            Polled::Ended(_) => ended += 1,
            Polled::Nothing => receiver.wait(),
            Polled::End => return Ok(ended),
        }
    }
}

#[test]
fn a_slow_reader_holds_the_writer_and_gets_everything_in_order() {
    let (ours, theirs) = socketpair();
    let writer = std::thread::spawn(move || {
        let p = Producer::welcome(theirs);
        let mut vcpu = p.stream(SHAPE);
        vcpu.event(kind::START, &[1, 2, 3, 4, 5]);
        for i in 0..100_000 {
            vcpu.block(i);
        }
        vcpu.end();
    });
    let mut receiver = Receiver::from_socket(ours, "test", false).unwrap();
    let mut next = 0;
    let mut parts = 0;
    let ended = read(&mut receiver, |part| {
        if parts < 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        parts += 1;
        for v in values(&part) {
            assert_eq!(v, next);
            next += 1;
        }
        assert!(!part.was_overrun());
        part.release();
        false
    });
    writer.join().unwrap();
    // Our own process lives on; the connection's end and a grace period end it.
    assert_eq!((ended.unwrap(), next), (1, 100_000));
    assert_eq!(receiver.processes().next().unwrap().program, b"/bin/test");
}

#[test]
fn a_half_filled_chunk_is_seen_within_100_ms_and_the_last_block_only_when_it_is_surely_complete() {
    let (ours, theirs) = socketpair();
    let mut receiver = Receiver::from_socket(ours, "test", false).unwrap();
    let p = Producer::welcome(theirs);
    let mut vcpu = p.stream(SHAPE);
    for i in 0..10 {
        vcpu.block(i);
    }
    let mut seen = Vec::new();
    let start = Instant::now();
    read(&mut receiver, |part| {
        seen.extend(values(&part));
        part.release();
        true
    })
    .unwrap();
    // A loaded machine may take a little longer than the promise.
    assert!(start.elapsed() < Duration::from_millis(300), "{:?}", start.elapsed());
    assert_eq!(seen, (0..9).collect::<Vec<_>>(), "the tenth may still be running");
    vcpu.block(10);
    // An event is published: everything is complete.
    vcpu.event(kind::FORK, &[1]);
    read(&mut receiver, |part| {
        seen.extend(values(&part));
        part.release();
        true
    })
    .unwrap();
    assert_eq!(seen, (0..11).collect::<Vec<_>>());
}

#[test]
fn an_idle_reader_uses_next_to_no_cpu() {
    let (ours, theirs) = socketpair();
    let mut receiver = Receiver::from_socket(ours, "test", false).unwrap();
    let p = Producer::welcome(theirs);
    let _vcpu = p.stream(SHAPE);
    let cpu = || {
        // SAFETY: an all-zero timespec is valid, and filled by the call.
        unsafe {
            let mut t: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t);
            Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
        }
    };
    let (start, before) = (Instant::now(), cpu());
    while start.elapsed() < Duration::from_secs(1) {
        assert!(matches!(receiver.poll().unwrap(), Polled::Nothing));
        receiver.wait();
    }
    let used = cpu() - before;
    assert!(used < Duration::from_millis(30), "{used:?} of a second");
}

#[test]
fn a_lossy_reader_holds_nobody_and_counts_what_it_missed() {
    let (ours, theirs) = socketpair();
    let mut receiver = Receiver::from_socket(ours, "test", true).unwrap();
    let p = Producer::welcome(theirs);
    let mut vcpu = p.stream(Shape { chunk_size: 64 << 10, chunk_count: 4 });
    // All of it before anything is read: only the last chunks are left.
    for i in 0..60_000 {
        vcpu.block(i);
    }
    vcpu.end();
    let handed = vcpu.writer.memory().header().producer.open.load(std::sync::atomic::Ordering::SeqCst);
    drop(vcpu);
    drop(p);
    let (mut parts, mut lost, mut last) = (0, 0, 0);
    read(&mut receiver, |part| {
        parts += 1;
        lost += part.lost;
        assert!(!part.was_overrun());
        last = values(&part).last().copied().unwrap_or(last);
        part.release();
        false
    })
    .unwrap();
    assert_eq!((parts + lost, last), (handed, 59_999));
    assert!(lost > 0 && parts >= 2, "{parts} parts, {lost} lost");
}

/// Not a test of its own: the process that `a_killed_process…` kills.
#[test]
fn child_that_is_killed() {
    if std::env::var_os("TRAPLINE_TEST_CHILD").is_none() {
        return;
    }
    // SAFETY: the parent made it our standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::dup(0)) };
    let p = Producer::welcome(socket);
    let mut vcpu = p.stream(SHAPE);
    for i in 0..10_000 {
        vcpu.block(i);
    }
    // SAFETY: ends us, as the test wants.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn a_killed_process_has_everything_readable_up_to_its_last_complete_block() {
    let (ours, theirs) = socketpair();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed"])
        .env("TRAPLINE_TEST_CHILD", "1")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut receiver = Receiver::from_socket(ours, "test", false).unwrap();
    let mut seen = 0;
    let ended = read(&mut receiver, |part| {
        for v in values(&part) {
            assert_eq!(v, seen);
            seen += 1;
        }
        part.release();
        false
    })
    .unwrap();
    child.wait().unwrap();
    // The last block may not have been complete.
    assert_eq!((ended, seen), (1, 9_999));
}

/// What a receiver says to these descriptors of a stream.
fn refusal(make: impl FnOnce() -> OwnedFd) -> String {
    let (ours, theirs) = socketpair();
    let mut receiver = Receiver::from_socket(ours, "test", false).unwrap();
    let p = Producer::welcome(theirs);
    p.send(wire::STREAM, 1, b"", &[make().as_raw_fd()]);
    read(&mut receiver, |_| panic!("no part can come of this")).unwrap_err().to_string()
}

fn stream_memory(len: u64, version: u32, chunk_size: u32, chunk_count: u32) -> OwnedFd {
    let fd = wire::memfd(c"test", len).unwrap();
    let map = memmap2::MmapOptions::new().len(STREAM_HEADER).map_raw(&fd).unwrap();
    let mut header = STREAM_MAGIC.to_vec();
    for word in [version, chunk_size, chunk_count] {
        header.extend(word.to_ne_bytes());
    }
    // SAFETY: the mapping is longer than what is copied.
    unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), map.as_mut_ptr(), header.len()) };
    fd
}

#[test]
fn what_is_no_stream_is_refused_by_name() {
    let whole = STREAM_HEADER as u64 + (2 << 16);
    type Make = Box<dyn FnOnce() -> OwnedFd>;
    let cases: [(Make, &str); 8] = [
        (Box::new(|| tempfile::tempfile().unwrap().into()), "sealed"),
        (Box::new(|| wire::memfd(c"x", 4096).unwrap()), "4096 bytes"),
        (Box::new(|| wire::memfd(c"x", 1 << 20).unwrap()), "does not start as one"),
        (Box::new(move || stream_memory(whole, VERSION + 1, 1 << 16, 2)), "version 2"),
        (Box::new(move || stream_memory(whole, VERSION, (1 << 16) + 8, 2)), "chunks of 65544 bytes"),
        (Box::new(move || stream_memory(whole, VERSION, 1 << 30, 2)), "chunks of 1073741824 bytes"),
        (Box::new(move || stream_memory(whole, VERSION, 1 << 16, 65)), "65 chunks"),
        (Box::new(move || stream_memory(whole - 1, VERSION, 1 << 16, 2)), "need"),
    ];
    for (make, expected) in cases {
        let said = refusal(make);
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_description_that_lies_is_an_error_with_its_place() {
    let (ours, theirs) = socketpair();
    let mut receiver = Receiver::from_socket(ours, "test", false).unwrap();
    let p = Producer::welcome(theirs);
    let mut vcpu = p.stream(SHAPE);
    vcpu.block(1);
    vcpu.end();
    let memory = vcpu.writer.memory().clone();
    memory.header().chunks[0].used.store(1 << 40, std::sync::atomic::Ordering::Relaxed);
    let said = read(&mut receiver, |_| panic!("no part can come of this")).unwrap_err().to_string();
    assert!(said.contains("thread 77, chunk 0") && said.contains("are said to be used"), "{said}");
}

#[test]
fn a_refusal_tells_why() {
    let (ours, theirs) = socketpair();
    let mut receiver = Receiver::from_socket(ours, "test", false).unwrap();
    let refused = Message::new(wire::REFUSED, 0, 0, b"no place");
    wire::send(theirs.as_raw_fd(), &refused, &[], 0).unwrap();
    let e = read(&mut receiver, |_| true).unwrap_err();
    assert!(matches!(&e, Error::Refused(why) if why == "no place"), "{e}");
}
