//! Whole machines without an operating system: every event, by hand, from the reset on.

use object::{Object, ObjectSection};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use trapline_tests::drmemtrace::drmemtrace;
use trapline_tests::oracle;
use trapline_tests::{Finished, Guest, Isa, guest, same, scratch, system_qemu, trapline, within};

const LIMIT: Duration = Duration::from_secs(900);

/// A machine: its guest, and QEMU's arguments.
struct Machine {
    guest: Guest,
    isa: &'static str,
    args: Vec<String>,
    /// What QEMU ends with.
    code: i32,
    _folder: tempfile::TempDir,
}

fn machine(isa: Isa) -> Machine {
    let name = match isa {
        Isa::Riscv64 => "riscv_machine",
        Isa::Aarch64 => "aarch64_machine",
        Isa::Arm => "arm_machine",
        Isa::X86_64 => "x86_machine",
        _ => panic!("{isa:?} has no machine"),
    };
    machine_of(name, isa)
}

fn machine_of(name: &str, isa: Isa) -> Machine {
    let folder = scratch();
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    let guest = guest(name, isa);
    let path = guest.path.display();
    let (args, code) = match isa {
        Isa::Riscv64 => (words(&format!("-M virt -bios none -display none -nodefaults -kernel {path}")), 0),
        Isa::Aarch64 => (words(&format!("-M virt -cpu cortex-a57 -display none -nodefaults -kernel {path}")), 0),
        Isa::Arm => (words(&format!("-M virt -cpu cortex-a15 -display none -nodefaults -kernel {path}")), 0),
        _ => {
            let rom: PathBuf = folder.path().join("rom");
            let made = Command::new("objcopy").args(["-O", "binary", "-j", ".rom"]).arg(&guest.path).arg(&rom).status();
            assert!(made.unwrap().success());
            let debug = "-device isa-debug-exit,iobase=0xf4,iosize=4";
            (words(&format!("-M pc -cpu max -display none -nodefaults -bios {} {debug}", rom.display())), 7)
        }
    };
    Machine { isa: guest.isa.target(), guest, args, code, _folder: folder }
}

impl Machine {
    fn run(&self, trapline_args: &[&str]) -> Finished {
        let mut c = Command::new(trapline());
        c.args(["run", "--system", self.isa, "-o", "-"]).args(trapline_args).arg("--").args(&self.args);
        within(LIMIT, &mut c).code(self.code)
    }

    fn sym(&self, name: &str) -> u64 {
        self.guest.sym(name)
    }

    /// The pcs of the instructions from one symbol up to another, one after the other.
    fn straight(&self, from: &str, to: &str) -> Vec<u64> {
        let (mut at, to) = (self.sym(from), self.sym(to));
        let mut all = Vec::new();
        while at < to {
            all.push(at);
            at += self.length(at);
        }
        assert_eq!(at, to, "{from}..{to}");
        all
    }

    fn length(&self, pc: u64) -> u64 {
        if self.guest.isa != Isa::X86_64 {
            return 4;
        }
        let bits = match pc {
            _ if pc >= self.sym("real") => 16,
            _ if pc >= self.sym("long") => 64,
            _ => 32,
        };
        let data = std::fs::read(&self.guest.path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let rom = file.section_by_name(".rom").unwrap();
        let bytes = &rom.data().unwrap()[(pc - rom.address()) as usize..];
        iced_x86::Decoder::with_ip(bits, bytes, pc, iced_x86::DecoderOptions::NONE).decode().len() as u64
    }
}

fn number(v: &Value) -> u64 {
    match v {
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap(),
        _ => v.as_u64().unwrap(),
    }
}

/// What happened, in short: pcs of instructions that retired, and everything else by name.
#[derive(Debug, PartialEq, Clone)]
enum Did {
    Ran(u64),
    Aborted(u64),
    /// Number, from, to.
    Exception(u64, u64, u64),
    Interrupt(u64, u64, u64),
    /// Root, number.
    Space(u64, u64),
    Halt(u64),
    Resume(u64),
    Reset(u64),
    /// Tracing goes on here, and is over before this.
    Start(u64),
    Stop(u64),
}

struct Trace {
    did: Vec<Did>,
    /// Pc, address, size, whether a store.
    accesses: Vec<(u64, u64, u64, bool)>,
}

fn trace(m: &Machine, args: &[&str]) -> Trace {
    let said = m.run(&[&["--analyzer", "trace", "--format", "json"], args].concat());
    let mut t = Trace { did: Vec::new(), accesses: Vec::new() };
    let mut streams = 0;
    for line in said.out().lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        let n = |key: &str| number(&e[key]);
        let did = match e["ev"].as_str().unwrap() {
            "fetch" => Did::Ran(n("pc")),
            "aborted" => Did::Aborted(n("pc")),
            "exception" => Did::Exception(n("number"), n("pc"), n("handler")),
            "interrupt" => Did::Interrupt(n("number"), n("pc"), n("handler")),
            "context" => Did::Space(n("root"), n("asid")),
            "halt" => Did::Halt(n("pc")),
            "resume" => Did::Resume(n("pc")),
            "reset" => Did::Reset(n("pc")),
            "trace_start" => Did::Start(n("pc")),
            "trace_stop" => Did::Stop(n("pc")),
            what @ ("load" | "store") => {
                t.accesses.push((n("pc"), n("addr"), n("size"), what == "store"));
                continue;
            }
            "start" => {
                streams += 1;
                continue;
            }
            "end" | "mmap" | "regset" => continue,
            other => panic!("{other}: {line}"),
        };
        t.did.push(did);
    }
    assert_eq!(streams, 1);
    t
}

fn ran(pcs: Vec<u64>) -> Vec<Did> {
    pcs.into_iter().map(Did::Ran).collect()
}

/// Without the turns of loops that wait.
fn without(did: &[Did], pcs: &[u64]) -> Vec<Did> {
    did.iter().filter(|d| !matches!(d, Did::Ran(pc) if pcs.contains(pc))).cloned().collect()
}

