//! Allocation of numbers: addresses and ports.

use std::{collections::BTreeMap, ops::RangeInclusive};

/// A range of numbers, of which some are in use.
///
/// Each allocation continues after the former one, and a number counts as used only once its object is committed. So a
/// failed creation loses no number, and two concurrent creations don't get the same one.
#[derive(Debug)]
pub(super) struct Pool {
    range: RangeInclusive<u32>,
    next: u32,
    /// The number of users of each number. There can be several if they asked for it at the same time.
    used: BTreeMap<u32, usize>,
}

impl Pool {
    pub(super) fn new(range: RangeInclusive<u32>, first: u32) -> Self {
        Self { range, next: first, used: BTreeMap::new() }
    }

    /// Returns a free number; `None` if all are in use.
    pub(super) fn next(&mut self) -> Option<u32> {
        let (first, last) = (*self.range.start(), *self.range.end());
        // One more candidate than there are used numbers includes a free one.
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

    /// Releases some numbers and marks others as used.
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
