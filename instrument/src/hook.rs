//! What `#[analyzer]` expands to calls these: the analyzer's one instance, and who is running when a panic strikes.

use crate::{
    Access, AddressSpace, Analyzer, Call, End, Exception, FetchPoint, Image, Insn, KernelAccess, Mapping, MemPoint,
    Qemu, Signal, Syscall, Vcpu, backdoor, ffi, kernel, runtime,
};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static ANALYZER: OnceLock<Box<dyn Any + Send + Sync>> = OnceLock::new();

thread_local! {
    static RUNNING: Cell<Option<(&'static str, Option<u64>)>> = const { Cell::new(None) };
}

/// Marks `hook` as running; a panic inside ends QEMU with its name and the guest's pc.
fn running<R>(hook: &'static str, pc: Option<u64>, f: impl FnOnce() -> R) -> R {
    RUNNING.set(Some((hook, pc)));
    let r = f();
    RUNNING.set(None);
    r
}

/// Panics in an analyzer end QEMU at once; the streams stay readable, since consumers hold their memory.
pub(crate) fn install_panic_message(analyzer: &'static str) {
    std::panic::set_hook(Box::new(move |info| {
        let what = info
            .payload()
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| info.payload().downcast_ref::<String>().cloned())
            .unwrap_or_default();
        let place = info.location().map_or(String::new(), |l| format!(" ({}:{})", l.file(), l.line()));
        match RUNNING.get() {
            Some((hook, Some(pc))) => {
                eprintln!("trapline: analyzer `{analyzer}` panicked in `{hook}` at guest pc {pc:#x}: {what}{place}")
            }
            Some((hook, None)) => {
                eprintln!("trapline: analyzer `{analyzer}` panicked in `{hook}`: {what}{place}")
            }
            None => eprintln!("trapline: internal error in the runtime of analyzer `{analyzer}`: {what}{place}"),
        }
        // SAFETY: ends the process without running QEMU's or the guest's handlers.
        unsafe { libc::_exit(125) }
    }));
}

/// A helper is called by emitted code.
///
/// # Safety
/// `vcpu` is NULL or the vCPU that runs.
pub unsafe fn helper<R>(name: &'static str, vcpu: *const ffi::TraplineVcpu, f: impl FnOnce() -> R) -> R {
    // SAFETY: by contract.
    let pc = (!vcpu.is_null()).then(|| unsafe { (*vcpu).pc });
    running(name, pc, f)
}

/// Makes the analyzer.
pub fn new<A: Analyzer>(qemu: &Qemu) {
    let analyzer = running("new", None, || A::new(qemu));
    if ANALYZER.set(Box::new(analyzer)).is_err() {
        unreachable!("QEMU starts once");
    }
}

fn analyzer<A: Analyzer>() -> &'static A {
    match ANALYZER.get().and_then(|a| a.downcast_ref()) {
        Some(a) => a,
        None => unreachable!("points are only called once tracing was set up"),
    }
}

/// The fetch point.
///
/// # Safety
/// Called by QEMU with pointers that are valid for the call.
pub unsafe fn fetch<A: Analyzer>(insn: *const ffi::TraplineInsn, point: *mut ffi::TraplinePoint) {
    // SAFETY: by contract; the wrappers have the layout of what they wrap.
    let (insn, point) = unsafe { (&*insn.cast::<Insn>(), &mut *point.cast::<FetchPoint>()) };
    if !backdoor::chosen(insn) {
        return;
    }
    running("fetch", Some(insn.pc()), || analyzer::<A>().fetch(insn, point));
}

/// The memory point.
///
/// # Safety
/// Called by QEMU with pointers that are valid for the call.
pub unsafe fn mem<A: Analyzer>(access: *const ffi::TraplineAccess, point: *mut ffi::TraplinePoint) {
    // SAFETY: by contract; the wrappers have the layout of what they wrap.
    let (access, point) = unsafe { (&*access.cast::<Access>(), &mut *point.cast::<MemPoint>()) };
    if !backdoor::chosen(access.insn()) {
        return;
    }
    running("mem", Some(access.insn().pc()), || analyzer::<A>().mem(access, point));
}

/// One of the rarer points, on the thread of the vCPU, which is out of emitted code.
fn rarer<A: Analyzer>(name: &'static str, vcpu: *mut ffi::TraplineVcpu, f: impl FnOnce(&A, &mut Vcpu)) {
    // SAFETY: QEMU passes the calling thread's vCPU; `Vcpu` has its layout.
    let vcpu = unsafe { &mut *vcpu.cast::<Vcpu>() };
    running(name, Some(vcpu.pc()), || f(analyzer(), vcpu));
}

/// # Safety
/// `path` is a C string.
unsafe fn path_of(path: *const c_char) -> PathBuf {
    // SAFETY: by contract.
    PathBuf::from(OsStr::from_bytes(unsafe { runtime::text(path) }))
}

/// Called by QEMU with a valid vCPU, as all below.
pub fn vcpu_start<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu) {
    rarer("vcpu_start", vcpu, |a: &A, v| a.vcpu_start(v));
}

