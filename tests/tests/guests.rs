//! The guests themselves.

#[test]
fn every_guest_of_the_table_compiles() {
    assert!(trapline_tests::build_all() > 0);
}

#[test]
fn no_binary_lies_in_the_checkout() {
    for entry in std::fs::read_dir(trapline_tests::checkout().join("tests/guests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!([".S", ".c", ".h"].iter().any(|e| name.ends_with(e)), "{name}");
    }
}
