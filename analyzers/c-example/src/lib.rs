//! `c-example`: points filled in C. What is Rust here is what an analyzer has beside its points: a start, and options.

#[cfg(feature = "qemu")]
mod qemu {
    use instrument::prelude::*;

    struct CExample;

    unsafe extern "C" {
        fn c_example_start(align: u64, counter: u32, every: u32);
        fn c_example_calls() -> u64;
    }

    #[analyzer]
    impl Analyzer for CExample {
        fn new(qemu: &Qemu) -> Self {
            let align = qemu.option("align").unwrap_or(1u64).max(1);
            // SAFETY: stores the numbers.
            unsafe { c_example_start(align, qemu.counter().slot(), qemu.every(1000).slot()) };
            CExample
        }

        fn exit(&self, vcpu: &mut Vcpu, _: End) {
            // SAFETY: reads a number.
            let calls = unsafe { c_example_calls() };
            vcpu.emit(1, format!("calls={calls}").as_bytes());
        }
    }
}
