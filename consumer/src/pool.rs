//! Scratch memory that `map` uses again and again: taken from here, and put back.

use std::sync::Mutex;

/// A pool of scratch values, one for each `map` that runs at a time.
#[derive(Debug, Default)]
pub struct Pool<T>(Mutex<Vec<T>>);

impl<T: Default> Pool<T> {
    /// An empty pool.
    pub fn new() -> Self {
        Pool(Mutex::default())
    }

    /// Calls `f` with a scratch value: one that was used before, as it was left, or a new one. One whose `f` panics is not used again.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let free = || self.0.lock().unwrap_or_else(|e| e.into_inner());
        let taken = free().pop();
        let mut value = taken.unwrap_or_default();
        let result = f(&mut value);
        free().push(value);
        result
    }
}
