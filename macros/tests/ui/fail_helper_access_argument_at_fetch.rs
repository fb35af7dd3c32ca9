use instrument::prelude::*;

struct A;

#[helper]
fn on_insn(value: u64) {
    let _ = value;
}

#[analyzer]
impl Analyzer for A {
    fn new(_: &Qemu) -> Self {
        A
    }
    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.call(on_insn, (Value,));
    }
}

fn main() {}
