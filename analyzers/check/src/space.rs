//! A process's mappings as time goes on, and whether what was touched was mapped then.
//!
//! Rules:
//! * Within a stream the order is known. Between streams only that of their chunks is: what stands in a chunk happened after the chunk was begun and
//!   before the stream's next one was. What may have been mapped is taken to have been.
//! * So memory that one thread unmaps while another uses it is a violation only if the other's chunk was begun after the first one's next.
//! * A consumer that came late, or has lost chunks, does not know when something was mapped: there it must have been mapped at some time.

use std::collections::{BTreeMap, HashMap};

/// Bits of an address within a page.
pub const PAGE_BITS: u32 = 12;

/// What a part of a stream does to, or wants of, the process's memory; in its order.
#[derive(Debug)]
pub enum Step {
    /// Pages were touched: whether as code, and their numbers.
    Touched(std::collections::HashSet<(bool, u64)>),
    /// Memory was mapped: from, to.
    Mapped(u64, u64),
    /// Memory was unmapped: from, to.
    Unmapped(u64, u64),
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Moment {
    stream: usize,
    /// Order of its chunk among all chunks.
    chunk: u64,
    /// Order among what the stream did.
    step: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    end: u64,
    from: Moment,
}

/// A mapping that is no more.
#[derive(Clone, Copy, Debug)]
struct Past {
    start: u64,
    end: u64,
    from: Moment,
    to: Moment,
}

/// A process's address space.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// What is mapped now, by where it starts.
    open: BTreeMap<u64, Mapping>,
    past: Vec<Past>,
    /// By stream: the orders of its chunks as they came.
    chunks: HashMap<usize, Vec<u64>>,
    steps: u64,
    /// What was not mapped when it was touched, as far as was known by then: whether code, page, and when.
    open_questions: HashMap<(bool, u64, usize, u64), Moment>,
    /// Not everything has been seen.
    gaps: bool,
}

impl Space {
    /// Something of the process was not seen.
    pub fn gap(&mut self) {
        self.gaps = true;
    }

    /// A part of a stream, of chunk number `chunk` in the order of all.
    pub fn follow(&mut self, stream: usize, chunk: u64, steps: Vec<Step>) {
        let chunks = self.chunks.entry(stream).or_default();
        if chunks.last() != Some(&chunk) {
            chunks.push(chunk);
        }
        for step in steps {
            self.steps += 1;
            let now = Moment { stream, chunk, step: self.steps };
            match step {
                Step::Touched(pages) => {
                    for (code, page) in pages {
                        if self.mapping_of(page).is_none() {
                            self.open_questions.entry((code, page, stream, now.step)).or_insert(now);
                        }
                    }
                }
                Step::Mapped(start, end) => {
                    self.close(start, end, now);
                    self.map(start, end, now);
                }
                Step::Unmapped(start, end) => self.close(start, end, now),
            }
        }
    }

    fn mapping_of(&self, page: u64) -> Option<&Mapping> {
        let address = page << PAGE_BITS;
        self.open.range(..=address).next_back().map(|(_, m)| m).filter(|m| address < m.end)
    }

    /// What is mapped between `start` and `end`, whole.
    fn between(&self, start: u64, end: u64) -> Vec<(u64, Mapping)> {
        let first = self.open.range(..=start).next_back().map_or(start, |(s, _)| *s);
        self.open.range(first..end).filter(|(_, m)| m.end > start).map(|(s, m)| (*s, *m)).collect()
    }

    /// Something is mapped there, but where something is that may have been mapped since.
    fn map(&mut self, start: u64, end: u64, now: Moment) {
        let mut at = start;
        for (s, m) in self.between(start, end) {
            if at < s {
                self.open.insert(at, Mapping { end: s, from: now });
            }
            at = m.end;
        }
        if at < end {
            self.open.insert(at, Mapping { end, from: now });
        }
    }

    /// Nothing is mapped from `start` to `end` any more, unless it may have been mapped since.
    fn close(&mut self, start: u64, end: u64, now: Moment) {
        for (s, m) in self.between(start, end) {
            if !self.before(m.from, now) {
                continue;
            }
            self.open.remove(&s);
            if s < start {
                self.open.insert(s, Mapping { end: start, ..m });
            }
            if end < m.end {
                self.open.insert(end, m);
            }
            self.past.push(Past { start: s.max(start), end: m.end.min(end), from: m.from, to: now });
        }
    }

    /// Whether `a` certainly happened before `b`.
    fn before(&self, a: Moment, b: Moment) -> bool {
        if a.stream == b.stream {
            return a.step < b.step;
        }
        let chunks = self.chunks.get(&a.stream).map_or(&[][..], |c| c);
        let next = chunks.iter().find(|c| **c > a.chunk);
        next.is_some_and(|next| *next <= b.chunk)
    }

