//! A window of a recording: the instructions of each stream from one number to another, exactly.
//!
//! Rules:
//! * What happened before the window stays if it is no block: mappings, names, what there is to know of a process. What happened after it goes.
//! * A block that the window's beginning cuts goes on at an instruction, as blocks do that cross the end of a chunk ([`layout::kind::CONT`]); one that its
//!   end cuts is left there. What lies outside of the window is not played back.
//! * Chunks of which nothing is wanted are passed over, if the file has an index and is no pipe.
//! * The window begins with a start of tracing and ends with a stop, as if the guest had asked for it: a reader knows that there is something before and after.

use super::index::Wanted;
use super::{Bounds, Frames, Index, Metadata, Recorded, Recorder, kind};
use crate::layout::{self, EXECUTED_SHIFT, FLAG_PARTIAL, WORDS_SHIFT};
use crate::recording::read::Recording;
use crate::{BlockExec, Chunk, Error, Item, Polled, Source, Status};
use pipe::receiver::Part;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What was cut out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The new recording.
    pub recorded: Recorded,
    /// Instructions of the longest stream of the old one, as far as it was read.
    pub longest: u64,
}

/// Of one stream.
#[derive(Default)]
struct Progress {
    /// Instructions before.
    insns: u64,
    started: bool,
    stopped: bool,
}

/// A window of a recording, as a source.
pub struct Window {
    source: Recording,
    wanted: Wanted,
    streams: HashMap<usize, Progress>,
}

impl Window {
    /// What `bounds` say of the recording `file`. Chunks that lie outside are not read, if the recording has its index; for bounds in time the file is read
    /// twice if it has none.
    ///
    /// # Errors
    /// If it is no recording, or of another version or host.
    pub fn of_file(mut file: File, path: &Path, bounds: &Bounds) -> Result<Window, Error> {
        let index = match (Index::at_end(&mut file), bounds) {
            (Some(index), _) => index,
            (None, Bounds::Insns(_)) => Index::default(),
            (None, Bounds::Time(_)) => {
                file.rewind()?;
                Index::scan(BufReader::new(&file), path)?
            }
        };
        file.rewind()?;
        let wanted = index.wanted(bounds);
        let source = Recording::without(BufReader::with_capacity(1 << 16, file), path, index.passed(&wanted))?;
        Ok(Window { source, wanted, streams: HashMap::new() })
    }

    /// Instructions `range` of each stream of what `from` gives.
    ///
    /// # Errors
    /// If it is no recording, or of another version or host.
    pub fn of(from: Box<dyn Read + Send>, path: &Path, range: Range<u64>) -> Result<Window, Error> {
        let wanted = Index::default().wanted(&Bounds::Insns(range));
        Ok(Window { source: Recording::new(from, path)?, wanted, streams: HashMap::new() })
    }

    /// What is played back.
    pub fn recording(&self) -> &Recording {
        &self.source
    }

    /// No instruction was in the window, as far as it was read.
    pub fn is_empty(&self) -> bool {
        !self.streams.values().any(|p| p.started)
    }

    /// Instructions of the longest stream, as far as it was read.
    pub fn longest(&self) -> u64 {
        self.streams.values().map(|p| p.insns).max().unwrap_or(0)
    }
}

impl Source for Window {
    fn poll(&mut self) -> Result<Polled, Error> {
        loop {
            let part = match self.source.poll()? {
                Polled::Part(part) => part,
                other => return Ok(other),
            };
            let number = part.stream.number;
            let progress = self.streams.entry(number).or_default();
            progress.insns = self.source.before();
            let words = within(&part, progress, &self.wanted.of(number))?;
            if !words.is_empty() || part.lost > 0 {
                let words: Arc<[AtomicU64]> = words.into_iter().map(AtomicU64::new).collect();
                let mut new = Part::owned(part.stream.clone(), part.table.clone(), part.chunk, words);
                (new.order, new.lost, new.last_of_chunk) = (part.order, part.lost, part.last_of_chunk);
                return Ok(Polled::Part(new));
            }
        }
    }

    fn wait(&self) {
        self.source.wait();
    }

    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.source.ringer()
    }
}

/// Writes a window to `out`.
///
/// # Errors
/// If the recording is damaged within the window, or the output cannot be written.
pub fn cut(mut window: Window, out: Box<dyn Write + Send>) -> Result<Cut, Error> {
    let mut metadata: Metadata = window.source.metadata().unwrap_or_default();
    let all = &window.wanted.all;
    let what = match all.start {
        u64::MAX => "by time".into(),
        from => format!("{} instructions from {from}", all.end - from),
    };
    metadata.more.insert("cut".into(), what);
    let mut recorder = Recorder::new(out, &metadata, 1)?;
    loop {
        match window.poll()? {
            Polled::Part(part) => recorder.part(&part)?,
            Polled::Ended(stream) => recorder.ended(&stream)?,
            Polled::Nothing => window.wait(),
            Polled::End => break,
        }
    }
    if let Some(damage) = window.source.damage().filter(|d| !d.cut_off) {
        let path = window.source.path().display();
        return Err(Error::Consumer(format!("{path}: at byte {}: {}", damage.offset, damage.what)));
    }
    Ok(Cut { recorded: recorder.finish()?, longest: window.longest() })
}