/// See [`vcpu_start`].
pub fn vcpu_exit<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, code: c_int) {
    rarer("vcpu_exit", vcpu, |a: &A, v| a.vcpu_exit(v, code));
}

/// See [`vcpu_start`].
pub fn fork<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, pid: c_int) {
    rarer("fork", vcpu, |a: &A, v| a.fork(v, u32::try_from(pid).ok().filter(|p| *p != 0)));
}

/// See [`vcpu_start`].
///
/// # Safety
/// `path` is a C string.
pub unsafe fn exec<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, path: *const c_char) {
    // SAFETY: by contract.
    let path = unsafe { runtime::text(path) };
    rarer("exec", vcpu, |a: &A, v| a.exec(v, Path::new(OsStr::from_bytes(path))));
}

/// See [`vcpu_start`].
pub fn exit<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, reason: c_int, code: c_int) {
    let end = if reason as u32 == ffi::TRAPLINE_END_SIGNAL { End::Signal(code) } else { End::Exit(code) };
    rarer("exit", vcpu, |a: &A, v| a.exit(v, end));
}

/// See [`vcpu_start`].
///
/// # Safety
/// `args` are eight words.
pub unsafe fn syscall<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, pc: u64, number: i64, args: *const u64) {
    // SAFETY: by contract.
    let args = unsafe { *args.cast::<[u64; 8]>() };
    let name = kernel::name_of(number);
    rarer("syscall", vcpu, |a: &A, v| a.syscall(v, &Syscall { pc, number, name, args }));
}

/// See [`vcpu_start`].
pub fn syscall_ret<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, number: i64, result: i64) {
    rarer("syscall_ret", vcpu, |a: &A, v| a.syscall_ret(v, number, result));
}

/// See [`vcpu_start`].
pub fn kernel_access<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, addr: u64, length: u64, flags: u32) {
    let access = KernelAccess {
        addresses: addr..addr.wrapping_add(length),
        write: flags & ffi::TRAPLINE_KERNEL_WRITE != 0,
        unknown: flags & ffi::TRAPLINE_KERNEL_UNKNOWN != 0,
    };
    rarer("kernel_access", vcpu, |a: &A, v| a.kernel_access(v, &access));
}

/// See [`vcpu_start`].
pub fn signal<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, number: c_int, from: u64, to: u64) {
    rarer("signal", vcpu, |a: &A, v| a.signal(v, &Signal { number, from, to }));
}

fn number_of(number: c_int) -> Option<u32> {
    u32::try_from(number).ok()
}

/// See [`vcpu_start`].
pub fn exception<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, number: c_int, from: u64, to: u64) {
    rarer("exception", vcpu, |a: &A, v| a.exception(v, &Exception { number: number_of(number), from, to }));
}

/// See [`vcpu_start`].
pub fn interrupt<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, number: c_int, from: u64, to: u64) {
    rarer("interrupt", vcpu, |a: &A, v| a.interrupt(v, &Exception { number: number_of(number), from, to }));
}

/// See [`vcpu_start`].
pub fn context<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, root: u64, asid: u64) {
    rarer("context", vcpu, |a: &A, v| a.context(v, &AddressSpace { root, asid }));
}

/// See [`vcpu_start`].
pub fn mmap<A: Analyzer>(
    vcpu: *mut ffi::TraplineVcpu,
    addr: u64,
    length: u64,
    prot: c_int,
    flags: c_int,
    offset: u64,
    _fd: c_int,
) {
    let mapping = Mapping {
        addresses: addr..addr.wrapping_add(length),
        prot: prot as u32,
        flags: flags as u32,
        offset,
        file: runtime::mapped_file(addr),
    };
    rarer("mmap", vcpu, |a: &A, v| a.mmap(v, &mapping));
}

/// See [`vcpu_start`].
pub fn munmap<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, addr: u64, length: u64) {
    rarer("munmap", vcpu, |a: &A, v| a.munmap(v, addr..addr.wrapping_add(length)));
}

/// See [`vcpu_start`].
pub fn mprotect<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, addr: u64, length: u64, prot: c_int) {
    rarer("mprotect", vcpu, |a: &A, v| a.mprotect(v, addr..addr.wrapping_add(length), prot as u32));
}

/// See [`vcpu_start`].
///
/// # Safety
/// `path` is a C string.
pub unsafe fn image<A: Analyzer>(vcpu: *mut ffi::TraplineVcpu, entry: u64, bias: u64, brk: u64, path: *const c_char) {
    // SAFETY: by contract.
    let image = Image { entry, bias, brk, path: unsafe { path_of(path) } };
    rarer("image", vcpu, |a: &A, v| a.image(v, &image));
}

/// The backdoor.
pub fn backdoor<A: Analyzer>(vcpu: &mut Vcpu, call: Call<'_>) -> u64 {
    running("backdoor", Some(call.pc()), || analyzer::<A>().backdoor(vcpu, call))
}
