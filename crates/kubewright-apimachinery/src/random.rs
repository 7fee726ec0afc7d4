//! The only module that generates random values (architecture, invariant 3).

#![allow(clippy::disallowed_methods, reason = "this is the one module that may")]

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use fastrand::Rng;
use parking_lot::Mutex;

/// The alphabet of Kubernetes' generated names. It has no vowels and no similar characters, so that no words occur.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const HEX: &[u8; 16] = b"0123456789abcdef";

/// A shared, seedable random number generator. Clones share one stream.
///
/// Its numbers can be predicted from earlier ones. Secrets come from the operating system instead.
#[derive(Clone, Debug)]
pub struct Random(Arc<Mutex<Rng>>);

impl Random {
    /// Creates a generator with a random seed.
    pub fn from_entropy() -> Self {
        // The keys of the standard library's hashers come from the operating system, and no two are the same.
        Self::seeded(RandomState::new().hash_one(()))
    }

    /// Creates a generator from a seed. The same seed produces the same stream.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Rng::with_seed(seed))))
    }

    /// Returns a uniformly distributed number.
    pub fn u64(&self) -> u64 {
        self.0.lock().u64(..)
    }

    /// Returns a uniformly distributed fraction in `[0, 1)`.
    pub fn fraction(&self) -> f64 {
        self.0.lock().f64()
    }

    /// Returns `length` characters of the alphabet of Kubernetes' generated names.
    pub fn suffix(&self, length: usize) -> String {
        let mut rng = self.0.lock();
        (0..length).map(|_| char::from(SUFFIX_ALPHABET[rng.usize(..SUFFIX_ALPHABET.len())])).collect()
    }

    /// Returns a version 4 UUID (RFC 9562) in its canonical text form.
    pub fn uuid(&self) -> String {
        let mut bytes = [0u8; 16];
        self.0.lock().fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = String::with_capacity(36);
        for (index, byte) in bytes.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 0xf] {
                text.push(char::from(HEX[usize::from(digit)]));
            }
        }
        text
    }
}
