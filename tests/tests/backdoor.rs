//! The backdoor: what the guest asks for is what happens, exactly, on every ISA; and without Trapline nothing happens.

use std::process::Command;
use std::time::Duration;
use trapline_tests::{ALL, Guest, Isa, Trace, guest, qemu, same, within};

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
    for isa in [Isa::X86_64, Isa::Aarch64, Isa::Mips] {
        let f = within(LIMIT, Command::new(qemu(isa.target(), "plain")).arg(guest("backdoor_ops", isa).path)).code(0);
        is_unharmed(&f.out(), isa);
    }
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
