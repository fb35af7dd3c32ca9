//! Each format on a stream that is known by hand, byte by byte.
//!
//! ```text
//! 0x1000  8b 07  mov (%rdi),%eax      a load of 4 bytes
//! 0x1002  89 06  mov %eax,(%rsi)      a store of 4 bytes
//! 0x1004  75 fa  jne 0x1000
//! 0x1006  c3     ret                  a load of 8 bytes, to 0x2000
//! 0x2000  f3 a4  rep movsb            two turns, the first before the end of a chunk, a signal's handler between them
//! 0x3000  90     nop                  the handler
//! ```
//! The loop runs twice: taken, then not.

use consumer::layout::{FLAG_REEXEC, info, kind};
use consumer::testing::{ChunkBuilder, Parts, TableBuilder, insn, load, part, store, stream, with_path};
use consumer::{Format, Options, Table};
use feeds::{Addressing, Args, Kind, sink::Spread};
use std::path::Path;
use std::sync::Arc;

const START_NS: u64 = 5_000_000_000;

fn program() -> (Arc<Table>, Vec<Vec<u64>>) {
    let mut table = TableBuilder::new("x86_64", 8, false);
    let a = table
        .block(0x1000, &[insn(&[0x8b, 0x07], &[load(4)]), insn(&[0x89, 0x06], &[store(4)]), insn(&[0x75, 0xfa], &[])]);
    let b = table.block(0x1006, &[insn(&[0xc3], &[load(8)])]);
    let c = table.block(0x2000, &[insn(&[0xf3, 0xa4], &[])]);
    let handler = table.block(0x3000, &[insn(&[0x90], &[])]);
    let table = table.finish();
    let turn = |i: u64| [1, 0x100 + i, info::STORE | 1, 0x200 + i];
    let chunks = vec![
        ChunkBuilder::new()
            .record(kind::START, &[1, 2, 0, 0, START_NS])
            .block(a, &[0x8000, 0x9000])
            .block(a, &[0x8004, 0x9004])
            .words(),
        ChunkBuilder::new().block(b, &[0x7ff0]).partial(c, 0, FLAG_REEXEC, 0, &[]).access(c, 0, &turn(0)).words(),
        ChunkBuilder::new()
            .record(kind::SIGNAL, &[10, 0x2000, 0x3000])
            .block(handler, &[])
            .block(c, &[])
            .access(c, 0, &turn(1))
            .record(kind::END, &[1, 0])
            .words(),
    ];
    (table, chunks)
}

fn feed(kind: Kind, change: impl FnOnce(&mut Args), name: &str) -> Vec<u8> {
    feed_to(kind, change, name, "t.trace")
}

/// A feed's settings, but for what a test changes.
fn args_of(kind: Kind) -> Args {
    Args {
        feed: Some(kind),
        streams: Spread::default(),
        filter: None,
        cpi: 1.0,
        addressing: Addressing::Virtual,
        interval: 4,
    }
}

