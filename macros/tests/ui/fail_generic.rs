use instrument::prelude::*;

struct Mine<T>(T);

#[analyzer]
impl<T: Send + Sync + 'static> Analyzer for Mine<T> {
    fn new(_: &Qemu) -> Self {
        unimplemented!()
    }
}

fn main() {}
