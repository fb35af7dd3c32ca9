//! From a guest's addresses to files, functions and lines.
//!
//! [`Maps`] follows what is mapped where in a process, from the stream's events; [`Symbols`] knows the functions and lines of an ELF file; a
//! [`Symbolizer`] goes from one to the other.

mod maps;
mod symbols;

pub use maps::{Maps, Place};
pub use symbols::{Function, Symbols};

use std::collections::HashMap;
use std::sync::Arc;

/// Where a piece of code is from, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The file's path.
    pub module: Option<String>,
    /// The address as the file numbers them; the guest's if there is no file.
    pub addr: u64,
    /// The function.
    pub function: Option<Function>,
    /// Source file and line.
    pub line: Option<(String, Option<u32>)>,
}

/// Files' symbols, each read once.
#[derive(Default)]
pub struct Symbolizer {
    files: HashMap<Arc<[u8]>, Symbols>,
}

impl Symbolizer {
    /// The symbols of a file.
    pub fn file(&mut self, path: &Arc<[u8]>) -> &Symbols {
        self.files.entry(path.clone()).or_insert_with(|| Symbols::read(path))
    }

    /// What is at a place.
    pub fn locate(&mut self, place: &Place) -> Location {
        let (path, offset) = match place {
            Place::Anonymous(addr) => return Location { addr: *addr, ..Location::default() },
            Place::File(path, offset) | Place::Image(path, offset) => (path, *offset),
        };
        let symbols = self.file(path);
        let addr = if matches!(place, Place::File(..)) { symbols.address(offset) } else { Some(offset) };
        Location {
            module: Some(String::from_utf8_lossy(path).into_owned()),
            addr: addr.unwrap_or(offset),
            function: addr.and_then(|a| symbols.function(a)),
            line: addr.and_then(|a| symbols.line(a)),
        }
    }
}

impl std::fmt::Display for Location {
    /// `function+0x12 (file.c:34, libc.so.6)`, or what of it is known.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
        match &self.function {
            Some(function) if function.start != 0 && self.addr > function.start => {
                write!(f, "{}+{:#x}", function.name, self.addr - function.start)?;
            }
            Some(function) => write!(f, "{}", function.name)?,
            None => write!(f, "{:#x}", self.addr)?,
        }
        let line = self.line.as_ref().map(|(file, line)| match line {
            Some(line) => format!("{}:{line}", base(file)),
            None => base(file),
        });
        let parts: Vec<String> = line.into_iter().chain(self.module.as_deref().map(base)).collect();
        if parts.is_empty() { Ok(()) } else { write!(f, " ({})", parts.join(", ")) }
    }
}
