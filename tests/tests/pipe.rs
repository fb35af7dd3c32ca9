//! Consumers that come late, are slow, die or misbehave: the guest goes on, and who reads gets everything.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trapline_tests::{Ended, Finished, Isa, Run, connect, finish, guest, qemu, scratch, within};

const LIMIT: Duration = Duration::from_secs(60);

fn work(stores: u64) -> Run {
    guest("processes", Isa::X86_64).run().arg("work").arg(stores.to_string())
}

/// A consumer in a process of its own, attached.
fn consumer(socket: &Path, mode: &str) -> Child {
    let mut child = start_consumer(socket, mode);
    ready(&mut child);
    child
}

fn start_consumer(socket: &Path, mode: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_trapline-test-consumer"))
        .arg(socket)
        .arg(mode)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the consumer starts")
}

/// Waits for the first line of its output.
fn ready(child: &mut Child) {
    let mut line = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    assert_eq!(line, b"ready");
}

/// A number of the consumer's last line.
#[track_caller]
fn figure(finished: &Finished, name: &str) -> u64 {
    let out = finished.out();
    let words: Vec<&str> = out.split_whitespace().collect();
    let at = words.iter().position(|w| *w == name).unwrap_or_else(|| panic!("no {name} in '{out}' {}", finished.err()));
    words[at + 1].parse().unwrap()
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: plain system call on a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

#[test]
fn consumer_killed_in_the_middle_guest_goes_on() {
    let folder = scratch();
    let socket = folder.path().join("s");
    for _ in 0..2 {
        // 10^7 stores are 160 MB of stream: far more than the pipe holds.
        let qemu = work(10_000_000).start(&socket, 1);
        let mut reader = consumer(&socket, "hang");
        std::thread::sleep(Duration::from_millis(500));
        kill(&reader, libc::SIGKILL);
        let killed = Instant::now();
        reader.wait().unwrap();
        finish(qemu, b"", LIMIT).code(7);
        assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
        // The second turn shows that nothing has to be cleaned up.
        assert!(!socket.exists(), "the socket is gone with its guest");
    }
}

#[test]
fn consumer_that_panics_fails_and_leaves_the_guest_alone() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let qemu = work(10_000_000).start(&socket, 1);
    let reader = finish(consumer(&socket, "panic"), b"", LIMIT);
    assert_eq!(reader.ended, Ended::Code(101));
    finish(qemu, b"", LIMIT).code(7);
}

#[test]
fn slow_consumer_holds_the_guest_and_loses_nothing() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let qemu = work(2_000_000).start(&socket, 2);
    let slow = start_consumer(&socket, "slow");
    let fast = consumer(&socket, "count");
    let (slow, fast) = (finish(slow, b"", LIMIT).code(0), finish(fast, b"", LIMIT).code(0));
    finish(qemu, b"", LIMIT).code(7);
    for name in ["insns", "loads", "stores", "streams", "lost"] {
        assert_eq!(figure(&slow, name), figure(&fast, name), "{name}");
    }
    assert!(figure(&fast, "stores") >= 2_000_000);
    assert_eq!(figure(&slow, "lost"), 0);
}

#[test]
fn lossy_consumer_counts_what_it_lost() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let qemu = work(20_000_000).start(&socket, 2);
    let lossy = start_consumer(&socket, "lossy-slow");
    let all = consumer(&socket, "count");
    let (lossy, all) = (finish(lossy, b"", LIMIT).code(0), finish(all, b"", LIMIT).code(0));
    finish(qemu, b"", LIMIT).code(7);
    let (lost, received, total) = (figure(&lossy, "lost"), figure(&lossy, "chunks"), figure(&all, "chunks"));
    assert!(lost > 0, "it was slow enough to lose: {}", lossy.out());
    assert_eq!(figure(&all, "lost"), 0);
    // A chunk that was read in part before it was overwritten counts on both sides.
    assert!(
        (total..=total + total / 100 + 1).contains(&(lost + received)),
        "{lost} lost and {received} received of {total} chunks"
    );
}

#[test]
fn sixteen_consumers_at_once_each_see_everything() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let qemu = work(100_000).start(&socket, 16);
    let readers: Vec<Child> = (0..16).map(|_| start_consumer(&socket, "count")).collect();
    let all: Vec<String> = readers
        .into_iter()
        .map(|r| finish(r, b"", LIMIT).code(0))
        .map(|f| ["insns", "loads", "stores", "streams"].map(|n| figure(&f, n).to_string()).join(" "))
        .collect();
    finish(qemu, b"", LIMIT).code(7);
    assert!(all.iter().all(|a| *a == all[0]), "{all:?}");
}

