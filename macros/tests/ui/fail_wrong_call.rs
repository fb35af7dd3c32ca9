use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Analyzer for Mine {
    fn new(_: &Qemu) -> Self {
        Mine
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace_value();
    }
}

fn main() {}
