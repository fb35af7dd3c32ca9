//! The backdoor: what the guest asks for is what happens, exactly, on every ISA; and without Trapline nothing happens.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trapline_tests::{ALL, Guest, Isa, Trace, checkout, guest, qemu, same, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(120);

/// Instructions from `begin` to the call at `stop`, not counting it: 1000 turns of a loop, one instruction before it, and what
/// loads the command and the argument. Counted in the guest's source.
fn region(isa: Isa) -> u64 {
    match isa {
        Isa::X86_64 | Isa::I386 | Isa::S390x => 1 + 2 * 1000 + 2,
        Isa::Mips | Isa::Mipsel => 1 + 3 * 1000 + 3,
        _ => 1 + 2 * 1000 + 3,
    }
}

fn off(g: &Guest) -> trapline_tests::Run {
    g.run().setting("start=off")
}

#[test]
fn exactly_what_is_between_start_and_stop() {
    for isa in ALL {
        let g = guest("backdoor_region", isa);
        let t = off(&g).counts().trace().code(0);
        assert_eq!(t.total().insns, region(isa), "{isa:?}");
        assert_eq!(t.between("begin", "stop").insns, region(isa), "{isa:?}");
        let told: Vec<String> = t.story(0).into_iter().filter(|l| l.starts_with("trace_")).collect();
        assert_eq!(told.len(), 2, "{isa:?}: {told:?}");
        assert!(told[0].starts_with("trace_start 1 1 region"), "{isa:?}: {told:?}");
        assert_eq!(told[1], "trace_stop 1 0 stop", "{isa:?}");
    }
}

#[test]
fn first_and_last_instruction_are_the_right_ones() {
    for isa in ALL {
        let g = guest("backdoor_region", isa);
        let t = off(&g).trace().code(0);
        let lines: Vec<String> = t.story(0);
        let start = lines.iter().position(|l| l.starts_with("trace_start")).unwrap();
        let stop = lines.iter().position(|l| l.starts_with("trace_stop")).unwrap();
        assert_eq!(lines[start + 1], "I begin", "{isa:?}");
        let last = t.events.iter().rfind(|e| matches!(e.what, trapline_tests::What::Fetch(_))).unwrap();
        let trapline_tests::What::Fetch(bytes) = &last.what else { unreachable!() };
        assert_eq!(last.pc + bytes.len() as u64, g.sym("stop"), "{isa:?}");
        assert_eq!((stop - start - 1) as u64, region(isa), "{isa:?}: nothing else comes between them");
    }
}

#[test]
fn each_of_eight_threads_is_exact() {
    for isa in ALL {
        let g = guest("backdoor_region", isa);
        let t = off(&g).counts().arg("8").arg("3").trace().code(0);
        assert_eq!(t.total().insns, 8 * 3 * region(isa), "{isa:?}");
        assert_eq!(t.between("begin", "stop").insns, 8 * 3 * region(isa), "{isa:?}");
    }
}

/// What `backdoor_ops` prints, under Trapline: its calls in their order.
const OPS: &str = "\
present
version 65536
features 1
features 7 0
echo 42
whoami 1
state 0
stop -22
start 1
start 2
state 2
stop 1
set_depth 1
start all 1
state all 1
stop all 0
start 9 -22
roi_begin 0
roi_end 0
roi_begin 0
roi_begin bad -14
define 1
define 2
define 1
define 0 -22
event 0
mark 0
mark bad -14
log 0
log bad -14
log 0 0
send 0
send long -22
recv -1
thread_name 0
clock 0
clock 0
clock rises 1
clock bad -14
clock 9 -22
counter 0
starts 2
stats_dump 0
stats_reset 0
select -1
analyzer 1 -22
symbol 0
filter -22
asid 0
exit -1
abort -1
break 0
unknown -38
user -38
mark end 0
mark over -14
log over -14
clock over -14";