fn compare(got: &[Did], want: &[Did]) {
    if let Some(i) = got.iter().zip(want).position(|(g, w)| g != w) {
        let from = i.saturating_sub(3);
        let upto = |d: &[Did]| d[from..(i + 3).min(d.len())].iter().map(|d| format!("{d:x?}")).collect::<Vec<_>>();
        panic!("event {i}: got {:#?}, not {:#?}", upto(got), upto(want));
    }
    assert_eq!(got.len(), want.len());
}

#[test]
fn riscv_from_reset_to_power_off() {
    let m = machine(Isa::Riscv64);
    let s = |name: &str| m.sym(name);
    let t = trace(&m, &[]);
    assert_eq!(t.did[0], Did::Reset(0x1000));
    let begin = t.did.iter().position(|d| *d == Did::Ran(s("_start"))).unwrap();

    let mut want = ran(m.straight("_start", "begin"));
    (0..10).for_each(|_| want.extend(ran(m.straight("begin", "done"))));
    // What the handler does for what it steps over.
    let step = || ran(m.straight("handler", "map"));
    want.extend([Did::Ran(s("call")), Did::Exception(11, s("fault"), s("handler"))]);
    want.extend(step());
    want.extend([Did::Aborted(s("fault")), Did::Exception(5, s("fault"), s("handler"))]);
    want.extend(step());
    want.extend(ran(m.straight("after", "wait")));
    want.push(Did::Interrupt(7, s("wait"), s("handler")));
    want.extend(ran(vec![s("handler"), s("handler") + 4]));
    want.extend(ran(m.straight("timer", "end")));
    want.extend(ran(m.straight("waited", "paging")));
    want.extend([Did::Ran(s("paging")), Did::Space(s("root"), 5)]);
    want.extend(ran(m.straight("paging", "user")).split_off(1));
    want.extend(ran(m.straight("user", "ustore")));
    want.push(Did::Exception(8, s("ustore"), s("handler")));
    want.extend(step());
    want.extend(ran(m.straight("ustore", "retry")));
    want.extend([Did::Aborted(s("retry")), Did::Exception(15, s("retry"), s("handler"))]);
    want.extend(ran((0..4).map(|i| s("handler") + 4 * i).collect()));
    want.extend(ran(m.straight("map", "timer")));
    want.extend([Did::Ran(s("retry")), Did::Ran(s("stored")), Did::Exception(8, s("stored") + 4, s("handler"))]);
    want.extend(ran((0..7).map(|i| s("handler") + 4 * i).collect()));
    want.extend(ran(m.straight("end", "hang")));
    compare(&without(&t.did[begin..], &[s("wait"), s("hang")]), &want);

    // The reset vector's own come before.
    let first = t.accesses.iter().position(|a| a.0 == s("begin")).unwrap();
    let buf = s("buf");
    let mut accesses = Vec::new();
    for _ in 0..10 {
        accesses.extend([(s("begin"), buf, 4, true), (s("load"), buf, 4, false)]);
    }
    let at = |address: u64, size: u64| (address, size, true);
    // `ld` of addresses that the linker keeps in a table of its own are left out.
    let stores = [
        at(0x200_4000, 8),
        at(s("root"), 8),
        at(s("root") + 16, 8),
        at(buf, 4),
        at(s("root") + 8, 8),
        at(0x4000_0040, 4),
        at(0x10_0000, 4),
    ];
    let (head, tail) = t.accesses[first..].split_at(20);
    assert_eq!(head, accesses);
    let stored: Vec<_> = tail.iter().filter(|a| a.3).map(|a| (a.1, a.2, a.3)).collect();
    assert_eq!(stored, stores);
    // No load of the one that faulted.
    assert!(tail.iter().all(|a| a.3 || a.0 != s("fault")));
}

#[test]
fn aarch64_from_reset_to_power_off() {
    let m = machine(Isa::Aarch64);
    let s = |name: &str| m.sym(name);
    let t = trace(&m, &[]);
    let mut want = vec![Did::Reset(s("_start"))];
    want.extend(ran(m.straight("_start", "begin")));
    (0..10).for_each(|_| want.extend(ran(m.straight("begin", "done"))));
    // The numbers are QEMU's: 2 a call, 4 a data abort, 5 an interrupt.
    want.extend([Did::Ran(s("call")), Did::Exception(2, s("after"), s("vsync"))]);
    let sync = |taken: bool| {
        let mut pcs = vec![s("vsync")];
        pcs.extend(m.straight("sync", "irq"));
        if taken {
            // The branch to `back`.
            pcs.retain(|pc| *pc < s("sync") + 20 || *pc >= s("back"));
        }
        ran(pcs)
    };
    want.extend(sync(true));
    want.extend(ran(m.straight("after", "fault")));
    want.extend([Did::Aborted(s("fault")), Did::Exception(4, s("fault"), s("vsync"))]);
    want.extend(sync(false));
    want.extend(ran(m.straight("stepped", "wait")));
    want.push(Did::Interrupt(5, s("wait"), s("virq")));
    want.push(Did::Ran(s("virq")));
    want.extend(ran(m.straight("irq", "idone")));
    want.push(Did::Ran(s("idone")));
    want.extend(ran(m.straight("waited", "space")));
    want.extend([Did::Ran(s("space")), Did::Space(s("buf"), 5)]);
    want.extend(ran(m.straight("space", "user")).split_off(1));
    want.extend(ran(m.straight("user", "unever")));
    want.extend([Did::Exception(2, s("unever"), s("vuser")), Did::Ran(s("vuser"))]);
    want.extend(ran(m.straight("power", "hang")));
    let got = without(&t.did, &[s("wait"), s("hang")]);
    // QEMU itself takes the call: 11.
    want.push(Did::Exception(11, s("hang"), s("hang")));
    compare(&got, &want);

    let loop_: Vec<_> = t.accesses.iter().filter(|a| (s("begin")..s("done")).contains(&a.0)).copied().collect();
    let buf = s("buf");
    let turn = [(s("begin"), buf, 4, true), (s("load"), buf, 4, false)];
    assert_eq!(loop_, turn.repeat(10));
    let user: Vec<_> = t.accesses.iter().filter(|a| a.0 == s("ustore")).collect();
    assert_eq!(user, [&(s("ustore"), buf + 8, 4, true)]);
    assert!(!t.accesses.iter().any(|a| a.0 == s("fault")));
}

