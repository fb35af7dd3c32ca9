//! What simulators read, of real programs, through readers of our own: written from the formats' public definitions and the simulators' rules, apart
//! from what writes.

use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use trapline_tests::drmemtrace::drmemtrace;
use trapline_tests::{Guest, Isa, guest, python, qemu, scratch, trapline, unpack, within};

const LIMIT: Duration = Duration::from_secs(600);

/// Runs a guest with `args` for `trapline run`; the last line of standard error.
fn run(g: &Guest, guest_args: &[&str], args: &[&str]) -> Value {
    qemu(g.isa.target(), "trace");
    let mut command = Command::new(trapline());
    // The same instructions each time: the C library's random bytes are fixed.
    command
        .env("QEMU_RAND_SEED", "1")
        .arg("run")
        .args(args)
        .args(["--format", "json", "--"])
        .arg(&g.path)
        .args(guest_args);
    let f = within(LIMIT, &mut command);
    serde_json::from_str(f.err().lines().last().unwrap_or_default()).unwrap_or_else(|e| panic!("{e}: {}", f.err()))
}

fn feed(g: &Guest, guest_args: &[&str], kind: &str, out: &Path, more: &[&str]) -> Value {
    let out = out.to_str().unwrap();
    run(g, guest_args, &[&["--feed", kind, "-o", out], more].concat())
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// A ChampSim record, and the branch that the simulator takes it for.
#[derive(Clone, Copy)]
struct Record {
    ip: u64,
    taken: bool,
    branch: Option<&'static str>,
    loads: usize,
    stores: usize,
}

/// The simulator's rules, in their order.
fn champsim(bytes: &[u8]) -> Record {
    let (dst, src) = (&bytes[10..12], &bytes[12..16]);
    let (writes, reads) = (|r: u8| dst.contains(&r), |r: u8| src.contains(&r));
    let (sp, flags, ip) = (6, 25, 26);
    let other = src.iter().any(|r| ![0, sp, flags, ip].contains(r));
    let branch = if !writes(ip) {
        None
    } else if !reads(sp) && !reads(flags) && !other {
        Some("direct_jump")
    } else if !reads(sp) && !reads(ip) && !reads(flags) && other {
        Some("indirect")
    } else if !reads(sp) && reads(ip) && !writes(sp) && (reads(flags) || other) {
        Some("conditional")
    } else if reads(sp) && reads(ip) && writes(sp) && !reads(flags) && !other {
        Some("direct_call")
    } else if reads(sp) && reads(ip) && writes(sp) && !reads(flags) && other {
        Some("indirect_call")
    } else if reads(sp) && !reads(ip) && writes(sp) {
        Some("return")
    } else {
        Some("other")
    };
    let some = |range: std::ops::Range<usize>| bytes[range].chunks(8).filter(|w| word(w) != 0).count();
    assert_eq!(bytes[8] == 1, branch.is_some(), "is_branch at {:#x}", word(&bytes[..8]));
    Record { ip: word(&bytes[..8]), taken: bytes[9] == 1, branch, loads: some(32..64), stores: some(16..32) }
}

#[test]
fn champsim_infers_the_branches_that_there_are() {
    for isa in [Isa::X86_64, Isa::Aarch64, Isa::Riscv64] {
        let g = guest("work", isa);
        let folder = scratch();
        let path = folder.path().join("t.champsim");
        let told = feed(&g, &[], "champsim", &path, &[]);
        let count = run(&g, &[], &["--analyzer", "count"]);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() % 64, 0);
        let records: Vec<Record> = bytes.chunks(64).map(champsim).collect();
        assert!(records.len() > 10_000, "{isa:?}: {}", records.len());
        assert_eq!(told["instructions"], records.len());
        assert_eq!(count["insns"], records.len(), "{isa:?}");

        let mut inferred: HashMap<&str, u64> = HashMap::new();
        let (mut taken, mut not_taken) = (0, 0);
        // Where calls come back to.
        let mut stack = Vec::new();
        let (mut returns, mut paired) = (0, 0);
        for (i, r) in records.iter().enumerate() {
            let next = records.get(i + 1).map(|n| n.ip);
            let branch = r.branch.unwrap_or("none");
            *inferred.entry(branch).or_default() += 1;
            if branch == "conditional" {
                *(if r.taken { &mut taken } else { &mut not_taken }) += 1;
            }
            let Some(next) = next else { break };
            let falls = next > r.ip && next - r.ip <= 15;
            // The target of a branch is the next record's: what is no taken branch must go on right behind.
            if !r.taken {
                assert!(falls, "{isa:?}: {:#x} is followed by {next:#x}", r.ip);
            }
            match branch {
                "direct_call" | "indirect_call" => stack.push(r.ip),
                "return" => {
                    returns += 1;
                    if let Some(call) = stack.iter().rposition(|call| next > *call && next - call <= 7) {
                        stack.truncate(call);
                        paired += 1;
                    }
                }
                _ => {}
            }
        }
        for (name, n) in told["branches"].as_object().unwrap() {
            assert_eq!(inferred.get(name.as_str()).copied().unwrap_or(0), n.as_u64().unwrap(), "{isa:?} {name}");
        }
        assert_eq!(inferred.get("other"), None, "{isa:?}");
        assert_eq!(count["branches_taken"], taken, "{isa:?}");
        assert_eq!(count["branches_not_taken"], not_taken, "{isa:?}");
        assert!(returns > 100 && paired == returns, "{isa:?}: {paired} of {returns} returns come back from a call");

        // All accesses are there, or were counted.
        let dropped = |what: &str| told["dropped"][what].as_u64().unwrap();
        let (loads, stores): (Vec<_>, Vec<_>) = records.iter().map(|r| (r.loads as u64, r.stores as u64)).unzip();
        assert_eq!(dropped("address_0"), 0);
        assert_eq!(count["loads"], loads.iter().sum::<u64>() + dropped("loads"), "{isa:?}");
        assert_eq!(count["stores"], stores.iter().sum::<u64>() + dropped("stores"), "{isa:?}");
        assert_eq!(dropped("registers_unknown"), 0, "{isa:?}");
    }
}

