//! Which values of a draft have been read.

use std::cell::Cell;

/// A set of offsets into a draft: one bit each.
#[derive(Debug)]
pub(in crate::cache) struct Marks(Box<[Cell<u64>]>);

impl Marks {
    /// Of a draft of this many bytes; none is marked.
    pub(in crate::cache) fn new(length: usize) -> Self {
        Self((0..length / 64 + 1).map(|_| Cell::new(0)).collect())
    }

    pub(super) fn set(&self, at: usize) {
        if let Some(word) = self.0.get(at / 64) {
            word.set(word.get() | 1 << (at % 64));
        }
    }

    pub(super) fn get(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word.get() & 1 << (at % 64) != 0)
    }
}
