//! The cursor: what an analyzer can ask for at a point beside tracing, and under which conditions.

use crate::vcpu::Register;
use crate::{Counter, FetchPoint, MemPoint, Variable, ffi};
use std::marker::PhantomData;
use std::ops::Range;

/// Something that holds or not when a point is reached; evaluated by emitted code.
///
/// Made from counters ([`Counter::at_least`], …), variables ([`Variable::is`], …), [`Every`] and [`Random`].
#[derive(Clone, Copy, Debug)]
pub struct Condition(ffi::TraplineCondition);

/// A [`Condition`], or one on the address of an access ([`address_in`], [`address_masked`]).
#[derive(Clone, Copy, Debug)]
pub struct AccessCondition(ffi::TraplineCondition);

impl From<Condition> for AccessCondition {
    fn from(c: Condition) -> Self {
        AccessCondition(c.0)
    }
}

fn condition(kind: u32, compare: u32, a: u64, b: u64) -> ffi::TraplineCondition {
    ffi::TraplineCondition { kind, compare, a, b }
}

macro_rules! comparisons {
    ($($name:ident $compare:ident $text:literal;)*) => {
        impl Counter {
            $(#[doc = concat!("The vCPU's value is ", $text, " `n`.")]
            pub fn $name(self, n: u64) -> Condition {
                Condition(condition(ffi::TRAPLINE_IF_SLOT, ffi::$compare, self.0.into(), n))
            })*
        }
        impl Variable {
            $(#[doc = concat!("The value is ", $text, " `n`.")]
            pub fn $name(self, n: u64) -> Condition {
                Condition(condition(ffi::TRAPLINE_IF_VARIABLE, ffi::$compare, std::ptr::from_ref(self.0) as u64, n))
            })*
        }
    };
}

comparisons! {
    is TRAPLINE_COMPARE_EQ "equal to";
    is_not TRAPLINE_COMPARE_NE "different from";
    below TRAPLINE_COMPARE_LT "below";
    at_least TRAPLINE_COMPARE_GE "at least";
    at_most TRAPLINE_COMPARE_LE "at most";
    above TRAPLINE_COMPARE_GT "above";
}

/// Holds every n-th time that it is evaluated on a vCPU. Made with [`crate::Qemu::every`].
#[derive(Clone, Copy, Debug)]
pub struct Every {
    pub(crate) slot: u32,
    pub(crate) n: u64,
}

impl Every {
    /// Its number, for points that are filled in C (`TraplineCondition`'s `a`).
    pub fn slot(self) -> u32 {
        self.slot
    }
}

impl From<Every> for Condition {
    fn from(e: Every) -> Self {
        Condition(condition(ffi::TRAPLINE_IF_EVERY, 0, e.slot.into(), e.n))
    }
}

/// Holds at random. Made with [`crate::Qemu::random`].
#[derive(Clone, Copy, Debug)]
pub struct Random {
    pub(crate) slot: u32,
    pub(crate) threshold: u64,
}

impl From<Random> for Condition {
    fn from(r: Random) -> Self {
        Condition(condition(ffi::TRAPLINE_IF_RANDOM, 0, r.slot.into(), r.threshold))
    }
}

impl From<Every> for AccessCondition {
    fn from(e: Every) -> Self {
        Condition::from(e).into()
    }
}

impl From<Random> for AccessCondition {
    fn from(r: Random) -> Self {
        Condition::from(r).into()
    }
}

/// The access's first byte is in `range`.
pub fn address_in(range: Range<u64>) -> AccessCondition {
    let length = range.end.saturating_sub(range.start);
    AccessCondition(condition(ffi::TRAPLINE_IF_RANGE, 0, range.start, length))
}

/// The access's address, of which only the bits of `mask` count, is `value`.
pub fn address_masked(mask: u64, value: u64) -> AccessCondition {
    AccessCondition(condition(ffi::TRAPLINE_IF_MASKED, 0, mask, value))
}

/// To a helper: the instruction's pc.
#[derive(Clone, Copy, Debug)]
pub struct Pc;
/// To a helper: the access's address.
#[derive(Clone, Copy, Debug)]
pub struct Addr;
/// To a helper: the access's size in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Size;
/// To a helper: the value read or written; its lower half where a `u64` is expected. 0 before the access.
#[derive(Clone, Copy, Debug)]
pub struct Value;

/// The words that a helper gets, as they are collected.
#[doc(hidden)]
#[derive(Default)]
pub struct Words {
    args: Vec<ffi::TraplineArg>,
}