#[test]
fn drmemtrace_holds_together() {
    for (name, isa, args) in [
        ("work", Isa::X86_64, &[][..]),
        ("work", Isa::Aarch64, &[]),
        ("work", Isa::I386, &[]),
        ("signals", Isa::X86_64, &[]),
    ] {
        let g = guest(name, isa);
        let folder = scratch();
        let path = folder.path().join("t.trace.gz");
        let told = feed(&g, args, "drmemtrace", &path, &[]);
        let bytes = unpack(&path);
        let d = drmemtrace(&bytes);
        assert_eq!((&told["instructions"], &told["bytes"]), (&d.insns.into(), &bytes.len().into()));
        assert!(d.syscalls > 0);
        if name == "signals" {
            assert!(d.signals > 100 && d.transfers > 100, "{} signals, {} returns", d.signals, d.transfers);
        } else {
            let count = run(&g, args, &["--analyzer", "count"]);
            assert_eq!(
                (&count["insns"], &count["loads"], &count["stores"]),
                (&d.insns.into(), &d.reads.into(), &d.writes.into())
            );
        }
    }
}

#[test]
fn each_thread_has_a_file() {
    let g = guest("threads", Isa::X86_64);
    let folder = scratch();
    let traces = folder.path().join("traces/");
    let told = feed(&g, &[], "drmemtrace", &traces, &[]);
    let files = told["files"].as_array().unwrap();
    assert!(files.len() > 2, "{told}");
    let insns: u64 = files
        .iter()
        .map(|f| {
            let path = Path::new(f.as_str().unwrap());
            assert!(path.starts_with(&traces) && path.to_str().unwrap().ends_with(".trace.gz"), "{path:?}");
            drmemtrace(&unpack(path)).insns
        })
        .sum();
    assert_eq!(told["instructions"], insns);
    assert_eq!(std::fs::read_dir(&traces).unwrap().count(), files.len());
    // As one name with numbers, and only the first.
    let one = folder.path().join("t.bb");
    let told = feed(&g, &[], "bbv", &one, &[]);
    assert_eq!(told["files"].as_array().unwrap().len(), files.len());
    assert!(folder.path().join("t.2.bb").exists());
    let told = feed(&g, &[], "bbv", &one, &["--streams", "first"]);
    assert_eq!(told["files"].as_array().unwrap().len(), 1);
    assert_eq!(told["threads_left_out"], files.len() - 1);
}

/// All threads in one file: no access is missing, and the recording gives the run's bytes.
#[test]
fn threads_are_merged_into_one_file() {
    let g = guest("threads", Isa::X86_64);
    let folder = scratch();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (recording, live, again) = (path("t.trapline"), path("live"), path("again"));
    let args = ["--feed", "lackey", "--streams", "merged", "--record", &recording, "-o", &live];
    let told = run(&g, &[], &args);
    assert_eq!(told["files"].as_array().unwrap().len(), 1);
    let replay =
        |args: &[&str]| within(LIMIT, Command::new(trapline()).args(["replay", &recording]).args(args)).code(0).out();
    replay(&["--feed", "lackey", "--streams", "merged", "-o", &again]);
    let text = std::fs::read_to_string(live).unwrap();
    assert!(text == std::fs::read_to_string(again).unwrap(), "the recording gives another order");
    let count: Value = serde_json::from_str(&replay(&["--analyzer", "count", "--format", "json", "-o", "-"])).unwrap();
    let lines = |start: &str| text.lines().filter(|l| l.starts_with(start)).count() as u64;
    for (start, name) in [("I", "insns"), (" L", "loads"), (" S", "stores")] {
        assert_eq!(count[name], lines(start), "{name}");
    }
}