    /// Once everything has been seen: what was touched and was not mapped, as text.
    pub fn violations(&self) -> Vec<String> {
        let covers = |start: u64, end: u64, page: u64| (start..end).contains(&(page << PAGE_BITS));
        // By page: the stream that touched it, whether it was never mapped, and the stream that had unmapped it.
        let mut found: Vec<(bool, u64, usize, bool, Option<usize>)> = Vec::new();
        for ((code, page, ..), at) in &self.open_questions {
            let since = self.open.range(..=page << PAGE_BITS).next_back().filter(|(s, m)| covers(**s, m.end, *page));
            let mut known = since.iter().map(|(_, m)| (m.from, None)).collect::<Vec<_>>();
            known.extend(self.past.iter().filter(|p| covers(p.start, p.end, *page)).map(|p| (p.from, Some(p.to))));
            // Of another stream's mapping it is not known when it could be used first.
            let there = known.iter().any(|(from, to)| {
                self.gaps
                    || ((from.stream != at.stream || self.before(*from, *at))
                        && to.is_none_or(|to| !self.before(to, *at)))
            });
            if !there {
                let gone = known.iter().filter_map(|(_, to)| *to).find(|to| self.before(*to, *at));
                found.push((*code, *page, at.stream, known.is_empty(), gone.map(|to| to.stream)));
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|(code, page, ..)| (*code, *page));
        let text = |(code, page, stream, never, gone): (bool, u64, usize, bool, Option<usize>)| {
            let what = if code { "an instruction ran" } else { "an access was made" };
            let when = match gone {
                Some(by) => format!("which stream {by} had unmapped"),
                None if never => "which was never mapped".into(),
                None => "which was mapped later".into(),
            };
            format!("stream {stream}: {what} on the page {:#x}, {when}", page << PAGE_BITS)
        };
        found.into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(page: u64) -> Step {
        Step::Touched([(false, page)].into())
    }
    const MAP: fn() -> Step = || Step::Mapped(0x1000, 0x5000);
    const UNMAP: fn() -> Step = || Step::Unmapped(0x2000, 0x3000);

    fn verdict(parts: Vec<(usize, u64, Vec<Step>)>) -> Vec<String> {
        let mut s = Space::default();
        parts.into_iter().for_each(|(stream, chunk, steps)| s.follow(stream, chunk, steps));
        s.violations()
    }

    #[test]
    fn within_a_stream_what_is_unmapped_is_gone() {
        assert_eq!(verdict(vec![(0, 1, vec![MAP(), touch(2), UNMAP(), touch(1), touch(3), touch(4)])]), [""; 0]);
        let gone = verdict(vec![(0, 1, vec![MAP(), UNMAP(), touch(2)])]);
        assert_eq!(gone, ["stream 0: an access was made on the page 0x2000, which stream 0 had unmapped"]);
        // Mapped again; but what came between did not know.
        assert_eq!(verdict(vec![(0, 1, vec![MAP(), UNMAP(), MAP(), touch(2)])]), [""; 0]);
        assert_eq!(verdict(vec![(0, 1, vec![MAP(), UNMAP(), touch(2), MAP()])]), gone);
        let early = verdict(vec![(0, 1, vec![touch(2), MAP()])]);
        assert_eq!(early, ["stream 0: an access was made on the page 0x2000, which was mapped later"]);
        assert_eq!(
            verdict(vec![(0, 1, vec![MAP(), touch(5)])]),
            ["stream 0: an access was made on the page 0x5000, which was never mapped"]
        );
    }

    #[test]
    fn between_streams_only_what_is_certain_counts() {
        // The unmapping's chunk (1) was followed by another (4) before the one with the access (5) began.
        let certain = |read_first: bool| {
            let (a, b) = ((0, 4, vec![]), (1, 5, vec![touch(2)]));
            let (a, b) = if read_first { (b, a) } else { (a, b) };
            verdict(vec![(0, 1, vec![MAP(), UNMAP()]), a, b])
        };
        assert_eq!(certain(false), ["stream 1: an access was made on the page 0x2000, which stream 0 had unmapped"]);
        assert_eq!(certain(true), certain(false));
        // The access's chunk (3) began before.
        assert_eq!(verdict(vec![(0, 1, vec![MAP(), UNMAP()]), (0, 4, vec![]), (1, 3, vec![touch(2)])]), [""; 0]);
        // The stream that unmaps has no other chunk.
        assert_eq!(verdict(vec![(0, 1, vec![MAP(), UNMAP()]), (1, 5, vec![touch(2)])]), [""; 0]);
        // Another has mapped it again, which is read later.
        let again = vec![(0, 1, vec![MAP(), UNMAP()]), (0, 4, vec![]), (1, 5, vec![touch(2)]), (2, 3, vec![MAP()])];
        assert_eq!(verdict(again), [""; 0]);
        // A mapping, too, may have been before the one that is read first.
        let stack = vec![(1, 2, vec![MAP()]), (0, 1, vec![MAP(), UNMAP()]), (0, 4, vec![]), (1, 5, vec![touch(2)])];
        assert_eq!(verdict(stack), [""; 0]);
        // An unmapping that may have been before the mapping of another does not end it.
        let either = vec![(1, 2, vec![MAP()]), (0, 1, vec![UNMAP()]), (0, 4, vec![]), (1, 5, vec![touch(2)])];
        assert_eq!(verdict(either), [""; 0]);
    }

    #[test]
    fn who_has_not_seen_all_knows_less() {
        let mut s = Space::default();
        s.gap();
        s.follow(0, 1, vec![touch(2), MAP(), UNMAP(), touch(2), touch(7)]);
        assert_eq!(s.violations(), ["stream 0: an access was made on the page 0x7000, which was never mapped"]);
    }
}
