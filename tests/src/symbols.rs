//! A guest's symbols: from names to addresses, and back for what a test prints.

use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::path::Path;

/// How far an address may lie behind a symbol to be named after it. Bytes.
const REACH: u64 = 0x10000;

/// The symbols of an ELF file.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    by_name: HashMap<String, u64>,
    by_address: Vec<(u64, String)>,
}

impl Symbols {
    /// Reads them; a file without any has none.
    pub fn read(path: &Path) -> Symbols {
        let data = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = object::File::parse(&*data).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let thumb = file.architecture() == object::Architecture::Arm;
        let mut s = Symbols::default();
        for symbol in file.symbols() {
            let (Ok(name), true) = (symbol.name(), !symbol.is_undefined()) else { continue };
            // Mapping symbols and the assembler's own say nothing.
            if name.is_empty() || name.starts_with(['$', '.']) || symbol.kind() == SymbolKind::Section {
                continue;
            }
            let mut address = symbol.address();
            if thumb && symbol.kind() == SymbolKind::Text {
                address &= !1;
            }
            s.by_name.insert(name.to_string(), address);
            s.by_name.insert(format!("{name}.end"), address + symbol.size());
            s.by_address.push((address, name.to_string()));
        }
        // Of several names of one address the last one wins: one without underscores, which the linker's have.
        s.by_address.sort_by_key(|(address, name)| (*address, !name.starts_with('_'), name.clone()));
        s
    }

    /// The address of `name`, or of `name+offset`, `name-offset`; `name.end` is the end of a function. A number stands for itself.
    pub fn get(&self, name: &str) -> u64 {
        let number = |t: &str| match t.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => t.parse(),
        };
        let find = |n: &str| *self.by_name.get(n).unwrap_or_else(|| panic!("the guest has no symbol {n}"));
        if let Ok(address) = number(name) {
            address
        } else if let Some((base, offset)) = name.split_once('+') {
            find(base) + number(offset).expect("an offset")
        } else if let Some((base, offset)) = name.split_once('-') {
            find(base) - number(offset).expect("an offset")
        } else {
            find(name)
        }
    }

    /// The address by the nearest symbol at or before it.
    pub fn name(&self, address: u64) -> String {
        let after = self.by_address.partition_point(|(a, _)| *a <= address);
        match after.checked_sub(1).map(|i| &self.by_address[i]) {
            Some((base, name)) if *base == address => name.clone(),
            Some((base, name)) if address - base < REACH => format!("{name}+{:#x}", address - base),
            _ => format!("{address:#x}"),
        }
    }
}
