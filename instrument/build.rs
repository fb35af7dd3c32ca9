//! Reads the one header that QEMU and Rust share.

use std::env;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let header = "include/trapline.h";
    println!("cargo::rerun-if-changed={header}");
    let bindings = bindgen::Builder::default()
        .header(header)
        .allowlist_type("Trapline.*")
        .allowlist_var("TRAPLINE_.*")
        .blocklist_item("trapline_abi_version_.*")
        .derive_default(true)
        .layout_tests(true)
        .use_core()
        .generate()?;
    bindings.write_to_file(PathBuf::from(env::var("OUT_DIR")?).join("trapline.rs"))?;
    Ok(())
}
