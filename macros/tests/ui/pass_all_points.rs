use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Analyzer for Mine {
    fn new(_: &Qemu) -> Self {
        Mine
    }

    fn fetch(&self, insn: &Insn, point: &mut FetchPoint) {
        if insn.pc() != 0 && insn.len() > 1 && insn.bytes()[0] != 0x90 {
            point.trace();
        }
        point.once();
    }

    fn mem(&self, access: &Access, point: &mut MemPoint) {
        if access.is_store() && access.size() == Some(8) && !access.is_atomic() && !access.is_big_endian() {
            point.trace_value();
        }
    }

    fn backdoor(&self, vcpu: &mut Vcpu, call: Call) -> u64 {
        if call.op() == 0x8000 && call.is_own() { call.args()[0] + vcpu.index() as u64 } else { call.result() as u64 }
    }
}

fn main() {}