fn feed_to(kind: Kind, change: impl FnOnce(&mut Args), name: &str, file: &str) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("trapline-feed-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(file);
    let mut args = args_of(kind);
    change(&mut args);
    let mut analysis = args.analysis(Some(Path::new(&path)), Format::Text).unwrap().unwrap();
    let (table, chunks) = program();
    for workers in [1, 3] {
        analysis.consume(&mut Parts::new(&table, &chunks), &Options { workers }, &mut Vec::new()).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    bytes
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| c.is_ascii_hexdigit()).collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// 27 + n for general register n: rax 1b, rcx 1c, rsi 21, rdi 22; rsp 06, rflags 19, rip 1a.
#[test]
fn champsim() {
    let record = |ip: &str, flags: &str, dst: &str, src: &str, stores: [u64; 2], loads: [u64; 4]| {
        let mut r = hex(ip);
        r.extend(hex(flags));
        r.extend(hex(dst));
        r.extend(hex(src));
        stores.iter().chain(&loads).for_each(|a| r.extend(a.to_le_bytes()));
        assert_eq!(r.len(), 64);
        r
    };
    let mut want = Vec::new();
    for (i, taken) in [(0, "01 01"), (4, "01 00")] {
        want.extend(record("0010000000000000", "00 00", "1b 00", "22 00 00 00", [0, 0], [0x8000 + i, 0, 0, 0]));
        want.extend(record("0210000000000000", "00 00", "00 00", "1b 21 00 00", [0x9000 + i, 0], [0; 4]));
        want.extend(record("0410000000000000", taken, "1a 00", "1a 19 00 00", [0, 0], [0; 4]));
    }
    want.extend(record("0610000000000000", "01 01", "1a 06", "06 00 00 00", [0, 0], [0x7ff0, 0, 0, 0]));
    want.extend(record("0030000000000000", "00 00", "00 00", "00 00 00 00", [0, 0], [0; 4]));
    // Three registers are written: the third has no place.
    want.extend(record("0020000000000000", "00 00", "1c 21", "1c 21 22 19", [0x200, 0x201], [0x100, 0x101, 0, 0]));
    assert_eq!(feed(Kind::Champsim, |_| {}, "champsim"), want);
}

#[test]
fn cloudsuite_has_room_for_more() {
    let got = feed(Kind::Cloudsuite, |_| {}, "cloudsuite");
    assert_eq!(got.len(), 9 * 96);
    let last = &got[8 * 96..];
    assert_eq!(last[..24], hex("0020000000000000 00 00 1c212200 1c212219 000000000000"));
    let words: Vec<u64> = last[24..88].chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    assert_eq!(words, [0x200, 0x201, 0, 0, 0x100, 0x101, 0, 0]);
}

#[test]
fn drmemtrace() {
    let got = entries(&feed(Kind::Drmemtrace, |_| {}, "drmemtrace"));
    // Five seconds after 1970, in microseconds since 1601.
    let time = 11_644_473_600_000_000 + 5_000_000;
    let want = [
        (25, 0, 7),
        (28, 12, 7),
        (28, 9, 0x40 | 0x200 | 0x400),
        (22, 8, 2000),
        (24, 8, 1000),
        (28, 10, 64),
        (28, 20, 0),
        (28, 18, 4096),
        (28, 2, time),
        (28, 3, 2000),
        (47, 2, 0x078b),
        (10, 2, 0x1000),
        (0, 4, 0x8000),
        (47, 2, 0x0689),
        (10, 2, 0x1002),
        (1, 4, 0x9000),
        (47, 2, 0xfa75),
        (48, 2, 0x1004),
        (10, 2, 0x1000),
        (0, 4, 0x8004),
        (10, 2, 0x1002),
        (1, 4, 0x9004),
        (49, 2, 0x1004),
        (47, 1, 0xc3),
        (28, 29, 0x2000),
        (16, 1, 0x1006),
        (0, 8, 0x7ff0),
        (28, 0, 0x2000),
        (47, 1, 0x90),
        (10, 1, 0x3000),
        (47, 2, 0xa4f3),
        (10, 2, 0x2000),
        (0, 1, 0x100),
        (1, 1, 0x200),
        (29, 2, 0x2000),
        (0, 1, 0x101),
        (1, 1, 0x201),
        (28, 2, time),
        (28, 3, 2000),
        (23, 8, 2000),
        (26, 0, 0),
    ];
    assert_eq!(got, want);
}

/// Nine instructions in intervals of four. The loop is block 1; what falls out of it is block 2, 0x1006; 0x3000 is 3, 0x2000 is 4.
#[test]
fn basic_block_vectors() {
    // 1000 1002 1004 1000 | 1002 1004 1006 3000 | 2000
    let want = "T:1:4\nT:1:2 :2:1 :3:1\nT:4:1\n";
    assert_eq!(String::from_utf8(feed(Kind::Bbv, |_| {}, "bbv")).unwrap(), want);
}

#[test]
fn memory_traces() {
    let text = |kind, cpi| String::from_utf8(feed(kind, |a| a.cpi = cpi, &format!("{kind:?}"))).unwrap();
    // Instructions 0 to 8: loads at 0, 3, 6, 8; stores at 1, 4, 8.
    assert_eq!(
        text(Kind::Dramsim3, 2.0),
        "0x8000 READ 0\n0x9000 WRITE 2\n0x8004 READ 6\n0x9004 WRITE 8\n0x7ff0 READ 12\n\
         0x100 READ 16\n0x200 WRITE 16\n0x101 READ 16\n0x201 WRITE 16\n"
    );
    assert_eq!(
        text(Kind::Ramulator, 1.0),
        "0x8000 R\n0x9000 W\n0x8004 R\n0x9004 W\n0x7ff0 R\n0x100 R\n0x200 W\n0x101 R\n0x201 W\n"
    );
    assert_eq!(
        text(Kind::Ramulator2, 1.0),
        "LD 32768\nST 36864\nLD 32772\nST 36868\nLD 32752\nLD 256\nST 512\nLD 257\nST 513\n"
    );
    // The branch of the first turn is a bubble before the second load, that of the second before the return's, the handler's before the copy.
    assert_eq!(text(Kind::Ramulator2Ooo, 1.0), "0 32768 36864\n1 32772 36868\n1 32752\n1 256 512\n0 257 513\n");
    assert_eq!(
        text(Kind::Dramsys, 1.0),
        "0: read 0x8000\n1: write 0x9000\n3: read 0x8004\n4: write 0x9004\n6: read 0x7ff0\n\
         8: read 0x100\n8: write 0x200\n8: read 0x101\n8: write 0x201\n"
    );
    assert_eq!(
        text(Kind::Dinero, 1.0),
        "2 1000\n0 8000\n2 1002\n1 9000\n2 1004\n2 1000\n0 8004\n2 1002\n1 9004\n2 1004\n2 1006\n0 7ff0\n\
         2 3000\n2 2000\n0 100\n1 200\n0 101\n1 201\n"
    );
    let lackey = text(Kind::Lackey, 1.0);
    assert!(
        lackey.starts_with("I  00001000,2\n L 00008000,4\nI  00001002,2\n S 00009000,4\nI  00001004,2\n"),
        "{lackey}"
    );
    assert!(
        lackey.ends_with("I  00002000,2\n L 00000100,1\n S 00000200,1\n L 00000101,1\n S 00000201,1\n"),
        "{lackey}"
    );
}

/// One line of 64 bytes twice, one set: 0x8000 fetched, 0x9000 in its place, fetched to be written, 0x8000 again, which drives the dirty one out, …
#[test]
fn caches_let_lines_through() {
    let got = feed(Kind::Ramulator, |a| a.filter = Some("64:1".parse().unwrap()), "filter");
    let want = "0x8000 R\n0x9000 R\n0x9000 W\n0x8000 R\n0x9000 R\n0x9000 W\n0x7fc0 R\n0x100 R\n0x200 R\n0x200 W\n0x100 R\n0x200 R\n";
    assert_eq!(String::from_utf8(got).unwrap(), want);
}

/// Two threads' parts in turns: one file in that order, one time, one cache.
#[test]
fn threads_are_merged_as_they_are_handed_over() {
    let mut table = TableBuilder::new("x86_64", 8, false);
    let a = table.block(0x1000, &[insn(&[0x8b, 0x07], &[load(4)]), insn(&[0x89, 0x06], &[store(4)])]);
    let table = table.finish();
    let start = |tid| ChunkBuilder::new().record(kind::START, &[1, tid, 0, 0, START_NS]).words();
    let run = |load, store| ChunkBuilder::new().block(a, &[load, store]).words();
    let streams = [stream(0), stream(1)];
    let parts = || {
        let order =
            [(0, start(2)), (0, run(0x100, 0x200)), (1, start(3)), (1, run(0x110, 0x210)), (0, run(0x120, 0x220))];
        let mut next = [0; 2];
        let parts = order.iter().map(|(n, words)| {
            next[*n] += 1;
            part(&streams[*n], &table, next[*n] - 1, words)
        });
        parts.collect::<Vec<_>>()
    };
    let folder = std::env::temp_dir().join(format!("trapline-feed-{}-merged", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.trace");
    let feed = |kind, filter: Option<&str>| {
        let filter = filter.map(|f| f.parse().unwrap());
        let args = Args { streams: Spread::Merged, filter, ..args_of(kind) };
        let mut analysis = args.analysis(Some(&path), Format::Json).unwrap().unwrap();
        for workers in [3, 1] {
            analysis.consume(&mut Parts::of(parts()), &Options { workers }, &mut Vec::new()).unwrap();
        }
        let mut report = Vec::new();
        analysis.report(&mut report).unwrap();
        let report = String::from_utf8(report).unwrap();
        assert!(report.contains("\"instructions\":6") && report.contains("\"threads_left_out\":0"), "{report}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::read_to_string(&path).unwrap()
    };
    // The last instruction of a part waits for what comes next in its own thread.
    assert_eq!(
        feed(Kind::Dramsim3, None),
        "0x100 READ 0\n0x110 READ 1\n0x200 WRITE 2\n0x120 READ 3\n0x220 WRITE 4\n0x210 WRITE 5\n"
    );
    // All of it lies in two lines of 64 bytes: the second thread finds what the first one fetched.
    assert_eq!(feed(Kind::Ramulator, Some("1K:16")), "0x100 R\n0x200 R\n");
    std::fs::remove_dir_all(&folder).unwrap();
    let args = Args { streams: Spread::Merged, ..args_of(Kind::Stf) };
    assert!(args.analysis(Some(&path), Format::Text).unwrap().err().unwrap().contains("--streams merged"));
}

/// Entries of a drmemtrace.
fn entries(bytes: &[u8]) -> Vec<(u16, u16, u64)> {
    let entry = |e: &[u8]| {
        let half = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
        (half(0), half(2), u64::from_le_bytes(e[4..12].try_into().unwrap()))
    };
    bytes.chunks(12).map(entry).collect()
}

/// A load at 0x1000 and a jump back to it. The first thread's jump is handed over before the second one's first load is known to have a successor, but what the jump goes to
/// is only known later.
#[test]
fn threads_take_turns() {
    let mut table = TableBuilder::new("x86_64", 8, false);
    let a = table.block(0x1000, &[insn(&[0x8b, 0x07], &[load(4)])]);
    let j = table.block(0x1002, &[insn(&[0xeb, 0xfc], &[])]);
    let table = table.finish();
    let streams = [stream(0), stream(1)];
    let start = |tid| ChunkBuilder::new().record(kind::START, &[1, tid, 0, 0, START_NS]).words();
    let run = |load| ChunkBuilder::new().block(a, &[load]).words();
    let jump = ChunkBuilder::new().block(a, &[0x100]).block(j, &[]).words();
    let parts = || {
        let order =
            [(0, start(2)), (0, jump.clone()), (1, start(3)), (1, run(0x110)), (0, run(0x120)), (1, run(0x130))];
        let mut next = [0; 2];
        let parts = order.into_iter().chain([(0, run(0x140))]).map(|(n, words): (usize, Vec<u64>)| {
            next[n] += 1;
            part(&streams[n], &table, next[n] - 1, &words)
        });
        parts.collect::<Vec<_>>()
    };
    let folder = std::env::temp_dir().join(format!("trapline-feed-{}-turns", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.trace");
    let feed = |kind| {
        let args = Args { streams: Spread::Merged, ..args_of(kind) };
        let mut analysis = args.analysis(Some(&path), Format::Json).unwrap().unwrap();
        analysis.consume(&mut Parts::of(parts()), &Options { workers: 3 }, &mut Vec::new()).unwrap();
        std::fs::read(&path).unwrap()
    };
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    // The jump waits for the load after it.
    let want = [(0x1000, 0x100), (0x1000, 0x110), (0x1002, 0), (0x1000, 0x120), (0x1000, 0x140), (0x1000, 0x130)];
    let plain: Vec<_> = feed(Kind::Champsim).chunks(64).map(|r| (word(&r[..8]), word(&r[32..40]))).collect();
    assert_eq!(plain, want);
    let wide: Vec<_> =
        feed(Kind::Cloudsuite).chunks(96).map(|r| (word(&r[..8]), word(&r[56..64]), [r[88], r[89]])).collect();
    let process = |addr: u64| [u8::from(addr & 0x10 != 0), 0];
    assert_eq!(wide, want.map(|(ip, addr)| (ip, addr, process(addr))));

    // Intervals of four: 0x1000 of either process are two blocks.
    assert_eq!(String::from_utf8(feed(Kind::Bbv)).unwrap(), "T:1:3 :2:1\nT:1:1 :2:1\n");

    let time = 11_644_473_600_000_000 + 5_000_000;
    let turn = |n: u64| [(22, 8, 2000 + n), (24, 8, 1000 + n), (28, 2, time), (28, 3, 0)];
    let load = |addr| [(10, 2, 0x1000), (0, 4, addr)];
    let mut want = vec![(25, 0, 7), (28, 12, 7), (28, 9, 0x40 | 0x200 | 0x400 | 0x1_0000)];
    want.extend([(22, 8, 2000), (24, 8, 1000), (28, 10, 64), (28, 20, 0), (28, 18, 4096), (28, 2, time), (28, 3, 0)]);
    want.push((47, 2, 0x078b));
    want.extend(load(0x100));
    want.extend([(47, 2, 0xfceb), (11, 2, 0x1002)]);
    want.extend(turn(1));
    // Another process may have other code there.
    want.push((47, 2, 0x078b));
    want.extend(load(0x110));
    want.extend(turn(0));
    want.extend([load(0x120), load(0x140)].concat());
    want.extend([(28, 2, time), (28, 3, 0), (23, 8, 2000)]);
    want.extend(turn(1));
    want.extend(load(0x130));
    want.extend([(28, 2, time), (28, 3, 0), (23, 8, 2001), (26, 0, 0)]);
    assert_eq!(entries(&feed(Kind::Drmemtrace)), want);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// An exception after a nop, `iretq` from its handler, a `syscall`, and the kernel's module that tells of another process.
#[test]
fn drmemtrace_of_a_machine() {
    let mut table = TableBuilder::new("x86_64", 8, false).machine();
    let nop = |table: &mut TableBuilder, pc| table.block(pc, &[insn(&[0x90], &[])]);
    let user = nop(&mut table, 0x1000);
    let handler = table.block(0x8000, &[insn(&[0x90], &[]), insn(&[0x48, 0xcf], &[])]);
    let call = table.block(0x1001, &[insn(&[0x0f, 0x05], &[])]);
    let (kernel, after) = (nop(&mut table, 0x9000), nop(&mut table, 0x9001));
    let table = table.finish();
    let chunk = ChunkBuilder::new()
        .record(kind::START, &[1, 1, 0, 0, START_NS])
        .block(user, &[])
        .record(kind::EXCEPTION, &[14, 0x1001, 0x8000])
        .block(handler, &[])
        .block(call, &[])
        .block(kernel, &[])
        .record(kind::GUEST_EVENT, &with_path(&[0x9000, 1, 5, 7, 6, 0], "switch"))
        .block(after, &[])
        .words();
    let folder = std::env::temp_dir().join(format!("trapline-feed-{}-machine", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.trace");
    let mut analysis = args_of(Kind::Drmemtrace).analysis(Some(&path), Format::Json).unwrap().unwrap();
    analysis.consume(&mut Parts::new(&table, &[chunk]), &Options { workers: 1 }, &mut Vec::new()).unwrap();
    let time = 11_644_473_600_000_000 + 5_000_000;
    let want = [
        (25, 0, 7),
        (28, 12, 7),
        (28, 9, 0x40 | 0x200 | 0x1000 | 0x1_0000 | 0x4_0000),
        (22, 8, 1),
        (24, 8, 1),
        (28, 10, 64),
        (28, 20, 0),
        (28, 18, 4096),
        (28, 2, time),
        (28, 3, 0),
        (47, 1, 0x90),
        (10, 1, 0x1000),
        (28, 43, 0x1001),
        (47, 1, 0x90),
        (10, 1, 0x8000),
        (47, 2, 0xcf48),
        (28, 29, 0x1001),
        (16, 2, 0x8001),
        (28, 44, 0x8003),
        (47, 2, 0x050f),
        (28, 29, 0x9000),
        (12, 2, 0x1001),
        (47, 1, 0x90),
        (10, 1, 0x9000),
        (22, 8, 7),
        (24, 8, 6),
        (28, 2, time),
        (28, 3, 0),
        (47, 1, 0x90),
        (10, 1, 0x9001),
        (28, 2, time),
        (28, 3, 0),
        (23, 8, 7),
        (22, 8, 1),
        (24, 8, 1),
        (28, 2, time),
        (28, 3, 0),
        (23, 8, 1),
        (26, 0, 0),
    ];
    assert_eq!(entries(&std::fs::read(&path).unwrap()), want);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Protobuf by hand: a header message (obj_id "trapline", ver 0, tick_freq 10^12) and packets.
#[test]
fn gem5_packets() {
    let got = feed(Kind::Gem5, |_| {}, "gem5");
    // 10^12 = 80 a0 94 a5 8d 1d in groups of seven bits.
    let head = hex("67656d35 13 0a08 747261706c696e65 1000 18 80a094a58d1d");
    assert_eq!(got[..head.len()], head);
    // tick 0, cmd 1 (read), addr 0x8000, size 4, pkt_id 1, pc 0x1000; then tick 1000, cmd 4 (write), 0x9000, 4, 2, 0x1002
    let first = hex("0f 0800 1001 18808002 2004 3001 388020");
    let second = hex("10 08e807 1004 1880a002 2004 3002 388220");
    assert_eq!(got[head.len()..head.len() + first.len()], first);
    assert_eq!(got[head.len() + first.len()..][..second.len()], second);
}

/// RISC-V by hand, from the specification's records. A loop's last turn is interrupted by a signal.
///
/// ```text
/// 0x1000  03 b5 05 00  ld a0,0(a1)     8 bytes, 0x1122334455667788
/// 0x1004  88 c1        sw a0,0(a1)     4 bytes, 0x55667788
/// 0x1006  6d fd        bnez a0,0x1000  taken, then not
/// 0x3000  82 80        ret             the signal's handler; where it goes is not known
/// ```
#[test]
fn stf() {
    let mut table = TableBuilder::new("riscv64", 8, false);
    let valued = |a: consumer::testing::TestAccess| a.with(info::VALUE);
    let a = table.block(
        0x1000,
        &[
            insn(&[0x03, 0xb5, 0x05, 0x00], &[valued(load(8))]),
            insn(&[0x88, 0xc1], &[valued(store(4))]),
            insn(&[0x6d, 0xfd], &[]),
        ],
    );
    let handler = table.block(0x3000, &[insn(&[0x82, 0x80], &[])]);
    let table = table.finish();
    let turn = [0x8000, 0x1122_3344_5566_7788, 0x8000, 0x5566_7788];
    let chunks = [ChunkBuilder::new()
        .record(kind::START, &[1, 2, 0, 0, START_NS])
        .block(a, &turn)
        .block(a, &turn)
        .record(kind::SIGNAL, &[10, 0x1008, 0x3000])
        .block(handler, &[])
        .record(kind::END, &[1, 0])
        .words()];
    let folder = std::env::temp_dir().join(format!("trapline-feed-{}-stf", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.stf");
    let args = || args_of(Kind::Stf);
    let write = |table: &Arc<Table>, chunks: &[Vec<u64>]| {
        let mut analysis = args().analysis(Some(&path), Format::Text).unwrap().unwrap();
        analysis.consume(&mut Parts::new(table, chunks), &Options { workers: 1 }, &mut Vec::new())
    };
    write(&table, &chunks).unwrap();
    let name = "747261706c696e6520302e312e30"; // "trapline 0.1.0"
    let turn = "3c 0080000000000000 0800 0000 01  3d 8877665544332211";
    let stored = "3c 0080000000000000 0400 0000 02  3d 8877665500000000  f1 88c1";
    let want = [
        "01 535446  02 01000000 06000000",
        &format!("03 0e000000 {name}  04 0100  05 0200  06 01 000100 0e00 {name}"),
        // Events of 64 bits, RV64, process ids; hart 0, process 1000, thread 2000; the first pc.
        "07 2804080000000000  08 00000000 e8030000 d0070000  09 0010000000000000  13",
        turn,
        // The mode is the user's.
        "64 0000000000000040 01 0000000000000000  f0 03b50500",
        stored,
        "1f 0010000000000000  f1 6dfd",
        turn,
        "f0 03b50500",
        stored,
        "f1 6dfd",
        "09 0030000000000000  f1 8280",
    ];
    assert_eq!(std::fs::read(&path).unwrap(), hex(&want.concat()));

    // Without values it is refused, as is another ISA.
    let (other, others) = program();
    assert!(write(&other, &others).unwrap_err().to_string().contains("no STF of x86_64"));
    let mut table = TableBuilder::new("riscv32", 4, false);
    let a = table.block(0x1000, &[insn(&[0x88, 0xc1], &[store(4)])]);
    let table = table.finish();
    let error = write(&table, &[ChunkBuilder::new().block(a, &[0x8000]).words()]).unwrap_err();
    assert!(error.to_string().contains("--values"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(args().analysis(Some(Path::new("t.zstf")), Format::Text).unwrap().err().unwrap().contains(".stf.xz"));
}

/// A row by the library's own reader: fields that are there, blocks named by letters in the order they come.
fn rows(path: &Path, names: &mut Vec<u64>) -> Vec<String> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let row = |row: parquet::record::Row| {
        let field = |(name, field): (&String, &Field)| {
            let number = match field {
                Field::Null => return None,
                Field::ULong(n) => *n,
                Field::UInt(n) => u64::from(*n),
                Field::Str(text) => return Some(text.clone()),
                Field::Bytes(b) => return Some(b.data().iter().map(|b| format!("{b:02x}")).collect()),
                other => panic!("{other:?}"),
            };
            Some(match name.as_str() {
                "block" => {
                    let at = names.iter().position(|n| *n == number).unwrap_or(names.len());
                    names.extend((at == names.len()).then_some(number));
                    char::from(b'A' + at as u8).into()
                }
                "pc" | "addr" => format!("{number:x}"),
                _ => number.to_string(),
            })
        };
        row.get_column_iter().filter_map(field).collect::<Vec<_>>().join(" ")
    };
    reader.get_row_iter(None).unwrap().map(|r| r.unwrap()).map(row).collect()
}

/// Nine instructions in intervals of four: the loop's second turn is cut by the first one's end.
#[test]
fn parquet_tables() {
    let folder = std::env::temp_dir().join(format!("trapline-feed-{}-parquet", std::process::id()));
    let (table, chunks) = program();
    let mut written = Vec::new();
    for workers in [1, 3] {
        let to = folder.join(workers.to_string());
        let args = args_of(Kind::Parquet);
        let analysis = || args.clone().analysis(Some(&to), Format::Text).unwrap().unwrap();
        let options = Options { workers };
        analysis().consume(&mut Parts::new(&table, &chunks), &options, &mut Vec::new()).unwrap();
        // Not a second time into the same folder.
        let again = analysis().consume(&mut Parts::new(&table, &chunks), &options, &mut Vec::new()).unwrap_err();
        assert!(again.to_string().contains("is there already"), "{again}");
        let mut names = Vec::new();
        let mut events = |n: u64| rows(&to.join(format!("events/stream=0/interval={n}/events.parquet")), &mut names);
        // insn kind pc block index, then insns of a run, or address and size
        assert_eq!(
            events(0),
            [
                "0 block 1000 A 0 3",
                "0 load 1000 A 0 8000 4",
                "1 store 1002 A 1 9000 4",
                "3 block 1000 A 0 1",
                "3 load 1000 A 0 8004 4"
            ]
        );
        assert_eq!(
            events(1),
            [
                "4 block 1002 A 1 2",
                "4 store 1002 A 1 9004 4",
                "6 block 1006 B 0 1",
                "6 load 1006 B 0 7ff0 8",
                "7 block 3000 C 0 1"
            ]
        );
        assert_eq!(
            events(2),
            [
                "8 block 2000 D 0 1",
                "8 load 2000 D 0 100 1",
                "8 store 2000 D 0 200 1",
                "8 load 2000 D 0 101 1",
                "8 store 2000 D 0 201 1"
            ]
        );
        assert_eq!(std::fs::read_dir(to.join("events/stream=0")).unwrap().count(), 3);
        assert_eq!(
            rows(&to.join("blocks/stream=0/blocks.parquet"), &mut names),
            [
                "A 0 1000 8b07 other",
                "A 1 1002 8906 other",
                "A 2 1004 75fa conditional",
                "B 0 1006 c3 return",
                "C 0 3000 90 other",
                "D 0 2000 f3a4 other"
            ]
        );
        // Nothing was mapped.
        assert!(!to.join("mappings").exists());
        let streams = rows(&to.join("streams/stream=0/streams.parquet"), &mut names);
        assert!(
            streams.len() == 1 && streams[0].starts_with("1000 2000 ") && streams[0].ends_with(" 9"),
            "{streams:?}"
        );
        written.push(std::fs::read(to.join("events/stream=0/interval=1/events.parquet")).unwrap());
    }
    assert!(written[0] == written[1], "other bytes with more workers");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_cannot_be_is_refused() {
    let args = |kind| args_of(kind);
    let refused = |args: Args, path: Option<&Path>| args.analysis(path, Format::Text).unwrap().err().unwrap();
    assert!(refused(args(Kind::Champsim), None).contains("-o"));
    let filter = Some("64:1".parse().unwrap());
    assert!(refused(Args { filter, ..args(Kind::Champsim) }, Some(Path::new("x"))).contains("--filter"));
    assert!(refused(Args { cpi: 0.0, ..args(Kind::Dramsim3) }, Some(Path::new("x"))).contains("--cpi"));
    assert!(refused(Args { interval: 0, ..args(Kind::Bbv) }, Some(Path::new("x"))).contains("--interval"));
    // MIPS has delay slots.
    let mut table = TableBuilder::new("mips", 4, true);
    let a = table.block(0x1000, &[insn(&[0; 4], &[])]);
    let table = table.finish();
    let path = std::env::temp_dir().join(format!("trapline-feed-{}-mips", std::process::id()));
    let mut analysis = args(Kind::Champsim).analysis(Some(&path), Format::Text).unwrap().unwrap();
    let chunk = ChunkBuilder::new().block(a, &[]).words();
    let error =
        analysis.consume(&mut Parts::new(&table, &[chunk]), &Options { workers: 1 }, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("delay slots"), "{error}");
}

/// The suffix decides, and what is unpacked is the same.
#[test]
fn compressed_by_suffix() {
    use std::io::Read;
    let plain = feed(Kind::Champsim, |_| {}, "plain");
    let packed = |suffix: &str| feed_to(Kind::Champsim, |_| {}, suffix, &format!("t.champsim.{suffix}"));
    let read = |mut from: Box<dyn Read>| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let cursor = |suffix| std::io::Cursor::new(packed(suffix));
    assert_eq!(read(Box::new(flate2::read::GzDecoder::new(cursor("gz")))), plain);
    assert_eq!(read(Box::new(bzip2::read::BzDecoder::new(cursor("bz2")))), plain);
    assert_eq!(read(Box::new(liblzma::read::XzDecoder::new(cursor("xz")))), plain);
    assert_eq!(read(Box::new(zstd::stream::read::Decoder::new(cursor("zst")).unwrap())), plain);
    assert_eq!(read(Box::new(lz4_flex::frame::FrameDecoder::new(cursor("lz4")))), plain);
    assert!(packed("xz").starts_with(b"\xfd7zXZ\0"));
}
