use instrument::prelude::*;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Cursor {
    what: String,
    /// The code that is looked at.
    code: std::ops::Range<u64>,
    data: std::ops::Range<u64>,
    insns: Counter,
    other: Counter,
    every: Every,
    random: Random,
    variable: Variable,
    /// A register that the guest uses, and all that are sent together.
    register: Option<Register>,
    set: RegisterSet,
}

static CALLS: AtomicU64 = AtomicU64::new(0);
static SUM: AtomicU64 = AtomicU64::new(0);
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// For helpers, which have no analyzer at hand.
static REGISTER: Mutex<Option<Register>> = Mutex::new(None);
static VARIABLE: Mutex<Option<Variable>> = Mutex::new(None);
static RANGE: Mutex<(u64, u64)> = Mutex::new((0, 0));
/// What the decoder says, by instruction.
static DECODED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[helper]
fn on_count() {
    CALLS.fetch_add(1, Relaxed);
}

#[helper]
fn on_before(addr: u64, value: u64) {
    BEFORE.fetch_add(1, Relaxed);
    assert_eq!(value, 0, "the value at {addr:#x} is known before the access");
}

#[helper]
fn on_access(vcpu: &Vcpu, pc: u64, addr: u64, size: u32, value: u128) {
    assert_eq!(pc, vcpu.pc());
    vcpu.emit(2, format!("pc={pc:#x} addr={addr:#x} size={size} value={value:#x}").as_bytes());
}

#[helper]
fn on_register(vcpu: &Vcpu, value: u64) {
    let register = REGISTER.lock().unwrap().unwrap();
    // What emitted code passes is what the debugger would say.
    assert_eq!(vcpu.register(register), value, "{}", register.name());
    SUM.fetch_add(value, Relaxed);
}

#[helper]
fn on_change(vcpu: &mut Vcpu) {
    let register = REGISTER.lock().unwrap().unwrap();
    if CALLS.fetch_add(1, Relaxed) == 0 {
        vcpu.set_register(register, 0x1234).unwrap();
    }
}

#[helper]
fn on_refused(vcpu: &mut Vcpu, constant: u64) {
    if CALLS.fetch_add(1, Relaxed) == 0 {
        let mut bytes = [0; 4];
        vcpu.read_memory(vcpu.pc(), &mut bytes).unwrap();
        vcpu.emit(1, format!("memory={bytes:02x?} constant={constant}").as_bytes());
        let bad = vcpu.read_memory(8, &mut [0]).unwrap_err();
        vcpu.emit(1, bad.to_string().as_bytes());
        let register = REGISTER.lock().unwrap().unwrap();
        let bad = vcpu.set_register(register, 0).unwrap_err();
        vcpu.emit(1, bad.to_string().as_bytes());
    }
}

#[helper]
fn on_panic(vcpu: &Vcpu) {
    panic!("not today, vCPU {}", vcpu.index());
}

#[helper]
fn on_leave(vcpu: &mut Vcpu) {
    vcpu.request_exit(42);
}

#[helper]
fn on_stop(vcpu: &mut Vcpu) {
    // In the hundredth turn.
    if CALLS.fetch_add(1, Relaxed) == 99 {
        vcpu.stop_tracing();
    }
}

#[helper]
fn on_renew(vcpu: &mut Vcpu) {
    // The first time only: from now on the analyzer decides otherwise.
    if CALLS.fetch_add(1, Relaxed) == 0 {
        VARIABLE.lock().unwrap().unwrap().set(1);
        let (lo, hi) = *RANGE.lock().unwrap();
        vcpu.retranslate(lo..hi);
    }
}

#[analyzer]
impl Analyzer for Cursor {
    fn new(qemu: &Qemu) -> Self {
        let names: String = qemu.option("regs").unwrap_or_default();
        let names: Vec<&str> = names.split('+').filter(|n| !n.is_empty()).collect();
        let register = names.first().and_then(|n| qemu.register(n));
        *REGISTER.lock().unwrap() = register;
        let variable = qemu.variable(0);
        *VARIABLE.lock().unwrap() = Some(variable);
        let code = qemu.option("code").unwrap_or(0..0u64);
        *RANGE.lock().unwrap() = (code.start, code.end);
        Cursor {
            what: qemu.option("what").unwrap_or_default(),
            code,
            data: qemu.option("data").unwrap_or(0..0u64),
            insns: qemu.counter(),
            other: qemu.counter(),
            every: qemu.every(qemu.option("every").unwrap_or(10)),
            random: qemu.random(0.25, qemu.option("seed").unwrap_or(1)),
            variable,
            register,
            set: qemu.register_set(&names),
        }
    }

    fn fetch(&self, insn: &Insn, point: &mut FetchPoint) {
        let here = self.code.contains(&insn.pc());
        let first = insn.pc() == self.code.start;
        match self.what.as_str() {
            "count" => point.count(self.insns, 1),
            "count-call" => {
                point.count(self.insns, 1);
                point.call(on_count, ());
            }
            "after" if here => point.call_after(on_count, ()),
            "every" if here => {
                point.when(self.every).count(self.insns, 1);
                point.when(self.every).trace();
            }
            "random" if here => point.when(self.random).count(self.insns, 1),
            "counter" if here => {
                // Three times below 5, then no more.
                point.count(self.other, 1);
                point.when(self.other.below(5)).count(self.insns, 1);
            }
            "variable" if here => {
                point.when(self.variable.is(1)).count(self.insns, 1);
                if first {
                    point.call(on_renew, ());
                }
            }
            "renew" if here => {
                if self.variable.get() == 0 {
                    point.count(self.insns, 1);
                }
                if first {
                    point.call(on_renew, ());
                }
            }
            "register" if here => {
                if let Some(r) = self.register {
                    point.call(on_register, (r,));
                }
            }
            "change" if here => {
                point.count(self.insns, 1);
                if first {
                    point.call(on_change, ());
                }
            }
            "refused" if first => point.call(on_refused, (7u64,)),
            "panic" if first => point.call(on_panic, ()),
            "regs" if here => {
                point.trace();
                point.trace_regs(self.set);
            }
            "decode" if here => decoded(insn),
            "stop" => {
                point.trace();
                if first {
                    point.call(on_stop, ());
                }
            }
            "leave" if first => point.call(on_leave, ()),
            _ => {}
        }
    }

