//! The only module that generates random values (architecture, invariant 3).

#![allow(clippy::disallowed_methods, reason = "this is the one module that may")]

use std::sync::Arc;

use parking_lot::Mutex;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

/// The alphabet of Kubernetes' generated names. It has no vowels and no similar characters, so that no words occur.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const HEX: &[u8; 16] = b"0123456789abcdef";

/// A shared, seedable random number generator. Clones share one stream.
#[derive(Clone, Debug)]
pub struct Random(Arc<Mutex<StdRng>>);

impl Random {
    /// Creates a generator seeded by the operating system.
    pub fn from_entropy() -> Self {
        Self(Arc::new(Mutex::new(rand::make_rng())))
    }

    /// Creates a generator from a seed. The same seed produces the same stream.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// Returns a uniformly distributed number.
    pub fn u64(&self) -> u64 {
        self.0.lock().next_u64()
    }

    /// Returns a uniformly distributed fraction in `[0, 1)`.
    pub fn fraction(&self) -> f64 {
        self.0.lock().random()
    }

    /// Returns `length` characters of the alphabet of Kubernetes' generated names.
    pub fn suffix(&self, length: usize) -> String {
        let mut rng = self.0.lock();
        (0..length).map(|_| char::from(SUFFIX_ALPHABET[rng.random_range(0..SUFFIX_ALPHABET.len())])).collect()
    }

    /// Returns a version 4 UUID (RFC 9562) in its canonical text form.
    pub fn uuid(&self) -> String {
        let mut bytes = [0u8; 16];
        self.0.lock().fill_bytes(&mut bytes);
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