fn ops() -> Vec<&'static str> {
    OPS.lines().collect()
}

fn out(t: &Trace) -> Vec<String> {
    t.finished.out().lines().map(|l| l.to_string()).collect()
}

#[test]
fn every_operation_gives_what_the_book_says() {
    for isa in ALL {
        let g = guest("backdoor_ops", isa);
        let t = off(&g).counts().trace().code(0);
        println!("{isa:?}");
        same(&out(&t), &ops());
        let told: Vec<String> = t
            .others()
            .filter(|(_, o)| matches!(o, consumer::Event::Guest { .. }))
            .map(|(_, o)| o.name().to_string())
            .collect();
        let names = "trace_start trace_start trace_stop trace_stop trace_start trace_stop roi_begin roi_end roi_begin define define \
                     define event mark log log send thread_name stats_dump stats_reset symbol call mark";
        assert_eq!(told.join(" "), names, "{isa:?}");
    }
}

#[test]
fn what_the_guest_says_is_in_the_stream_in_its_place() {
    for isa in [Isa::X86_64, Isa::I386, Isa::Mips] {
        let g = guest("backdoor_ops", isa);
        let t = off(&g).counts().trace().code(0);
        let said: Vec<String> = t
            .story(0)
            .into_iter()
            .map(|l| l.rsplit_once(' ').map_or(l.clone(), |(what, _)| what.to_string()))
            .filter(|l| {
                ["roi", "define", "event", "mark", "log", "send", "thread", "stats", "symbol", "call"]
                    .iter()
                    .any(|p| l.starts_with(p))
            })
            .collect();
        // i386 has registers for four arguments.
        let four = isa == Isa::I386;
        let event = if four { "event 1 [11, 12, 13, 0] <request>" } else { "event 1 [11, 12, 13, 14] <request>" };
        let call = if four { "call 0x8001 [1, 2, 3, 4, 0, 0] -38" } else { "call 0x8001 [1, 2, 3, 4, 5, 6] -38" };
        let expected = [
            "roi_begin 7 <parse>",
            "roi_end 7 <parse>",
            "roi_begin 8 <>",
            "define 1 <request>",
            "define 2 <reply>",
            "define 1 <request>",
            event,
            "mark 99 <here>",
            "log 3 false <line of text>",
            "log 3 false <>",
            "send 5 false [1, 2, 255]",
            "thread_name <worker>",
            "stats_dump <phase>",
            "stats_reset <>",
            "symbol 8 <jitted>",
            call,
            "mark 1 <end>",
        ];
        println!("{isa:?}");
        same(&said, &expected);
    }
}

/// What `backdoor_ops` prints where nobody answers.
#[track_caller]
fn is_unharmed(text: &str, isa: Isa) {
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), ops().len(), "{isa:?}: {text}");
    assert_eq!(lines[0], "absent", "{isa:?}");
    for line in &lines[1..] {
        let expected = match *line {
            l if l.starts_with("clock rises") || l.starts_with("starts") => " 0",
            _ => " -38",
        };
        assert!(line.ends_with(expected), "{isa:?}: {line}");
    }
}

#[test]
fn on_the_machine_itself_nothing_happens() {
    if cfg!(target_arch = "x86_64") {
        for isa in [Isa::X86_64, Isa::I386] {
            let f = within(LIMIT, &mut Command::new(guest("backdoor_ops", isa).path)).code(0);
            is_unharmed(&f.out(), isa);
        }
    }
}

#[test]
fn under_unpatched_qemu_nothing_happens() {
    // The one that the set-up builds anyway.
    let isa = Isa::X86_64;
    let f = within(LIMIT, Command::new(qemu(isa.target(), "plain")).arg(guest("backdoor_ops", isa).path)).code(0);
    is_unharmed(&f.out(), isa);
}

