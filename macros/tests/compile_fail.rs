//! Mistakes in an analyzer are compile errors at the author's own tokens. Two analyzers in one crate clash at code generation, which
//! is tested where an analyzer is really built (tests/tests/bad_inputs.rs).
//!
//! Beside our own messages stand the compiler's, whose wording belongs to a release: with another one only what must compile is
//! checked. To take over a new release's wording, change [`RELEASE`] and run with `TRYBUILD=overwrite`.

/// The release whose wording the `.stderr` files have.
const RELEASE: &str = "rustc 1.95.";

#[test]
fn mistakes_are_named_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass_*.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = std::process::Command::new(rustc).arg("--version").output().expect("rustc runs").stdout;
    if version.starts_with(RELEASE.as_bytes()) {
        cases.compile_fail("tests/ui/fail_*.rs");
    } else {
        eprintln!("not {RELEASE}x: the wording of errors is not checked");
    }
}
