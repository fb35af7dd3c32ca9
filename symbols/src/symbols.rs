//! From a place in an ELF file to a function and a line.
//!
//! Rules:
//! * Files are the guest's: nothing in them is trusted, and one that cannot be read only costs its names.
//! * Without a symbol the unwind table still says where a function starts and ends: it is named by its address.
//! * A symbol reaches to its end; one without a size to the next. Mapping symbols (`$a`, `$d`, `$x`) are none.

use addr2line::Loader;
use addr2line::gimli::{BaseAddresses, CieOrFde, EhFrame, RunTimeEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, demangled.
    pub name: String,
    /// Its start, as the file numbers addresses; what counts is that two functions of one name differ in it.
    pub start: u64,
}

struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

struct Segment {
    offset: u64,
    len: u64,
    addr: u64,
    /// It takes memory.
    loaded: bool,
}

/// An ELF file's names. Empty if it could not be read.
#[derive(Default)]
pub struct Symbols {
    symbols: Vec<Symbol>,
    segments: Vec<Segment>,
    /// Procedure linkage tables.
    plts: Vec<(u64, u64, String)>,
    /// Functions of the unwind table, by start.
    unwind: Vec<(u64, u64)>,
    lines: Option<Loader>,
}

/// Where functions start and end, as `.eh_frame` says; empty if there is none, as far as it can be read otherwise.
fn unwind_table(file: &object::File<'_>) -> Vec<(u64, u64)> {
    let address = |name| file.section_by_name(name).map(|s| s.address());
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else { return Vec::new() };
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let mut frames = EhFrame::new(data, endian);
    frames.set_address_size(if file.is_64() { 8 } else { 4 });
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = address(".text") {
        bases = bases.set_text(text);
    }
    if let Some(got) = address(".got") {
        bases = bases.set_got(got);
    }
    let mut functions = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(|_, bases, at| EhFrame::cie_from_offset(&frames, bases, at))
        {
            functions.push((fde.initial_address(), fde.initial_address().saturating_add(fde.len())));
        }
    }
    functions.sort_unstable();
    functions
}

