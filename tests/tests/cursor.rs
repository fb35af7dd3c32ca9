//! What an analyzer can do at a point beside tracing, and at the rarer points. The numbers follow from the guest's source (`guests/loop.S`):
//! 1000 turns of a store, a load, a subtraction, a branch (on MIPS with a delay slot).

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Ended, Finished, Guest, Isa, checkout, guest, qemu, trapline, within};

const ISAS: [Isa; 5] = [Isa::X86_64, Isa::Aarch64, Isa::Arm, Isa::Riscv64, Isa::Mips];

/// Instructions of a turn.
fn turn(isa: Isa) -> u64 {
    if isa == Isa::Mips { 5 } else { 4 }
}

/// The register that counts the turns down.
fn counter(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => "rcx",
        Isa::Aarch64 => "x2",
        Isa::Arm => "r2",
        _ => "a2",
    }
}

/// A finished run of the tests' analyzer, with the events that the `trace` consumer printed.
struct Said {
    finished: Finished,
    events: Vec<Value>,
}

fn run(g: &Guest, analyzer: &str, opts: &[String], args: &[&str]) -> Said {
    // Built for all ISAs by the set-up: one more analyzer is a link.
    qemu(g.isa.target(), "trace");
    let folder = trapline_tests::scratch();
    let out = folder.path().join("out");
    let mut command = Command::new(trapline());
    command.args(["run", "--consume", "trace", "--format", "json", "-o"]).arg(&out);
    command.arg("--analyzer").arg(checkout().join(analyzer));
    for o in opts {
        command.args(["--opt", o]);
    }
    command.arg("--").arg(&g.path).args(args);
    let finished = within(Duration::from_secs(600), &mut command);
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    let events = text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect();
    Said { finished, events }
}

/// The loop under the tests' analyzer.
fn cursor(isa: Isa, what: &str, more: &[&str]) -> Said {
    let g = guest("loop", isa);
    let mut opts = vec![format!("what={what}"), format!("code={}-{}", g.sym("begin"), g.sym("done"))];
    opts.extend(more.iter().map(|o| o.to_string()));
    run(&g, "tests/cursor", &opts, &[])
}

impl Said {
    #[track_caller]
    fn code(self, code: i32) -> Said {
        Said { finished: self.finished.code(code), ..self }
    }

    fn of<'a>(&'a self, ev: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["ev"] == ev)
    }

    /// Texts of the analyzer's own events with this id.
    fn texts(&self, id: u64) -> Vec<&str> {
        self.of("user").filter(|e| e["id"] == id).filter_map(|e| e["bytes"].as_str()).collect()
    }

    /// What the analyzer said of `name` at the end.
    #[track_caller]
    fn value(&self, name: &str) -> u64 {
        let text = self.texts(1).into_iter().rev().find_map(|t| t.strip_prefix(name)?.strip_prefix('='));
        text.unwrap_or_else(|| panic!("nothing is said of {name}: {}", self.finished.err())).parse().expect("a number")
    }
}

#[test]
fn counts_are_what_the_stream_has() {
    for isa in ISAS {
        let trace = guest("loop", isa).run().counts().trace().code(7).total();
        let said = cursor(isa, "count", &[]).code(7);
        assert_eq!((said.value("insns"), said.value("other")), (trace.insns, trace.stores), "{isa:?}");
    }
}

/// What is left in the middle is taken back, what is tried is called. The same instructions run each time: the C library's random bytes are fixed.
#[test]
fn counts_of_blocks_that_are_left_are_of_what_retired() {
    let g = guest("x86_faults", Isa::X86_64);
    qemu("x86_64", "count");
    for which in ["divide", "store", "push", "illegal", "fxsave", "rep", "move"] {
        let run = |more: &[&str]| {
            let mut command = Command::new(trapline());
            command.env("QEMU_RAND_SEED", "1").arg("run").args(more).args(["-o", "-", "--"]).arg(&g.path).arg(which);
            within(Duration::from_secs(600), &mut command).out()
        };
        let out = run(&["--analyzer", "count", "--format", "json"]);
        let total: Value = serde_json::from_str(out.lines().last().unwrap_or_default()).expect("JSON");
        let n = |key: &str| total[key].as_u64().unwrap_or_else(|| panic!("{key} in {out}"));
        let cursor = checkout().join("tests/cursor");
        for what in ["what=count", "what=count-call"] {
            let analyzer = cursor.to_string_lossy();
            let out = run(&["--analyzer", &analyzer, "--consume", "trace", "--opt", what]);
            let said = |name: &str| -> u64 {
                let after = out.split(&format!("\"{name}=")).nth(1).unwrap_or_else(|| panic!("no {name} in {out}"));
                after.split('"').next().unwrap_or_default().parse().expect("a number")
            };
            assert_eq!(said("insns"), n("insns"), "{which} {what}");
            if what == "what=count-call" {
                assert!(said("calls") >= n("insns") + n("aborted"), "{which}: {out}");
            }
        }
    }
}

