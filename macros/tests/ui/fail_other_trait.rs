use instrument::prelude::*;

struct Mine;

#[analyzer]
impl Clone for Mine {
    fn clone(&self) -> Self {
        Mine
    }
}

fn main() {}
