use instrument::prelude::*;

struct A;

#[helper]
fn on_store(pc: u64, size: u32) {
    let _ = (pc, size);
}

#[analyzer]
impl Analyzer for A {
    fn new(_: &Qemu) -> Self {
        A
    }
    fn mem(&self, _: &Access, point: &mut MemPoint) {
        point.call(on_store, (Pc, Addr));
    }
}

fn main() {}