#[test]
fn patched_but_not_asked_nothing_happens() {
    for isa in ALL {
        // Without -trapline, and with the backdoor off.
        let g = guest("backdoor_ops", isa);
        let f = within(LIMIT, Command::new(qemu(isa.target(), "trace")).arg(&g.path)).code(0);
        is_unharmed(&f.out(), isa);
        let t = off(&g).setting("backdoor=off").counts().trace().code(0);
        is_unharmed(&t.finished.out(), isa);
    }
}

#[test]
fn without_the_magic_it_is_the_isas_illegal_instruction() {
    for isa in ALL {
        let g = guest("backdoor_illegal", isa);
        let sigill = |name: &str| format!("{name} signal 4 at 0");
        let mut expected = vec![sigill("no_magic"), sigill("half_magic"), "good_magic came back".to_string()];
        if matches!(isa, Isa::Mips | Isa::Mipsel) {
            expected.push(sigill("delay"));
        }
        let t = off(&g).counts().trace().code(0);
        assert_eq!(out(&t), expected, "{isa:?}");
        // Nobody asked: the good magic is none.
        expected[2] = sigill("good_magic");
        let f = within(LIMIT, Command::new(qemu(isa.target(), "trace")).arg(&g.path)).code(0);
        assert_eq!(f.out().lines().collect::<Vec<_>>(), expected, "{isa:?}");
        // Traced, the instruction aborts, and the next one is not the next.
        let t = g.run().trace().code(0);
        assert_eq!((t.at("no_magic_at").insns, t.at("no_magic_at").aborted), (0, 1), "{isa:?}");
        assert_eq!((t.at("good_magic_at").insns, t.at("good_magic_at").aborted), (1, 0), "{isa:?}");
    }
}

/// Retired instructions of a run, and where they were, with these settings.
fn insns(g: &Guest, settings: &[&str]) -> u64 {
    let mut run = g.run().counts();
    for s in settings {
        run = run.setting(s);
    }
    run.trace().code(if g.name == "loop" { 7 } else { 0 }).total().insns
}

#[test]
fn windows_are_exact_by_retired_instructions() {
    for isa in ALL {
        let g = guest("loop", isa);
        let all = insns(&g, &[]);
        assert!(all > 3000, "{isa:?}");
        assert_eq!(insns(&g, &["skip=1000", "count=777"]), 777, "{isa:?}");
        assert_eq!(insns(&g, &["skip=1000"]), all - 1000, "{isa:?}");
        assert_eq!(insns(&g, &["count=1"]), 1, "{isa:?}");
        assert_eq!(insns(&g, &["skip=100000", "count=5"]), 0, "{isa:?}");
        // Where a branch and its delay slot cannot be parted the window moves by one.
        let slack = if matches!(isa, Isa::Mips | Isa::Mipsel) { 2 * all / 107 } else { 0 };
        let (n, expected) = (insns(&g, &["every=100", "for=7"]), all / 107 * 7 + (all % 107).saturating_sub(100));
        assert!(n.abs_diff(expected) <= slack, "{isa:?}: {n} of {all}, not {expected}");
    }
}

#[test]
fn a_window_begins_with_the_right_instruction() {
    // x86_count: mov; then turns of dec, jnz.
    let g = guest("x86_count", Isa::X86_64);
    let t = g.run().setting("skip=4").setting("count=3").trace().code(0);
    let lines: Vec<String> = t.story(0).into_iter().filter(|l| l.starts_with("I ")).collect();
    let begin = "I begin".to_string();
    assert_eq!(lines.len(), 3);
    // The fifth is the second turn's jnz.
    assert_eq!(lines[1], begin);
    assert_ne!(lines[0], begin);
    assert_ne!(lines[2], begin);
}

