//! A hierarchy of caches that memory feeds look through: set-associative, LRU, write-back, write-allocate, each level behind the one before.

use std::str::FromStr;

/// Levels, the first one nearest to the program: `SIZE:WAYS,…` with sizes in bytes or with K or M, lines of 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Shapes(pub Vec<(u64, u64)>);

/// Bytes of a line.
pub const LINE: u64 = 64;

impl FromStr for Shapes {
    type Err = String;

    fn from_str(text: &str) -> Result<Shapes, String> {
        let mut levels = Vec::new();
        for level in text.split(',') {
            let wrong = || format!("'{level}' is not SIZE:WAYS, as in 32K:8");
            let (size, ways) = level.split_once(':').ok_or_else(wrong)?;
            let (digits, unit) = match size.as_bytes().last() {
                Some(b'K' | b'k') => (&size[..size.len() - 1], 1 << 10),
                Some(b'M' | b'm') => (&size[..size.len() - 1], 1 << 20),
                _ => (size, 1),
            };
            let size = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)?;
            let ways: u64 = ways.parse().map_err(|_| wrong())?;
            let sets = size.checked_div(ways.saturating_mul(LINE)).unwrap_or(0);
            if sets == 0 || !sets.is_power_of_two() || sets * ways * LINE != size || size > 1 << 32 {
                return Err(format!(
                    "'{level}': sets of {ways} lines of {LINE} bytes must make a power of two, up to 4 GiB"
                ));
            }
            levels.push((size, ways));
        }
        Ok(Shapes(levels))
    }
}

/// One level.
#[derive(Clone, Debug)]
struct Level {
    ways: usize,
    sets: u64,
    /// By set, most recently used first: line number + 1 and dirty bit in the lowest bit; 0 is none.
    lines: Vec<u64>,
}

impl Level {
    /// Uses a line; whether it was there, and the dirty line that made room.
    fn access(&mut self, line: u64, write: bool) -> (bool, Option<u64>) {
        let first = (line % self.sets) as usize * self.ways;
        let Some(set) = self.lines.get_mut(first..first + self.ways) else { return (true, None) };
        let tag = (line + 1) << 1;
        let found = set.iter().position(|l| l & !1 == tag);
        let at = found.unwrap_or(self.ways - 1);
        let old = set[at];
        set.copy_within(..at, 1);
        set[0] = match found {
            Some(_) => old | u64::from(write),
            None => tag | u64::from(write),
        };
        let out = (found.is_none() && old & 1 == 1).then(|| (old >> 1) - 1);
        (found.is_some(), out)
    }
}

/// The caches of one stream.
#[derive(Clone, Debug)]
pub struct Filter(Vec<Level>);

impl Filter {
    /// Empty ones.
    pub fn new(shapes: &Shapes) -> Filter {
        let level = |&(size, ways): &(u64, u64)| {
            let sets = size / (ways * LINE);
            Level { ways: ways as usize, sets, lines: vec![0; (sets * ways) as usize] }
        };
        Filter(shapes.0.iter().map(level).collect())
    }

    /// Accesses a line; `memory` is called with the lines that reach memory, and whether they are written.
    pub fn access(&mut self, line: u64, write: bool, memory: &mut impl FnMut(u64, bool)) {
        self.at(0, line, write, memory);
    }

    fn at(&mut self, level: usize, line: u64, write: bool, memory: &mut impl FnMut(u64, bool)) {
        let Some(cache) = self.0.get_mut(level) else {
            memory(line, write);
            return;
        };
        let (hit, out) = cache.access(line, write);
        // What was written comes to the next level when it makes room; until then it is only fetched.
        if let Some(out) = out {
            self.at(level + 1, out, true, memory);
        }
        if !hit {
            self.at(level + 1, line, false, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(shapes: &str, accesses: &[(u64, bool)]) -> Vec<(u64, bool)> {
        let mut filter = Filter::new(&shapes.parse().unwrap());
        let mut out = Vec::new();
        accesses.iter().for_each(|&(line, write)| filter.access(line, write, &mut |l, w| out.push((l, w))));
        out
    }

    #[test]
    fn one_set_of_two_lines() {
        // 0 and 1 fill it, 0 is used again, 2 takes 1's place: clean, so nothing is written. 3 takes that of 0, which was written.
        let got = traffic("128:2", &[(0, true), (1, false), (0, false), (2, false), (3, false)]);
        assert_eq!(got, [(0, false), (1, false), (2, false), (0, true), (3, false)]);
    }

    #[test]
    fn the_second_level_keeps_what_the_first_lets_go() {
        // One line, then two: 0 written, 1 pushes it into the second level, 0 comes back from there; nothing new from memory.
        let got = traffic("64:1,128:2", &[(0, true), (1, false), (0, false)]);
        assert_eq!(got, [(0, false), (1, false)]);
    }

    #[test]
    fn no_level_lets_all_through() {
        let mut filter = Filter::new(&Shapes::default());
        let mut n = 0;
        filter.access(5, true, &mut |l, w| {
            assert_eq!((l, w), (5, true));
            n += 1;
        });
        assert_eq!(n, 1);
    }

    #[test]
    fn shapes() {
        assert_eq!("32K:8,1M:16".parse::<Shapes>().unwrap().0, [(32768, 8), (1 << 20, 16)]);
        for bad in ["", "32K", "32K:0", "100:1", "96K:8,", "8G:1", "K:8"] {
            assert!(bad.parse::<Shapes>().is_err(), "{bad}");
        }
    }
}
