use instrument::prelude::*;

#[helper]
fn on_store(pc: u64, vcpu: &Vcpu) {
    let _ = (pc, vcpu);
}

fn main() {}