#[test]
fn seventeenth_consumer_is_refused_with_the_reason() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let guest = guest("processes", Isa::X86_64).run().arg("read");
    let mut qemu = guest.start(&socket, 16);
    let mut readers: Vec<Child> = (0..16).map(|_| consumer(&socket, "count")).collect();
    let refused = finish(start_consumer(&socket, "count"), b"", LIMIT);
    assert_ne!(refused.ended, Ended::Code(0));
    assert!(refused.err().contains("16 consumers"), "{}", refused.err());
    qemu.stdin.take().unwrap().write_all(b"\x07").unwrap();
    finish(qemu, b"", LIMIT).code(7);
    for r in readers.drain(..) {
        finish(r, b"", LIMIT).code(0);
    }
}

#[test]
fn without_consumers_the_guest_runs_alone() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let start = Instant::now();
    finish(work(10_000_000).start(&socket, 0), b"", LIMIT).code(7);
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(!socket.exists());
}

#[test]
fn told_to_wait_the_guest_waits_for_its_consumer() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut qemu = work(1000).start(&socket, 1);
    std::thread::sleep(Duration::from_millis(700));
    assert!(qemu.try_wait().unwrap().is_none(), "it has not run");
    let reader = consumer(&socket, "count");
    finish(qemu, b"", LIMIT).code(7);
    let reader = finish(reader, b"", LIMIT).code(0);
    assert!(figure(&reader, "stores") >= 1000);
}

#[test]
fn consumer_that_attaches_while_the_guest_runs_sees_the_rest() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut qemu = guest("processes", Isa::X86_64).run().arg("read").start(&socket, 0);
    // The guest has done its first 1000 stores and waits for its input.
    std::thread::sleep(Duration::from_millis(700));
    let reader = consumer(&socket, "count");
    qemu.stdin.take().unwrap().write_all(b"\x05").unwrap();
    finish(qemu, b"", LIMIT).code(5);
    let reader = finish(reader, b"", LIMIT).code(0);
    assert!(figure(&reader, "stores") >= 1000, "{}", reader.out());
    assert_eq!(figure(&reader, "streams"), 1);
}

#[test]
fn what_happened_is_visible_while_the_guest_blocks() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut qemu = guest("processes", Isa::X86_64).run().arg("read").start(&socket, 1);
    let mut receiver = connect(&socket, false, Duration::from_secs(20)).unwrap();
    let mut stores = 0;
    let start = Instant::now();
    // Nobody feeds the guest: all of the first thousand stores must come all the same.
    let g = guest("processes", Isa::X86_64);
    let work = g.sym("work")..g.sym("work.end");
    while stores < 1000 {
        assert!(start.elapsed() < Duration::from_secs(10), "{stores} of 1000 stores are visible");
        match receiver.poll().unwrap() {
            consumer::Polled::Part(part) => {
                for block in consumer::Chunk::new(&part).blocks() {
                    for insn in block.unwrap().insns().filter(|i| work.contains(&i.pc())) {
                        stores += insn.accesses().filter(|a| a.is_store()).count();
                    }
                }
                part.release();
            }
            consumer::Polled::Nothing => receiver.wait(),
            _ => panic!("the guest has ended"),
        }
    }
    qemu.stdin.take().unwrap().write_all(b"\x00").unwrap();
    drop(receiver);
    finish(qemu, b"", LIMIT).code(0);
}

#[test]
fn killed_qemu_leaves_what_it_wrote_readable() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut qemu = guest("processes", Isa::X86_64).run().arg("read").start(&socket, 1);
    let reader = consumer(&socket, "count");
    std::thread::sleep(Duration::from_millis(700));
    kill(&qemu, libc::SIGKILL);
    qemu.wait().unwrap();
    let reader = finish(reader, b"", LIMIT).code(0);
    assert!(figure(&reader, "stores") >= 1000, "{}", reader.out());
}

#[test]
fn killed_qemu_in_full_flight_leaves_whole_records() {
    for _ in 0..5 {
        let folder = scratch();
        let socket = folder.path().join("s");
        let mut qemu = work(2_000_000_000).start(&socket, 1);
        let reader = consumer(&socket, "count");
        std::thread::sleep(Duration::from_millis(300));
        kill(&qemu, libc::SIGKILL);
        qemu.wait().unwrap();
        let reader = finish(reader, b"", LIMIT).code(0);
        assert!(figure(&reader, "stores") > 10_000, "{}", reader.out());
    }
}

#[test]
fn limit_on_memory_is_an_error_at_the_start() {
    let folder = scratch();
    let g = guest("processes", Isa::X86_64);
    let mut command = Command::new(qemu("x86_64", "trace"));
    command.arg("-trapline").arg(format!("socket={}/s", folder.path().display())).arg(&g.path).args(["work", "10"]);
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 29, rlim_max: 1 << 29 };
            libc::setrlimit(libc::RLIMIT_AS, &limit);
            Ok(())
        });
    }
    let f = within(LIMIT, &mut command);
    assert!(matches!(f.ended, Ended::Code(c) if c != 0 && c != 7), "{:?} {}", f.ended, f.err());
    assert!(f.err().contains("memory"), "{}", f.err());
}

