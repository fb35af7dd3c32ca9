use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Analyzer for Mine {
    fn new(_: &Qemu) -> Self {
        Mine
    }
}

fn main() {}