#[test]
fn arm_from_reset_to_power_off() {
    let m = machine(Isa::Arm);
    let s = |name: &str| m.sym(name);
    let t = trace(&m, &[]);
    let mut want = vec![Did::Reset(s("_start"))];
    want.extend(ran(m.straight("_start", "begin")));
    (0..10).for_each(|_| want.extend(ran(m.straight("begin", "done"))));
    // The numbers are QEMU's: 1 undefined, 2 a call, 4 a data abort, 5 an interrupt.
    want.extend([Did::Ran(s("call")), Did::Exception(2, s("after"), s("vsvc")), Did::Ran(s("vsvc"))]);
    // The branch to `power` is not taken.
    want.extend(ran(m.straight("sys", "undef")));
    want.extend(ran(m.straight("after", "fault")));
    want.extend([Did::Aborted(s("fault")), Did::Exception(4, s("fault"), s("vabort"))]);
    want.extend([Did::Ran(s("vabort")), Did::Ran(s("abort"))]);
    want.extend([Did::Aborted(s("ill")), Did::Exception(1, s("ill"), s("vundef"))]);
    want.extend([Did::Ran(s("vundef")), Did::Ran(s("undef"))]);
    want.extend(ran(m.straight("legal", "wait")));
    want.extend([Did::Interrupt(5, s("wait"), s("virq")), Did::Ran(s("virq"))]);
    want.extend(ran(m.straight("irq", "idone")));
    want.push(Did::Ran(s("idone")));
    want.extend(ran(m.straight("waited", "space")));
    want.extend([Did::Ran(s("space")), Did::Space(s("buf"), 0)]);
    want.extend(ran(m.straight("space", "user")).split_off(1));
    want.extend(ran(m.straight("user", "unever")));
    want.extend([Did::Exception(2, s("unever"), s("vsvc")), Did::Ran(s("vsvc"))]);
    want.extend(ran(m.straight("sys", "undef")[..2].to_vec()));
    want.extend(ran(m.straight("power", "hang")));
    // QEMU itself takes the call: 11.
    want.push(Did::Exception(11, s("hang"), s("hang")));
    compare(&without(&t.did, &[s("wait"), s("wait") + 4, s("hang")]), &want);

    let buf = s("buf");
    let turn = [(s("begin"), buf, 4, true), (s("load"), buf, 4, false)];
    let at = |from: &str, to: &str| {
        t.accesses.iter().filter(|a| (s(from)..s(to)).contains(&a.0)).copied().collect::<Vec<_>>()
    };
    assert_eq!(at("begin", "done"), turn.repeat(10));
    assert_eq!(at("ustore", "ucall"), [(s("ustore"), buf + 8, 4, true)]);
    assert_eq!(at("fault", "legal"), []);
}

#[test]
fn x86_from_reset_to_the_end() {
    let m = machine(Isa::X86_64);
    let s = |name: &str| m.sym(name);
    let t = trace(&m, &[]);
    let mut want = vec![Did::Reset(0xffff_fff0), Did::Ran(0xffff_fff0)];
    want.extend(ran(m.straight("real", "far")));
    want.push(Did::Ran(s("far")));
    want.extend(ran(m.straight("prot", "space")));
    want.extend([Did::Ran(s("space")), Did::Space(0x10000, 0)]);
    want.extend(ran(m.straight("space", "long")).split_off(1));
    want.extend(ran(m.straight("long", "begin")));
    (0..10).for_each(|_| want.extend(ran(m.straight("begin", "done"))));
    want.extend([Did::Ran(s("call")), Did::Exception(0x80, s("after"), s("hcall")), Did::Ran(s("hcall"))]);
    want.extend(ran(m.straight("after", "ill")));
    want.extend([Did::Aborted(s("ill")), Did::Exception(6, s("ill"), s("hud"))]);
    want.extend(ran(m.straight("hud", "hcall")));
    want.extend(ran(m.straight("ill", "fault")).split_off(1));
    want.extend([Did::Aborted(s("fault")), Did::Exception(14, s("fault"), s("hpf"))]);
    want.extend(ran(m.straight("hpf", "hcall")));
    want.extend(ran(m.straight("stepped", "woken")));
    want.extend([Did::Halt(s("woken")), Did::Resume(s("woken")), Did::Interrupt(0x20, s("woken"), s("htimer"))]);
    want.extend(ran(m.straight("htimer", "tdone")));
    want.push(Did::Ran(s("tdone")));
    want.extend(ran(m.straight("woken", "user")));
    want.extend(ran(m.straight("user", "unever")));
    want.push(Did::Exception(0x81, s("unever"), s("power")));
    want.extend(ran(m.straight("power", "hang")));
    compare(&without(&t.did, &[s("hang")]), &want);

    let at = |pc: &str| t.accesses.iter().filter(|a| a.0 == s(pc)).copied().collect::<Vec<_>>();
    let turn = [(s("begin"), 0x1000, 4, true), (s("load"), 0x1000, 4, false)];
    assert_eq!(at("begin"), [turn[0]].repeat(10));
    assert_eq!(at("load"), [turn[1]].repeat(10));
    let cleared: Vec<_> = (0..2048).map(|i| (s("clear"), 0x10000 + 4 * i, 4, true)).collect();
    assert_eq!(at("clear"), cleared);
    assert_eq!(at("fault"), []);
    assert_eq!(at("ustore"), [(s("ustore"), 0x1008, 4, true)]);
}

