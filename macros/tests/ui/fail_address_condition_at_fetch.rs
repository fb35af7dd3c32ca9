use instrument::prelude::*;

struct A(Counter);

#[analyzer]
impl Analyzer for A {
    fn new(qemu: &Qemu) -> Self {
        A(qemu.counter())
    }
    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.when(address_in(0..4096)).count(self.0, 1);
    }
}

fn main() {}
