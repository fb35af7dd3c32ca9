//! Every call of the cursor, with every kind of argument and condition.
use instrument::prelude::*;
use std::path::Path;

struct A {
    insns: Counter,
    every: Every,
    random: Random,
    variable: Variable,
    register: Option<Register>,
    set: RegisterSet,
}

/// Documented.
#[helper]
fn plain() {}

#[helper]
pub fn looks(vcpu: &Vcpu, pc: u64, size: u32, value: u128, flag: bool) {
    vcpu.emit(1, &value.to_le_bytes());
    let _ = (pc, size, flag, vcpu.index(), vcpu.pc());
}

#[helper]
fn changes(vcpu: &mut Vcpu, pc: u64) {
    vcpu.end_block();
    vcpu.retranslate(pc..pc + 4);
    vcpu.retranslate_all();
    let mut bytes = [0; 4];
    if vcpu.read_memory(pc, &mut bytes).is_err() {
        vcpu.request_exit(1);
    }
}

#[helper]
fn register(value: u64) {
    let _ = value;
}

#[analyzer]
impl Analyzer for A {
    fn new(qemu: &Qemu) -> Self {
        A {
            insns: qemu.counter(),
            every: qemu.every(10),
            random: qemu.random(0.5, 1),
            variable: qemu.variable(0),
            register: qemu.register("rax"),
            set: qemu.register_set(&["rax", "rsp"]),
        }
    }
    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
        point.once();
        point.trace_regs(self.set);
        point.trace_regs_after(self.set);
        point.count(self.insns, 1);
        point.call(plain, ());
        point.call_after(changes, (Pc,));
        point.call(changes, (5,));
        if let Some(r) = self.register {
            point.call(register, (r,));
        }
        point.when(self.every).when(self.random).when(self.variable.is(3)).call(plain, ());
        point.when(self.insns.at_least(1000)).trace();
        point.when(self.insns.below(10)).count(self.insns, 1);
        point.when(self.every).call_after(plain, ());
    }
    fn mem(&self, access: &Access, point: &mut MemPoint) {
        if access.is_store() {
            point.trace_value();
        }
        point.count(self.insns, 1);
        point.call(looks, (Addr, Size, Value, true));
        point.call_before(changes, (Addr,));
        point.when(address_in(0..4096)).when(self.every).when(address_masked(7, 0)).trace();
        point.when(address_in(0..4096)).trace_value();
        point.when(self.variable.is_not(1)).call(looks, (Pc, Size, Value, false));
        point.once();
    }
    fn vcpu_start(&self, _: &mut Vcpu) {}
    fn vcpu_exit(&self, _: &mut Vcpu, _: i32) {}
    fn fork(&self, _: &mut Vcpu, _: Option<u32>) {}
    fn exec(&self, _: &mut Vcpu, _: &Path) {}
    fn exit(&self, _: &mut Vcpu, _: End) {}
    fn syscall(&self, _: &mut Vcpu, _: &Syscall) {}
    fn syscall_ret(&self, _: &mut Vcpu, _: i64, _: i64) {}
    fn kernel_access(&self, _: &mut Vcpu, _: &KernelAccess) {}
    fn signal(&self, _: &mut Vcpu, _: &Signal) {}
    fn mmap(&self, _: &mut Vcpu, _: &Mapping) {}
    fn munmap(&self, _: &mut Vcpu, _: std::ops::Range<u64>) {}
    fn mprotect(&self, _: &mut Vcpu, _: std::ops::Range<u64>, _: u32) {}
    fn image(&self, _: &mut Vcpu, _: &Image) {}
}

fn main() {}