/// Every step of the pc is explained; and user mode alone is what `--level user` traces.
#[test]
fn machines_pass_the_check_and_levels_are_kept_apart() {
    for isa in [Isa::Riscv64, Isa::Aarch64, Isa::Arm, Isa::X86_64] {
        let m = machine(isa);
        let said = m.run(&["--analyzer", "trace", "--consume", "check", "--format", "json"]);
        let found: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(found["violations"], 0, "{isa:?}: {found}");
        assert!(found["steps"].as_u64().unwrap() > 40, "{found}");
        assert_eq!(found["unended"], 0, "{found}");

        let user = match isa {
            Isa::Riscv64 => m.straight("user", "stored").len() + 1,
            _ => m.straight("user", "unever").len(),
        };
        let said = m.run(&["--analyzer", "trace", "--format", "json", "--level", "user"]);
        let fetched = said.out().lines().filter(|l| l.contains(r#""ev":"fetch""#)).count();
        assert_eq!(fetched, user, "{isa:?}");
    }
}

/// One address space alone: as the guest says, and as the user does.
#[test]
fn address_spaces_are_told_and_kept_apart() {
    let m = machine_of("riscv_spaces", Isa::Riscv64);
    let s = |name: &str| m.sym(name);
    let (first, second) = (Did::Space(s("first"), 0), Did::Space(s("second"), 0));

    // It asks for the one it is in, and later for any.
    let t = trace(&m, &[]);
    let begin = t.did.iter().position(|d| *d == Did::Ran(s("entera"))).unwrap();
    let mut want = ran(m.straight("entera", "inb"));
    want.insert(1, first.clone());
    want.extend([second.clone(), Did::Stop(s("inb")), first, Did::Start(s("backa"))]);
    want.extend(ran(m.straight("backa", "both")));
    want.push(second);
    want.extend(ran(m.straight("both", "skip")));
    let end = |t: &Trace, from: usize| without(&t.did[from..], &[s("power"), s("hang")]);
    compare(&end(&t, begin), &want);

    // From without; the guest's own word counts from then on.
    let of = |space: &str| trace(&m, &["--space", &format!("{:#x}", s(space))]);
    let entered = want.split_off(1 + ran(m.straight("entera", "inb")).len());
    want[0] = Did::Space(s("first"), 0);
    want[1] = Did::Start(s("entera") + 4);
    compare(&end(&of("first"), 0), &[want.clone(), entered.clone()].concat());
    let first = vec![Did::Space(s("first"), 0), Did::Start(s("only"))];
    let asked = ran(m.straight("only", "inb").split_off(1));
    compare(&end(&of("second"), 0), &[first, asked, entered].concat());
}

/// Where accesses went, through page tables that change: to both pages, to devices, to what cannot be written.
#[test]
fn physical_addresses_are_those_of_the_page_tables() {
    let m = machine_of("riscv_paging", Isa::Riscv64);
    let s = |name: &str| m.sym(name);
    let said = m.run(&["--analyzer", "trace", "--physical", "--values", "--format", "json"]);
    let mut got = Vec::new();
    for line in said.out().lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        let ev = e["ev"].as_str().unwrap();
        if !matches!(ev, "load" | "store") || !(s("first")..s("hang")).contains(&number(&e["pc"])) {
            continue;
        }
        let place = |key: &str| match e[key].is_null() {
            true => String::new(),
            false => format!(" {}:{:#x}", e[format!("{key}_is")].as_str().unwrap(), number(&e[key])),
        };
        let value = if number(&e["pc"]) == s("timer") { String::new() } else { format!("={}", number(&e["value"])) };
        let addr = number(&e["addr"]);
        got.push(format!("{ev} {addr:#x}{value}{}{}", place("paddr"), place("paddr_next")));
    }
    let at = |page: &str, offset: u64| format!("ram:{:#x}", s(page) + offset);
    let want = [
        format!("store 0x10010=7 {}", at("pa", 0x10)),
        format!("store 0x10ffc=7 {} {}", at("pa", 0xffc), at("pc", 0)),
        format!("load 0x10ffc=7 {} {}", at("pa", 0xffc), at("pc", 0)),
        format!("load 0x10020=0 {}", at("pa", 0x20)),
        format!("store 0x10020=7 {}", at("pa", 0x20)),
        format!("load 0x10020=7 {}", at("pa", 0x20)),
        format!("store 0x10020=7 {}", at("pa", 0x20)),
        "load 0x12000 io:0x2004000".to_string(),
        // What maps `pb`.
        format!("store {:#x}={} {}", s("leaf") + 0x80, s("pb") >> 2 | 0xc7, at("leaf", 0x80)),
        format!("load 0x10010=0 {}", at("pb", 0x10)),
        format!("load 0x10ffe=0 {} {}", at("pb", 0xffe), at("pc", 0)),
        "load 0x1000=663 rom:0x1000".to_string(),
        "store 0x100000=21845 io:0x100000".to_string(),
    ];
    same(&got, &want.iter().map(|l| l.as_str()).collect::<Vec<_>>());

    // A memory simulator has them in two parts, and no devices.
    let said = m.run(&[
        "--feed",
        "lackey",
        "--addressing",
        "physical",
        "--range",
        &format!("{:#x}-{:#x}", s("first"), s("atom")),
    ]);
    let lines: Vec<String> = said.out().lines().filter(|l| !l.starts_with('I')).map(String::from).collect();
    let part = |kind: char, page: &str, offset: u64, size: u64| format!(" {kind} {:08x},{size}", s(page) + offset);
    let mut want = vec![part('S', "pa", 0x10, 4)];
    want.extend(['S', 'L'].iter().flat_map(|k| [part(*k, "pa", 0xffc, 4), part(*k, "pc", 0, 4)]));
    same(&lines, &want.iter().map(|l| l.as_str()).collect::<Vec<_>>());
    let said = m.run(&[
        "--feed",
        "lackey",
        "--addressing",
        "physical",
        "--range",
        &format!("{:#x}-{:#x}", s("timer"), s("timer") + 4),
        "--format",
        "json",
    ]);
    let report: Value = serde_json::from_str(said.err().lines().last().unwrap()).unwrap();
    assert_eq!((report["of_devices"].as_u64(), report["reads"].as_u64()), (Some(1), Some(0)), "{report}");

    // The same from a recording; and one without them says so.
    let folder = scratch();
    let file = folder.path().join("t.trapline");
    for (option, there) in [("--physical", true), ("--values", false)] {
        let mut c = Command::new(trapline());
        c.args(["record", "--system", m.isa, option, "-o"]).arg(&file).arg("--").args(&m.args);
        within(LIMIT, &mut c).code(m.code);
        let mut c = Command::new(trapline());
        c.arg("replay").arg(&file).args(["--feed", "lackey", "--addressing", "physical", "-o", "-"]);
        let said = within(LIMIT, &mut c).code(if there { 0 } else { 125 });
        match there {
            true => lines.iter().for_each(|l| assert!(said.out().contains(l.as_str()), "{l}")),
            false => assert!(said.err().contains("record --physical"), "{}", said.err()),
        }
    }
}

/// Counting instructions for its clock changes where blocks end, and nothing else.
#[test]
fn machines_with_a_counted_clock_do_the_same() {
    for isa in [Isa::Riscv64, Isa::Aarch64, Isa::Arm, Isa::X86_64] {
        let mut m = machine(isa);
        let idle = match isa {
            Isa::X86_64 => vec![m.sym("hang")],
            // The loop that waits has one instruction, or two.
            _ => vec![m.sym("hang"), m.sym("wait"), m.sym("waited") - 4],
        };
        let plain = trace(&m, &[]);
        m.args.extend(["-icount", "shift=3"].map(String::from));
        let counted = trace(&m, &[]);
        compare(&without(&counted.did, &idle), &without(&plain.did, &idle));
        // Those of repeated instructions too, which it cuts at each turn.
        assert_eq!(counted.accesses, plain.accesses, "{isa:?}");
    }
}

/// Types into QEMU's monitor, letting the guest run for a moment before each part.
fn monitor(socket: &std::path::Path, parts: &[&str]) {
    let start = std::time::Instant::now();
    let mut stream = loop {
        match std::os::unix::net::UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(e) if start.elapsed() > LIMIT => panic!("QEMU's monitor cannot be reached: {e}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    for part in parts {
        std::thread::sleep(Duration::from_millis(300));
        stream.write_all(part.as_bytes()).unwrap();
    }
    // Until it is gone.
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A machine whose state was saved goes on with the next instruction: no store is lost, and none is made twice.
#[test]
fn a_saved_machine_goes_on_where_it_was() {
    let m = machine_of("riscv_forever", Isa::Riscv64);
    let folder = scratch();
    let (socket, state) = (folder.path().join("m"), folder.path().join("state"));
    let run = |trapline_args: &[&str], qemu_args: &[&str], parts: &[&str]| {
        let mut c = Command::new(trapline());
        c.args(["run", "--system", m.isa, "--format", "json", "-o", "-"]).args(trapline_args).arg("--").args(&m.args);
        c.arg("-monitor").arg(format!("unix:{},server=on,wait=off", socket.display())).args(qemu_args);
        std::thread::scope(|scope| {
            scope.spawn(|| monitor(&socket, parts));
            within(LIMIT, &mut c).code(0).out()
        })
    };
    let file = state.display();
    let counted = run(&["--analyzer", "count"], &[], &[&format!("stop\nmigrate \"exec:cat > {file}\"\nquit\n")]);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    let stores = counted["stores"].as_u64().unwrap();
    assert!(stores > 1000, "{counted}");

    let _ = std::fs::remove_file(&socket);
    let args = ["--analyzer", "trace", "--values", "--count", "200"];
    let traced = run(&args, &["-incoming", &format!("exec:cat {file}")], &["cont\n", "quit\n"]);
    let values: Vec<u64> = traced
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap())
        .filter(|e| e["ev"] == "store")
        .map(|e| number(&e["value"]))
        .collect();
    assert!(values.len() > 50, "{traced}");
    let want: Vec<u64> = (stores + 1..).take(values.len()).collect();
    assert_eq!(values, want);
}

#[test]
fn functions_of_the_kernel_have_names() {
    let m = machine(Isa::Riscv64);
    let said = m.run(&["--analyzer", "trace", "--consume", "hotspots", "--format", "json"]);
    assert!(said.out().contains("riscv_machine.S") && said.out().contains("riscv_machine-"), "{}", said.out());
}

#[test]
fn accelerators_and_unknown_machines_are_refused() {
    for (args, what) in [
        (&["--system", "x86_64", "--", "-enable-kvm"][..], "accelerator"),
        (&["--system", "x86_64", "--", "-accel", "kvm"], "accelerator"),
        (&["--level", "user", "--", "/bin/true"], "--level is for whole machines"),
        (&["--system", "pdp11", "--", "-m", "1"], "no machine of the ISA 'pdp11'"),
        (&["--system", "x86_64", "--image", "/nonexistent", "--", "-m", "64"], "/nonexistent"),
    ] {
        let said = within(LIMIT, Command::new(trapline()).arg("run").args(args)).code(125);
        let message = String::from_utf8_lossy(&said.stderr);
        assert!(message.contains(what), "{args:?}: {message}");
    }
}

/// Debian's kernel and a shell, as its packages have them, with QEMU's machine for it.
struct Linux {
    isa: &'static str,
    machine: &'static str,
    console: &'static str,
    folder: tempfile::TempDir,
    kernel: PathBuf,
}

/// Runs a script in this folder. It knows where the packages are unpacked, those of this machine's own ISA, and the guest library.
fn script(at: &std::path::Path, packages: &str, text: &str) -> String {
    let cache = trapline_tests::cache();
    let mut c = Command::new("sh");
    c.env("PACKAGES", cache.join(packages)).env("NATIVE", cache.join("linux"));
    c.env("LIBRARY", trapline_tests::checkout().join("guest-lib"));
    within(LIMIT, c.current_dir(at).args(["-ec", text])).code(0).out()
}

/// What `fetch` unpacks into this folder of the cache, and an initial file system: a shell, what `add` puts into `tree`, and `init`, which runs
/// these lines.
fn packed(packages: &str, fetch: &str, add: &str, init: &str) -> (PathBuf, tempfile::TempDir) {
    static UNPACKED: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let at = trapline_tests::cache().join(packages);
    std::fs::create_dir_all(&at).unwrap();
    let unpacked = UNPACKED.lock().unwrap_or_else(|e| e.into_inner());
    script(&at, packages, fetch);
    drop(unpacked);
    let folder = scratch();
    let lines =
        format!("#!/bin/busybox sh\nexport PATH=/bin\nbusybox mount -t proc proc /proc\n{init}busybox poweroff -f\n");
    std::fs::write(folder.path().join("init"), lines).unwrap();
    script(
        folder.path(),
        packages,
        r#"mkdir -p tree/bin tree/proc tree/dev && cp "$PACKAGES/root/bin/busybox" tree/bin/"#,
    );
    script(folder.path(), packages, add);
    script(
        folder.path(),
        packages,
        r#"
        cp init tree/init && chmod +x tree/init
        cd tree && find . | "$NATIVE/root/bin/busybox" cpio -o -H newc | gzip -1 > ../initrd.gz
    "#,
    );
    let kernel = script(&at, packages, "ls root/boot/vmlinu[xz]-*").trim().to_string();
    (at.join(kernel), folder)
}

/// That of this machine's own ISA, with Trapline's module.
fn linux(init: &str) -> Linux {
    // Headers name each other by where they are installed.
    let fetch = r#"
        [ -e whole2 ] && exit
        rm -rf root
        image=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)
        headers=linux-headers-${image#linux-image-}
        parts=$(apt-cache depends "$headers" | sed -n 's/.*Depends: \(linux-headers-[^ ]*\|linux-kbuild-[^ ]*\).*/\1/p')
        apt-get -q download "$image" "$headers" $parts busybox-static
        for deb in *.deb; do dpkg-deb -x "$deb" root; done
        rm -- *.deb
        sed -i "s#/usr/src/#$PWD/root/usr/src/#" root/usr/src/$headers/Makefile
        ln -sfn usr/src/$headers root/headers
        touch whole2
    "#;
    let add = r#"
        # It builds in place.
        cp -r "$LIBRARY" guest-lib
        make -s -C guest-lib/module KDIR="$PACKAGES/root/headers" CC=gcc >&2
        cp guest-lib/module/trapline_switch.ko tree/
        ln -s busybox tree/bin/sha256sum
    "#;
    let (kernel, folder) = packed("linux", fetch, add, init);
    Linux { isa: "x86_64", machine: "", console: "ttyS0", folder, kernel }
}

/// A kernel of another architecture, from the mirrors of this machine: the package `image` names it. Of `suite`, if that of this machine does not have it. Nothing is installed:
/// the state of the package tools is a private one.
fn foreign(architecture: &str, suite: Option<&str>, image: &str, init: &str) -> (PathBuf, tempfile::TempDir) {
    // The tools that pack its files.
    linux("");
    let suite = suite.unwrap_or_default();
    let settings = format!("ARCHITECTURE={architecture} SUITE={suite} IMAGE={image}\n");
    let fetch = settings
        + r#"
        [ -e whole ] && exit
        rm -rf root state && mkdir -p state/lists/partial state/cache/archives/partial state/dpkg state/sources
        : > state/dpkg/status
        if [ "$SUITE" ]; then
            # Not those of security and updates, whose names have a part more.
            uri=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | sed -n 's# [a-z]*$##p' | head -1)
            cat > state/sources/suite.sources <<END
Types: deb
URIs: $uri
Suites: $SUITE
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
            echo "Dir::Etc::sourcelist \"/dev/null\"; Dir::Etc::sourceparts \"$PWD/state/sources\";" > apt.conf
        else
            : > apt.conf
        fi
        cat >> apt.conf <<END
        APT::Architecture "$ARCHITECTURE";
        APT::Architectures { "$ARCHITECTURE"; };
        APT::Sandbox::User "root";
        Dir::State "$PWD/state";
        Dir::State::status "$PWD/state/dpkg/status";
        Dir::Cache "$PWD/state/cache";
END
        export APT_CONFIG="$PWD/apt.conf"
        apt-get -q update
        image=$(apt-cache depends "$IMAGE" | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)
        apt-get -q download "$image" busybox-static
        for deb in *.deb; do dpkg-deb -x "$deb" root; done
        # Later releases have it there.
        [ -e root/bin/busybox ] || { mkdir -p root/bin && cp root/usr/bin/busybox root/bin/; }
        rm -rf -- *.deb state
        touch whole
    "#;
    packed(&format!("linux-{architecture}"), &fetch, "", init)
}

fn linux_arm64(init: &str) -> Linux {
    let (kernel, folder) = foreign("arm64", None, "linux-image-cloud-arm64", init);
    Linux { isa: "aarch64", machine: "-M virt -cpu cortex-a57 ", console: "ttyAMA0", folder, kernel }
}

/// Debian has the architecture since its release 13.
fn linux_riscv64(init: &str) -> Linux {
    let (kernel, folder) = foreign("riscv64", Some("trixie"), "linux-image-riscv64", init);
    Linux { isa: "riscv64", machine: "-M virt ", console: "ttyS0", folder, kernel }
}

impl Linux {
    /// Boots it; what the guest prints, and the results.
    fn boot(&self, trapline_args: &[&str]) -> (String, String) {
        self.boot_with(trapline_args, &[])
    }

    fn boot_with(&self, trapline_args: &[&str], qemu_args: &[&str]) -> (String, String) {
        let out = self.folder.path().join("results");
        let mut c = Command::new(trapline());
        c.args(["run", "--system", self.isa, "-o"])
            .arg(&out)
            .args(trapline_args)
            .arg("--")
            .args(self.args())
            .args(qemu_args);
        let said = within(LIMIT, &mut c).code(0);
        (said.out(), std::fs::read_to_string(out).unwrap())
    }

    /// Boots it with every step checked; what the guest prints, and what the check counted.
    fn checked(&self, qemu_args: &[&str]) -> (String, Value) {
        let check = ["--analyzer", "trace", "--consume", "check", "--format", "json"];
        let (out, found) = self.boot_with(&check, qemu_args);
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["violations"], 0, "{found}");
        assert!(found["insns"].as_u64().unwrap() > 100_000_000, "{found}");
        (out, found)
    }

    /// QEMU's arguments.
    fn args(&self) -> Vec<String> {
        let fixed = format!("{}-m 512 -nodefaults -display none -serial stdio -no-reboot", self.machine);
        let mut args: Vec<String> = fixed.split(' ').map(String::from).collect();
        args.extend(["-kernel".into(), self.kernel.display().to_string()]);
        args.extend(["-initrd".into(), self.folder.path().join("initrd.gz").display().to_string()]);
        args.extend(["-append".into(), format!("console={} quiet panic=-1", self.console)]);
        args
    }

    /// The shell, which has all programs in it.
    fn busybox() -> PathBuf {
        trapline_tests::cache().join("linux/root/bin/busybox")
    }
}

