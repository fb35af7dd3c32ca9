use instrument::prelude::*;

struct Mine;

#[analyzer(fast)]
impl Analyzer for Mine {
    fn new(_: &Qemu) -> Self {
        Mine
    }
}

fn main() {}