/// Threads in turns on one core: nothing is missing, each goes on where it was, and what the simulator reads as a branch's target is its target.
#[test]
fn threads_take_turns_in_one_file() {
    let g = guest("threads", Isa::X86_64);
    let folder = scratch();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (recording, traces, records) = (path("t.trapline"), path("t.trace.gz"), path("t.champsim"));
    let args = ["--feed", "drmemtrace", "--streams", "merged", "--record", &recording, "-o", &traces];
    let told = run(&g, &[], &args);
    assert_eq!((told["files"].as_array().unwrap().len(), &told["threads_left_out"]), (1, &0.into()));
    let d = drmemtrace(&unpack(Path::new(&traces)));
    let replay =
        |args: &[&str]| within(LIMIT, Command::new(trapline()).args(["replay", &recording]).args(args)).code(0).out();
    let count: Value = serde_json::from_str(&replay(&["--analyzer", "count", "--format", "json", "-o", "-"])).unwrap();
    assert_eq!((&count["insns"], &count["loads"]), (&d.insns.into(), &d.reads.into()));
    assert!(d.threads.len() > 2 && d.turns as usize > d.threads.len(), "{d:?}");
    assert_eq!(d.file_type & 0x1_0000, 0x1_0000);

    replay(&["--feed", "champsim", "--streams", "merged", "-o", &records]);
    let bytes = std::fs::read(&records).unwrap();
    let records: Vec<Record> = bytes.chunks(64).map(champsim).collect();
    assert_eq!(count["insns"], records.len());
    // Where each branch goes, by the decoder's reading of the file that was run.
    let code = std::fs::read(&g.path).unwrap();
    let text = text(&code);
    let mut checked = 0;
    for pair in records.windows(2) {
        let Some(bytes) = text.get(pair[0].ip) else { continue };
        let insn = iced_x86::Decoder::with_ip(64, bytes, pair[0].ip, iced_x86::DecoderOptions::NONE).decode();
        let direct = insn.near_branch_target() != 0 && pair[0].branch.is_some();
        let goes = if pair[0].taken { insn.near_branch_target() } else { insn.next_ip() };
        if direct {
            assert_eq!(pair[1].ip, goes, "after {:#x}", pair[0].ip);
            checked += 1;
        }
    }
    assert!(checked > 1000, "{checked} direct branches");
}

/// Code of an ELF file by address.
struct Text<'a>(Vec<(u64, &'a [u8])>);

fn text(file: &[u8]) -> Text<'_> {
    use object::{Object, ObjectSection, SectionKind};
    let file = object::File::parse(file).unwrap();
    let code = file.sections().filter(|s| s.kind() == SectionKind::Text);
    Text(code.filter_map(|s| Some((s.address(), s.data().ok()?))).collect())
}

impl Text<'_> {
    fn get(&self, addr: u64) -> Option<&[u8]> {
        self.0.iter().find_map(|(at, data)| data.get(usize::try_from(addr.checked_sub(*at)?).ok()?..))
    }
}

/// Vectors are of the program, not of how QEMU cuts it; an interval has exactly its instructions.
#[test]
fn basic_blocks_do_not_depend_on_translation() {
    for isa in [Isa::X86_64, Isa::Aarch64, Isa::Mips] {
        let g = guest("work", isa);
        qemu(g.isa.target(), "trace");
        let folder = scratch();
        let vectors = |one: bool| {
            let path = folder.path().join(if one { "one.bb" } else { "many.bb" });
            let mut command = Command::new(trapline());
            // The environment is the guest's, too: as long in one as in the other.
            command.env("QEMU_RAND_SEED", "1");
            command.env(if one { "QEMU_ONE_INSN_PER_TB" } else { "QEMU_ONE_INSN_PER_NO" }, "1");
            command.args(["run", "--feed", "bbv", "--interval", "10007", "--format", "json", "-o"]);
            let f = within(LIMIT, command.arg(&path).arg("--").arg(&g.path)).code(0);
            let told: Value = serde_json::from_str(f.err().lines().last().unwrap_or_default()).unwrap();
            (std::fs::read_to_string(path).unwrap(), told["instructions"].as_u64().unwrap())
        };
        let (many, insns) = vectors(false);
        assert!((&many, insns) == (&vectors(true).0, insns), "{isa:?}: the vectors differ");
        let sums: Vec<u64> = many
            .lines()
            .map(|l| {
                let fields = l.strip_prefix('T').unwrap().split(' ');
                fields.map(|f| f.rsplit(':').next().unwrap().parse::<u64>().unwrap()).sum()
            })
            .collect();
        let (last, whole) = sums.split_last().unwrap();
        assert!(whole.len() > 2 && whole.iter().all(|n| *n == 10007) && *last <= 10007, "{isa:?}: {sums:?}");
        assert_eq!(insns, sums.iter().sum::<u64>(), "{isa:?}");
    }
}

