//! `cargo run -p trapline-guest --example hello`, or under Trapline:
//! `trapline run --start-off --analyzer trace -- target/debug/examples/hello`

use trapline_guest::{Roi, Scope, Trace, mark, present};

fn fibonacci(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn main() {
    println!("{}", if present() { "Trapline answers" } else { "nobody answers" });
    let result = {
        let _roi = Roi::begin(1, c"fibonacci");
        let _trace = Trace::start(Scope::Default);
        fibonacci(15)
    };
    // Whether somebody hears it is not this program's business.
    let _ = mark(c"result", result);
    println!("{result}");
}
