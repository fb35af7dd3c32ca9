//! The guest's mappings, so that whoever comes later can be told of them: a consumer that attaches, a forked child's stream.

use pipe::layout::kind;
use std::ops::Range;
use std::sync::Arc;

/// One mapping, as its event describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub addr: u64,
    pub length: u64,
    pub prot: u64,
    pub flags: u64,
    pub offset: u64,
    pub path: Arc<[u8]>,
}

impl Map {
    fn end(&self) -> u64 {
        self.addr.saturating_add(self.length)
    }

    /// The payload of its event.
    pub fn payload(&self) -> Vec<u64> {
        crate::runtime::with_text(&[self.addr, self.length, self.prot, self.flags, self.offset], &self.path)
    }

    /// The part of it from `from` to `to`.
    fn cut(&self, from: u64, to: u64) -> Option<Map> {
        let (addr, end) = (self.addr.max(from), self.end().min(to));
        (addr < end).then(|| Map {
            addr,
            length: end - addr,
            offset: self.offset.wrapping_add(addr - self.addr),
            ..self.clone()
        })
    }
}

/// All mappings, and the image.
#[derive(Default)]
pub(crate) struct Maps {
    maps: Vec<Map>,
    image: Option<Vec<u64>>,
}

impl Maps {
    /// A mapping, in place of what was there.
    pub fn map(&mut self, addr: u64, length: u64, prot: u64, flags: u64, offset: u64, path: &[u8]) {
        self.unmap(addr, length);
        self.maps.push(Map { addr, length, prot, flags, offset, path: path.into() });
    }

    /// Nothing is mapped there any more.
    pub fn unmap(&mut self, addr: u64, length: u64) {
        let end = addr.saturating_add(length);
        self.split(addr, end, |_| None);
    }

    /// Another protection.
    pub fn protect(&mut self, addr: u64, length: u64, prot: u64) {
        let end = addr.saturating_add(length);
        self.split(addr, end, |m| Some(Map { prot, ..m }));
    }

    /// The mapping at an address.
    pub fn at(&self, addr: u64) -> Option<&Map> {
        self.maps.iter().find(|m| m.addr <= addr && addr < m.end())
    }

    /// What was at `old` is at `new` with another length, or if `length` is 0 there as well. Returns what is unmapped and what is mapped.
    pub fn remap(&mut self, old: u64, length: u64, new: u64, new_length: u64) -> (Option<Range<u64>>, Option<Map>) {
        let unmapped = match (new == old, length) {
            (_, 0) => None,
            (false, _) => Some(old..old.saturating_add(length)),
            (true, _) if new_length < length => Some(old.saturating_add(new_length)..old.saturating_add(length)),
            (true, _) => None,
        };
        let mapped = self.at(old).filter(|_| new != old || new_length > length).cloned();
        let mapped =
            mapped.map(|m| Map { addr: new, length: new_length, offset: m.offset.wrapping_add(old - m.addr), ..m });
        if let Some(u) = &unmapped {
            self.unmap(u.start, u.end - u.start);
        }
        if let Some(m) = &mapped {
            self.map(m.addr, m.length, m.prot, m.flags, m.offset, &m.path);
        }
        (unmapped, mapped)
    }

    /// The image's event.
    pub fn image(&mut self, payload: &[u64]) {
        self.image = Some(payload.to_vec());
    }

    /// Replaces what lies between `from` and `to`.
    fn split(&mut self, from: u64, to: u64, with: impl Fn(Map) -> Option<Map>) {
        if !self.maps.iter().any(|m| m.addr < to && from < m.end()) {
            return;
        }
        let old = std::mem::take(&mut self.maps);
        for m in old {
            self.maps.extend(m.cut(0, from));
            self.maps.extend(m.cut(from, to).and_then(&with));
            self.maps.extend(m.cut(to, u64::MAX));
        }
    }

    /// The events that describe it all: kinds and payloads.
    pub fn events(&self) -> impl Iterator<Item = (u8, Vec<u64>)> {
        let maps = self.maps.iter().map(|m| (kind::MMAP, m.payload()));
        maps.chain(self.image.iter().map(|i| (kind::IMAGE, i.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(m: &Maps) -> Vec<(u64, u64, u64, u64)> {
        let mut all: Vec<_> = m.maps.iter().map(|m| (m.addr, m.length, m.prot, m.offset)).collect();
        all.sort();
        all
    }

    #[test]
    fn a_hole_in_the_middle_leaves_both_ends_with_their_offsets() {
        let mut m = Maps::default();
        m.map(0x1000, 0x3000, 5, 2, 0x10000, b"/lib");
        m.unmap(0x2000, 0x1000);
        assert_eq!(ranges(&m), [(0x1000, 0x1000, 5, 0x10000), (0x3000, 0x1000, 5, 0x12000)]);
    }

    #[test]
    fn a_new_mapping_replaces_and_a_protection_splits() {
        let mut m = Maps::default();
        m.map(0x1000, 0x3000, 1, 2, 0, b"");
        m.map(0x2000, 0x1000, 3, 2, 0x7000, b"/x");
        m.protect(0x3000, 0x800, 0);
        assert_eq!(
            ranges(&m),
            [
                (0x1000, 0x1000, 1, 0),
                (0x2000, 0x1000, 3, 0x7000),
                (0x3000, 0x800, 0, 0x2000),
                (0x3800, 0x800, 1, 0x2800)
            ]
        );
        assert_eq!(m.events().count(), 4);
    }

    #[test]
    fn what_is_moved_keeps_its_file_and_protection() {
        let mut m = Maps::default();
        m.map(0x1000, 0x3000, 5, 2, 0x10000, b"/lib");
        let (unmapped, mapped) = m.remap(0x2000, 0x1000, 0x8000, 0x2000);
        assert_eq!(unmapped, Some(0x2000..0x3000));
        assert_eq!(mapped.map(|m| (m.addr, m.length, m.prot, m.offset)), Some((0x8000, 0x2000, 5, 0x11000)));
        assert_eq!(
            ranges(&m),
            [(0x1000, 0x1000, 5, 0x10000), (0x3000, 0x1000, 5, 0x12000), (0x8000, 0x2000, 5, 0x11000)]
        );
        // In place: only what is new or gone.
        assert_eq!(m.remap(0x8000, 0x2000, 0x8000, 0x1000), (Some(0x9000..0xa000), None));
        let (unmapped, mapped) = m.remap(0x8000, 0x1000, 0x8000, 0x2000);
        assert_eq!((unmapped, mapped.map(|m| (m.addr, m.length))), (None, Some((0x8000, 0x2000))));
        // A second mapping of the same.
        let (unmapped, mapped) = m.remap(0x8000, 0, 0xc000, 0x1000);
        assert_eq!((unmapped, mapped.map(|m| (m.addr, m.offset))), (None, Some((0xc000, 0x11000))));
        assert_eq!(m.at(0x8000).map(|m| m.length), Some(0x2000));
    }
}
