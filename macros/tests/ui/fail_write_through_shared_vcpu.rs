use instrument::prelude::*;

#[helper]
fn on_insn(vcpu: &Vcpu) {
    vcpu.request_exit(1);
}

fn main() {}
