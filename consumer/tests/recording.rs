//! Recordings of chunks made by hand: played back the same, whole or cut off anywhere; what is damaged never panics.
#![cfg(feature = "recording")]

use consumer::layout::kind;
use consumer::recording::{self, Bounds, Frames, Metadata, Recorder, Recording, Tee, Window};
use consumer::testing::{ChunkBuilder, Parts, TableBuilder, insn, load, part, store, stream};
use consumer::{Chunk, Consumer, Error, Item, Options, Stream, Table, run};
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What a consumer sees, as text.
struct Lines;

impl Consumer for Lines {
    type Batch = String;
    type State = String;
    fn map(&self, chunk: &Chunk<'_>) -> Result<String, Error> {
        let mut text = format!("chunk {} {}\n", chunk.number(), chunk.table().info().target);
        for item in chunk.items() {
            text += &match item? {
                Item::Block(b) => {
                    let accesses: Vec<_> = b.accesses().map(|a| a.addr).collect();
                    format!("{:x} {:?} {accesses:x?}\n", b.info().pc, b.state())
                }
                Item::Event(e) => format!("{e:?}\n"),
            };
        }
        Ok(text)
    }
    fn reduce(&self, all: &mut String, stream: &Stream, text: String) -> Result<(), Error> {
        *all += &format!("stream {} of {}: {text}", stream.tid, stream.process.pid);
        Ok(())
    }
    fn ended(&self, all: &mut String, stream: &Stream) -> Result<(), Error> {
        *all += &format!("stream {} ended\n", stream.tid);
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Three chunks and their table.
fn chunks() -> (Arc<Table>, [Vec<u64>; 3]) {
    let mut table = TableBuilder::new("x86_64", 8, false);
    let a = table.block(0x1000, &[insn(&[0x8b, 7], &[load(4)]), insn(&[0x89, 6], &[store(4)])]);
    let b = table.block(0x2000, &[insn(&[0x90], &[])]);
    let table = table.finish();
    let chunks = [
        ChunkBuilder::new().record(kind::START, &[1, 2, 0, 0, 5]).block(a, &[0x10, 0x20]).words(),
        ChunkBuilder::new().block(b, &[]).block(a, &[0x30, 0x40]).words(),
        ChunkBuilder::new().block(a, &[0x50, 0x60]).record(kind::END, &[1, 0]).words(),
    ];
    (table, chunks)
}

/// A recording of them, and what was seen while it was made.
fn recorded() -> (Vec<u8>, String) {
    let (bytes, seen) = recorded_by(1);
    // More threads write the same, but for the time that is in it.
    let (by_two, seen_by_two) = recorded_by(2);
    assert_eq!((play(&by_two).0.unwrap(), &seen_by_two), (seen.clone(), &seen));
    (bytes, seen)
}

fn recorded_by(workers: usize) -> (Vec<u8>, String) {
    let (table, chunks) = chunks();
    let file = Shared::default();
    let mut recorder = Recorder::new(Box::new(file.clone()), &Metadata::default(), workers).unwrap();
    let mut seen = String::new();
    let mut parts = Parts::new(&table, &chunks);
    run(&mut Tee::new(&mut parts, &mut recorder), &Lines, &mut seen, &Options { workers: 1 }).unwrap();
    let done = recorder.finish().unwrap();
    let bytes = file.0.lock().unwrap().clone();
    assert_eq!((done.insns, done.bytes), (7, bytes.len() as u64));
    (bytes, seen)
}

fn play(bytes: &[u8]) -> (Result<String, Error>, Option<recording::Damage>) {
    let mut recording = match Recording::new(Box::new(Cursor::new(bytes.to_vec())), Path::new("t")) {
        Ok(recording) => recording,
        Err(e) => return (Err(e), None),
    };
    let mut seen = String::new();
    let played = run(&mut recording, &Lines, &mut seen, &Options { workers: 1 });
    (played.map(|_| seen), recording.damage())
}

/// Unpacked by threads of their own: the same, whole, cut off and damaged.
#[test]
fn unpacked_by_threads() {
    let bytes = long();
    let played = |bytes: &[u8], threads| {
        let frames = Frames::new(Cursor::new(bytes.to_vec()), Path::new("t")).unwrap();
        let mut recording = Recording::with_threads(frames, threads);
        let mut seen = String::new();
        run(&mut recording, &Lines, &mut seen, &Options { workers: 1 }).unwrap();
        (seen, recording.damage())
    };
    assert_eq!(played(&bytes, 0).1, None);
    for end in (100..=bytes.len()).step_by(97).chain([bytes.len()]) {
        let mut damaged = bytes.clone();
        damaged[end - 1] ^= 0x40;
        for bytes in [&bytes[..end], &damaged] {
            let plain = played(bytes, 0);
            assert_eq!(played(bytes, 1), plain, "{end}");
            assert_eq!(played(bytes, 3), plain, "{end}");
        }
    }
}

#[test]
fn played_back_as_it_was_seen() {
    let (bytes, seen) = recorded();
    assert!(seen.contains("stream 2000 ended") && seen.matches("chunk").count() == 3, "{seen}");
    let (again, damage) = play(&bytes);
    assert_eq!((again.unwrap(), damage), (seen, None));
}

/// The beginning by hand: header, then the metadata frame's header.
#[test]
fn the_first_bytes() {
    let (bytes, _) = recorded();
    assert_eq!(&bytes[..12], b"TRAPLINE\x02\0\0\0");
    let text = br#"{"recorder":"","command":[],"target":"","analyzer":"","wall_ns":0,"more":{}}"#;
    assert_eq!(bytes[16..20], [1, 0, 0, 0]);
    assert_eq!(bytes[28..32], (text.len() as u32).to_le_bytes());
    let frames: Vec<u32> = {
        let mut frames = Frames::new(Cursor::new(&bytes), Path::new("t")).unwrap();
        std::iter::from_fn(|| frames.next_frame().unwrap().map(|f| f.kind)).collect()
    };
    use recording::kind::*;
    let but_blocks: Vec<u32> = frames.iter().copied().filter(|k| *k != BLOCKS).collect();
    assert_eq!(but_blocks, [METADATA, PROCESS, STREAM, PREDICTED, PREDICTED, PREDICTED, ENDED, INDEX, END]);
    // The table's header, then the first chunk's block; that of the second chunk where it was seen first.
    assert_eq!(frames[2..6], [BLOCKS, STREAM, BLOCKS, PREDICTED]);
}

#[test]
fn cut_off_anywhere_it_plays_up_to_there() {
    let (bytes, seen) = recorded();
    for n in 0..bytes.len() {
        let (again, damage) = play(&bytes[..n]);
        if n < 16 {
            assert!(again.unwrap_err().to_string().contains("no recording"), "{n}");
            continue;
        }
        let damage = damage.unwrap_or_else(|| panic!("{n} bytes of {} are whole", bytes.len()));
        assert!(damage.cut_off && damage.offset <= n as u64, "{n}: {damage:?}");
        let again = again.unwrap();
        let chunks = again.rfind("stream 2000 ended").map_or(again.as_str(), |at| &again[..at]);
        assert!(seen.starts_with(chunks), "{n}");
    }
}

#[test]
fn damage_is_told_and_never_panics() {
    let (bytes, seen) = recorded();
    for at in 16..bytes.len() {
        for bit in [1, 0x80] {
            let mut wrong = bytes.clone();
            wrong[at] ^= bit;
            let (again, damage) = play(&wrong);
            assert!(damage.is_some(), "byte {at} may be anything");
            if let Ok(again) = again {
                let chunks = again.rfind("stream 2000 ended").map_or(again.as_str(), |at| &again[..at]);
                assert!(seen.starts_with(chunks), "{at}");
            }
        }
    }
    // Frames whose checksums are right, and whose contents are not.
    let mut seed = 1u64;
    for _ in 0..2000 {
        let mut wrong = bytes[..16].to_vec();
        let mut frames = Frames::new(Cursor::new(&bytes), Path::new("t")).unwrap();
        while let Ok(Some(mut f)) = frames.next_frame() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if seed >> 61 == 0 && !f.body.is_empty() {
                let at = (seed >> 20) as usize % f.body.len();
                f.body[at] ^= (seed >> 8) as u8;
            }
            wrong.extend(frame(&f));
        }
        let _ = play(&wrong);
    }
}

/// A frame of these contents, not packed, with the right checksum.
fn frame(f: &recording::Frame) -> Vec<u8> {
    let mut h = Vec::new();
    for n in [f.kind, f.number, f.body.len() as u32, f.body.len() as u32] {
        h.extend(n.to_le_bytes());
    }
    h.extend(f.a.to_le_bytes());
    h.extend(f.b.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&h);
    sum.update(&f.body);
    h.extend(sum.finalize().to_le_bytes());
    h.extend(&f.body);
    h
}

/// Chunks of version 1 are their words.
#[test]
fn the_first_version_is_read() {
    let (bytes, seen) = recorded();
    let mut old = bytes[..16].to_vec();
    old[8] = 1;
    let mut frames = Frames::new(Cursor::new(&bytes), Path::new("t")).unwrap();
    let mut words = chunks().1.into_iter();
    let mut end = 0;
    while let Some(mut f) = frames.next_frame().unwrap() {
        if f.kind == recording::kind::PREDICTED {
            f.kind = recording::kind::CHUNK;
            f.body.truncate(32);
            f.body.extend(words.next().unwrap().iter().flat_map(|w| w.to_le_bytes()));
            assert_eq!(f.unpacked(), f.body.len() as u64);
        }
        end = f.kind;
        old.extend(frame(&f));
    }
    assert_eq!((words.next(), end), (None, recording::kind::END));
    let (again, damage) = play(&old);
    assert_eq!((again.unwrap(), damage), (seen, None));
}

#[test]
fn other_versions_are_refused_by_name() {
    let (mut bytes, _) = recorded();
    for version in [0, 3, 7] {
        bytes[8] = version;
        assert!(play(&bytes).0.unwrap_err().to_string().contains(&format!("version {version},")));
    }
    bytes[8] = 1;
    bytes[12] ^= 1;
    assert!(play(&bytes).0.unwrap_err().to_string().contains("byte order"));
}

/// Two streams in turns, three instructions a chunk; every third chunk has an event, too.
fn long() -> Vec<u8> {
    let mut table = TableBuilder::new("x86_64", 8, false);
    let a = table.block(0x1000, &[insn(&[0x8b, 7], &[load(4)]), insn(&[0x89, 6], &[store(4)])]);
    let b = table.block(0x2000, &[insn(&[0x90], &[])]);
    let table = table.finish();
    let streams = [stream(0), stream(1)];
    let parts = (0..24u64).map(|i| {
        let mut chunk = ChunkBuilder::new().block(a, &[i, i + 1]);
        if i % 3 == 0 {
            chunk = chunk.record(kind::MUNMAP, &[i, 1]);
        }
        part(&streams[i as usize % 2], &table, i / 2, &chunk.block(b, &[]).words())
    });
    let file = Shared::default();
    let mut recorder = Recorder::new(Box::new(file.clone()), &Metadata::default(), 1).unwrap();
    let mut parts = Parts::of(parts.collect());
    run(&mut Tee::new(&mut parts, &mut recorder), &Lines, &mut String::new(), &Options { workers: 1 }).unwrap();
    recorder.finish().unwrap();
    file.0.lock().unwrap().clone()
}

/// The frames of its chunks.
fn chunk_frames(bytes: &[u8]) -> Vec<recording::Frame> {
    let mut frames = Frames::new(Cursor::new(bytes), Path::new("t")).unwrap();
    let all = std::iter::from_fn(|| frames.next_frame().unwrap());
    all.filter(|f| f.kind == recording::kind::PREDICTED).collect()
}

fn on_disk(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn seen(mut window: Window) -> Result<String, Error> {
    let mut seen = String::new();
    run(&mut window, &Lines, &mut seen, &Options { workers: 1 })?;
    match window.recording().damage() {
        Some(damage) => Err(Error::Consumer(format!("{damage:?}"))),
        None => Ok(seen),
    }
}

/// By the index or from the front: the same, whatever the window.
#[test]
fn windows_by_the_index() {
    let bytes = long();
    let path = Path::new("t");
    for from in 0..=40u64 {
        for count in [0, 1, 2, 3, 7, 40, u64::MAX] {
            let range = from..from.saturating_add(count);
            let front = Window::of(Box::new(Cursor::new(bytes.clone())), path, range.clone()).unwrap();
            let direct = Window::of_file(on_disk(&bytes), path, &Bounds::Insns(range)).unwrap();
            assert_eq!(seen(front).unwrap(), seen(direct).unwrap(), "{from} {count}");
        }
    }
    // What has no index is read from the front.
    let cut_off = &bytes[..bytes.len() - 40];
    let window = Window::of_file(on_disk(cut_off), path, &Bounds::Insns(20..22)).unwrap();
    assert!(seen(window).unwrap_err().to_string().contains("without an index"));
}

/// What is not wanted is not read: damage there is not met. What is wanted, and events from before, are.
#[test]
fn chunks_outside_of_a_window_are_passed_over() {
    let bytes = long();
    let path = Path::new("t");
    let chunks: Vec<usize> = chunk_frames(&bytes).iter().map(|f| (f.offset + f.length - 1) as usize).collect();
    // Of each stream instructions 18 to 20: chunks 12 and 13. The one before may have an instruction's first part. Those that a third divides have events.
    let met: Vec<usize> = (0..chunks.len())
        .filter(|i| {
            let mut damaged = bytes.clone();
            damaged[chunks[*i]] ^= 1;
            seen(Window::of_file(on_disk(&damaged), path, &Bounds::Insns(18..21)).unwrap()).is_err()
        })
        .collect();
    assert_eq!(met, [0, 3, 6, 9, 10, 11, 12, 13, 14, 15]);
    // An index that does not fit is said to be wrong: here of chunk 4, which is passed over.
    let mut wrong = bytes[..16].to_vec();
    let mut frames = Frames::new(Cursor::new(&bytes), path).unwrap();
    while let Some(mut f) = frames.next_frame().unwrap() {
        if f.kind == recording::kind::INDEX {
            f.body[4 * 32 + 16] += 1;
            wrong.extend(frame(&f));
        } else {
            wrong.extend(&bytes[f.offset as usize..(f.offset + f.length) as usize]);
        }
    }
    let said = seen(Window::of_file(on_disk(&wrong), path, &Bounds::Insns(18..21)).unwrap()).unwrap_err();
    assert!(said.to_string().contains("the index says 7 instructions"), "{said}");
}

/// In time by chunks: from the first one that was handed over then.
#[test]
fn windows_in_time() {
    let bytes = long();
    let path = Path::new("t");
    let time = |f: &recording::Frame| u64::from_le_bytes(f.body[16..24].try_into().unwrap());
    let times: Vec<u64> = chunk_frames(&bytes).iter().map(time).collect();
    for bytes in [&bytes[..], &bytes[..bytes.len() - 40]] {
        let time = times[6]..times[14];
        let shown = |time| {
            let mut window = Window::of_file(on_disk(bytes), path, &Bounds::Time(time)).unwrap();
            let mut seen = String::new();
            run(&mut window, &Lines, &mut seen, &Options { workers: 1 }).unwrap();
            seen
        };
        // Of chunks 6 to 13 all loads.
        let seen = shown(time);
        let loads: Vec<u64> = (0..24).filter(|i| seen.contains(&format!("[{i:x}, {:x}]", i + 1))).collect();
        assert_eq!(loads, (6..14).collect::<Vec<_>>(), "{seen}");
        assert!(!shown(u64::MAX - 1..u64::MAX).contains("[0, 1]"));
    }
}
