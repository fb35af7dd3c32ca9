//! The `trapline` command. Everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    trapline::cli::main()
}