#[test]
fn repeat_loops_count_once_in_windows() {
    // Until the 7th instruction, with and without what came before being traced.
    let g = guest("x86_helper_accesses", Isa::X86_64);
    let all: Vec<u64> = g
        .trace()
        .code(0)
        .events
        .iter()
        .filter(|e| matches!(e.what, trapline_tests::What::Fetch(_)))
        .map(|e| e.pc)
        .collect();
    for (skip, count) in [(0, all.len()), (3, 4), (10, 9), (all.len() - 2, 2)] {
        let settings = [format!("skip={skip}"), format!("count={count}")];
        let t = g.run().setting(&settings[0]).setting(&settings[1]).trace().code(0);
        let pcs: Vec<u64> =
            t.events.iter().filter(|e| matches!(e.what, trapline_tests::What::Fetch(_))).map(|e| e.pc).collect();
        assert_eq!(pcs, all[skip..skip + count], "skip {skip}, count {count}");
    }
}

#[test]
fn ranges_and_functions_are_decided_at_translation() {
    for isa in [Isa::X86_64, Isa::Thumb, Isa::Ppc64le] {
        let g = guest("loop", isa);
        let range = format!("range={:#x}-{:#x}", g.sym("begin"), g.sym("done"));
        let t = g.run().counts().setting(&range).trace().code(7);
        assert_eq!((t.total(), t.total().loads), (t.between("begin", "done"), 1000), "{isa:?}");
    }
    let g = guest("processes", Isa::X86_64);
    let run = |args: &[&str]| {
        let mut command = Command::new(trapline());
        command.args(["run", "-a", "count", "--format", "json", "-o", "-"]).args(args).arg("--").arg(&g.path);
        let f = within(LIMIT, command.args(["work", "1000"])).code(7);
        let v: serde_json::Value = serde_json::from_str(&f.out()).unwrap();
        v["insns"].as_u64().unwrap()
    };
    let t = g.run().counts().arg("work").arg("1000").trace().code(7);
    assert_eq!(run(&["--function", "work"]), t.between("work", "work.end").insns);
    assert_eq!(run(&["--skip", "100", "--count", "50"]), 50);
}

#[test]
fn a_region_of_interest_alone_is_traced() {
    let g = guest("backdoor_roi", Isa::X86_64);
    let whole = |roi: &str| g.run().setting(&format!("roi={roi}")).counts().trace().code(0);
    let (inner, outer, none) = (whole("inner"), whole("2"), whole("nothing"));
    assert_eq!(none.total().insns, 0);
    let once = inner.between("inner_work", "inner_work.end").insns;
    // 10 turns of the outer one, with two inner ones each.
    assert!(once > 20 * 100 && inner.between("outer_work", "outer_work.end").insns == 0);
    assert_eq!(inner.at("inner_work").insns, 20);
    assert_eq!(outer.at("outer_work").insns, 10);
    assert_eq!(outer.at("inner_work").insns, 0, "region 2 has no name, and is over by then");
}