impl Words {
    fn push(&mut self, kind: u32, reg: u32, value: u64) {
        self.args.push(ffi::TraplineArg { kind, reg, value });
    }
}

/// What stands for a helper's parameter of type `T` at a fetch point: [`Pc`], a [`Register`], a constant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the argument for a helper's parameter of type `{T}` at a fetch point",
    label = "the helper expects a `{T}` here",
    note = "at a fetch point: `Pc` or a `Register` for u64, constants for u64, u32 and bool"
)]
pub trait FetchArg<T> {
    #[doc(hidden)]
    fn push(self, words: &mut Words);
}

/// What stands for a helper's parameter of type `T` at an access: as [`FetchArg`], and [`Addr`], [`Size`], [`Value`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the argument for a helper's parameter of type `{T}` at an access",
    label = "the helper expects a `{T}` here",
    note = "at an access: `Pc`, `Addr`, `Value` or a `Register` for u64, `Size` for u32, `Value` for u128, constants for u64, u32 and bool"
)]
pub trait MemArg<T> {
    #[doc(hidden)]
    fn push(self, words: &mut Words);
}

macro_rules! args {
    ($($trait:ident)* : $(<$t:ty> $ty:ty = |$self:ident| $kind:ident, $reg:expr, $value:expr;)*) => {
        args!(@each [$($trait)*] $([<$t> $ty = |$self| $kind, $reg, $value])*);
    };
    (@each [] $($rest:tt)*) => {};
    (@each [$trait:ident $($traits:ident)*] $([<$t:ty> $ty:ty = |$self:ident| $kind:ident, $reg:expr, $value:expr])*) => {
        $(impl $trait<$t> for $ty {
            fn push($self, words: &mut Words) {
                words.push(ffi::$kind, $reg, $value);
            }
        })*
        args!(@each [$($traits)*] $([<$t> $ty = |$self| $kind, $reg, $value])*);
    };
}

args! { FetchArg MemArg:
    <u64> Pc = |self| TRAPLINE_ARG_PC, 0, 0;
    <u64> Register = |self| TRAPLINE_ARG_REGISTER, self.number(), 0;
    <u64> u64 = |self| TRAPLINE_ARG_CONST, 0, self;
    <u32> u32 = |self| TRAPLINE_ARG_CONST, 0, self.into();
    <bool> bool = |self| TRAPLINE_ARG_CONST, 0, self.into();
}
args! { MemArg:
    <u64> Addr = |self| TRAPLINE_ARG_ADDR, 0, 0;
    <u32> Size = |self| TRAPLINE_ARG_SIZE, 0, 0;
    <u64> Value = |self| TRAPLINE_ARG_VALUE, 0, 0;
}

impl MemArg<u128> for Value {
    fn push(self, words: &mut Words) {
        words.push(ffi::TRAPLINE_ARG_VALUE, 0, 0);
        words.push(ffi::TRAPLINE_ARG_VALUE_HIGH, 0, 0);
    }
}

/// A tuple of [`FetchArg`]s for a helper's parameters.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not fit the helper's parameters `{P}`",
    label = "the helper's parameters are `{P}`, its `Vcpu` left out",
    note = "write a tuple with one argument for each; for one parameter `(Pc,)`, for none `()`"
)]
pub trait FetchArgs<P> {
    #[doc(hidden)]
    fn words(self) -> Words;
}

/// A tuple of [`MemArg`]s for a helper's parameters.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not fit the helper's parameters `{P}`",
    label = "the helper's parameters are `{P}`, its `Vcpu` left out",
    note = "write a tuple with one argument for each; for one parameter `(Addr,)`, for none `()`"
)]
pub trait MemArgs<P> {
    #[doc(hidden)]
    fn words(self) -> Words;
}

macro_rules! tuples {
    ($(($($a:ident $t:ident $n:tt)*))*) => {$(
        impl<$($a: FetchArg<$t>, $t),*> FetchArgs<($($t,)*)> for ($($a,)*) {
            fn words(self) -> Words {
                #[allow(unused_mut)]
                let mut words = Words::default();
                $(self.$n.push(&mut words);)*
                words
            }
        }
        impl<$($a: MemArg<$t>, $t),*> MemArgs<($($t,)*)> for ($($a,)*) {
            fn words(self) -> Words {
                #[allow(unused_mut)]
                let mut words = Words::default();
                $(self.$n.push(&mut words);)*
                words
            }
        }
    )*};
}