/// The number that the guest printed behind this word.
fn printed(out: &str, word: &str) -> u64 {
    out.lines()
        .find_map(|l| l.trim().strip_prefix(word)?.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {word}: {out}"))
}

/// A kernel boots to a shell, each step of it explained; and the stream agrees with what the kernel itself has counted.
#[test]
fn debians_kernel_boots_to_a_shell() {
    if Isa::X86_64.target() != std::env::consts::ARCH {
        // Its packages are those of this machine.
        return;
    }
    let linux = linux(
        "busybox sh -c 'i=0; while [ $i -lt 300 ]; do i=$((i+1)); busybox true; done'\n\
         busybox awk '/LOC:/ {print \"ticks\", $2} ' /proc/interrupts\n\
         busybox awk '/^pgfault/ {print $1, $2}' /proc/vmstat\n",
    );
    // Two processors, each with a thread of its own.
    let (out, found) = linux.checked(&["-smp", "2", "-accel", "tcg,thread=multi"]);
    assert_eq!(found["streams"], 2, "{found}");
    assert!(found["insns"].as_u64().unwrap() > 500_000_000, "{found}");
    assert!(printed(&out, "ticks") > 100, "{out}");

    // Events alone.
    let (out, events) = linux.boot(&["--analyzer", "empty", "--consume", "trace", "--format", "json"]);
    let (mut ticks, mut faults, mut spaces) = (0, 0, std::collections::HashSet::new());
    for line in events.lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        match e["ev"].as_str().unwrap() {
            // The local timer's vector.
            "interrupt" => ticks += u64::from(e["number"] == 0xec),
            "exception" => faults += u64::from(e["number"] == 14),
            "context" => {
                spaces.insert(e["root"].to_string());
            }
            _ => {}
        }
    }
    // What comes after the kernel has told, until it is off, is little.
    let near = |ours: u64, theirs: u64| ours >= theirs && ours - theirs < theirs / 5 + 100;
    assert!(near(ticks, printed(&out, "ticks")), "{ticks} ticks: {out}");
    // The kernel also counts those that it makes itself, for a program whose memory it fills, and not all of those in its own memory.
    let told = printed(&out, "pgfault");
    assert!(faults.abs_diff(told) < told / 20, "{faults} page faults: {out}");
    // The kernel uses their pages again.
    assert!(spaces.len() > 4, "{} address spaces: {out}", spaces.len());
}

