use instrument::prelude::*;

struct A;

#[helper]
fn on_store(vcpu: &Vcpu, pc: u64) {
    let _ = (vcpu, pc);
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