tuples! {
    ()
    (A TA 0)
    (A TA 0 B TB 1)
    (A TA 0 B TB 1 C TC 2)
    (A TA 0 B TB 1 C TC 2 D TD 3)
    (A TA 0 B TB 1 C TC 2 D TD 3 E TE 4)
    (A TA 0 B TB 1 C TC 2 D TD 3 E TE 4 F TF 5)
}

/// A function of the analyzer that emitted code can call: what `#[helper]` makes of a `fn`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a helper",
    label = "a function under `#[helper]` is expected",
    note = "put `#[helper]` on the function and pass its name"
)]
pub trait Helper: Copy {
    /// The types of its parameters after the `Vcpu`, as a tuple.
    type Params;
    #[doc(hidden)]
    const FLAGS: u32;
    #[doc(hidden)]
    fn entry(self) -> *mut std::ffi::c_void;
}

/// Collects an action's conditions, then what is to be done. Made by [`FetchPoint::when`] and [`MemPoint::when`].
#[must_use = "a condition alone does nothing: go on with count, call or trace"]
pub struct When<'p, P> {
    point: &'p mut ffi::TraplinePoint,
    conditions: Vec<ffi::TraplineCondition>,
    kind: PhantomData<P>,
}

/// At a fetch point.
#[derive(Debug)]
pub struct Fetch;
/// At an access.
#[derive(Debug)]
pub struct Mem;

impl<P> When<'_, P> {
    fn more(&mut self, condition: ffi::TraplineCondition) {
        assert!(
            self.conditions.len() < ffi::TRAPLINE_MAX_CONDITIONS as usize,
            "more than {} conditions at one point",
            ffi::TRAPLINE_MAX_CONDITIONS
        );
        self.conditions.push(condition);
    }

    fn action(&mut self, kind: u32) -> &mut ffi::TraplineAction {
        add(self.point, kind, &self.conditions)
    }

    /// Adds `n` to the vCPU's `counter` if the conditions hold. Inline, without a branch.
    pub fn count(mut self, counter: Counter, n: u64) {
        let a = self.action(ffi::TRAPLINE_DO_COUNT);
        (a.slot, a.n) = (counter.0, n);
    }
}

fn add<'p>(
    point: &'p mut ffi::TraplinePoint,
    kind: u32,
    conditions: &[ffi::TraplineCondition],
) -> &'p mut ffi::TraplineAction {
    let Some(add) = point.add else { unreachable!("QEMU always sets it") };
    // SAFETY: the point is the one that QEMU passed; the action is zeroed and ours until the next is added.
    let a = unsafe { &mut *add(point) };
    a.kind = kind;
    a.n_conditions = conditions.len() as u16;
    a.conditions[..conditions.len()].copy_from_slice(conditions);
    a
}

fn set_call<H: Helper>(a: &mut ffi::TraplineAction, helper: H, words: Words, flags: u32) {
    assert!(
        words.args.len() <= ffi::TRAPLINE_MAX_ARGS as usize,
        "a helper takes at most {} words; a u128 is two",
        ffi::TRAPLINE_MAX_ARGS
    );
    a.helper = helper.entry();
    a.flags = flags | H::FLAGS;
    a.n_args = words.args.len() as u16;
    a.args[..words.args.len()].copy_from_slice(&words.args);
}

impl<'p> When<'p, Fetch> {
    /// And this holds, too. Conditions are evaluated in order; one that keeps count ([`Every`]) counts only where those before it hold.
    pub fn when(mut self, condition: impl Into<Condition>) -> Self {
        self.more(condition.into().0);
        self
    }

    /// Calls `helper` before the instruction.
    pub fn call<H: Helper, A: FetchArgs<H::Params>>(mut self, helper: H, args: A) {
        set_call(self.action(ffi::TRAPLINE_DO_CALL), helper, args.words(), 0);
    }

    /// Calls `helper` after the instruction; see [`FetchPoint::call_after`].
    pub fn call_after<H: Helper, A: FetchArgs<H::Params>>(mut self, helper: H, args: A) {
        set_call(self.action(ffi::TRAPLINE_DO_CALL), helper, args.words(), ffi::TRAPLINE_ACTION_AFTER);
    }

    /// The execution goes to the stream, as an event of its own (two words).
    pub fn trace(mut self) {
        self.action(ffi::TRAPLINE_DO_TRACE);
    }
}

impl<'p> When<'p, Mem> {
    /// And this holds, too. Conditions are evaluated in order; one that keeps count ([`Every`]) counts only where those before it hold.
    pub fn when(mut self, condition: impl Into<AccessCondition>) -> Self {
        self.more(condition.into().0);
        self
    }

