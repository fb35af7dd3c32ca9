use instrument::prelude::*;

struct Call;

#[helper]
fn nothing() {}

#[analyzer]
impl Analyzer for Call {
    fn new(_: &Qemu) -> Self {
        Call
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.call(nothing, ());
    }
}
