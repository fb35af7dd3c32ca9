use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Analyzer for Mine {
    fn new() -> Self {
        Mine
    }
}

fn main() {}
