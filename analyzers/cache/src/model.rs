//! Caches, and reuse distances.

use std::collections::HashMap;
use std::str::FromStr;

/// Size, associativity and line size in bytes; all powers of two but for the ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Lines of a set.
    pub ways: u64,
    /// Bytes of a line.
    pub line: u64,
}

impl Shape {
    /// Number of sets.
    pub fn sets(self) -> u64 {
        self.size / (self.ways * self.line)
    }
}

/// Larger than any there is; what is known of each line takes room, too.
const MOST: u64 = 1 << 32;

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let parts: Option<Vec<u64>> = text.split(':').map(|p| p.parse().ok()).collect();
        let Some(&[size, ways, line]) = parts.as_deref() else {
            return Err(format!("'{text}' is not SIZE:WAYS:LINE, three numbers of bytes and ways"));
        };
        let shape = Shape { size, ways, line };
        if !line.is_power_of_two() || line < 4 {
            return Err(format!("a line of {line} bytes: a power of two from 4 is expected"));
        }
        if ways == 0 || ways > 1024 || ways.checked_mul(line).is_none_or(|w| w == 0 || size % w != 0 || size == 0) {
            return Err(format!("{size} bytes cannot be divided into sets of {ways} lines of {line} bytes"));
        }
        if size > MOST {
            return Err(format!("a cache of {size} bytes: at most {MOST} can be simulated"));
        }
        if !shape.sets().is_power_of_two() {
            return Err(format!("'{text}' has {} sets: a power of two is expected", shape.sets()));
        }
        Ok(shape)
    }
}

/// Which line makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// The least recently used.
    #[default]
    Lru,
    /// By a tree of bits that point away from what was used last; the ways must be a power of two.
    Plru,
}

/// A set-associative cache.
#[derive(Clone, Debug)]
pub struct Cache {
    shape: Shape,
    policy: Policy,
    /// Tags by set and way; 0 is none, since they are stored plus 1.
    tags: Vec<u64>,
    /// LRU: when each way was last used. PLRU: one word of tree bits per set.
    state: Vec<u64>,
    now: u64,
}

impl Cache {
    /// An empty one.
    ///
    /// # Errors
    /// If the policy cannot have this number of ways.
    pub fn new(shape: Shape, policy: Policy) -> Result<Cache, String> {
        if policy == Policy::Plru && (!shape.ways.is_power_of_two() || shape.ways > 64) {
            return Err(format!("plru needs a power of two of ways, at most 64, not {}", shape.ways));
        }
        let lines = (shape.sets() * shape.ways) as usize;
        let state = if policy == Policy::Lru { lines } else { shape.sets() as usize };
        Ok(Cache { shape, policy, tags: vec![0; lines], state: vec![0; state], now: 0 })
    }

    /// Uses the line with number `line` (address / line size); whether it was there.
    pub fn access(&mut self, line: u64) -> bool {
        let set = (line & (self.shape.sets() - 1)) as usize;
        let ways = self.shape.ways as usize;
        let tag = line + 1;
        let first = set * ways;
        self.now += 1;
        let found = self.tags[first..first + ways].iter().position(|t| *t == tag);
        let way = found.unwrap_or_else(|| {
            let free = self.tags[first..first + ways].iter().position(|t| *t == 0);
            let way = free.unwrap_or_else(|| self.victim(set));
            self.tags[first + way] = tag;
            way
        });
        match self.policy {
            Policy::Lru => self.state[first + way] = self.now,
            Policy::Plru => {
                // Each node on the way points to the other half.
                let (mut node, mut low, mut size) = (1, 0, ways);
                while size > 1 {
                    size /= 2;
                    let right = way >= low + size;
                    match right {
                        true => self.state[set] &= !(1 << node),
                        false => self.state[set] |= 1 << node,
                    }
                    low += if right { size } else { 0 };
                    node = 2 * node + usize::from(right);
                }
            }
        }
        found.is_some()
    }

    fn victim(&self, set: usize) -> usize {
        let ways = self.shape.ways as usize;
        match self.policy {
            Policy::Lru => {
                let used = &self.state[set * ways..(set + 1) * ways];
                (0..ways).min_by_key(|w| used[*w]).unwrap_or(0)
            }
            Policy::Plru => {
                let (mut node, mut way, mut size) = (1, 0, ways);
                while size > 1 {
                    size /= 2;
                    let right = self.state[set] >> node & 1 == 1;
                    way += if right { size } else { 0 };
                    node = 2 * node + usize::from(right);
                }
                way
            }
        }
    }
}

/// Reuse distances: how many other lines were used since a line was used last. Mattson's stack, with a Fenwick tree over time.
#[derive(Clone, Debug, Default)]
pub struct Reuse {
    last: HashMap<u64, usize>,
    /// Over time: 1 where a line's last use is.
    tree: Vec<u32>,
    now: usize,
    /// By the number of lines that a cache must hold for it to be a hit, rounded up to a power of two: how often.
    pub by_log2: Vec<u64>,
    /// First uses.
    pub cold: u64,
}

impl Reuse {
    fn add(&mut self, mut i: usize, by: i32) {
        i += 1;
        while i < self.tree.len() {
            self.tree[i] = self.tree[i].wrapping_add_signed(by);
            i += i & i.wrapping_neg();
        }
    }

    fn sum(&self, mut i: usize) -> u64 {
        let mut sum = 0;
        while i > 0 {
            sum += u64::from(self.tree[i]);
            i &= i - 1;
        }
        sum
    }