#[test]
fn client_that_talks_nonsense_does_not_disturb() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut qemu = guest("processes", Isa::X86_64).run().arg("read").start(&socket, 1);
    let reader = consumer(&socket, "count");
    for bytes in [&b""[..], b"hello\n", &[0xff; 3000]] {
        nonsense(&socket, bytes);
    }
    qemu.stdin.take().unwrap().write_all(b"\x03").unwrap();
    finish(qemu, b"", LIMIT).code(3);
    assert!(figure(&finish(reader, b"", LIMIT).code(0), "stores") >= 2000);
}

/// Connects, sends a packet, and goes away.
fn nonsense(socket: &Path, bytes: &[u8]) {
    // SAFETY: plain system calls on a descriptor of our own; the address is initialised and of this size.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(socket.as_os_str().as_bytes()) {
            *to = *from as libc::c_char;
        }
        assert_eq!(libc::connect(fd, (&raw const address).cast(), size_of_val(&address) as u32), 0);
        if !bytes.is_empty() {
            libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL);
        }
        libc::close(fd);
    }
}

#[test]
fn options_may_come_in_the_environment() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let g = guest("processes", Isa::X86_64);
    let mut command = Command::new(qemu("x86_64", "trace"));
    command.env("QEMU_TRAPLINE", format!("socket={},wait=1", socket.display())).arg(&g.path).args(["work", "1000"]);
    let qemu = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let reader = consumer(&socket, "count");
    finish(qemu, b"", LIMIT).code(7);
    assert!(figure(&finish(reader, b"", LIMIT).code(0), "stores") >= 1000);
}

#[test]
fn without_the_option_qemu_is_qemu() {
    let g = guest("processes", Isa::X86_64);
    within(LIMIT, Command::new(qemu("x86_64", "trace")).arg(&g.path).args(["work", "1000"])).code(7);
}

#[test]
fn bad_options_are_refused_with_the_known_ones() {
    let g = guest("processes", Isa::X86_64);
    for (options, expected) in [
        ("sokcet=/x", "socket=PATH"),
        ("socket", "key=value"),
        ("socket=/x,wait=many", "number"),
        ("start=on", "socket=PATH"),
        ("socket=/tmp/x,opt.txet=1", "values"),
        ("socket=/nonexistent/folder/s", "/nonexistent/folder/s"),
        ("socket=/x,chunk-size=1000", "power of two"),
    ] {
        let mut command = Command::new(qemu("x86_64", "trace"));
        let f = within(LIMIT, command.args(["-trapline", options]).arg(&g.path).args(["work", "1"]));
        assert!(matches!(f.ended, Ended::Code(c) if c != 0 && c != 7), "{options}: {:?}", f.ended);
        assert!(f.err().contains(expected), "{options}: {}", f.err());
        assert_eq!(f.err().lines().count(), 1, "{options}: one line: {}", f.err());
    }
}

#[test]
fn an_idle_pipe_uses_no_processor_time() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut qemu = guest("processes", Isa::X86_64).run().arg("read").start(&socket, 1);
    let reader = consumer(&socket, "count");
    std::thread::sleep(Duration::from_millis(700));
    let used = || ticks(qemu.id()) + ticks(reader.id());
    let before = used();
    std::thread::sleep(Duration::from_secs(2));
    let after = used();
    qemu.stdin.take().unwrap().write_all(b"\x01").unwrap();
    finish(qemu, b"", LIMIT).code(1);
    finish(reader, b"", LIMIT).code(0);
    // 2 s are 200 ticks.
    assert!(after - before <= 4, "{} ticks of 10 ms in 2 s", after - before);
}

/// Processor time of a process, in ticks of 1/100 s.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A consumer that fails at once is gone before QEMU looks; QEMU does not wait for it any more.
#[test]
fn a_consumer_that_came_and_went_is_not_waited_for() {
    let g = guest("loop", Isa::X86_64);
    let folder = scratch();
    for n in 0..40 {
        let socket = folder.path().join(format!("s{n}"));
        let mut command = Command::new(qemu("x86_64", "trace"));
        command.arg("-trapline").arg(format!("socket={},wait=1", socket.display())).arg(&g.path);
        let came = std::thread::spawn(move || {
            while consumer::Receiver::connect(&socket, "hasty", false).is_err() {
                std::thread::yield_now();
            }
        });
        within(Duration::from_secs(60), &mut command).code(7);
        came.join().unwrap();
    }
}