impl Symbols {
    /// Reads a file.
    pub fn read(path: &[u8]) -> Symbols {
        let path = Path::new(OsStr::from_bytes(path));
        let Ok(data) = std::fs::read(path) else {
            return Symbols::default();
        };
        let Ok(file) = object::File::parse(&*data) else {
            return Symbols::default();
        };
        let thumb = file.architecture() == object::Architecture::Arm;
        let mut symbols: Vec<Symbol> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| s.kind() == SymbolKind::Text && s.is_definition() && s.address() != 0)
            .filter_map(|s| {
                let name = s.name().ok().filter(|n| !n.is_empty() && !n.starts_with('$'))?;
                let start = if thumb { s.address() & !1 } else { s.address() };
                Some(Symbol { start, end: start.saturating_add(s.size()), name: name.to_string() })
            })
            .collect();
        // Of several at one address the longest, then the first by name, so that the same is chosen each time.
        symbols.sort_by(|a, b| {
            (a.start, std::cmp::Reverse(a.end), &a.name).cmp(&(b.start, std::cmp::Reverse(b.end), &b.name))
        });
        symbols.dedup_by_key(|s| s.start);
        for i in 0..symbols.len() {
            if symbols[i].end == symbols[i].start {
                symbols[i].end = symbols.get(i + 1).map_or(u64::MAX, |n| n.start);
            }
        }
        let segments = file
            .segments()
            .map(|s| {
                let (offset, len) = s.file_range();
                Segment { offset, len, addr: s.address(), loaded: s.size() > 0 }
            })
            .collect();
        let plts = file
            .sections()
            .filter(|s| s.kind() == SectionKind::Text && s.name().is_ok_and(|n| n.starts_with(".plt")))
            .filter_map(|s| Some((s.address(), s.address().checked_add(s.size())?, format!("[{}]", s.name().ok()?))))
            .collect();
        Symbols { symbols, segments, plts, unwind: unwind_table(&file), lines: Loader::new(path).ok() }
    }

    /// The address of the byte at a file offset.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|s| offset >= s.offset && offset - s.offset < s.len)?;
        segment.addr.checked_add(offset - segment.offset)
    }

    /// The function that an address lies in.
    pub fn function(&self, addr: u64) -> Option<Function> {
        if let Some((start, _, name)) = self.plts.iter().find(|p| (p.0..p.1).contains(&addr)) {
            return Some(Function { name: name.clone(), start: *start });
        }
        let after = self.symbols.partition_point(|s| s.start <= addr);
        // A few steps back: a local label inside of a function may end before the address.
        if let Some(s) = self.symbols[..after].iter().rev().take(8).find(|s| addr < s.end) {
            return Some(Function { name: demangle(&s.name), start: s.start });
        }
        self.function_of_dwarf(addr).or_else(|| {
            let (start, end) = *self.unwind[..self.unwind.partition_point(|f| f.0 <= addr)].last()?;
            (addr < end).then(|| Function { name: format!("fn_{start:x}"), start })
        })
    }

    /// Every function that has a symbol, by address.
    pub fn functions(&self) -> impl Iterator<Item = Function> + '_ {
        self.symbols.iter().map(|s| Function { name: demangle(&s.name), start: s.start })
    }

    fn function_of_dwarf(&self, addr: u64) -> Option<Function> {
        let mut frames = self.lines.as_ref()?.find_frames(addr).ok()?;
        let mut last = None;
        while let Ok(Some(frame)) = frames.next() {
            last = frame.function;
        }
        let function = last?;
        let name = function.raw_name().ok()?;
        Some(Function { name: demangle(&name), start: 0 })
    }

    /// The lowest address that the file's segments take, at a page's start, and the one after the highest.
    pub fn span(&self) -> (u64, u64) {
        let low = self.segments.iter().filter(|s| s.loaded).map(|s| s.addr & !0xfff).min().unwrap_or(0);
        let high = self.segments.iter().filter(|s| s.loaded).map(|s| s.addr.saturating_add(s.len)).max();
        (low, high.unwrap_or(0).max(low))
    }

    /// Every piece of code that DWARF gives a source line: its addresses, the file and the line.
    pub fn lines(&self) -> Vec<(u64, u64, String, u32)> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let mut all = Vec::new();
        for s in self.segments.iter().filter(|s| s.loaded) {
            if let Ok(found) = lines.find_location_range(s.addr, s.addr.saturating_add(s.len)) {
                all.extend(found.filter_map(|(start, len, location)| {
                    let line = location.line.filter(|l| *l != 0)?;
                    Some((start, start.saturating_add(len), location.file?.to_string(), line))
                }));
            }
        }
        all
    }

    /// Source file and line of an address.
    pub fn line(&self, addr: u64) -> Option<(String, Option<u32>)> {
        let location = self.lines.as_ref()?.find_location(addr).ok()??;
        Some((location.file?.to_string(), location.line))
    }
}

fn demangle(name: &str) -> String {
    // Versions of dynamic symbols are not part of the name.
    let bare = name.split_once('@').map_or(name, |(n, _)| n);
    if let Ok(rust) = rustc_demangle::try_demangle(bare) {
        return format!("{rust:#}");
    }
    if bare.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(bare)
        && let Ok(text) = symbol.demangle()
    {
        return text.to_string();
    }
    bare.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
    }

    #[test]
    fn our_own_functions_are_found() {
        let exe = std::env::current_exe().unwrap();
        let symbols = Symbols::read(exe.as_os_str().as_bytes());
        let known = symbols.symbols.iter().find(|s| s.name.contains("our_own_functions_are_found")).unwrap();
        let found = symbols.function(known.start + 1).unwrap();
        assert!(found.name.contains("our_own_functions_are_found"), "{found:?}");
        let (file, line) = symbols.line(known.start + 1).unwrap();
        assert!(file.ends_with("symbols.rs") && line.is_some(), "{file}");
    }

    #[test]
    fn a_function_without_a_symbol_is_found_in_the_unwind_table() {
        let exe = std::env::current_exe().unwrap();
        let mut symbols = Symbols::read(exe.as_os_str().as_bytes());
        let start = symbols.symbols.iter().find(|s| s.name.contains("is_found_in_the_unwind_table")).unwrap().start;
        symbols.symbols.clear();
        symbols.lines = None;
        assert_eq!(symbols.function(start + 1), Some(Function { name: format!("fn_{start:x}"), start }));
    }

    #[test]
    fn what_is_no_elf_file_has_no_names() {
        let symbols = Symbols::read(b"/proc/self/cmdline");
        assert_eq!((symbols.function(0x1000), symbols.address(0)), (None, None));
        assert!(Symbols::read(b"/nonexistent").line(0).is_none());
    }
}