fn simpoint(args: &[&str], code: i32) -> trapline_tests::Finished {
    within(LIMIT, Command::new(trapline()).arg("simpoint").args(args)).code(code)
}

/// An STF file, record by record as the specification has them: what it insists on, and that the trace tells the program's way.
#[derive(Default, Debug)]
struct Stf {
    /// Instructions whose result was worked out from their operands.
    computed: u64,
    /// Sources that were known from before.
    reused: u64,
    insns: u64,
    loads: u64,
    stores: u64,
    /// Branches with a target, and those whose target their encoding tells.
    taken: u64,
    direct: u64,
    conditional: u64,
    forced: u64,
    /// Loads of bytes that the program stored before, since the last system call.
    reloaded: u64,
}

/// Where a direct jump or branch goes, by the base ISA's immediate fields (32 bits) and C.J, C.BEQZ, C.BNEZ; and whether it is conditional.
fn riscv_target(pc: u64, code: &[u8]) -> Option<(u64, bool)> {
    let w = code.iter().rev().fold(0u32, |w, b| w << 8 | u32::from(*b));
    // Bits of the encoding, each (from, to): from 31 or 12 down is the sign.
    let gather = |map: &[(u32, u32)]| map.iter().fold(0u64, |o, (from, to)| o | u64::from(w >> from & 1) << to);
    let at = |offset: u64, sign: u32| pc.wrapping_add(((offset << (63 - sign)) as i64 >> (63 - sign)) as u64);
    if code.len() == 4 {
        let range = |from: u32, to: u32, n: u32| (0..n).map(move |i| (from + i, to + i));
        return match w & 0x7f {
            0x6f => {
                let map: Vec<_> =
                    range(21, 1, 10).chain(range(20, 11, 1)).chain(range(12, 12, 8)).chain(range(31, 20, 1)).collect();
                Some((at(gather(&map), 20), false))
            }
            0x63 => {
                let map: Vec<_> =
                    range(8, 1, 4).chain(range(25, 5, 6)).chain(range(7, 11, 1)).chain(range(31, 12, 1)).collect();
                Some((at(gather(&map), 12), true))
            }
            _ => None,
        };
    }
    match (w & 3, w >> 13) {
        (1, 5) => {
            let map = [(3, 1), (4, 2), (5, 3), (11, 4), (2, 5), (7, 6), (6, 7), (9, 8), (10, 9), (8, 10), (12, 11)];
            Some((at(gather(&map), 11), false))
        }
        (1, 6 | 7) => {
            let map = [(3, 1), (4, 2), (10, 3), (11, 4), (2, 5), (5, 6), (6, 7), (12, 8)];
            Some((at(gather(&map), 8), true))
        }
        _ => None,
    }
}

/// Checks a sum or a load of four bytes against its operands, in the ISA manual's encodings; whether it is one and all is known.
fn riscv_computes(
    code: &[u8],
    sources: &HashMap<(u8, u64), u64>,
    destinations: &HashMap<(u8, u64), u64>,
    loaded: Option<u64>,
) -> bool {
    let &[a, b, c, d] = code else { return false };
    let w = u32::from_le_bytes([a, b, c, d]);
    let (rd, rs1, rs2) = (u64::from(w >> 7 & 31), u64::from(w >> 15 & 31), u64::from(w >> 20 & 31));
    let source = |n: u64| if n == 0 { Some(0) } else { sources.get(&(1, n)).copied() };
    let immediate = (w as i32 >> 20) as i64 as u64;
    let extended = |v: u64, bits: u32| ((v << (64 - bits)) as i64 >> (64 - bits)) as u64;
    let value = match (w & 0x7f, w >> 12 & 7, w >> 25) {
        (0x13, 0, _) => source(rs1).map(|v| v.wrapping_add(immediate)),
        (0x13, 7, _) => source(rs1).map(|v| v & immediate),
        (0x1b, 0, _) => source(rs1).map(|v| extended(v.wrapping_add(immediate), 32)),
        (0x33, 0, 0) => source(rs1).zip(source(rs2)).map(|(a, b)| a.wrapping_add(b)),
        (0x33, 0, 32) => source(rs1).zip(source(rs2)).map(|(a, b)| a.wrapping_sub(b)),
        (0x37, ..) => Some(extended(u64::from(w & 0xffff_f000), 32)),
        (0x03, 0..=2, _) => loaded.map(|v| extended(v, 8 << (w >> 12 & 3))),
        (0x03, ..) => loaded,
        _ => None,
    };
    if let (Some(value), true) = (value, rd != 0) {
        assert_eq!(destinations.get(&(1, rd)), Some(&value), "{w:#x} of {sources:x?}");
    }
    value.is_some()
}

