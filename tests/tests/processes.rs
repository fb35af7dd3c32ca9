//! Processes and threads: each has its stream, none of it is lost however they end, nothing is told twice.

use consumer::{EndReason, Event};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Ended, Isa, Run, Trace, What, guest, qemu, within};

/// One with a strong memory order and one with a weak one, 32 and 64 bits, both byte orders.
const SOME: [Isa; 3] = [Isa::X86_64, Isa::Aarch64, Isa::Mips];

fn process(isa: Isa, args: &[&str]) -> Run {
    let g = guest("processes", isa);
    args.iter().fold(g.run().values(), |run, arg| run.arg(*arg))
}

fn stores(t: &Trace, function: &str) -> u64 {
    t.between(function, &format!("{function}.end")).stores
}

/// The streams in which a function's instructions retired.
fn streams_of(t: &Trace, function: &str) -> BTreeSet<usize> {
    let range = t.symbols.get(function)..t.symbols.get(&format!("{function}.end"));
    t.events.iter().filter(|e| range.contains(&e.pc) && matches!(e.what, What::Fetch(_))).map(|e| e.stream).collect()
}

/// The last event of each stream.
fn ends(t: &Trace) -> Vec<String> {
    t.streams().into_iter().map(|s| t.story(s).pop().unwrap_or_default()).collect()
}

#[test]
fn fork_and_exec_give_streams_of_their_own_and_nothing_twice() {
    for isa in SOME {
        let t = process(isa, &["fork"]).trace().code(0);
        assert_eq!((stores(&t, "before"), stores(&t, "in_child"), stores(&t, "leaf")), (1, 1, 1), "{isa:?}");
        let (parent, child, leaf) = (streams_of(&t, "before"), streams_of(&t, "in_child"), streams_of(&t, "leaf"));
        assert_eq!((parent.len(), child.len(), leaf.len()), (1, 1, 1));
        assert_eq!(parent.union(&child).chain(&leaf).collect::<BTreeSet<_>>().len(), 3, "three streams");
        // main before the fork ran in the parent's stream only; after it in the child's, too.
        let child = *child.first().unwrap();
        let exec = t.others().find_map(|(s, e)| match e {
            Event::Exec { path } => Some((s, path.clone())),
            _ => None,
        });
        let program = guest("processes", isa).path;
        assert_eq!(exec, Some((child, program.to_str().unwrap().as_bytes().to_vec())));
        // The new image tells its mappings.
        let leaf = *leaf.first().unwrap();
        assert!(t.others().any(|(s, e)| s == leaf && matches!(e, Event::Image { .. })), "{isa:?}");
        assert!(t.others().any(|(s, e)| s == leaf && matches!(e, Event::Mmap { path, .. } if path.ends_with(program.file_name().unwrap().as_encoded_bytes()))));
        let forks = t.others().filter(|(_, e)| matches!(e, Event::Fork { .. })).count();
        assert_eq!(forks, 1);
        let all = ends(&t);
        assert!(
            all.contains(&"end exec 0".to_string())
                && all.contains(&"end exit 5".to_string())
                && all.contains(&"end exit 0".to_string()),
            "{all:?}"
        );
    }
}

#[test]
fn exec_that_fails_goes_on_being_traced() {
    for isa in SOME {
        let t = process(isa, &["failed-exec"]).trace().code(0);
        assert_eq!((stores(&t, "before"), stores(&t, "leaf")), (1, 1), "{isa:?}");
    }
}

#[test]
fn a_chain_of_vfork_and_exec_does_not_hang() {
    for isa in SOME {
        let t = process(isa, &["vfork", "5"]).trace().code(5);
        assert_eq!(stores(&t, "leaf"), 6, "{isa:?}");
        assert_eq!(streams_of(&t, "leaf").len(), 6);
    }
}

#[test]
fn each_of_a_hundred_threads_has_its_stream_and_its_end() {
    for isa in SOME {
        let t = process(isa, &["threads", "100"]).only("thread", "thread.end").trace().code(0);
        assert_eq!(stores(&t, "thread"), 100, "{isa:?}");
        assert_eq!(t.streams().len(), 101);
        assert!(ends(&t).iter().all(|l| l.starts_with("end ")));
        // The last one may still be on its way out when main, which has joined it, ends the process.
        let threads = t.others().filter(|(_, e)| matches!(e, Event::End { reason: EndReason::Thread, .. })).count();
        assert!(threads >= 99, "{threads}");
    }
}

