//! The set of values of an object that have been read.

use std::cell::Cell;

use super::raw::RawObject;

/// The values of a [`RawObject`] that were read, as one bit for each byte offset.
///
/// Several reads may mark the same set: [`pack`](crate::pack) then keeps what any of them took.
#[derive(Debug)]
pub struct ReadMarks(Box<[Cell<u64>]>);

impl ReadMarks {
    /// An empty set for this object.
    pub fn new(object: &RawObject) -> Self {
        Self((0..object.bytes().len() / 64 + 1).map(|_| Cell::new(0)).collect())
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
