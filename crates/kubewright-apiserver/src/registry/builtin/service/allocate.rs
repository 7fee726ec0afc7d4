//! Allocation of addresses and ports from a range.

use std::{collections::BTreeMap, ops::RangeInclusive};

/// A range of numbers, some of which are in use.
///
/// Each allocation continues after the previous one, and a number counts as used only after its object is committed. So
/// a failed creation loses no number, and concurrent creations get different ones.
#[derive(Debug)]
pub(super) struct Pool {
    range: RangeInclusive<u32>,
    next: u32,
    /// The number of users of each number. It can exceed one: a service may have two ports with the same number, of
    /// different protocols.
    used: BTreeMap<u32, usize>,
}

impl Pool {
    pub(super) fn new(range: RangeInclusive<u32>, first: u32) -> Self {
        Self { range, next: first, used: BTreeMap::new() }
    }

    /// Returns a free number, or `None` if all are in use.
    pub(super) fn next(&mut self) -> Option<u32> {
        let (first, last) = (*self.range.start(), *self.range.end());
        // Tries one more candidate than there are used numbers, so at least one candidate is free.
        for _ in 0..=self.used.len() {
            let number = self.next;
            self.next = if number >= last { first } else { number + 1 };
            if !self.used.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn is_used(&self, number: u32) -> bool {
        self.used.contains_key(&number)
    }

    /// Releases some numbers, and marks others as used.
    pub(super) fn replace(&mut self, released: &[u32], taken: &[u32]) {
        for number in taken {
            *self.used.entry(*number).or_default() += 1;
        }
        for number in released {
            if let Some(holders) = self.used.get_mut(number) {
                *holders -= 1;
                if *holders == 0 {
                    self.used.remove(number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_wraps_around_and_skips_used_numbers() {
        let mut pool = Pool::new(1..=3, 2);
        assert_eq!(pool.next(), Some(2));
        pool.replace(&[], &[3]);
        assert_eq!((pool.next(), pool.next()), (Some(1), Some(2)));
        pool.replace(&[], &[1, 2]);
        assert_eq!(pool.next(), None);
        pool.replace(&[3], &[]);
        assert_eq!(pool.next(), Some(3));
    }
}
