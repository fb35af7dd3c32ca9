//! BREAK stops in the debugger that is attached to QEMU, where the guest called.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trapline_tests::{ALL, Isa, finish, guest, qemu, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(60);

/// The debugger's end of gdb's remote protocol (the manual's appendix E): packets `$text#sum`, each answered by `+`.
struct Debugger(UnixStream);

impl Debugger {
    fn connect(socket: &Path) -> Debugger {
        let start = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(LIMIT)).unwrap();
                    return Debugger(stream);
                }
                Err(e) if start.elapsed() > LIMIT => panic!("QEMU's debugging stub cannot be reached: {e}"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.0.read_exact(&mut byte).expect("the stub answers");
        byte[0]
    }

    /// Sends a command, and returns the reply.
    fn ask(&mut self, command: &str) -> String {
        let sum = command.bytes().fold(0u8, u8::wrapping_add);
        self.0.write_all(format!("${command}#{sum:02x}").as_bytes()).expect("the stub listens");
        assert_eq!(self.byte(), b'+', "{command} is not acknowledged");
        assert_eq!(self.byte(), b'$', "{command} is not answered");
        let mut reply = Vec::new();
        loop {
            match self.byte() {
                b'#' => break,
                b => reply.push(b),
            }
        }
        let sum = [self.byte(), self.byte()];
        let expected = format!("{:02x}", reply.iter().fold(0u8, |s, b| s.wrapping_add(*b)));
        assert_eq!(sum, expected.as_bytes(), "{command}: the reply's sum");
        match self.0.write_all(b"+") {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => panic!("the stub listens: {e}"),
            // It has ended.
            _ => String::from_utf8(reply).expect("text"),
        }
    }

    /// Lets it run (`c`), or one instruction of it (`s`), or not at all (`?`), until it stops with SIGTRAP: `T05` and parts `name:value;`, as gdb insists.
    fn resume(&mut self, command: &str) {
        let reply = self.ask(command);
        let parts = reply.strip_prefix("T05").unwrap_or_else(|| panic!("{command}: {reply}"));
        let parts = parts.split_terminator(';').all(|p| p.split_once(':').is_some_and(|(name, _)| !name.is_empty()));
        assert!(parts && reply.ends_with(';'), "{command}: {reply}");
    }

    /// Lets it run to its end.
    fn let_go(&mut self) {
        let _ = self.0.write_all(b"$c#63");
    }

    fn pc(&mut self, isa: Isa) -> u64 {
        // Numbers of gdb's target descriptions.
        let number = match isa {
            Isa::X86_64 => 16,
            Isa::I386 => 8,
            Isa::Arm | Isa::Thumb => 15,
            Isa::Mips | Isa::Mipsel => 37,
            Isa::Ppc64le => 64,
            Isa::S390x => 1,
            _ => 32,
        };
        let reply = self.ask(&format!("p{number:x}"));
        let byte = |i: usize| u8::from_str_radix(&reply[i..i + 2], 16).unwrap_or_else(|e| panic!("{e}: {reply}"));
        let bytes: Vec<u8> = (0..reply.len()).step_by(2).map(byte).collect();
        assert_eq!(bytes.len() as u32, isa.word(), "{isa:?}: {reply}");
        let add = |n: u64, b: &u8| n << 8 | u64::from(*b);
        if isa.is_big_endian() { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }
}

#[test]
fn break_stops_in_the_debugger_behind_the_call() {
    for isa in ALL {
        let g = guest("backdoor_illegal", isa);
        let folder = scratch();
        let (stub, socket) = (folder.path().join("g"), folder.path().join("s"));
        // Traced and not.
        for start in ["on", "off"] {
            let settings = format!("socket={},start={start}", socket.display());
            let mut command = Command::new(qemu(isa.target(), "trace"));
            command.arg("-g").arg(&stub).arg("-trapline").arg(&settings).arg(&g.path).arg("break");
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut gdb = Debugger::connect(&stub);
            let child = std::thread::spawn(move || finish(child, b"", LIMIT));
            // Before its first instruction.
            gdb.resume("?");
            assert_ne!(gdb.pc(isa), g.sym("broken"), "{isa:?}");
            gdb.resume("c");
            assert_eq!(gdb.pc(isa), g.sym("broken"), "{isa:?}, start={start}");
            let pc = gdb.pc(isa);
            gdb.resume("s");
            assert_ne!(gdb.pc(isa), pc, "{isa:?}: one instruction further");
            assert_eq!(gdb.ask("c"), "W00", "{isa:?}");
            assert_eq!(child.join().expect("it ends").code(0).out(), "break 0\n", "{isa:?}");
        }
    }
}

#[test]
fn break_without_a_debugger_goes_on() {
    for isa in [Isa::X86_64, Isa::Mips] {
        let folder = scratch();
        let settings = format!("socket={}", folder.path().join("s").display());
        let mut command = Command::new(qemu(isa.target(), "trace"));
        let f =
            within(LIMIT, command.args(["-trapline", &settings]).arg(guest("backdoor_illegal", isa).path).arg("break"));
        assert_eq!(f.code(0).out(), "break 0\n", "{isa:?}");
    }
}

/// In a whole machine, too: stopped behind the call, stepped and let go, each instruction is in the stream once.
#[test]
fn break_stops_a_machine_and_its_stream_goes_on() {
    let g = guest("riscv_break", Isa::Riscv64);
    let folder = scratch();
    let stub = folder.path().join("g");
    let mut command = Command::new(trapline());
    command.args(["run", "--system", "riscv64", "--analyzer", "trace", "--format", "json", "-o", "-", "--"]);
    command.args(["-M", "virt", "-bios", "none", "-display", "none", "-nodefaults", "-S", "-gdb"]);
    command.arg(format!("unix:{},server=on,wait=off", stub.display())).arg("-kernel").arg(&g.path);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut gdb = Debugger::connect(&stub);
    let child = std::thread::spawn(move || finish(child, b"", LIMIT));
    gdb.resume("?");
    gdb.resume("c");
    assert_eq!(gdb.pc(Isa::Riscv64), g.sym("broken"));
    gdb.resume("s");
    assert_eq!(gdb.pc(Isa::Riscv64), g.sym("broken") + 4);
    // It ends QEMU, which says so or is gone.
    gdb.let_go();
    let said = child.join().expect("it ends").code(0);
    let mut pcs = Vec::new();
    for line in said.out().lines() {
        let e: serde_json::Value = serde_json::from_str(line).unwrap();
        if e["ev"] == "fetch" {
            pcs.push(u64::from_str_radix(&e["pc"].as_str().unwrap()[2..], 16).unwrap());
        }
        assert_ne!(e["ev"], "moved", "stepping moves nothing: {line}");
    }
    // All instructions are of four bytes; the branch is taken; what ends the machine does not retire.
    let begin = pcs.iter().position(|pc| *pc == g.sym("_start")).unwrap();
    let want: Vec<u64> = (g.sym("_start")..g.sym("fails")).step_by(4).collect();
    let got: Vec<u64> =
        pcs[begin..].iter().copied().filter(|pc| ![g.sym("power"), g.sym("hang")].contains(pc)).collect();
    assert_eq!(got, want);
}