#[test]
fn one_thread_starts_them_all() {
    let g = guest("backdoor_threads", Isa::X86_64);
    let t = off(&g).arg("all").counts().trace().code(0);
    // Each of four threads is told, and those that come later begin traced.
    let starts = |t: &Trace| {
        t.events.iter().filter(|e| is_start(e)).map(|e| e.stream).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(starts(&t), 5, "the main thread and four that ran");
    assert!(t.at("late").insns >= 1, "a thread that began afterwards is traced");
    let t = off(&g).arg("one").counts().trace().code(0);
    assert_eq!(starts(&t), 1);
    assert_eq!(t.at("late").insns, 0);
}

fn is_start(e: &trapline_tests::Event) -> bool {
    use consumer::{Event, GuestEvent};
    matches!(&e.what, trapline_tests::What::Other(Event::Guest { what: GuestEvent::Start { .. }, .. }))
}

#[test]
fn a_million_starts_and_stops() {
    let g = guest("backdoor_million", Isa::X86_64);
    let t = off(&g).counts().trace().code(0);
    // Between START and STOP: two instructions that load the command and the scope.
    assert_eq!(t.total().insns, 2 * 1_000_000);
    assert_eq!(t.lost(), 0);
}

#[test]
fn ending_qemu_is_only_allowed_if_asked_for() {
    let g = guest("backdoor_host", Isa::X86_64);
    let f = |settings: &[&str], what: &str| {
        let mut run = off(&g).arg(what);
        for s in settings {
            run = run.setting(s);
        }
        run.counts().trace()
    };
    assert_eq!(out(&f(&[], "exit").code(3)), ["exit -1"]);
    f(&["allow=exit"], "exit").code(77);
    let t = f(&["allow=exit"], "abort");
    assert!(t.finished.err().contains("trapline: the guest aborts: so it is"), "{}", t.finished.err());
    t.code(134);
    let folder = trapline_tests::scratch();
    std::fs::write(folder.path().join("5"), "from the host").unwrap();
    let recv = format!("recv={}", folder.path().display());
    assert_eq!(out(&f(&[&recv], "recv").code(0)), ["recv -1"]);
    assert_eq!(out(&f(&[&recv, "allow=recv"], "recv").code(0)), ["recv 4 <from>", "recv 9 < the host>", "recv 0 <>"]);
    assert_eq!(out(&f(&["allow=select"], "select").code(0)), ["select 0", "select -22"]);
}

#[test]
fn random_registers_harm_nobody() {
    for isa in [Isa::X86_64, Isa::I386, Isa::Aarch64, Isa::Mips, Isa::Riscv64] {
        let g = guest("backdoor_fuzz", isa);
        let t = off(&g).arg("1").arg("20000").counts().trace().code(0);
        assert_eq!(out(&t), ["20000 calls"], "{isa:?}");
        assert!(t.finished.err().is_empty(), "{}", t.finished.err());
    }
}

#[test]
fn trapctl_traces_one_command_and_nothing_else() {
    let folder = trapline_tests::scratch();
    let built = within(
        LIMIT,
        Command::new("make")
            .arg("-C")
            .arg(checkout().join("guest-lib"))
            .arg(format!("OUT={}", folder.path().display())),
    );
    built.code(0);
    let trapctl = folder.path().join("trapctl");
    assert!(trapctl.metadata().unwrap().len() < 8 << 10, "a few KB");
    // Natively it runs the command, and says that nobody is there.
    let f = within(LIMIT, Command::new(&trapctl).args(["run", "--", "sh", "-c", "echo ran; exit 9"])).code(9);
    assert_eq!(f.out(), "ran\n");
    assert_eq!(within(LIMIT, Command::new(&trapctl).arg("present")).code(3).out(), "absent\n");
    let g = guest("x86_count", Isa::X86_64);
    let script =
        format!("echo before; {0} run -- {1}; {0} mark after 7; echo after", trapctl.display(), g.path.display());
    let mut command = Command::new(trapline());
    command
        .args(["run", "--start-off", "-a", "count", "--format", "json", "-o", "-", "--", "/bin/sh", "-c"])
        .arg(script);
    let f = within(LIMIT, &mut command).code(0);
    let last = f.out().lines().last().unwrap().to_string();
    let v: serde_json::Value = serde_json::from_str(&last).unwrap_or_else(|e| panic!("{e}: {}", f.out()));
    // x86_count has 200004 instructions; trapctl's own after START are few.
    let n = v["insns"].as_u64().unwrap();
    assert!((200_004..200_004 + 3000).contains(&n), "{n}");
}

#[test]
fn results_are_broken_down_by_region_of_interest() {
    let g = guest("backdoor_roi", Isa::X86_64);
    let run = |analyzer: &str| {
        let mut command = Command::new(trapline());
        command.args([
            "run",
            "-a",
            analyzer,
            "--consume",
            analyzer,
            "--by",
            "roi",
            "--format",
            "json",
            "-o",
            "-",
            "--",
        ]);
        let f = within(LIMIT, command.arg(&g.path)).code(0);
        serde_json::from_str::<serde_json::Value>(f.out().lines().last().unwrap()).unwrap()
    };
    let counts = run("count");
    let t = g.run().counts().trace().code(0);
    let of = |name: &str| {
        let rows = counts["per_region"].as_array().unwrap();
        rows.iter().find(|r| r["region"] == name).unwrap_or_else(|| panic!("{name}: {counts}"))["insns"]
            .as_u64()
            .unwrap()
    };
    // inner_work(100) in the region, inner_work(3) outside.
    let (inner, outer) =
        (t.between("inner_work", "inner_work.end").insns, t.between("outer_work", "outer_work.end").insns);
    assert!(of("inner") > inner * 9 / 10 && of("inner") < inner + 20 * 30, "{counts}, {inner}");
    assert!(of("#2") >= outer && of("#2") < outer + 10 * 30, "{counts}, {outer}");
    assert_eq!(of("") + of("inner") + of("#2"), counts["insns"].as_u64().unwrap());
    let hot = run("hotspots");
    let rows = hot["functions"].as_array().unwrap();
    let inner_rows: Vec<_> = rows.iter().filter(|r| r["region"] == "inner").collect();
    assert_eq!(inner_rows[0]["function"], "inner_work", "{hot}");
    assert!(rows.iter().any(|r| r["region"] == "#2" && r["function"] == "outer_work"), "{hot}");
    let f = within(LIMIT, Command::new(trapline()).args(["run", "-a", "trace", "--by", "roi", "--"]).arg(&g.path));
    assert!(f.err().contains("--by roi is for"), "{}", f.err());
}

#[test]
fn calls_across_pages_and_in_it_blocks() {
    for isa in [Isa::X86_64, Isa::I386, Isa::Riscv64, Isa::Thumb] {
        let g = guest("backdoor_edges", isa);
        let mut expected = vec!["straddle 42", "straddle 42"];
        if isa == Isa::Thumb {
            let turn = ["in_it 43 40", "last_in_it 40 42", "in_16_bits 42"];
            expected.extend(turn.iter().chain(&turn));
        }
        // Traced and not.
        assert_eq!(out(&off(&g).counts().trace().code(0)), expected, "{isa:?}");
        assert_eq!(out(&g.run().counts().trace().code(0)), expected, "{isa:?}");
    }
}

#[test]
fn code_of_16_bits_calls_and_is_traced() {
    let g = guest("backdoor_code16", Isa::I386);
    let sigill = |name: &str| format!("{name} signal 4 at 0, in it");
    let (no_magic, half, wide) = (sigill("no magic"), sigill("half magic"), sigill("of 32 bits"));
    let expected = ["probe 65536", "echo 42", &no_magic, &half, &wide, "stop 0"].map(String::from);
    let t = off(&g).trace().code(0);
    assert_eq!(out(&t), expected);
    let lines = t.story(0);
    let start = lines.iter().position(|l| l.starts_with("trace_start")).expect("a start");
    assert_eq!((lines[start].as_str(), lines[start + 1].as_str()), ("trace_start 1 1 start16", "I begin16"));
    assert_eq!((t.total().insns, t.between("begin16", "stop16").insns), (6, 6));
    assert_eq!(lines[start + 7], "trace_stop 1 0 stop16");
    // Traced as a whole, too; each illegal one aborts where it is.
    let t = g.run().counts().trace().code(0);
    assert_eq!(out(&t)[..5], expected[..5]);
    assert_eq!((t.at("call16").insns, t.at("call16").aborted), (1, 2));
    assert_eq!((t.at("wide16").insns, t.at("wide16").aborted), (0, 1));
    // Nobody answers: the probe is a no-op, each call is illegal.
    let nobody = |f: trapline_tests::Finished| {
        let (echo, stop) = (sigill("echo"), sigill("stop"));
        let expected = ["probe 0", &echo, &no_magic, &half, &wide, &stop];
        assert_eq!(f.out().lines().collect::<Vec<_>>(), expected);
    };
    nobody(within(LIMIT, Command::new(qemu("i386", "trace")).arg(&g.path)).code(0));
    if cfg!(target_arch = "x86_64") {
        let f = within(LIMIT, &mut Command::new(&g.path));
        // A kernel may have none.
        if f.ended != trapline_tests::Ended::Code(3) {
            nobody(f.code(0));
        }
    }
}

#[test]
fn code_of_mips16_does_the_same() {
    let folder = trapline_tests::scratch();
    let (root, path) = (checkout(), folder.path().join("ops"));
    let mut cc = Command::new(format!("{}-gcc", Isa::Mipsel.triplet()));
    cc.args(["-O1", "-mips16", "-static", "-Wall", "-Werror", "-o"]).arg(&path);
    cc.arg("-I").arg(root.join("guest-lib/include")).arg(root.join("tests/guests/backdoor_ops.c"));
    within(LIMIT, &mut cc).code(0);
    let symbols = trapline_tests::Symbols::read(&path);
    let g = Guest { name: "backdoor_ops", isa: Isa::Mipsel, path, symbols };
    let t = off(&g).counts().trace().code(0);
    same(&out(&t), &ops());
    // Traced as a whole the stream holds together, too.
    g.run().counts().trace().code(0);
    let f = within(LIMIT, Command::new(qemu("mipsel", "trace")).arg(&g.path)).code(0);
    is_unharmed(&f.out(), Isa::Mipsel);
}

#[test]
fn analyzers_own_operations_are_answered_by_its_method() {
    let folder = trapline_tests::scratch();
    let root = checkout().display();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    file(
        "Cargo.toml",
        format!(
            "[package]\nname = \"answers\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"staticlib\"]\n\
             [dependencies]\ninstrument = {{ path = \"{root}/instrument\", package = \"trapline-instrument\" }}\n\
             macros = {{ path = \"{root}/macros\", package = \"trapline-macros\" }}\n[workspace]\n"
        ),
    );
    file(
        "src/lib.rs",
        "use instrument::prelude::*;\nuse std::sync::atomic::{AtomicU64, Ordering};\n\
         struct Answers { calls: AtomicU64 }\n\
         #[analyzer]\nimpl Analyzer for Answers {\n\
         fn new(_: &Qemu) -> Self { Answers { calls: AtomicU64::new(0) } }\n\
         fn backdoor(&self, vcpu: &mut Vcpu, call: Call) -> u64 {\n\
         let n = self.calls.fetch_add(1, Ordering::Relaxed);\n\
         match call.op() {\n\
         0x8001 => call.args().iter().sum::<u64>() + 1000 * vcpu.index() as u64,\n\
         0x8002 => n,\n\
         0x41 => call.data().iter().map(|b| u64::from(*b)).sum(),\n\
         // Not its own: what it gives is not the guest's result.\n\
         _ => 12345,\n\
         } } }\n"
            .to_string(),
    );
    let g = guest("backdoor_user", Isa::X86_64);
    let mut command = Command::new(trapline());
    command.args(["run", "--start-off", "-a"]).arg(folder.path()).args(["-o", "/dev/null", "--"]).arg(&g.path);
    let f = within(Duration::from_secs(900), &mut command).code(0);
    // Two built-in calls and two of its own came before the one that asks for their number.
    assert_eq!(f.out(), "mark 0\nuser 21\nanalyzer 294\nmark 0\ncalls 4\nother 12345\n", "{}", f.err());
}

#[test]
fn instructions_are_counted_for_who_asks() {
    let g = guest("backdoor_icount", Isa::X86_64);
    // Nobody counts.
    assert_eq!(out(&off(&g).counts().trace().code(0)), ["-38"]);
    // Between the two calls: what stores the first result, 100 instructions, what loads the command and its arguments; and the first call.
    let t = off(&g).setting("icount=on").counts().trace().code(0);
    assert_eq!(out(&t), ["105"]);
    // The same traced, and in a window.
    assert_eq!(out(&g.run().setting("icount=on").counts().trace().code(0)), ["105"]);
    assert_eq!(out(&g.run().setting("skip=10").setting("count=20000").counts().trace().code(0)), ["105"]);
}

#[test]
fn under_the_distributions_qemu_nothing_happens() {
    let mut tried = 0;
    for isa in ALL {
        let program = format!("/usr/bin/qemu-{}", isa.target());
        if std::path::Path::new(&program).exists() {
            let f = within(LIMIT, Command::new(&program).arg(guest("backdoor_ops", isa).path)).code(0);
            is_unharmed(&f.out(), isa);
            let f = within(LIMIT, Command::new(&program).arg(guest("backdoor_illegal", isa).path)).code(0);
            assert!(f.out().contains("good_magic signal 4 at 0"), "{isa:?}: {}", f.out());
            tried += 1;
        }
    }
    println!("{tried} ISAs (Debian: qemu-user)");
}

/// A guest that works when it is told to, and says how long it took.
struct Worker(Child);

impl Worker {
    fn start(command: &mut Command) -> Worker {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut worker = Worker(command.spawn().unwrap());
        // Until everything is translated.
        (0..20).for_each(|_| _ = worker.work());
        worker
    }

    /// Processor time in ns.
    fn work(&mut self) -> f64 {
        let mut took = [0; 8];
        self.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        self.0.stdout.as_mut().unwrap().read_exact(&mut took).unwrap();
        i64::from_ne_bytes(took) as f64
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Ratios of processor time to unpatched QEMU's, `never` started and `stopped`: the median of slices of some milliseconds that take turns,
/// so that what else the machine does weighs on all alike. What the host's addresses do to one process is the same for all its slices:
/// there are several processes.
fn ratios(processes: usize, slices: usize) -> [f64; 2] {
    let g = guest("backdoor_idle", Isa::X86_64);
    let folder = scratch();
    let (plain, traced) = (qemu("x86_64", "plain"), qemu("x86_64", "trace"));
    let mut ratios = [Vec::new(), Vec::new()];
    for process in 0..processes {
        let worker = |how: &str| {
            let socket = folder.path().join(format!("{process}{how}"));
            let settings = format!("socket={},start=off", socket.display());
            Worker::start(
                Command::new(&traced).args(["-trapline", &settings]).arg(&g.path).args([how, "200", "slices"]),
            )
        };
        let mut plain = Worker::start(Command::new(&plain).arg(&g.path).args(["never", "200", "slices"]));
        let mut ours = [worker("never"), worker("stopped")];
        for i in 0..slices {
            // Whoever comes first finds what the one before it left in the caches.
            let mut took = [0.0; 3];
            for who in (0..3).map(|w| (w + i) % 3) {
                took[who] = if who == 0 { plain.work() } else { ours[who - 1].work() };
            }
            (0..2).for_each(|k| ratios[k].push(took[k + 1] / took[0]));
        }
    }
    ratios.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    })
}

/// What is left in the code of a guest that is not traced would cost tens of percent.
#[test]
fn not_traced_a_guest_runs_at_the_speed_of_unpatched_qemu() {
    let [never, stopped] = ratios(2, 150);
    println!("never started {never:.4}, stopped {stopped:.4}");
    assert!(never < 1.1 && stopped < 1.1, "never started {never:.4}, stopped {stopped:.4}");
}

#[test]
#[ignore = "a minute, on a quiet machine"]
fn not_traced_a_guest_runs_at_the_speed_of_unpatched_qemu_to_the_percent() {
    let [never, stopped] = ratios(8, 500);
    println!("never started {never:.4}, stopped {stopped:.4}");
    assert!(never < 1.01 && stopped < 1.01, "never started {never:.4}, stopped {stopped:.4}");
}
