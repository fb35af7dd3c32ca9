use instrument::prelude::*;

struct Mine;

#[analyzer]
fn fetch() {}

fn main() {}
