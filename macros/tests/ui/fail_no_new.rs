use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Analyzer for Mine {
    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }
}

fn main() {}