fn stf(bytes: &[u8]) -> Stf {
    let rest = std::cell::Cell::new(bytes);
    let take = |n: usize| {
        let (taken, left) = rest.get().split_at_checked(n).expect("it ends within a record");
        rest.set(left);
        taken
    };
    let wide = |b: &[u8]| b.iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b));
    assert_eq!(take(4), b"\x01STF");
    assert_eq!(take(9), [2, 1, 0, 0, 0, 6, 0, 0, 0]);
    // The writer's order: comments, ISA, encoding, generator, features, process, pc.
    assert_eq!(take(1), [3]);
    let n = wide(take(4)) as usize;
    take(n);
    assert_eq!(take(6), [4, 1, 0, 5, 2, 0]);
    assert_eq!(take(2), [6, 1]);
    take(3);
    let n = wide(take(2)) as usize;
    take(n);
    assert_eq!(take(1), [7]);
    let features = wide(take(8));
    assert_eq!(features & (0x20 | 0x8_0000), 0x20 | 0x8_0000, "RV64 with events of 64 bits");
    let operands = features & 4 != 0;
    assert_eq!(take(1), [8]);
    take(12);
    assert_eq!(take(1), [9]);
    let mut pc = wide(take(8));
    assert_eq!(take(1), [19]);
    let mut s = Stf::default();
    let mut memory: HashMap<u64, u8> = HashMap::new();
    let (mut target, mut last, mut events) = (None, 0, 0);
    // Registers by type and number: what is known, an instruction's sources, its destinations; and the value that it loaded.
    let mut registers: HashMap<(u8, u64), u64> = HashMap::new();
    let (mut sources, mut destinations, mut loaded) = (HashMap::new(), HashMap::new(), None);
    loop {
        let kind = take(1)[0];
        // In a group records rise, but for the pairs of accesses and contents.
        assert!(kind >= last || (last, kind) == (61, 60), "{kind} after {last}");
        last = kind;
        match kind {
            9 => {
                let forced = wide(take(8));
                assert_ne!(forced, pc, "a pc that follows anyway");
                pc = forced;
                s.forced += 1;
                registers.clear();
                last = 0;
            }
            31 => target = Some(wide(take(8))),
            40 => {
                let (number, what, value) = (wide(take(2)), take(1)[0], wide(take(8)));
                let register = (what & 15, number);
                assert!(operands && matches!(what & 15, 1 | 2) && number < 32 && register != (1, 0), "{register:?}");
                match what >> 4 {
                    2 => {
                        assert!(destinations.is_empty(), "a source after a destination");
                        // Only a system call and a signal change registers that are no destination.
                        let before = registers.insert(register, value);
                        assert!(before.is_none_or(|b| b == value), "{register:?} at {pc:#x}: {before:x?}, {value:#x}");
                        s.reused += u64::from(before.is_some());
                        assert_eq!(sources.insert(register, value), None, "a source twice");
                    }
                    3 => assert_eq!(destinations.insert(register, value), None, "a destination twice"),
                    other => panic!("an operand {other}"),
                }
            }
            60 => {
                let (addr, size) = (wide(take(8)), wide(take(2)));
                assert_eq!(take(2), [0, 0]);
                let store = match take(1)[0] {
                    1 => false,
                    2 => true,
                    other => panic!("an access {other}"),
                };
                let mut value = Vec::new();
                for _ in 0..size.div_ceil(8) {
                    assert_eq!(take(1), [61], "an access without its content");
                    value.extend_from_slice(take(8));
                }
                last = 61;
                loaded = (!store && size <= 8).then(|| wide(&value[..size as usize]));
                assert!(value[size as usize..].iter().all(|b| *b == 0), "more than the size");
                let known = (0..size).all(|i| memory.contains_key(&(addr + i)));
                for (i, byte) in value[..size as usize].iter().enumerate() {
                    let before = memory.insert(addr + i as u64, *byte);
                    if known && !store {
                        assert_eq!(before, Some(*byte), "a load at {pc:#x} of {addr:#x} is not what was stored");
                    }
                }
                s.reloaded += u64::from(known && !store);
                *(if store { &mut s.stores } else { &mut s.loads }) += 1;
            }
            100 => {
                assert_eq!((wide(take(8)), take(1)[0], wide(take(8))), (1 << 62, 1, 0));
                events += 1;
            }
            240 | 241 => {
                let code = take(if kind == 240 { 4 } else { 2 });
                assert_eq!(code[0] & 3 == 3, kind == 240, "the encoding's length at {pc:#x}");
                if let Some((goes, conditional)) = riscv_target(pc, code) {
                    assert!(conditional || target.is_some(), "a jump at {pc:#x} that goes nowhere");
                    if let Some(target) = target {
                        assert_eq!(target, goes, "at {pc:#x}");
                        s.direct += 1;
                    }
                    s.conditional += u64::from(conditional);
                }
                if operands {
                    s.computed += u64::from(riscv_computes(code, &sources, &destinations, loaded.take()));
                }
                registers.extend(destinations.drain());
                sources.clear();
                // The kernel may write.
                if code == [0x73, 0, 0, 0] {
                    memory.clear();
                    registers.remove(&(1, 10));
                }
                s.taken += u64::from(target.is_some());
                pc = target.take().unwrap_or(pc + code.len() as u64);
                s.insns += 1;
                last = 0;
                if rest.get().is_empty() {
                    break;
                }
            }
            other => panic!("a record {other}"),
        }
    }
    assert_eq!(events, 1, "the mode, once");
    s
}

