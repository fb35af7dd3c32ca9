//! The half inside QEMU: stores whose address is near the range, with their values.

use crate::RANGE;
use instrument::prelude::*;
use object::{Object, ObjectSymbol};
use std::ops::Range;
use std::sync::OnceLock;

struct Watch {
    symbol: Option<String>,
    range: OnceLock<Range<u64>>,
}

/// No instruction stores more at once; helpers tell what they store piece by piece.
const LARGEST: u64 = 512;

#[analyzer]
impl Analyzer for Watch {
    fn new(qemu: &Qemu) -> Self {
        let range = OnceLock::new();
        if let Some(given) = qemu.option::<Range<u64>>("addresses") {
            let _ = range.set(given);
        }
        Watch { symbol: qemu.option("symbol"), range }
    }

    // Before the program's first instruction is translated.
    fn image(&self, vcpu: &mut Vcpu, image: &Image) {
        if let Some(name) = &self.symbol
            && let Some(found) = find(image, name)
        {
            let _ = self.range.set(found);
        }
        if let Some(range) = self.range.get() {
            vcpu.emit(RANGE, &[range.start.to_le_bytes(), range.end.to_le_bytes()].concat());
        }
    }

    fn mem(&self, access: &Access, point: &mut MemPoint) {
        if let (true, Some(range)) = (access.is_store(), self.range.get()) {
            // A store that begins before the range may reach into it.
            let before = access.size().map_or(LARGEST, |n| n as u64).saturating_sub(1);
            point.when(address_in(range.start.saturating_sub(before)..range.end)).trace_value();
        }
    }
}

/// Where a symbol of the program is in memory.
fn find(image: &Image, name: &str) -> Option<Range<u64>> {
    let bytes = std::fs::read(&image.path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let mut all = file.symbols().chain(file.dynamic_symbols());
    let symbol = all.find(|s| s.is_definition() && s.name() == Ok(name))?;
    let start = symbol.address().wrapping_add(image.bias);
    Some(start..start.wrapping_add(symbol.size().max(1)))
}