    fn mem(&self, access: &Access, point: &mut MemPoint) {
        let here = self.code.contains(&access.insn().pc());
        match self.what.as_str() {
            "access" if here => point.call(on_access, (Pc, Addr, Size, Value)),
            "count" if access.is_store() => point.count(self.other, 1),
            "before" if here => {
                point.call_before(on_before, (Addr, Value));
                point.call(on_count, ());
            }
            "range" if here => {
                point.when(address_in(self.data.clone())).trace_value();
                point.when(address_in(self.data.clone())).count(self.insns, 1);
                point.when(address_masked(4, 4)).when(address_in(self.data.clone())).count(self.other, 1);
                point.when(address_in(self.data.clone())).when(self.every).call(on_count, ());
            }
            _ => {}
        }
    }

    fn vcpu_start(&self, vcpu: &mut Vcpu) {
        self.rarer(vcpu, &format!("vcpu_start {}", vcpu.index()));
    }
    fn vcpu_exit(&self, vcpu: &mut Vcpu, code: i32) {
        self.rarer(vcpu, &format!("vcpu_exit {} {code}", vcpu.index()));
    }
    fn fork(&self, vcpu: &mut Vcpu, child: Option<u32>) {
        self.rarer(vcpu, if child.is_some() { "fork parent" } else { "fork child" });
    }
    fn exec(&self, vcpu: &mut Vcpu, path: &Path) {
        self.rarer(vcpu, &format!("exec {}", path.display()));
    }
    fn syscall(&self, vcpu: &mut Vcpu, call: &Syscall) {
        if self.what == "stop" {
            vcpu.start_tracing();
        }
        let name = call.name.unwrap_or_default();
        self.rarer(vcpu, &format!("syscall {name} {:#x} {} {:#x}", call.pc, call.number, call.args[0]));
    }
    fn syscall_ret(&self, vcpu: &mut Vcpu, number: i64, result: i64) {
        self.rarer(vcpu, &format!("syscall_ret {number} {result}"));
    }
    fn kernel_access(&self, vcpu: &mut Vcpu, k: &KernelAccess) {
        let length = k.addresses.end - k.addresses.start;
        self.rarer(vcpu, &format!("kernel {} {length} {}", if k.write { 'W' } else { 'R' }, k.unknown));
    }
    fn signal(&self, vcpu: &mut Vcpu, s: &Signal) {
        self.rarer(vcpu, &format!("signal {} {:#x} {:#x}", s.number, s.from, s.to));
    }
    fn mmap(&self, vcpu: &mut Vcpu, m: &Mapping) {
        let file = m.file.as_ref().and_then(|f| f.file_name()).map(|f| f.to_string_lossy().into_owned());
        let length = m.addresses.end - m.addresses.start;
        self.rarer(vcpu, &format!("mmap {length:#x} {} {}", m.prot, file.unwrap_or_default()));
    }
    fn munmap(&self, vcpu: &mut Vcpu, a: std::ops::Range<u64>) {
        self.rarer(vcpu, &format!("munmap {:#x}", a.end - a.start));
    }
    fn mprotect(&self, vcpu: &mut Vcpu, a: std::ops::Range<u64>, prot: u32) {
        self.rarer(vcpu, &format!("mprotect {:#x} {prot}", a.end - a.start));
    }
    fn image(&self, vcpu: &mut Vcpu, i: &Image) {
        self.rarer(vcpu, &format!("image {:#x} {:#x}", i.entry, i.bias));
    }

    fn exit(&self, vcpu: &mut Vcpu, end: End) {
        self.rarer(vcpu, &format!("exit {end:?}"));
        let all = [
            ("insns", self.insns.total()),
            ("other", self.other.total()),
            ("calls", CALLS.load(Relaxed)),
            ("sum", SUM.load(Relaxed)),
            ("before", BEFORE.load(Relaxed)),
        ];
        for (name, value) in all {
            vcpu.emit(1, format!("{name}={value}").as_bytes());
        }
        for text in DECODED.lock().unwrap().iter() {
            vcpu.emit(3, text.as_bytes());
        }
    }
}

/// Notes what is known of an instruction.
fn decoded(insn: &Insn) {
    let target = instrument::decode_target().unwrap();
    let regs = insn.registers().unwrap();
    let kinds: Vec<_> = insn.kinds().unwrap().names().collect();
    let text = format!(
        "{:#x} {:?} [{}] to {:x?} uses {} defines {} sp {}/{} {}",
        insn.pc(),
        insn.class(),
        kinds.join(" "),
        insn.branch_target(),
        regs.uses.names(target).join(","),
        regs.defines.names(target).join(","),
        insn.uses(Reg::STACK_POINTER),
        insn.defines(Reg::STACK_POINTER),
        insn.text().unwrap(),
    );
    let mut all = DECODED.lock().unwrap();
    if !all.contains(&text) {
        all.push(text);
    }
}

impl Cursor {
    /// Says that one of the rarer points was called.
    fn rarer(&self, vcpu: &Vcpu, text: &str) {
        if self.what == "rarer" {
            vcpu.emit(1, text.as_bytes());
        }
    }
}
