//! System calls: their names, and what the kernel reads and writes for them, as the ISA's own headers have it.

use consumer::Event;
use std::collections::BTreeMap;
use trapline_tests::{ALL, Ended, Isa, Trace, guest, same};

/// A range of bytes: whether written, start, end.
type Touched = (bool, u64, u64);

/// Ranges in order, those that meet as one: how many pieces the kernel makes of them is its own business.
fn merged(mut all: Vec<Touched>) -> Vec<Touched> {
    all.sort_unstable();
    all.dedup();
    let mut out: Vec<Touched> = Vec::new();
    for (write, start, end) in all {
        match out.last_mut() {
            Some(last) if last.0 == write && start <= last.2 => last.2 = last.2.max(end),
            _ => out.push((write, start, end)),
        }
    }
    out
}

/// What the kernel touched, by the guest's sections; those after the first signal's delivery are in the section that it came in.
fn sections(t: &Trace) -> BTreeMap<u64, Vec<Touched>> {
    let (mut section, mut all) = (0, BTreeMap::<u64, Vec<Touched>>::new());
    let first = t.streams()[0];
    for (_, e) in t.others().filter(|(stream, _)| *stream == first) {
        match e {
            Event::Syscall { name, args, .. } if name == "close" && (1001..2000).contains(&args[0]) => {
                section = args[0] - 1000
            }
            Event::Kernel { write, addr, len, unknown: false } => {
                all.entry(section).or_default().push((*write, *addr, *addr + *len));
            }
            _ => {}
        }
    }
    all
}

/// `kernel`'s lines of a kind: section, and what is touched there.
fn said(out: &str, read: &str, write: &str) -> BTreeMap<u64, Vec<Touched>> {
    let mut all = BTreeMap::<u64, Vec<Touched>>::new();
    for line in out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] != read && words[0] != write {
            continue;
        }
        let addr = u64::from_str_radix(words[2], 16).unwrap();
        let len: u64 = words[3].parse().unwrap();
        all.entry(words[1].parse().unwrap()).or_default().push((words[0] == write, addr, addr + len));
    }
    all
}

#[track_caller]
fn kernel(isa: Isa, qemu_args: &[&str]) -> Trace {
    let mut run = guest("kernel", isa).run().counts();
    for a in qemu_args {
        // A child would print into the same lines.
        run = run.qemu_arg(*a).arg("alone");
    }
    run.trace()
}

#[track_caller]
fn compare(isa: Isa, t: &Trace) {
    assert_eq!(t.ended(), Ended::Code(0), "{isa:?}: {}", t.finished.out());
    let out = t.finished.out();
    let traced = sections(t);
    let exact = said(&out, "R", "W");
    let among = said(&out, "r", "w");
    assert!(exact.values().map(Vec::len).sum::<usize>() > 50 && !among.is_empty(), "{isa:?}: {out}");
    let last = *traced.keys().last().unwrap();
    // The last section is the printing.
    for section in 1..last {
        let traced = traced.get(&section).cloned().unwrap_or_default();
        if let Some(among) = among.get(&section) {
            for (write, start, end) in among {
                let found = merged(traced.clone()).iter().any(|t| t.0 == *write && t.1 <= *start && *end <= t.2);
                assert!(found, "{isa:?}, section {section}: {start:#x}..{end:#x} is not in {traced:#x?}");
            }
            continue;
        }
        let expected = exact.get(&section).cloned().unwrap_or_default();
        assert_eq!(
            merged(traced),
            merged(expected),
            "{isa:?}, section {section} of the guest (left: traced; writes are true)\n{out}"
        );
    }
}

#[test]
fn what_the_kernel_touches_is_told() {
    for isa in ALL {
        compare(isa, &kernel(isa, &[]));
    }
}

