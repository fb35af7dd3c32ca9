//! What is mapped where in one guest process: from an address to a place in a file.
//!
//! Rule: what is mapped later hides what was mapped there before, wholly or in part.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    /// End address.
    end: u64,
    /// Offset in the file of the mapping's first byte.
    offset: u64,
    /// The file; `None` if anonymous.
    path: Option<Arc<[u8]>>,
}

/// The image that was loaded at start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    bias: u64,
    path: Arc<[u8]>,
}

/// Where an address lies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// At an offset in a mapped file, in bytes.
    File(Arc<[u8]>, u64),
    /// At an address of the image, as its ELF file numbers them.
    Image(Arc<[u8]>, u64),
    /// In no file.
    Anonymous(u64),
}

/// The mappings of a process.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// By start address; they do not overlap.
    mappings: BTreeMap<u64, Mapping>,
    image: Option<Image>,
}

impl Maps {
    /// Does anything of a file lie in this range?
    pub fn has_file(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        self.mappings.range(..end).rev().take_while(|(_, m)| m.end > addr).any(|(_, m)| m.path.is_some())
    }

    /// A file, or anonymous memory (an empty path), is mapped.
    pub fn map(&mut self, addr: u64, len: u64, offset: u64, path: &[u8]) {
        self.unmap(addr, len);
        if len > 0 {
            let path = (!path.is_empty()).then(|| self.shared(path));
            self.mappings.insert(addr, Mapping { end: addr.saturating_add(len), offset, path });
        }
    }

    fn shared(&self, path: &[u8]) -> Arc<[u8]> {
        let known = self.mappings.values().filter_map(|m| m.path.as_ref()).find(|p| &p[..] == path);
        known.cloned().unwrap_or_else(|| path.into())
    }

    /// Memory is unmapped.
    pub fn unmap(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        let hit: Vec<u64> =
            self.mappings.range(..end).rev().take_while(|(_, m)| m.end > addr).map(|(a, _)| *a).collect();
        for start in hit {
            let Some(old) = self.mappings.remove(&start) else {
                continue;
            };
            if old.end > end {
                let rest = Mapping { offset: old.offset.wrapping_add(end - start), ..old.clone() };
                self.mappings.insert(end, rest);
            }
            if start < addr {
                self.mappings.insert(start, Mapping { end: addr, ..old });
            }
        }
    }

    /// The image is loaded: what was there before is gone.
    pub fn load(&mut self, bias: u64, path: &[u8]) {
        self.image = Some(Image { bias, path: path.into() });
    }

    /// Where `pc` lies.
    pub fn place(&self, pc: u64) -> Place {
        match self.mappings.range(..=pc).next_back() {
            Some((start, m)) if pc < m.end => match &m.path {
                Some(path) => Place::File(path.clone(), m.offset.wrapping_add(pc - start)),
                None => Place::Anonymous(pc),
            },
            _ => match &self.image {
                Some(image) => Place::Image(image.path.clone(), pc.wrapping_sub(image.bias)),
                None => Place::Anonymous(pc),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_mappings_hide_earlier_ones_in_part() {
        let mut maps = Maps::default();
        maps.map(0x1000, 0x4000, 0, b"lib");
        maps.map(0x2000, 0x1000, 0x7000, b"lib");
        maps.map(0x3000, 0x1000, 0, b"");
        let place = |pc| maps.place(pc);
        assert_eq!(place(0x1010), Place::File(b"lib"[..].into(), 0x10));
        assert_eq!(place(0x2010), Place::File(b"lib"[..].into(), 0x7010));
        assert_eq!(place(0x3010), Place::Anonymous(0x3010));
        assert_eq!(place(0x4010), Place::File(b"lib"[..].into(), 0x3010));
        assert_eq!(place(0x5000), Place::Anonymous(0x5000));
        assert!(maps.has_file(0x4fff, 1) && !maps.has_file(0x3000, 0x1000) && !maps.has_file(0x5000, 1));
        maps.unmap(0, u64::MAX);
        assert_eq!(maps.place(0x1010), Place::Anonymous(0x1010));
    }

    #[test]
    fn what_no_mapping_has_lies_in_the_image() {
        let mut maps = Maps::default();
        maps.load(0x4000_0000, b"/bin/x");
        assert_eq!(maps.place(0x4000_1000), Place::Image(b"/bin/x"[..].into(), 0x1000));
    }
}
