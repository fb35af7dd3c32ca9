use instrument::prelude::*;

#[helper]
fn on_store(pc: u64, addr: u64, before: u128, after: u128, size: u32) {
    let _ = (pc, addr, before, after, size);
}

fn main() {}
