use instrument::prelude::*;
use std::cell::Cell;

struct Mine(Cell<u32>);

#[analyzer]
impl Analyzer for Mine {
    fn new(_: &Qemu) -> Self {
        Mine(Cell::new(0))
    }
}

fn main() {}
