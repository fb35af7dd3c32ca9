//! Compiles the points.

fn main() {
    println!("cargo::rerun-if-changed=src/points.c");
    #[cfg(feature = "qemu")]
    {
        let include = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../instrument/include");
        println!("cargo::rerun-if-changed={}", include.join("trapline.h").display());
        cc::Build::new()
            .file("src/points.c")
            .include(include)
            .warnings(true)
            .warnings_into_errors(true)
            .compile("points");
    }
}