/// Machines as core-sharded traces: each core goes on where it was, through exceptions, interrupts and the returns from them.
#[test]
fn machines_are_core_sharded_traces() {
    for (isa, arch) in [(Isa::X86_64, 0x40), (Isa::Aarch64, 0x8), (Isa::Arm, 0x10)] {
        let m = machine(isa);
        let folder = scratch();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
        let (recording, trace) = (path("t.trapline"), path("t.trace"));
        m.run(&["--record", &recording, "--analyzer", "trace"]);
        let replay = |args: &[&str]| {
            let mut c = Command::new(trapline());
            within(LIMIT, c.args(["replay", &recording]).args(args)).code(0).out()
        };
        replay(&["--feed", "drmemtrace", "-o", &trace]);
        let d = drmemtrace(&std::fs::read(trace).unwrap());
        let count = replay(&["--analyzer", "count", "--format", "json", "-o", "-"]);
        let count: Value = serde_json::from_str(&count).unwrap();
        assert_eq!((&count["insns"], &count["loads"]), (&d.insns.into(), &d.reads.into()), "{isa:?}");
        assert_eq!(d.file_type & 0x5_107f, 0x5_1000 | arch, "{isa:?}");
        let (events, returns) = d.hardware;
        assert!(events > 2 && returns > 1 && returns <= events, "{isa:?}: {d:?}");
    }
}