/// QEMU's own printing of calls reads the guest's memory, too; that is not the kernel.
#[test]
fn names_and_results_are_those_that_strace_prints() {
    for isa in ALL {
        let t = kernel(isa, &["-strace"]);
        compare(isa, &t);
        let first = t.streams()[0];
        // A call whose return was told.
        let (mut told, mut name) = (Vec::new(), String::new());
        for (_, e) in t.others().filter(|(stream, _)| *stream == first) {
            match e {
                Event::Syscall { name: n, .. } => name = n.clone(),
                Event::SyscallRet { result, .. } => told.push((name.clone(), *result)),
                _ => {}
            }
        }
        let err = t.finished.err();
        let pid = err.split(' ').next().unwrap().to_string();
        let printed: Vec<(String, String)> = err
            .lines()
            .filter_map(|l| l.strip_prefix(&format!("{pid} ")))
            .filter_map(|l| Some((l.split_once('(')?.0.to_string(), l.rsplit_once(" = ")?.1.to_string())))
            .collect();
        assert!(printed.len() > 80, "{isa:?}: {err}");
        // A result that QEMU prints on a line of its own, or in its own words, is left out.
        let mut compared = 0;
        let mut at = 0;
        for (name, result) in &printed {
            let Some(i) = told[at..].iter().position(|(n, _)| n == name) else {
                panic!("{isa:?}: {name} was printed, but not told after {at} calls: {:?}", &told[at..]);
            };
            at += i + 1;
            let value = result.split([' ', '(']).next().unwrap_or_default();
            let number = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok().map(|v| v as i64),
                None => value.parse().ok(),
            };
            let told = told[at - 1].1;
            let expected = match (number, result.split_once("errno=")) {
                (_, Some((_, errno))) => errno.split(' ').next().and_then(|e| e.parse::<i64>().ok()).map(|e| -e),
                (number, None) => number,
            };
            if let Some(expected) = expected {
                compared += 1;
                // Addresses are the guest's, which may be 32 bits.
                assert_eq!(told & 0xffff_ffff, expected & 0xffff_ffff, "{isa:?}: {name} = {result}");
            }
        }
        assert!(compared > 80, "{isa:?}: {compared} results of {}", printed.len());
    }
}

/// The numbers of calls that the guest's headers have: their names, by every way that a consumer learns of them.
#[test]
fn names_are_those_of_the_isas_headers() {
    for isa in ALL {
        let t = guest("kernel", isa).run().counts().trace().code(0);
        let names: BTreeMap<u64, &str> = t
            .others()
            .filter_map(|(_, e)| match e {
                Event::Syscall { number, name, .. } => Some((*number, name.as_str())),
                _ => None,
            })
            .collect();
        let out = t.finished.out();
        let mut seen = 0;
        for line in out.lines().filter_map(|l| l.strip_prefix("N ")) {
            let (number, name) = line.split_once(' ').unwrap();
            if let Some(told) = names.get(&number.parse().unwrap()) {
                seen += 1;
                assert_eq!(*told, name, "{isa:?}: number {number}");
            }
        }
        // The guest makes all of them.
        assert_eq!(seen, out.lines().filter(|l| l.starts_with("N ")).count(), "{isa:?}: {names:?}");
    }
}

/// `read(0, b, 16); movb b, %al`: the kernel's write precedes the load.
#[test]
fn what_the_kernel_wrote_stands_before_the_load_of_it() {
    let t = guest("x86_read", Isa::X86_64).run().stdin(b"sixteen bytes ..").trace().code(0);
    let story = t.story(0);
    let at = story.iter().position(|l| l == "I read").expect("the call's instruction");
    same(
        &story[at..at + 6],
        &["I read", "syscall read read", "kernel_write buffer 16", "syscall_ret 0 16", "I load", "R buffer 1"],
    );
    // Fewer bytes than it asks for, and none.
    for (input, told) in [(&b"four"[..], Some("kernel_write buffer 4")), (b"", None)] {
        let t = guest("x86_read", Isa::X86_64).run().stdin(input).trace().code(0);
        let story = t.story(0);
        let found: Vec<&str> = story.iter().map(|s| s.as_str()).filter(|l| l.starts_with("kernel_")).collect();
        assert_eq!(found, told.into_iter().collect::<Vec<_>>());
    }
}
