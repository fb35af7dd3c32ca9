use instrument::prelude::*;

#[helper]
fn on_store(name: &str) {
    let _ = name;
}

fn main() {}
