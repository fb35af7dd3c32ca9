//! What `#[analyzer]` expands to calls these: the analyzer's one instance, and who is running when a panic strikes.

use crate::{Access, Analyzer, Call, FetchPoint, Insn, MemPoint, Qemu, Vcpu, backdoor, ffi};
use std::any::Any;
use std::cell::Cell;
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
    if !backdoor::in_range(insn.pc()) {
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
    if !backdoor::in_range(access.insn().pc()) {
        return;
    }
    running("mem", Some(access.insn().pc()), || analyzer::<A>().mem(access, point));
}

/// The backdoor.
pub fn backdoor<A: Analyzer>(vcpu: &mut Vcpu<'_>, call: Call<'_>) -> u64 {
    running("backdoor", Some(call.pc()), || analyzer::<A>().backdoor(vcpu, call))
}