    /// Calls `helper` after the access.
    pub fn call<H: Helper, A: MemArgs<H::Params>>(mut self, helper: H, args: A) {
        set_call(self.action(ffi::TRAPLINE_DO_CALL), helper, args.words(), 0);
    }

    /// The access goes to the stream. One word more than without a condition.
    pub fn trace(mut self) {
        self.action(ffi::TRAPLINE_DO_TRACE);
    }

    /// The access goes to the stream with its value.
    pub fn trace_value(mut self) {
        self.action(ffi::TRAPLINE_DO_TRACE).n = ffi::TRAPLINE_WANT_VALUE.into();
    }

    /// The access goes to the stream with its physical addresses; see [`MemPoint::trace_paddr`].
    pub fn trace_paddr(mut self) {
        self.action(ffi::TRAPLINE_DO_TRACE).n = ffi::TRAPLINE_WANT_PADDR.into();
    }
}

impl FetchPoint<'_> {
    /// What is asked for on the result happens only if `condition` holds when the instruction is reached.
    pub fn when(&mut self, condition: impl Into<Condition>) -> When<'_, Fetch> {
        When { point: self.raw(), conditions: vec![condition.into().0], kind: PhantomData }
    }

    /// Adds `n` to the vCPU's `counter` for each time that the instruction retires. Inline; the counts of a block's instructions are added up
    /// and cost one addition together, unless something in the block looks at counters.
    pub fn count(&mut self, counter: Counter, n: u64) {
        let a = add(self.raw(), ffi::TRAPLINE_DO_COUNT, &[]);
        (a.slot, a.n) = (counter.0, n);
    }

    /// Calls `helper` before the instruction, each time that it is tried.
    pub fn call<H: Helper, A: FetchArgs<H::Params>>(&mut self, helper: H, args: A) {
        set_call(add(self.raw(), ffi::TRAPLINE_DO_CALL, &[]), helper, args.words(), 0);
    }

    /// Calls `helper` after the instruction, where the guest goes on from it without an exception (so not after a system call or a trap).
    pub fn call_after<H: Helper, A: FetchArgs<H::Params>>(&mut self, helper: H, args: A) {
        let a = add(self.raw(), ffi::TRAPLINE_DO_CALL, &[]);
        set_call(a, helper, args.words(), ffi::TRAPLINE_ACTION_AFTER);
    }

    /// The registers of `set` as they are before the instruction go to the stream: a record of two words and the values.
    pub fn trace_regs(&mut self, set: crate::RegisterSet) {
        add(self.raw(), ffi::TRAPLINE_DO_REGS, &[]).slot = set.0;
    }

    /// The registers of `set` as they are after the instruction go to the stream, where the guest goes on from it without an exception (so not after a
    /// system call or a trap).
    pub fn trace_regs_after(&mut self, set: crate::RegisterSet) {
        let a = add(self.raw(), ffi::TRAPLINE_DO_REGS, &[]);
        a.slot = set.0 | crate::vcpu::AFTER;
        a.flags |= ffi::TRAPLINE_ACTION_AFTER;
    }
}

impl MemPoint<'_> {
    /// What is asked for on the result happens only if `condition` holds when the access is made.
    pub fn when(&mut self, condition: impl Into<AccessCondition>) -> When<'_, Mem> {
        When { point: self.raw(), conditions: vec![condition.into().0], kind: PhantomData }
    }

    /// Adds `n` to the vCPU's `counter` for each access that is made. Inline.
    pub fn count(&mut self, counter: Counter, n: u64) {
        let a = add(self.raw(), ffi::TRAPLINE_DO_COUNT, &[]);
        (a.slot, a.n) = (counter.0, n);
    }

    /// Calls `helper` after the access.
    pub fn call<H: Helper, A: MemArgs<H::Params>>(&mut self, helper: H, args: A) {
        set_call(add(self.raw(), ffi::TRAPLINE_DO_CALL, &[]), helper, args.words(), 0);
    }

    /// Calls `helper` before the access, which may still fault. [`Value`] is 0. Accesses that QEMU makes in a helper of its own
    /// ([`crate::Access::in_helper`]) are only known when they have been made: there it is called after them.
    pub fn call_before<H: Helper, A: MemArgs<H::Params>>(&mut self, helper: H, args: A) {
        let a = add(self.raw(), ffi::TRAPLINE_DO_CALL, &[]);
        set_call(a, helper, args.words(), ffi::TRAPLINE_ACTION_BEFORE);
    }
}