#[test]
fn helpers_are_called_after_instructions_and_before_and_after_accesses() {
    for isa in ISAS {
        let said = cursor(isa, "after", &[]).code(7);
        assert_eq!(said.value("calls"), 1000 * turn(isa), "{isa:?}");
        let said = cursor(isa, "before", &[]).code(7);
        assert_eq!((said.value("before"), said.value("calls")), (2000, 2000), "{isa:?}");
    }
}

#[test]
fn every_nth_over_all_points_that_use_it() {
    for isa in [Isa::X86_64, Isa::Mips] {
        // Two evaluations for each instruction, in turn: the fifth, fifteenth, … is the first point's, the tenth, … the other's.
        let said = cursor(isa, "every", &["every=5"]).code(7);
        assert_eq!(said.value("insns"), 200 * turn(isa), "{isa:?}");
        assert_eq!(said.of("fetch").count() as u64, 200 * turn(isa), "{isa:?}");
        // Every tenth is always the other's.
        let said = cursor(isa, "every", &["every=10"]).code(7);
        assert_eq!((said.value("insns"), said.of("fetch").count() as u64), (0, 200 * turn(isa)), "{isa:?}");
    }
}

#[test]
fn random_sampling_has_its_rate_and_its_seed() {
    let sampled = |seed: &str| cursor(Isa::X86_64, "random", &[seed]).code(7).value("insns");
    let n = sampled("seed=1");
    // 4000 draws with probability 1/4: a standard deviation of 27.
    assert!((1000 - 140..=1000 + 140).contains(&n), "{n}");
    assert_eq!(n, sampled("seed=1"));
    assert_ne!(n, sampled("seed=2"));
}

#[test]
fn counters_and_variables_as_conditions() {
    for isa in [Isa::X86_64, Isa::Riscv64] {
        // The counter is 1, 2, 3, 4, 5, … when it is looked at.
        let said = cursor(isa, "counter", &[]).code(7);
        assert_eq!((said.value("other"), said.value("insns")), (1000 * turn(isa), 4), "{isa:?}");
        // Set by a helper at the first instruction, after that one has looked.
        let said = cursor(isa, "variable", &[]).code(7);
        assert_eq!(said.value("insns"), 1000 * turn(isa) - 1, "{isa:?}");
    }
}

#[test]
fn code_is_translated_anew_on_request() {
    for isa in [Isa::X86_64, Isa::Aarch64, Isa::Mips] {
        let said = cursor(isa, "renew", &[]).code(7);
        // The block that runs goes on to its end: one turn.
        assert_eq!((said.value("insns"), said.value("calls")), (turn(isa), 1000), "{isa:?}");
    }
}

#[test]
fn address_conditions() {
    for isa in ISAS {
        let buf = guest("loop", isa).sym("buf");
        let said = cursor(isa, "range", &[&format!("data={buf}-{}", buf + 4)]).code(7);
        assert_eq!((said.value("insns"), said.value("other"), said.value("calls")), (2000, 0, 200), "{isa:?}");
        assert_eq!((said.of("load").count(), said.of("store").count()), (1000, 1000), "{isa:?}");
        let last = said.of("store").next_back_value();
        assert_eq!(last["value"], "0x1", "{isa:?}: {last}");
        let said = cursor(isa, "range", &[&format!("data={}-{}", buf + 4, buf + 8)]).code(7);
        assert_eq!((said.value("insns"), said.value("calls")), (0, 0), "{isa:?}");
        assert_eq!(said.of("load").count() + said.of("store").count(), 0, "{isa:?}");
    }
}