#[test]
fn stf_tells_the_programs_way() {
    for name in ["work", "signals"] {
        let g = guest(name, Isa::Riscv64);
        let folder = scratch();
        let path = folder.path().join("t.stf.gz");
        let told = feed(&g, &[], "stf", &path, &[]);
        let s = stf(&unpack(&path));
        assert_eq!(
            (&told["instructions"], &told["taken"], &told["forced_pcs"]),
            (&s.insns.into(), &s.taken.into(), &s.forced.into())
        );
        assert_eq!(told["values_unknown"], 0);
        assert!(s.conditional > 1000 && s.direct > 1000 && s.reloaded > 1000, "{s:?}");
        assert!(s.computed > 1000 && s.reused > 1000, "{s:?}");
        if name == "work" {
            let unknown = told["sources_unknown"].as_u64().unwrap();
            assert!(unknown < 1000, "{unknown} of {s:?}");
            // Without registers it is the same way.
            let way = stf(&unpack(&{
                let path = folder.path().join("way.stf.gz");
                feed(&g, &[], "stf", &path, &["--analyzer", "trace"]);
                path
            }));
            assert_eq!((way.insns, way.taken, way.loads, way.computed), (s.insns, s.taken, s.loads, 0));
        }
        if name == "work" {
            assert_eq!(s.forced, 0, "{s:?}");
            let count = run(&g, &[], &["--analyzer", "count"]);
            assert_eq!(
                (&count["insns"], &count["loads"], &count["stores"]),
                (&s.insns.into(), &s.loads.into(), &s.stores.into())
            );
        } else {
            assert!(s.forced > 100, "{s:?}");
        }
    }
}

