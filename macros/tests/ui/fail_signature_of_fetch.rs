use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Analyzer for Mine {
    fn new(_: &Qemu) -> Self {
        Mine
    }

    fn fetch(&self, _: &Access, point: &mut FetchPoint) {
        point.trace();
    }
}

fn main() {}
