use instrument::prelude::*;

#[helper]
fn on_store(pc: u64) -> u64 {
    pc
}

fn main() {}