/// What is cut for a point is what the whole recording has there, instruction by instruction.
#[test]
fn points_are_windows_of_the_recording() {
    let g = guest("work", Isa::X86_64);
    qemu(g.isa.target(), "trace");
    let folder = scratch();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (recording, vectors, whole) = (path("t.trapline"), path("t.bb.gz"), path("t.champsim"));
    let command = |args: &[&str]| {
        within(LIMIT, Command::new(trapline()).env("QEMU_RAND_SEED", "1").args(args)).code(0);
    };
    command(&["record", "-o", &recording, "--", g.path.to_str().unwrap()]);
    command(&["replay", &recording, "--feed", "bbv", "--interval", "5003", "-o", &vectors]);
    command(&["replay", &recording, "--feed", "champsim", "-o", &whole]);
    let whole = std::fs::read(whole).unwrap();

    let (windows, saved) = (path("windows"), path("t"));
    let args = [&vectors, "--format", "json", "--cut", &recording, "-o", &windows, "--save", &saved];
    let told = simpoint(&args, 0).out();
    assert_eq!(told, simpoint(&args, 0).out(), "other points the second time");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["insns"], whole.len() / 64);
    let labels = told["labels"].as_array().unwrap();
    assert_eq!(labels.len(), (whole.len() / 64).div_ceil(5003));
    let points = told["points"].as_array().unwrap();
    assert!(points.len() > 1, "{told}");
    let (mut weights, mut simpoints) = (0.0, String::new());
    for (cluster, p) in points.iter().enumerate() {
        let field = |name: &str| p[name].as_u64().unwrap() as usize;
        let (interval, start, insns) = (field("interval"), field("start"), field("insns"));
        assert_eq!((start, &labels[interval]), (5003 * interval, &cluster.into()));
        weights += p["weight"].as_f64().unwrap();
        simpoints += &format!("{interval} {cluster}\n");
        let window = path("window");
        command(&["replay", p["file"].as_str().unwrap(), "--feed", "champsim", "-o", &window]);
        let window = std::fs::read(window).unwrap();
        let same = &whole[64 * start..64 * (start + insns)];
        // What comes after a window's last instruction is not known: whether it was taken.
        let last = window.len() - 64 + 9;
        assert!(window.len() == same.len() && window[..last] == same[..last], "point {cluster}");
    }
    assert!((weights - 1.0).abs() < 1e-9, "{weights}");
    assert_eq!(std::fs::read_to_string(path("t.simpoints")).unwrap(), simpoints);
    assert_eq!(std::fs::read_to_string(path("t.weights")).unwrap().lines().count(), points.len());

    // Without a recording: the commands.
    let f = simpoint(&[&vectors], 0);
    let start = &points[1]["start"];
    assert!(f.out().contains(&format!("trapline run --skip {start} --count {}", points[1]["insns"])), "{}", f.out());
    // Vectors of something longer.
    let longer = path("longer.bb");
    std::fs::write(&longer, format!("T:1:{}\nT:2:10\n", whole.len() / 64)).unwrap();
    let f = simpoint(&[&longer, "--cut", &recording, "-o", &windows], 125);
    assert!(f.err().contains("no thread has the 10 instructions"), "{}", f.err());
    std::fs::write(&longer, "T:1:5\nT:1\n").unwrap();
    let f = simpoint(&[&longer], 125);
    assert!(f.err().contains("longer.bb:2: ':1' is not :ID:COUNT; expected"), "{}", f.err());
    assert!(simpoint(&["/nowhere/t.bb"], 125).err().contains("/nowhere/t.bb"));
}

/// What DuckDB finds in the tables; its first argument is their folder.
const QUERIES: &str = r#"
import duckdb, json, sys
folder = sys.argv[1]
for table in ("events", "blocks", "mappings", "streams"):
    duckdb.sql(f"create view {table} as select * from read_parquet('{folder}/{table}/**/*.parquet', hive_partitioning = true)")
def one(query):
    return duckdb.sql(query).fetchall()
print(json.dumps({
    "sums": one("""select sum(insns), count(*) filter (kind = 'load'), count(*) filter (kind = 'store'),
        sum(size) filter (kind = 'load'), sum(size) filter (kind = 'store') from events""")[0],
    "valueless": one("""select hex(code) from events e join blocks b on e.stream = b.stream and e.block = b.block
        and e.index = b.index where kind <> 'block' and value is null"""),
    "conditional": one("""select count(*) from events e join blocks b on e.stream = b.stream and e.block = b.block
        and b.index >= e.index and b.index < e.index + e.insns where kind = 'block' and class = 'conditional'""")[0][0],
    "intervals": one("select stream, interval, sum(insns), min(insn), max(insn) from events group by all order by all"),
    "streams": one("select stream, insns, tid from streams order by all"),
    # A run's first instruction, and each access's, is where the table of blocks has it.
    "strangers": one("""select count(*) from events e left join blocks b on e.stream = b.stream and e.block = b.block
        and e.index = b.index where b.pc is distinct from e.pc""")[0][0],
    "code": one("select count(*) from blocks where octet_length(code) not between 1 and 15")[0][0],
    "images": [[entry, path.decode()] for entry, path in one("select entry, path from mappings where kind = 'image'")],
}))
"#;