/// The kernel's module says which process runs: its switches are as many as the kernel counts, and a program alone is what it is without a kernel.
#[test]
fn processes_of_debians_kernel_are_told_apart() {
    if Isa::X86_64.target() != std::env::consts::ARCH {
        return;
    }
    let linux = linux(
        "busybox awk '/^ctxt/ {print \"before\", $2}' /proc/stat\n\
         busybox insmod /trapline_switch.ko\n\
         busybox sh -c 'i=0; while [ $i -lt 50 ]; do i=$((i+1)); busybox true; done'\n\
         /bin/sha256sum /bin/busybox\n\
         busybox awk '/^ctxt/ {print \"after\", $2}' /proc/stat\n",
    );
    let (out, events) = linux.boot(&["--analyzer", "empty", "--consume", "trace", "--format", "json"]);
    let (mut switches, mut last) = (0, 0);
    for line in events.lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        if e["ev"] == "event" && e["name"] == "switch" {
            let [before, now] = [0, 1].map(|i| number(&e["args"][i]));
            // From the one who was named last; exec is no switch.
            assert!(switches == 0 || before == last, "{line}");
            switches += u64::from(before != now);
            last = now;
        }
    }
    let (before, after) = (printed(&out, "before"), printed(&out, "after"));
    // The module is loaded a little after the first question, and the guest goes on after the last.
    assert!(switches + 20 >= after - before && switches < after - before + 60, "{switches} switches: {out}");

    // All instructions belong to a process or to the time before the module; and one is the program's.
    let (_, found) = linux.boot(&["--analyzer", "count", "--by", "process", "--level", "user", "--format", "json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let rows = found["per_region"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|r| r["insns"].as_u64().unwrap()).sum();
    assert_eq!(sum, found["insns"].as_u64().unwrap());
    let named = |name: &str| rows.iter().filter(|r| r["region"].as_str().unwrap().starts_with(name)).count();
    assert_eq!(named("sha256sum ["), 1, "{found}");
    assert!(named("exe [") >= 50 && named("init [1]") == 1, "{found}");
    let digest = rows.iter().find(|r| r["region"].as_str().unwrap().starts_with("sha256sum [")).unwrap();
    let by = digest["insns"].as_u64().unwrap();

    let (_, found) =
        linux.boot(&["--analyzer", "count", "--process", "sha256sum", "--level", "user", "--format", "json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let alone = found["insns"].as_u64().unwrap();

    let mut c = Command::new(trapline());
    c.args(["run", "--analyzer", "count", "--format", "json", "--"]);
    c.arg(Linux::busybox()).arg("sha256sum").arg(Linux::busybox());
    let said = within(LIMIT, &mut c).code(0);
    let program: Value = serde_json::from_str(said.err().lines().last().unwrap()).unwrap();
    let program = program["insns"].as_u64().unwrap();
    for (what, n) in [("by process", by), ("alone", alone)] {
        assert!(n.abs_diff(program) < program / 100, "{what} {n}, as a program {program}");
    }
}

/// The boot as a QEMU plugin logs it in the same run, event by event.
fn boot_agrees(events: u64) {
    if Isa::X86_64.target() != std::env::consts::ARCH {
        return;
    }
    let linux = linux("busybox ls -l /proc\n");
    let folder = scratch();
    let mut args = linux.args();
    args.extend(["-icount", "shift=auto"].map(String::from));
    // Where Debian's packages have firmware.
    for folder in ["/usr/share/seabios", "/usr/share/qemu", "/usr/lib/ipxe/qemu"] {
        args.extend(["-L".into(), folder.to_string()]);
    }
    let args: Vec<&str> = args.iter().map(|a| a.as_str()).collect();
    let machine = system_qemu("x86_64", "trace");
    let c = oracle::compare(&machine, oracle::plugin(), folder.path(), oracle::Guest::Machine(&args, events)).unwrap();
    println!(
        "{} instructions, {} accesses, {} again, {} unseen, {} known",
        c.insns, c.accesses, c.again, c.unseen, c.known
    );
    assert_eq!(c.difference, None);
    assert!(c.insns + c.accesses >= events, "{c:?}");
}

#[test]
fn a_booting_kernel_agrees_with_the_plugin() {
    boot_agrees(100_000_000);
}

#[test]
#[ignore = "minutes"]
fn a_booting_kernel_agrees_with_the_plugin_for_long() {
    boot_agrees(400_000_000);
}

/// A disk while everything is traced: the guest reads what is there, and what it writes is there afterwards. What the disk puts into memory is no store of the guest's.
#[test]
fn a_disk_works_under_tracing() {
    if Isa::X86_64.target() != std::env::consts::ARCH {
        return;
    }
    let linux = linux(
        "busybox mount -t devtmpfs none /dev\n\
         busybox sha256sum /dev/nvme0n1\n\
         echo written by the guest | busybox dd of=/dev/nvme0n1 bs=512 seek=100\n\
         busybox sync\n",
    );
    let disk = linux.folder.path().join("disk");
    let content: Vec<u8> = (0..1u32 << 20).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect();
    std::fs::write(&disk, &content).unwrap();
    let digest = within(LIMIT, Command::new("sha256sum").arg(&disk)).code(0).out();
    let drive = format!("file={},if=none,id=d,format=raw", disk.display());
    let args = ["-drive", &drive, "-device", "nvme,drive=d,serial=1"];
    let (out, _) = linux.checked(&args);
    assert!(out.contains(digest.split(' ').next().unwrap()), "{digest}: {out}");
    let after = std::fs::read(&disk).unwrap();
    let (text, at) = (b"written by the guest\n", 100 * 512);
    assert_eq!(&after[at..at + text.len()], text, "{out}");
    assert!(after[..at] == content[..at] && after[at + text.len()..] == content[at + text.len()..]);
}

/// The same for riscv64, with OpenSBI before it.
#[test]
fn debians_kernel_for_riscv64_boots_to_a_shell() {
    if Isa::X86_64.target() != std::env::consts::ARCH {
        return;
    }
    let linux = linux_riscv64(
        "busybox sh -c 'i=0; while [ $i -lt 20 ]; do i=$((i+1)); busybox true; done'\n\
         busybox awk '/riscv-timer/ {print \"ticks\", $2} ' /proc/interrupts\n",
    );
    let (out, _) = linux.checked(&[]);
    assert!(printed(&out, "ticks") > 50, "{out}");
}

/// Debian's kernel for arm64, on `virt`: each step explained, its timer's interrupts and page faults as many as it counts.
#[test]
fn debians_kernel_for_arm64_boots_to_a_shell() {
    if Isa::X86_64.target() != std::env::consts::ARCH {
        return;
    }
    let linux = linux_arm64(
        "busybox sh -c 'i=0; while [ $i -lt 100 ]; do i=$((i+1)); busybox true; done'\n\
         busybox awk '/arch_timer/ {print \"ticks\", $2} ' /proc/interrupts\n",
    );
    let (out, _) = linux.checked(&[]);
    assert!(printed(&out, "ticks") > 50, "{out}");
}