/// The words of a part that lie in the window, or are no blocks and lie before its end.
fn within(part: &Part, progress: &mut Progress, window: &Range<u64>) -> Result<Vec<u64>, Error> {
    let chunk = Chunk::new(part);
    let all = part.words();
    let mut out = Vec::new();
    let mut at = 0;
    let mut items = chunk.items();
    while let Some(item) = items.next() {
        let end = items.position();
        let words = all.slice(at, end - at).map(|w| w.iter().collect::<Vec<_>>()).unwrap_or_default();
        at = end;
        match item? {
            Item::Event(_) if progress.stopped => {}
            Item::Event(_) => out.extend(words),
            Item::Block(block) => put_block(&block, &words, progress, window, &mut out),
        }
    }
    Ok(out)
}

fn put_block(block: &BlockExec<'_>, words: &[u64], progress: &mut Progress, window: &Range<u64>, out: &mut Vec<u64>) {
    let traced = |i: usize| block.info().insns.get(i).is_some_and(|i| i.is_traced());
    let (first, retired_end) = (block.start(), block.start() + block.retired());
    let before = progress.insns;
    // Numbers of the instructions, and where in the block the window begins and ends.
    let (mut number, mut enters, mut leaves) = (before, None, None);
    for i in first..retired_end {
        if enters.is_none() && number >= window.start {
            enters = Some(i);
        }
        if number >= window.end {
            leaves = Some(i);
            break;
        }
        number += u64::from(traced(i));
    }
    let whole = (first..retired_end).filter(|i| traced(*i)).count() as u64;
    progress.insns += whole;
    // An attempt, or a part of an instruction that goes on: it belongs to the instruction that comes next.
    if first == retired_end {
        enters = (before >= window.start).then_some(first);
        leaves = (before >= window.end).then_some(first);
    }
    let Some(enters) = enters.filter(|_| !progress.stopped) else { return };
    if leaves == Some(enters) {
        stop(progress, block.info().insns.get(enters).map_or(0, |i| i.pc), out);
        return;
    }
    if !progress.started {
        progress.started = true;
        let pc = block.info().insns.get(enters).map_or(0, |i| i.pc);
        out.extend(record(layout::kind::TRACE_START, &[pc, 1, 1]));
    }
    // The block's word; before it there may be a record that it goes on here.
    let Some(word_at) = words.iter().position(|w| *w as u32 == block.id()) else { return };
    let slots = block.slots().len();
    let info = block.info();
    // Slot words of the instructions before `i`.
    let slots_before = |i: usize| {
        let of = info.accesses.iter().filter(|a| usize::from(a.insn) < i);
        of.map(|a| usize::from(a.at) + a.words()).max().unwrap_or(0)
    };
    if enters > first {
        out.extend(record(layout::kind::CONT, &[enters as u64 | (slots_before(enters) as u64) << 16]));
    } else {
        out.extend(&words[..word_at]);
    }
    match leaves {
        None => out.push(words[word_at]),
        Some(end) => {
            let (executed, valid) = (end as u64, slots_before(end) as u64);
            out.push(u64::from(block.id()) | executed << EXECUTED_SHIFT | FLAG_PARTIAL | valid << WORDS_SHIFT);
        }
    }
    out.extend(&words[word_at + 1..word_at + 1 + slots]);
    // What follows of its instructions within.
    let mut at = word_at + 1 + slots;
    while let (Some(head), Some(context)) = (words.get(at), words.get(at + 1)) {
        let end = at + 1 + (head >> 40) as usize;
        let insn = (context >> 16 & 0xffff) as usize;
        if insn >= enters && leaves.is_none_or(|l| insn < l) {
            out.extend(&words[at..end.min(words.len())]);
        }
        at = end;
    }
    let aborted = block.insns().any(|i| i.status != Status::Retired);
    if let Some(end) = leaves {
        stop(progress, info.insns.get(end).map_or(0, |i| i.pc), out);
    } else if progress.insns >= window.end && !aborted {
        let after = info.insns.get(retired_end.saturating_sub(1)).map_or(0, |i| i.pc.wrapping_add(u64::from(i.len)));
        stop(progress, after, out);
    }
}

fn stop(progress: &mut Progress, pc: u64, out: &mut Vec<u64>) {
    if progress.started && !progress.stopped {
        out.extend(record(layout::kind::TRACE_STOP, &[pc, 1, 0]));
    }
    progress.stopped = true;
}

fn record(kind: u8, payload: &[u64]) -> impl Iterator<Item = u64> + '_ {
    std::iter::once(u64::from(kind) << 32 | (payload.len() as u64) << 40).chain(payload.iter().copied())
}

/// A short text of a recording's frames, one a line.
///
/// # Errors
/// If it is no recording, or the lines cannot be written. Damage is a line of its own.
pub fn dump(from: impl Read, path: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let mut frames = Frames::new(from, path)?;
    loop {
        match frames.next_frame() {
            Ok(None) => return Ok(()),
            Err(damage) => {
                writeln!(out, "{:>12}  damaged: {}", damage.offset, damage.what)?;
                return Ok(());
            }
            Ok(Some(f)) => {
                let ratio = f.length as f64 / f.unpacked().max(1) as f64;
                write!(
                    out,
                    "{:>12}  {:8} {:>4}  {:>9} of {:>9} bytes",
                    f.offset,
                    kind::name(f.kind),
                    f.number,
                    f.length,
                    f.unpacked()
                )?;
                match f.kind {
                    kind::CHUNK | kind::PREDICTED => writeln!(out, "  {} instructions, {ratio:.3}", f.a)?,
                    kind::METADATA | kind::PROCESS | kind::STREAM => {
                        writeln!(out, "  {}", String::from_utf8_lossy(&f.body))?;
                    }
                    kind::END => writeln!(out, "  index at {}", f.a)?,
                    _ => writeln!(out)?,
                }
            }
        }
    }
}