#[test]
fn tables_add_up_in_duckdb() {
    for (name, isa) in [("work", Isa::X86_64), ("work", Isa::Aarch64), ("threads", Isa::X86_64)] {
        let g = guest(name, isa);
        qemu(g.isa.target(), "trace");
        let folder = scratch();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
        let (recording, live, again) = (path("t.trapline"), path("live"), path("again"));
        let args =
            ["--feed", "parquet", "--interval", "10007", "--opt", "values=on", "--record", &recording, "-o", &live];
        let told = run(&g, &[], &args);
        let replay = |args: &[&str]| {
            within(LIMIT, Command::new(trapline()).args(["replay", &recording]).args(args)).code(0).out()
        };
        let count: Value =
            serde_json::from_str(&replay(&["--analyzer", "count", "--format", "json", "-o", "-"])).unwrap();
        replay(&["--feed", "parquet", "--interval", "10007", "-o", &again]);
        let found = within(LIMIT, Command::new(python()).args(["-c", QUERIES, &live])).code(0).out();
        assert_eq!(found, within(LIMIT, Command::new(python()).args(["-c", QUERIES, &again])).code(0).out());
        let found: Value = serde_json::from_str(&found).unwrap();
        let number = |v: &Value| v.as_u64().unwrap_or_else(|| panic!("{v} in {count} {found}"));
        let sums: Vec<u64> =
            ["insns", "loads", "stores", "load_bytes", "store_bytes"].map(|n| number(&count[n])).into();
        let got: Vec<u64> = found["sums"].as_array().unwrap().iter().map(number).collect();
        assert_eq!(got, sums, "{name} {isa:?}");
        assert_eq!(number(&told["instructions"]), sums[0]);
        // Each access has its value, but for AArch64's DC ZVA, of which only the bytes are known.
        let valueless = found["valueless"].as_array().unwrap();
        assert!(
            valueless.iter().all(|c| isa == Isa::Aarch64 && c[0].as_str().unwrap().ends_with("740BD5")),
            "{valueless:?}"
        );
        let streams = found["streams"].as_array().unwrap();
        let branches = number(&count["branches_taken"]) + number(&count["branches_not_taken"]);
        // A thread's last branch has no outcome.
        assert!((0..=streams.len() as u64).contains(&(number(&found["conditional"]) - branches)), "{found} {count}");
        assert_eq!((&found["strangers"], &found["code"]), (&0.into(), &0.into()));
        assert_eq!(streams.len() > 1, name == "threads", "{streams:?}");
        let mut left: Vec<u64> = streams.iter().map(|s| number(&s[1])).collect();
        for i in found["intervals"].as_array().unwrap() {
            let (stream, interval) = (number(&i[0]) as usize, number(&i[1]));
            assert_eq!(number(&i[2]), left[stream].min(10007), "{i} of {streams:?}");
            left[stream] -= number(&i[2]);
            assert_eq!(number(&i[3]), 10007 * interval);
            assert!(number(&i[4]) < 10007 * (interval + 1), "{i}");
        }
        assert!(left.iter().all(|n| *n == 0), "{left:?}");
        assert_eq!(found["images"][0][1], g.path.to_str().unwrap());
    }
}

#[test]
fn to_a_pipe_and_without_a_place() {
    let g = guest("loop", Isa::X86_64);
    qemu("x86_64", "trace");
    let mut command = Command::new(trapline());
    command.args(["run", "--feed", "champsim", "-o", "-", "--"]).arg(&g.path);
    let f = within(LIMIT, &mut command).code(7);
    // 2 instructions before the loop of 1000 turns of 4, then the exit.
    let n = f.stdout.len() / 64;
    assert!(f.stdout.len().is_multiple_of(64) && (4003..4010).contains(&n), "{n}");
    assert!(f.err().contains(&format!("{n} instructions")), "{}", f.err());

    let mut command = Command::new(trapline());
    command.args(["run", "--feed", "champsim", "--"]).arg(&g.path);
    let f = within(LIMIT, &mut command).code(125);
    assert!(f.err().contains("-o FILE"), "{}", f.err());
    let mut command = Command::new(trapline());
    command.args(["run", "--feed", "champsim", "-o", "/nowhere/t.xz", "--"]).arg(&g.path);
    let f = within(LIMIT, &mut command).code(125);
    assert!(f.err().contains("/nowhere/t.xz"), "{}", f.err());
}

/// Ctrl-C while a simulator reads slowly: what was written is whole records, and that it is not all is said.
#[test]
fn an_interrupted_feed_is_whole() {
    qemu(Isa::X86_64.target(), "trace");
    let g = guest("work", Isa::X86_64);
    let folder = scratch();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (recording, fifo) = (path("t.trapline"), path("t.fifo"));
    within(LIMIT, Command::new(trapline()).args(["record", "-o", &recording, "--"]).arg(&g.path)).code(0);
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let child = Command::new(trapline())
        .args(["replay", &recording, "--feed", "champsim", "-o", &fifo])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = std::fs::File::open(&fifo).unwrap();
    let mut bytes = vec![0; 64];
    std::io::Read::read_exact(&mut reader, &mut bytes).unwrap();
    // Nobody reads on: it cannot be at its end.
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(200));
    std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted at byte"), "{said}");
    let info = within(LIMIT, Command::new(trapline()).args(["info", "--format", "json", &recording])).code(0).out();
    let all = serde_json::from_str::<Value>(&info).unwrap()["insns"].as_u64().unwrap();
    assert!(
        bytes.len().is_multiple_of(64) && (bytes.len() as u64) < all * 64,
        "{} bytes of {all} records",
        bytes.len()
    );
    assert!(said.contains(&format!("{} instructions, {} bytes", bytes.len() / 64, bytes.len())), "{said}");
}
