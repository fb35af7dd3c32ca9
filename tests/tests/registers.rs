//! What instructions leave in registers: against arithmetic, memory and bytes worked out by hand.

use serde_json::Value;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Guest, Isa, Symbols, guest, qemu, scratch, trapline, unpack, within};

const LIMIT: Duration = Duration::from_secs(600);

fn run(g: &Guest, args: &[&str]) -> Value {
    qemu(g.isa.target(), "registers");
    let mut command = Command::new(trapline());
    command.env("QEMU_RAND_SEED", "1").arg("run").args(args).args(["--format", "json", "--"]).arg(&g.path);
    let f = within(LIMIT, &mut command);
    serde_json::from_str(f.err().lines().last().unwrap_or_default()).unwrap_or(Value::Null)
}

fn hex(v: &Value) -> u64 {
    let text = v.as_str().unwrap();
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// A number as disassemblers write it.
fn immediate(text: &str) -> Option<u64> {
    let text = text.trim_start_matches('#');
    let (minus, text) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let n = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some(if minus { n.wrapping_neg() } else { n })
}

/// A register by its whole name, and the bits that `name` is of it; only where the rest becomes 0.
fn register(isa: Isa, name: &str) -> Option<(String, u32)> {
    let numbered = |rest: &str| rest.parse::<u32>().is_ok();
    match isa {
        Isa::Aarch64 if name == "sp" => Some((name.into(), 64)),
        Isa::Aarch64 => {
            let n = name.strip_prefix(['x', 'w']).filter(|n| numbered(n))?;
            Some((format!("x{n}"), if name.starts_with('x') { 64 } else { 32 }))
        }
        Isa::X86_64 => match name.strip_prefix(['r', 'e'])? {
            n if numbered(n) => Some((name.into(), 64)),
            n if n.ends_with('d') => n.strip_suffix('d').filter(|n| numbered(n)).map(|n| (format!("r{n}"), 32)),
            n if n.len() == 2 => Some((format!("r{n}"), if name.starts_with('r') { 64 } else { 32 })),
            _ => None,
        },
        Isa::Riscv64 => Some((if name == "s0" { "fp" } else { name }.into(), 64)),
        _ if name == "pc" => None,
        _ => {
            let alias = [("sb", "r9"), ("sl", "r10"), ("fp", "r11"), ("ip", "r12")].iter().find(|a| a.0 == name);
            Some((alias.map_or(name, |a| a.1).into(), 32))
        }
    }
}

/// What `text` makes of which register, if it is sums and moves of what is `known`.
fn evaluate(isa: Isa, text: &str, known: &HashMap<String, u64>) -> Option<(String, u64)> {
    let (op, operands) = text.split_once(' ')?;
    let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
    let (to, bits) = register(isa, operands.first()?)?;
    let value = |text: &str| match immediate(text) {
        Some(n) => Some(n),
        None => {
            let (name, bits) = register(isa, text)?;
            known.get(&name).map(|v| if bits == 32 { v & 0xffff_ffff } else { *v })
        }
    };
    let op = op.trim_start_matches("c.").trim_end_matches(".w");
    let sum = match (op, &operands[..]) {
        ("mov" | "mv" | "li" | "movs", [_, a]) => value(a)?,
        ("add" | "addi" | "adds", [d, a]) => value(d)?.wrapping_add(value(a)?),
        ("add" | "addi" | "adds", [_, a, b]) => value(a)?.wrapping_add(value(b)?),
        ("sub" | "subs", [d, a]) => value(d)?.wrapping_sub(value(a)?),
        ("sub" | "subs", [_, a, b]) => value(a)?.wrapping_sub(value(b)?),
        ("lea", [_, place]) => {
            let place = place.strip_prefix('[')?.strip_suffix(']')?;
            let (base, offset) = place.split_once(['+', '-'])?;
            let offset = immediate(offset)?;
            let minus = place.as_bytes()[base.len()] == b'-';
            value(base)?.wrapping_add(if minus { offset.wrapping_neg() } else { offset })
        }
        _ => return None,
    };
    Some((to, if bits == 32 { sum & 0xffff_ffff } else { sum }))
}

/// Registers that an instruction left, by name.
type Left = Vec<(String, u64)>;

/// Sums and moves of a real program's, with what came before: each must be as arithmetic has it.
#[test]
fn registers_obey_arithmetic() {
    for isa in [Isa::X86_64, Isa::Aarch64, Isa::Riscv64, Isa::Arm, Isa::Thumb] {
        let g = guest("work", isa);
        let folder = scratch();
        let path = folder.path().join("events");
        run(&g, &["--analyzer", "registers", "--skip", "2000", "--count", "50000", "-o", path.to_str().unwrap()]);
        let text = std::fs::read_to_string(&path).unwrap();
        let (mut sets, mut known) = (HashMap::new(), HashMap::new());
        // Instructions that are under a Thumb IT's condition, and so may do nothing.
        let (mut checked, mut conditional) = (0, 0);
        // The instruction before, and what it left.
        let mut last: Option<(String, String, Left)> = None;
        for line in text.lines() {
            let e: Value = serde_json::from_str(line).unwrap();
            match e["ev"].as_str().unwrap() {
                "regset" => {
                    let name = e["registers"].as_str().unwrap().split(':').next().unwrap().to_string();
                    sets.insert(e["set"].as_u64().unwrap(), name);
                }
                "fetch" => {
                    if let Some((pc, text, left)) = last.take() {
                        if let Some((to, value)) = evaluate(isa, &text, &known).filter(|_| conditional == 0) {
                            let found = left.iter().find(|l| l.0 == to).map(|l| l.1);
                            assert_eq!(found, Some(value), "{isa:?}, {to} after {text} at {pc}: {left:x?}");
                            checked += 1;
                        }
                        known.extend(left);
                        let op = text.split(' ').next().unwrap_or_default();
                        let it = matches!(isa, Isa::Arm | Isa::Thumb) && op.starts_with("it");
                        conditional = if it { op.len() - 1 } else { usize::saturating_sub(conditional, 1) };
                    }
                    let text = e["text"].as_str().unwrap_or_default();
                    last = Some((e["pc"].to_string(), text.into(), Vec::new()));
                }
                "regs" => {
                    let (pc, _, left) = last.as_mut().expect("registers of no instruction");
                    assert_eq!(
                        (e["pc"].to_string(), e["when"].as_str()),
                        (pc.clone(), Some("after")),
                        "{isa:?}: {line}"
                    );
                    left.push((sets[&e["set"].as_u64().unwrap()].clone(), hex(&e["values"][0])));
                }
                "syscall" | "signal" => known.clear(),
                _ => {}
            }
        }
        assert!(checked > 1000, "{isa:?}: {checked} sums and moves");
    }
}

/// A record of the championships' traces.
#[derive(Debug, PartialEq)]
struct Record {
    pc: u64,
    class: u8,
    /// Of loads and stores: address, size; CBP2025: updates its base; has an offset (stores).
    access: Option<(u64, u8)>,
    updates: bool,
    offset: bool,
    /// Of branches: where it goes if it is taken.
    branch: Option<Option<u64>>,
    inputs: Vec<u8>,
    outputs: Vec<(u8, u128)>,
}

/// Reads a trace as the readers of the championships do, with what that of CBP2025 asserts.
fn championship(bytes: &[u8], cbp: bool) -> Vec<Record> {
    let mut records = Vec::new();
    let rest = Cell::new(bytes);
    let take = |n: usize| {
        let (taken, left) = rest.get().split_at_checked(n).expect("it ends within a record");
        rest.set(left);
        taken.iter().rev().fold(0u128, |w, b| w << 8 | u128::from(*b))
    };
    let byte = || take(1) as u8;
    while !rest.get().is_empty() {
        let (pc, class) = (take(8) as u64, byte());
        let mut record = Record {
            pc,
            class,
            access: None,
            updates: false,
            offset: false,
            branch: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        let memory = matches!(class, 1 | 2);
        if memory {
            record.access = Some((take(8) as u64, byte()));
            if cbp {
                record.updates = byte() == 1;
                record.offset = class == 2 && byte() == 1;
            }
        }
        assert!(if cbp { matches!(class, 0..=7 | 9..=11) } else { class < 8 }, "{record:x?}");
        if matches!(class, 3..=5 | 9..=11) {
            let taken = byte() == 1;
            assert!(taken || class == 3, "{record:x?}");
            record.branch = Some(taken.then(|| take(8) as u64));
        }
        let count = byte();
        record.inputs.extend((0..count).map(|_| byte()));
        let count = byte();
        let outputs: Vec<u8> = (0..count).map(|_| byte()).collect();
        for n in outputs {
            assert!(n <= if cbp { 65 } else { 64 }, "{record:x?}");
            record.outputs.push((n, take(if (32..64).contains(&n) { 16 } else { 8 })));
        }
        if cbp && memory {
            let outputs: Vec<u8> = record.outputs.iter().map(|o| o.0).collect();
            let both = outputs.iter().filter(|n| **n < 32 && record.inputs.contains(n)).count();
            if class == 2 {
                assert!(outputs.len() <= 1 && (outputs.len() == 1) == record.updates, "{record:x?}");
                let fixed = 1 + usize::from(record.offset);
                assert!(record.inputs.len() >= fixed, "{record:x?}");
                let stored = (record.inputs.len() - fixed).max(1);
                assert_eq!(usize::from(record.access.unwrap().1) % stored, 0, "{record:x?}");
                assert!(!record.updates || outputs[0] == record.inputs[0], "{record:x?}");
            } else {
                assert!(!outputs.is_empty() && both <= 1, "{record:x?}");
                assert!(!record.updates || (both == 1 && outputs.len() > 1), "{record:x?}");
            }
        }
        records.push(record);
    }
    records
}

fn feed(g: &Guest, kind: &str, path: &Path, more: &[&str]) -> (Value, Vec<u8>) {
    let told = run(g, &[&["--feed", kind, "-o", path.to_str().unwrap()], more].concat());
    (told, unpack(path))
}

/// A program of thirteen instructions; what the traces hold is worked out from its source.
#[test]
fn championship_traces_by_hand() {
    let g = guest("aarch64_vectors", Isa::Aarch64);
    let symbols = Symbols::read(&g.path);
    let at = |name: &str| symbols.get(name);
    let (start, buf, out) = (at("_start"), at("buf"), at("out"));
    // Byte i of the buffer is i.
    let number = |from: &[usize]| from.iter().rev().fold(0u128, |w, i| w << 8 | *i as u128);
    let bytes = |from: usize, n: usize| number(&(from..from + n).collect::<Vec<_>>());
    // Of structures of four words each every fourth word.
    let lane = |k: usize| number(&(0..16).map(|i| i / 4 * 16 + k * 4 + i % 4).collect::<Vec<_>>());
    let literal = start + 4 * 14;
    let first = bytes(0, 8);
    for cbp in [true, false] {
        let load = |i: u64, addr: u64, size: u8, each: u8, inputs: &[u8], outputs: &[(u8, u128)]| Record {
            pc: start + 4 * i,
            class: 1,
            access: Some((addr, if cbp { size } else { each })),
            updates: false,
            offset: false,
            branch: None,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
        };
        let store = |i, addr, size, each, inputs: &[u8]| Record { class: 2, ..load(i, addr, size, each, inputs, &[]) };
        let alu = |i, inputs: &[u8], outputs: &[(u8, u128)]| Record {
            class: 0,
            access: None,
            ..load(i, 0, 0, 0, inputs, outputs)
        };
        let q = |n: usize| (32 + n as u8, bytes(16 * n, 16));
        let want = [
            load(0, literal, 8, 8, &[], &[(1, buf.into())]),
            load(1, literal + 8, 8, 8, &[], &[(2, out.into())]),
            load(2, buf, 32, 16, &[1], &[q(0), q(1)]),
            store(3, out, 32, 16, &[2, 32, 33]),
            load(4, buf, 64, 16, &[1], &[(36, lane(0)), (37, lane(1)), (38, lane(2)), (39, lane(3))]),
            load(5, buf, 16, 8, &[1], &[(5, first), (6, bytes(8, 8))]),
            alu(6, &[], &[(7, 1)]),
            load(7, buf, 8, 8, &[1, 5, 7], &[(7, first)]),
            load(8, buf, 8, 8, &[1, 5, 7], &[(5, first)]),
            // QEMU's block is 512 bytes here, of which the size's byte holds 255.
            store(9, out, 255, 255, &[2]),
            alu(10, &[], &[(8, 94)]),
            alu(11, &[], &[(0, 0)]),
        ];
        let folder = scratch();
        let (told, bytes) = feed(&g, if cbp { "cbp2025" } else { "cvp1" }, &folder.path().join("t.gz"), &[]);
        let read = championship(&bytes, cbp);
        assert_eq!(read[..12], want);
        assert_eq!((read.len(), read[12].class, &read[12].outputs[..]), (13, 0, &[][..]), "the system call");
        assert_eq!((&told["records"], &told["dropped"]["stores_of_loads"]), (&13.into(), &1.into()));
        // The first record, byte by byte.
        let mut golden = start.to_le_bytes().to_vec();
        golden.push(1);
        golden.extend(literal.to_le_bytes());
        golden.push(8);
        golden.extend(cbp.then_some(0));
        golden.extend([0, 1, 1]);
        golden.extend(buf.to_le_bytes());
        assert_eq!(bytes[..golden.len()], golden);
    }
}

/// A real program: the pcs follow, and what is loaded is what was stored from registers.
#[test]
fn championship_traces_hold_together() {
    let g = guest("work", Isa::Aarch64);
    let count = run(&g, &["--analyzer", "count", "--count", "300000"]);
    for (kind, cbp) in [("cvp1", false), ("cbp2025", true)] {
        let folder = scratch();
        let (told, bytes) = feed(&g, kind, &folder.path().join("t.gz"), &["--count", "300000"]);
        let records = championship(&bytes, cbp);
        assert_eq!((&told["instructions"], &count["insns"]), (&300_000.into(), &300_000.into()));
        assert_eq!(records.len() as u64 + told["dropped"]["outcome_unknown"].as_u64().unwrap(), 300_000);
        let mut registers: HashMap<u8, u128> = HashMap::new();
        let mut memory: HashMap<u64, u8> = HashMap::new();
        let (mut classes, mut reloaded, mut returns) = ([0; 12], 0, 0);
        let mut calls = Vec::new();
        for (i, r) in records.iter().enumerate() {
            let next = r.branch.flatten().unwrap_or(r.pc + 4);
            if let Some(after) = records.get(i + 1) {
                assert_eq!(after.pc, next, "after {r:x?}");
            }
            classes[usize::from(r.class)] += 1;
            match r.class {
                9 | 10 => calls.push(r.pc + 4),
                11 if calls.pop() == r.branch.flatten() => returns += 1,
                _ => {}
            }
            // A system call, which may write memory; or something that looks like one.
            let system_call = r.class == 0 && matches!(r.outputs[..], [] | [(0, _)]);
            match r.access {
                // One register, all of it or its lower bytes
                Some((addr, size)) if r.class == 2 && r.inputs.len() == 2 && !r.offset && size <= 16 => {
                    let stored = match r.inputs[1] {
                        65 => Some(0),
                        n => registers.get(&n).copied(),
                    };
                    for k in 0..u64::from(size) {
                        match stored {
                            Some(v) => memory.insert(addr + k, (v >> (8 * k)) as u8),
                            None => memory.remove(&(addr + k)),
                        };
                    }
                }
                Some((addr, size)) if r.class == 2 => {
                    let size = if size == 255 { 512 } else { 4 * u64::from(size) };
                    for at in addr..addr + size {
                        memory.remove(&at);
                    }
                }
                Some((addr, size)) if r.outputs.len() == 1 && r.outputs[0].0 != 65 && size <= 16 => {
                    for k in 0..u64::from(size) {
                        let byte = (r.outputs[0].1 >> (8 * k)) as u8;
                        if let Some(known) = memory.insert(addr + k, byte) {
                            assert_eq!(known, byte, "{k} at {r:x?}");
                            reloaded += u64::from(k == 0);
                        }
                    }
                }
                _ => {}
            }
            registers.extend(r.outputs.iter().copied());
            if system_call {
                memory.clear();
            }
        }
        assert!(reloaded > 1000, "{reloaded}");
        let [alu, loads, stores, conditional, direct, indirect, ..] = classes;
        assert!(alu > 50_000 && loads > 10_000 && stores > 1000 && conditional > 10_000, "{classes:?}");
        if cbp {
            assert!(direct > 0 && classes[9] > 100 && classes[11] > 100, "{classes:?}");
            assert!(returns * 10 > classes[11] * 9, "{returns} returns of {classes:?}");
        } else {
            assert!(direct > 100 && indirect > 100, "{classes:?}");
        }
    }
}

/// Other ISAs, and recordings without registers, are refused.
#[test]
fn what_has_no_registers_is_refused() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (recording, with) = (path("t.trapline"), path("with.trapline"));
    let g = guest("loop", Isa::Aarch64);
    let command = |args: &[&str]| {
        let mut command = Command::new(trapline());
        command.args(args);
        within(LIMIT, &mut command)
    };
    command(&["record", "-o", &recording, "--", g.path.to_str().unwrap()]).code(7);
    let said = command(&["replay", &recording, "--feed", "cbp2025", "-o", &path("t.gz")]).code(125);
    assert!(said.err().contains("record --registers"), "{}", said.err());
    command(&["record", "--registers", "-o", &with, "--", g.path.to_str().unwrap()]).code(7);
    // What is played back is what the run writes.
    command(&["replay", &with, "--feed", "cbp2025", "-o", &path("replayed.gz")]).code(0);
    command(&["run", "--feed", "cbp2025", "-o", &path("live.gz"), "--", g.path.to_str().unwrap()]).code(7);
    let bytes = |name: &str| std::fs::read(path(name)).unwrap();
    assert_eq!(bytes("replayed.gz"), bytes("live.gz"));
    let g = guest("loop", Isa::Riscv64);
    let said = command(&["run", "--feed", "cvp1", "-o", &path("t.gz"), "--", g.path.to_str().unwrap()]).code(125);
    assert!(said.err().contains("registers are AArch64's"), "{}", said.err());
}