#[test]
fn exit_group_while_a_thread_spins_ends_every_stream() {
    for isa in SOME {
        let t = process(isa, &["spin"]).only("work", "work.end").trace().code(3);
        assert_eq!(stores(&t, "work"), 1000, "{isa:?}");
        assert!(stores(&t, "spin") >= 100_000);
        assert_eq!(ends(&t), ["end exit 3", "end exit 3"]);
    }
}

#[test]
fn fatal_signals_leave_everything_before_them_readable() {
    for isa in SOME {
        for (which, signal) in [("abort", 6), ("segv", 11)] {
            let t = process(isa, &[which]).only("work", "work.end").trace();
            assert_eq!(t.ended(), Ended::Signal(signal), "{isa:?} {which}");
            assert_eq!(stores(&t, "work"), 1000, "{isa:?} {which}");
            assert_eq!(ends(&t), [format!("end signal {signal}")]);
        }
    }
}

#[test]
fn a_signal_without_a_handler_leaves_everything_before_it_readable() {
    for isa in SOME {
        let t = process(isa, &["term"]).only("work", "work.end").trace();
        assert_eq!(t.ended(), Ended::Signal(15), "{isa:?}");
        assert_eq!(stores(&t, "work"), 1000, "{isa:?}");
        // QEMU leaves this signal to the host, which ends the process before anyone could write an end: the last thing is the call.
        assert!(matches!(t.others().last(), Some((_, Event::Syscall { .. }))), "{isa:?}: {:?}", t.others().last());
    }
}

#[test]
fn sigkill_to_itself_leaves_everything_before_it_readable() {
    for isa in SOME {
        let t = process(isa, &["kill"]).only("work", "work.end").trace();
        assert_eq!(t.ended(), Ended::Signal(9), "{isa:?}");
        assert_eq!(stores(&t, "work"), 1000, "{isa:?}");
    }
}

#[test]
fn a_default_segv_is_an_aborted_instruction() {
    let t = process(Isa::X86_64, &["segv"]).trace();
    assert_eq!(t.between("main", "main.end").aborted, 1);
}

#[test]
fn system_calls_have_numbers_arguments_and_results() {
    for isa in trapline_tests::ALL {
        let t = process(isa, &["syscalls"]).counts().trace().code(0);
        let out = t.finished.out();
        let numbers: Vec<u64> = out.lines().next().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        let calls: Vec<&Event> = t.others().map(|(_, e)| e).filter(|e| !matches!(e, Event::Kernel { .. })).collect();
        let after = |number: u64, skip: usize| {
            let at = calls
                .iter()
                .enumerate()
                .filter(|(_, e)| matches!(e, Event::Syscall { number: n, .. } if *n == number))
                .nth(skip);
            let (i, call) = at.unwrap_or_else(|| panic!("{isa:?}: no system call {number}"));
            let Event::Syscall { args, .. } = call else { unreachable!() };
            let Event::SyscallRet { number: n, result } = calls[i + 1] else {
                panic!("{isa:?}: {:?} after a call", calls[i + 1])
            };
            assert_eq!(*n, number);
            (args, *result)
        };
        // The first write is printf's.
        let (args, result) = after(numbers[0], 1);
        assert_eq!((args[0], args[2], result), (1, 3, 3), "{isa:?}");
        let (args, result) = after(numbers[1], 0);
        assert_eq!((args[0], result), (12345, -9), "{isa:?}: EBADF");
        assert!(
            calls.iter().any(|e| matches!(e, Event::Syscall { number, .. } if *number == numbers[2])),
            "{isa:?}: exit_group"
        );
    }
}

#[test]
fn the_guest_neither_sees_nor_closes_our_descriptors() {
    for isa in SOME {
        let t = process(isa, &["fds"]).only("work", "work.end").trace().code(0);
        // What the test's own process leaks shows without Trapline, too.
        let alone = within(
            Duration::from_secs(60),
            Command::new(qemu(isa.target(), "trace")).arg(&guest("processes", isa).path).arg("fds"),
        );
        assert_eq!(t.finished.out(), alone.out(), "{isa:?}: descriptors that the guest could close");
        assert_eq!(stores(&t, "work"), 1000);
    }
}