    /// Uses a line; returns the distance, `None` for its first use.
    pub fn access(&mut self, line: u64) -> Option<u64> {
        if self.now + 1 >= self.tree.len() {
            self.compact();
        }
        let before = self.last.insert(line, self.now);
        let distance = before.map(|t| self.sum(self.now) - self.sum(t + 1));
        if let Some(t) = before {
            self.add(t, -1);
        }
        self.add(self.now, 1);
        self.now += 1;
        match distance {
            None => self.cold += 1,
            Some(d) => {
                let log2 = (d + 1).next_power_of_two().trailing_zeros() as usize;
                if self.by_log2.len() <= log2 {
                    self.by_log2.resize(log2 + 1, 0);
                }
                self.by_log2[log2] += 1;
            }
        }
        distance
    }

    /// Numbers the uses anew, so that time does not grow without end.
    fn compact(&mut self) {
        let mut order: Vec<(usize, u64)> = self.last.iter().map(|(line, t)| (*t, *line)).collect();
        order.sort_unstable();
        let room = (order.len() * 2).max(1 << 16);
        self.tree = vec![0; room + 1];
        self.now = order.len();
        for (i, (_, line)) in order.into_iter().enumerate() {
            self.last.insert(line, i);
            self.add(i, 1);
        }
    }

    /// Adds what another found.
    pub fn merge(&mut self, other: &Reuse) {
        self.cold += other.cold;
        if self.by_log2.len() < other.by_log2.len() {
            self.by_log2.resize(other.by_log2.len(), 0);
        }
        self.by_log2.iter_mut().zip(&other.by_log2).for_each(|(a, b)| *a += b);
    }

    /// For caches of 1, 2, 4, … lines: misses.
    pub fn misses(&self) -> Vec<u64> {
        let total: u64 = self.by_log2.iter().sum();
        let mut hits = 0;
        self.by_log2
            .iter()
            .map(|n| {
                hits += n;
                self.cold + total - hits
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(shape: &str, policy: Policy, lines: &[u64]) -> Vec<bool> {
        let mut cache = Cache::new(shape.parse().unwrap(), policy).unwrap();
        lines.iter().map(|l| cache.access(*l)).collect()
    }

    #[test]
    fn lru_of_two_ways() {
        // One set of two lines: 0 1 hit-0, 2 evicts 1, then 1 misses and evicts 0.
        let got = hits("128:2:64", Policy::Lru, &[0, 1, 0, 2, 0, 1, 2]);
        assert_eq!(got, [false, false, true, false, true, false, false]);
    }

    #[test]
    fn sets_do_not_disturb_each_other() {
        // Two sets of one line: even and odd.
        let got = hits("128:1:64", Policy::Lru, &[0, 1, 0, 1, 2, 1, 0]);
        assert_eq!(got, [false, false, true, true, false, true, false]);
    }

    #[test]
    fn plru_of_four_ways_is_not_lru() {
        // 0 1 2 3 fill the ways in order; all bits point at way 0. A hit of 0 turns the root to the right half, where
        // the bit points at way 2: 4 evicts line 2 (LRU would evict line 1).
        let got = hits("256:4:64", Policy::Plru, &[0, 1, 2, 3, 0, 4, 1, 2]);
        assert_eq!(got, [false, false, false, false, true, false, true, false]);
        let lru = hits("256:4:64", Policy::Lru, &[0, 1, 2, 3, 0, 4, 1, 2]);
        assert_eq!(lru, [false, false, false, false, true, false, false, false]);
    }

    #[test]
    fn distances_by_hand() {
        let mut r = Reuse::default();
        let got: Vec<Option<u64>> = [1, 2, 3, 1, 1, 2, 3].iter().map(|l| r.access(*l)).collect();
        assert_eq!(got, [None, None, None, Some(2), Some(0), Some(2), Some(2)]);
        // Caches of 1, 2, 4 lines: all but one miss, the same, only the first uses.
        assert_eq!((r.cold, r.misses()), (3, vec![6, 6, 3]));
    }

    /// A fully associative LRU cache of every power of two agrees with the distances, across renumberings, too.
    #[test]
    fn the_curve_is_what_caches_say() {
        let mut x = 1u64;
        let lines: Vec<u64> = (0..200_000)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Small numbers are more frequent.
                (x >> 40) % (1 + (x >> 20) % 300)
            })
            .collect();
        let mut r = Reuse::default();
        lines.iter().for_each(|l| {
            r.access(*l);
        });
        for (log2, misses) in r.misses().iter().enumerate() {
            let ways = 1u64 << log2;
            let mut cache = Cache::new(Shape { size: ways * 64, ways, line: 64 }, Policy::Lru).unwrap();
            let counted = lines.iter().filter(|l| !cache.access(**l)).count() as u64;
            assert_eq!(counted, *misses, "{ways} lines");
        }
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        for bad in [
            "",
            "32768",
            "32768:8",
            "32768:8:48",
            "1000:2:64",
            "0:1:64",
            "32768:0:64",
            "98304:8:64",
            "a:b:c",
            "32768:8:64:x",
            "1152921504606846976:8:64",
        ] {
            assert!(bad.parse::<Shape>().is_err(), "{bad}");
        }
        assert_eq!("32768:8:64".parse::<Shape>().unwrap().sets(), 64);
        assert!(Cache::new("49152:12:64".parse().unwrap(), Policy::Lru).is_ok());
        assert!(Cache::new("49152:12:64".parse().unwrap(), Policy::Plru).is_err());
    }
}