trait Last<'a> {
    fn next_back_value(self) -> &'a Value;
}

impl<'a, I: Iterator<Item = &'a Value>> Last<'a> for I {
    fn next_back_value(self) -> &'a Value {
        self.last().expect("there is one")
    }
}

#[test]
fn helpers_get_the_access() {
    for isa in ISAS {
        let g = guest("loop", isa);
        let said = cursor(isa, "access", &[]).code(7);
        let texts = said.texts(2);
        assert_eq!(texts.len(), 2000, "{isa:?}");
        let (begin, load, buf) = (g.sym("begin"), g.sym("load"), g.sym("buf"));
        assert_eq!(texts[0], format!("pc={begin:#x} addr={buf:#x} size=4 value=0x3e8"), "{isa:?}");
        assert_eq!(texts[1], format!("pc={load:#x} addr={buf:#x} size=4 value=0x3e8"), "{isa:?}");
        assert_eq!(texts[1999], format!("pc={load:#x} addr={buf:#x} size=4 value=0x1"), "{isa:?}");
    }
}

/// Accesses that QEMU makes in helpers of its own reach the analyzer's, too, with what the stream says of them.
#[test]
fn helpers_get_accesses_made_in_helpers() {
    for (name, isa, from, to) in [
        ("x86_helper_accesses", Isa::X86_64, "begin", "done"),
        ("x86_gather", Isa::X86_64, "begin", "done"),
        ("ppc_blocks", Isa::Ppc64le, "begin", "done"),
        ("s390x_storage", Isa::S390x, "begin", "ex"),
    ] {
        let g = guest(name, isa);
        let t = g.trace();
        let expected: Vec<String> = t
            .events
            .iter()
            .filter(|e| (g.sym(from)..g.sym(to)).contains(&e.pc))
            .filter_map(|e| match &e.what {
                trapline_tests::What::Access(a) => Some(format!("pc={:#x} addr={:#x} size={}", e.pc, a.addr, a.size)),
                _ => None,
            })
            .collect();
        let opts = ["what=access".to_string(), format!("code={}-{}", g.sym(from), g.sym(to))];
        let said = run(&g, "tests/cursor", &opts, &[]);
        let got: Vec<String> =
            said.texts(2).iter().map(|t| t.split(" value").next().unwrap_or_default().to_string()).collect();
        assert!(!expected.is_empty(), "{name}");
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn registers_by_name() {
    for isa in ISAS {
        let said = cursor(isa, "register", &[&format!("regs={}", counter(isa))]).code(7);
        // In turn k: k at the store, the load, the subtraction, k - 1 at the branch (and in its delay slot).
        let k = 500_500;
        let expected = if isa == Isa::Mips { 5 * k - 2 * 1000 } else { 4 * k - 1000 };
        assert_eq!(said.value("sum"), expected, "{isa:?}");
        // Set to 0x1234 in the first turn: as many turns there are.
        let said = cursor(isa, "change", &[&format!("regs={}", counter(isa))]).code(7);
        assert_eq!(said.value("insns"), 0x1234 * turn(isa), "{isa:?}");
    }
}

#[test]
fn registers_in_the_stream() {
    for isa in ISAS {
        let second = match isa {
            Isa::X86_64 => "eflags",
            Isa::Aarch64 | Isa::Arm => "cpsr",
            _ => "sp",
        };
        let said = cursor(isa, "regs", &[&format!("regs={}+{second}", counter(isa))]).code(7);
        let word = if isa.word() == 8 { 8 } else { 4 };
        let set = said.of("regset").next_back_value()["registers"].as_str().unwrap();
        assert!(set.starts_with(&format!("{}:{word},{second}:", counter(isa))), "{isa:?}: {set}");
        let regs: Vec<&Value> = said.of("regs").collect();
        assert_eq!(regs.len() as u64, 1000 * turn(isa), "{isa:?}");
        let begin = format!("{:#x}", guest("loop", isa).sym("begin"));
        let counts: Vec<u64> =
            regs.iter().filter(|e| e["pc"] == begin.as_str()).map(|e| hex(&e["values"][0])).collect();
        assert_eq!(counts, (1..=1000).rev().collect::<Vec<u64>>(), "{isa:?}");
        // The flag for zero is set at the branch of the last turn only, and not where the flags have not been set yet.
        let zero = match isa {
            Isa::X86_64 => 1 << 6,
            Isa::Aarch64 | Isa::Arm => 1 << 30,
            _ => continue,
        };
        let at_branch: Vec<bool> =
            regs.chunks(turn(isa) as usize).map(|turn| hex(&turn.last().unwrap()["values"][1]) & zero != 0).collect();
        assert_eq!(at_branch.iter().filter(|z| **z).count(), 1, "{isa:?}");
        assert_eq!(at_branch.last(), Some(&true), "{isa:?}");
    }
}

fn hex(v: &Value) -> u64 {
    u64::from_str_radix(v.as_str().unwrap_or_default().trim_start_matches("0x"), 16).expect("a number")
}

#[test]
fn what_a_helper_may_do() {
    let said = cursor(Isa::X86_64, "refused", &["regs=rip"]).code(7);
    let texts = said.texts(1);
    // mov %ecx,(%rdi); mov (%rdi),%eax
    assert_eq!(texts[0], "memory=[89, 0f, 8b, 07] constant=7");
    assert_eq!(texts[1], "guest memory 0x8..0x9 cannot be read");
    assert!(texts[2].starts_with("register rip cannot be set"), "{}", texts[2]);
    for isa in [Isa::X86_64, Isa::Arm] {
        let said = cursor(isa, "leave", &[]).code(42);
        assert_eq!(said.of("end").count(), 1, "{isa:?}");
    }
}

#[test]
fn panic_in_a_helper_is_told_with_its_name_and_pc() {
    let g = guest("loop", Isa::X86_64);
    let said = cursor(Isa::X86_64, "panic", &[]);
    assert_ne!(said.finished.ended, Ended::Code(7));
    for part in ["`on_panic`", &format!("{:#x}", g.sym("begin")), "not today, vCPU 0", "src/qemu.rs"] {
        assert!(said.finished.err().contains(part), "'{part}' is not said: {}", said.finished.err());
    }
}

#[test]
fn unknown_registers_are_refused_with_the_known_ones() {
    let said = cursor(Isa::X86_64, "regs", &["regs=raxx"]);
    assert!(matches!(said.finished.ended, Ended::Code(c) if c != 7 && c != 0));
    assert!(said.finished.err().contains("no register `raxx` in x86_64; it has rax, rbx"), "{}", said.finished.err());
}

#[test]
fn rarer_points() {
    let g = guest("processes", Isa::X86_64);
    let rarer = |args: &[&str]| {
        let said = run(&g, "tests/cursor", &["what=rarer".into()], args);
        let texts: Vec<String> = said.texts(1).iter().map(|t| t.to_string()).collect();
        (said, texts)
    };
    let (said, texts) = rarer(&["syscalls"]);
    let out = said.finished.out();
    let numbers: Vec<u64> = out.lines().next().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    let has = |t: &str| texts.iter().any(|x| x.starts_with(t));
    assert_eq!(texts.iter().filter(|t| t.starts_with("vcpu_start")).collect::<Vec<_>>(), ["vcpu_start 0"]);
    assert!(has("mmap ") && texts.iter().any(|t| t.starts_with("mmap ") && t.contains("processes-")), "{texts:?}");
    assert!(has(&format!("image {:#x} 0x0", entry(&g))), "{texts:?}");
    assert!(has(&format!("syscall_ret {} 3", numbers[0])), "{texts:?}");
    // close(12345): EBADF.
    assert!(has(&format!("syscall_ret {} -9", numbers[1])), "{texts:?}");
    assert!(texts.iter().any(|t| t.ends_with(&format!(" {} {:#x}", numbers[1], 12345))), "{texts:?}");
    // write(1, "hi\n", 3) and a string that is read; both names.
    assert!(has("syscall write ") && has("syscall close "), "{texts:?}");
    assert!(has("kernel R 3 false") && has("kernel W "), "{texts:?}");
    assert!(has("exit Exit(0)"), "{texts:?}");

    let (_, texts) = rarer(&["fork"]);
    for t in ["fork parent", "fork child", "exit Exit("] {
        assert!(texts.iter().any(|x| x.starts_with(t)), "{t}: {texts:?}");
    }
    let (_, texts) = rarer(&["segv"]);
    assert!(texts.iter().any(|t| t == "exit Signal(11)"), "{texts:?}");

    let g = guest("threads", Isa::X86_64);
    let said = run(&g, "tests/cursor", &["what=rarer".into()], &[]);
    let texts = said.texts(1);
    let starts = texts.iter().filter(|t| t.starts_with("vcpu_start")).count();
    let exits = texts.iter().filter(|t| t.starts_with("vcpu_exit")).count();
    // The first thread ends with the process.
    assert!(starts > 1 && exits == starts - 1, "{starts} {exits}");

    let g = guest("signals", Isa::X86_64);
    let said = run(&g, "tests/cursor", &["what=rarer".into()], &[]);
    // Its 1000 faults.
    assert_eq!(said.texts(1).iter().filter(|t| t.starts_with("signal 11 ")).count(), 1000);
}

fn entry(g: &Guest) -> u64 {
    use object::Object;
    let bytes = std::fs::read(&g.path).expect("the guest is there");
    object::File::parse(&*bytes).expect("an ELF file").entry()
}

/// Points that are filled in C. 4005 instructions run on x86_64: 2 before the loop, 3 after it.
#[test]
fn points_in_c() {
    let g = guest("loop", Isa::X86_64);
    let said = run(&g, "analyzers/c-example", &[], &[]).code(7);
    assert_eq!((said.of("fetch").count(), said.of("store").count(), said.of("load").count()), (4005, 1000, 0));
    assert_eq!(said.texts(1), ["calls=4"]);
    let said = run(&g, "analyzers/c-example", &["align=4096".into()], &[]).code(7);
    assert_eq!(said.of("fetch").count(), 1, "the entry point is the page's first");
}

#[test]
fn inprocess_counts_without_events() {
    let g = guest("loop", Isa::X86_64);
    qemu("x86_64", "trace");
    let count = |opts: &[&str]| -> Value {
        let mut command = Command::new(trapline());
        command.args(["run", "--analyzer", "inprocess", "--format", "json"]).args(opts).arg("--").arg(&g.path);
        let f = within(Duration::from_secs(600), &mut command).code(7);
        serde_json::from_str(f.err().lines().last().unwrap_or_default()).expect("JSON")
    };
    let v = count(&[]);
    let expected =
        [("insns", 4005), ("loads", 1000), ("stores", 1000), ("syscalls", 1), ("loads_4", 1000), ("loads_8", 0)];
    for (name, n) in expected {
        assert_eq!(v[name], n, "{name}: {v}");
    }
    // The values 1000, 999, … 1: 489 of ten bits, 256 of nine, … one of one bit.
    let bits: Vec<u64> = v["value_bits"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(bits[..12], [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 489, 0]);
    let sampled: u64 =
        count(&["--opt", "values=10"])["value_bits"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!(sampled, 100);
}

#[test]
fn qemu_tells_which_analyzer_it_has() {
    let f = within(
        Duration::from_secs(60),
        Command::new(qemu("x86_64", "trace")).args(["-trapline", "help"]).arg(&guest("loop", Isa::X86_64).path),
    )
    .code(0);
    for part in ["analyzer: trace ", "target x86_64", "points: fetch, mem", "values (on or off)", "socket=PATH"] {
        assert!(f.out().contains(part), "'{part}' is not said: {}", f.out());
    }
}

/// What the decoder knows is there at translation: the loop's instructions, by hand.
#[test]
fn a_fetch_knows_class_target_registers_and_text() {
    let of = |isa: Isa| -> &[&str] {
        match isa {
            Isa::X86_64 => &[
                "Other [store] to None uses rcx,rdi defines  sp false/false mov [rdi], ecx",
                "Other [load] to None uses rdi defines rax sp false/false mov eax, [rdi]",
                "Other [] to None uses rcx defines rcx,rflags sp false/false dec ecx",
                "CondBranch [] to Some(BEGIN) uses rflags defines  sp false/false jne 0xBEGIN",
            ],
            Isa::Aarch64 => &[
                "Other [store] to None uses x1,x2 defines  sp false/false str w2, [x1]",
                "Other [load] to None uses x1 defines x3 sp false/false ldr w3, [x1]",
                "Other [] to None uses x2 defines x2,nzcv sp false/false subs w2, w2, #1",
                "CondBranch [] to Some(BEGIN) uses nzcv defines  sp false/false b.ne #0xBEGIN",
            ],
            Isa::Arm => &[
                "Other [store] to None uses r1,r2 defines  sp false/false str r2, [r1]",
                "Other [load] to None uses r1 defines r3 sp false/false ldr r3, [r1]",
                "Other [] to None uses r2 defines r2,cpsr sp false/false subs r2, r2, #1",
                "CondBranch [] to Some(BEGIN) uses cpsr defines  sp false/false bne #0xBEGIN",
            ],
            Isa::Mips => &[
                "Other [store] to None uses $5,$6 defines  sp false/false sw $a2, ($a1)",
                "Other [load] to None uses $5 defines $7 sp false/false lw $a3, ($a1)",
                "Other [] to None uses $6 defines $6 sp false/false addiu $a2, $a2, -1",
                "CondBranch [] to Some(BEGIN) uses $6 defines  sp false/false bnez $a2, 0xBEGIN",
                "Other [] to None uses  defines  sp false/false nop",
            ],
            _ => panic!("{isa:?} is not listed"),
        }
    };
    for isa in [Isa::X86_64, Isa::Aarch64, Isa::Arm, Isa::Mips] {
        let begin = guest("loop", isa).sym("begin");
        let said = cursor(isa, "decode", &[]).code(7);
        let want: Vec<String> = of(isa).iter().map(|l| l.replace("BEGIN", &format!("{begin:x}"))).collect();
        let mut got: Vec<String> =
            said.texts(3).iter().map(|t| t.split_once(' ').map_or("", |(_, t)| t).replace('\t', " ")).collect();
        got.truncate(want.len());
        assert_eq!(got, want, "{isa:?}");
    }
}

/// A helper stops tracing in the hundredth turn: that turn's block is the last. The system call that ends the program starts it again.
#[test]
fn an_analyzer_stops_and_starts_tracing() {
    for isa in ISAS {
        let g = guest("loop", isa);
        let said = cursor(isa, "stop", &[]).code(7);
        let turns = said.of("fetch").filter(|e| number(&e["pc"]) == g.sym("begin")).count();
        assert_eq!(turns, 100, "{isa:?}");
        // The assembler chooses the branch's length.
        let last = said.of("fetch").last().unwrap();
        assert_eq!(number(&last["pc"]) + last["len"].as_u64().unwrap(), g.sym("done"), "{isa:?}");
        assert_eq!(said.value("calls"), 100);
        let stops: Vec<&Value> = said.of("trace_stop").collect();
        assert_eq!(stops.len(), 1, "{isa:?}: {:?}", said.events);
        assert_eq!(number(&stops[0]["pc"]), g.sym("begin"), "{isa:?}");
    }
}

/// Each system call that comes back starts tracing once more; where it went on is in the stream.
#[test]
fn an_analyzer_starts_tracing_at_system_calls() {
    let g = guest("work", Isa::X86_64);
    let said = run(&g, "tests/cursor", &["what=stop".into()], &[]).code(0);
    let calls: Vec<&Value> = said.of("syscall").collect();
    let starts: Vec<&Value> = said.of("trace_start").collect();
    assert!(calls.len() > 3);
    // The last one ends the program.
    assert_eq!(starts.len(), calls.len() - 1);
    for (i, (start, call)) in starts.iter().zip(&calls).enumerate() {
        // `syscall` has two bytes. It began traced.
        assert_eq!(number(&start["pc"]), number(&call["pc"]) + 2);
        assert_eq!(start["depth"], i + 2);
    }
}

fn number(v: &Value) -> u64 {
    let text = v.as_str().and_then(|t| t.strip_prefix("0x")).expect("an address");
    u64::from_str_radix(text, 16).expect("a hexadecimal number")
}
