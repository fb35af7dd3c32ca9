use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Mine {
    fn new(_: &Qemu) -> Self {
        Mine
    }
}

fn main() {}
