//! The index at a recording's end, and which chunks a window can do without.

use super::{CHUNK_HEADER, FRAME, Frame, Frames, Head, PLAIN, bytes_to_words, kind};
use crate::Error;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// A chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Where its frame begins.
    offset: u64,
    stream: usize,
    /// Only instructions are in it.
    plain: bool,
    /// Instructions of the stream before it.
    before: u64,
    /// When it was handed over, in nanoseconds since the recording began.
    at_ns: u64,
}

/// Where the chunks of a recording are.
#[derive(Clone, Debug, Default)]
pub struct Index(Vec<Entry>);

/// What of a recording is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// Of each stream the instructions of these numbers.
    Insns(Range<u64>),
    /// Of each stream the instructions of the chunks that were handed over in these nanoseconds since the recording began.
    Time(Range<u64>),
}

/// The same as instructions of each stream.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) all: Range<u64>,
    each: HashMap<usize, Range<u64>>,
}

impl Wanted {
    pub(super) fn of(&self, stream: usize) -> Range<u64> {
        self.each.get(&stream).unwrap_or(&self.all).clone()
    }
}

impl Index {
    /// The index at the end of `file`; `None` if there is none, as where a file was cut off. Leaves the file's position anywhere.
    pub fn at_end(file: &mut File) -> Option<Index> {
        let end = file.seek(SeekFrom::End(-(FRAME as i64))).ok()?;
        let last = frame_at(file, end)?;
        let at = last.a;
        if last.kind != kind::END || at >= end {
            return None;
        }
        let index = frame_at(file, at).filter(|f| f.kind == kind::INDEX)?;
        let words: Vec<u64> = bytes_to_words(&index.body).collect();
        let entry = |w: &[u64]| Entry {
            offset: w[0],
            stream: w[1] as u32 as usize,
            plain: w[1] & PLAIN != 0,
            before: w[2],
            at_ns: w[3],
        };
        Some(Index(words.chunks_exact(4).map(entry).collect()))
    }

    /// An index made by reading a recording; up to where it is damaged.
    ///
    /// # Errors
    /// If it is no recording, or of another version or host.
    pub fn scan(from: impl Read, path: &Path) -> Result<Index, Error> {
        let mut frames = Frames::new(from, path)?;
        let (mut entries, mut insns) = (Vec::new(), HashMap::<usize, u64>::new());
        while let Ok(Some(f)) = frames.next_frame() {
            if !matches!(f.kind, kind::CHUNK | kind::PREDICTED) || f.body.len() < CHUNK_HEADER {
                continue;
            }
            let stream = f.number as usize;
            let before = insns.entry(stream).or_default();
            let at_ns = bytes_to_words(&f.body).nth(2).unwrap_or(0);
            entries.push(Entry { offset: f.offset, stream, plain: false, before: *before, at_ns });
            *before = before.saturating_add(f.a);
        }
        Ok(Index(entries))
    }

    /// What the bounds are of each stream.
    pub(super) fn wanted(&self, bounds: &Bounds) -> Wanted {
        match bounds {
            Bounds::Insns(all) => Wanted { all: all.clone(), each: HashMap::new() },
            Bounds::Time(time) => {
                let mut each: HashMap<usize, Range<u64>> = HashMap::new();
                for e in &self.0 {
                    let range = each.entry(e.stream).or_insert(u64::MAX..u64::MAX);
                    if range.start == u64::MAX && e.at_ns >= time.start {
                        range.start = e.before;
                    }
                    if range.end == u64::MAX && e.at_ns >= time.end {
                        range.end = e.before;
                    }
                }
                // Of streams that are not there nothing.
                Wanted { all: u64::MAX..u64::MAX, each }
            }
        }
    }

    /// Frames of which nothing is wanted, by where they begin, with the instructions of their streams before them. What is no instruction is wanted from
    /// before the window; an instruction's first part may be in the chunk before its own.
    pub(super) fn passed(&self, wanted: &Wanted) -> Vec<(u64, u64)> {
        let mut after: HashMap<usize, u64> = HashMap::new();
        let mut passed = Vec::new();
        for e in self.0.iter().rev() {
            let end = after.insert(e.stream, e.before).unwrap_or(u64::MAX);
            let range = wanted.of(e.stream);
            if (e.plain && end < range.start) || e.before > range.end {
                passed.push((e.offset, e.before));
            }
        }
        passed.sort_unstable();
        passed
    }
}

/// The frame at `offset`, if a whole one is there.
fn frame_at(file: &mut File, offset: u64) -> Option<Frame> {
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut h = [0; FRAME];
    file.read_exact(&mut h).ok()?;
    let (head, _) = Head::parse(&h);
    let mut whole = h.as_slice().chain(file.take(head.packed.into()));
    Frames::single(&mut whole, offset)
}
