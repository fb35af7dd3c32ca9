use instrument::prelude::*;

struct A;

fn on_store(pc: u64) {
    let _ = pc;
}

#[analyzer]
impl Analyzer for A {
    fn new(_: &Qemu) -> Self {
        A
    }
    fn mem(&self, _: &Access, point: &mut MemPoint) {
        point.call(on_store, (Pc,));
    }
}

fn main() {}
