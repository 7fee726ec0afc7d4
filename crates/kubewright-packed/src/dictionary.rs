//! The strings that the objects of a kind have in common.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher},
    str,
    sync::Arc,
};

use foldhash::fast::FixedState;
use indexmap::IndexSet;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

/// The maximum number of shared strings. Later strings are written in place.
const CAPACITY: usize = 8192;
/// The lengths of strings that are shared. A reference takes two to three bytes, so shorter strings gain nothing.
const LENGTHS: std::ops::RangeInclusive<usize> = 3..=160;
/// The number of objects in which a string must occur before it is shared.
const OBJECTS: u32 = 8;
/// The number of candidates at a time. When it is reached all are dropped: frequent strings come back.
const CANDIDATES: usize = 4096;

/// A table of shared strings, by number. Use one for each kind, for all calls that concern its objects: bytes packed with one
/// dictionary are readable only with the same one.
///
/// It only grows, up to 8,192 strings of at most 160 bytes, so that packed objects stay readable. A string is added once it
/// occurred in eight different objects; values that are unique to an object, such as names and addresses, stay out. An empty dictionary
/// costs nothing. Hash collisions crafted by a client can slow it down only within that bound.
#[derive(Debug, Default)]
pub struct Dictionary {
    strings: RwLock<Strings>,
    candidates: Mutex<HashMap<u64, Candidate, FixedState>>,
    hasher: FixedState,
}

/// The strings of a dictionary, locked for reading.
#[derive(Debug, Default)]
pub(super) struct Strings(IndexSet<Text, FixedState>);

/// A string, looked up by its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Text(Arc<str>);

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Hashes as the bytes do, which `str` does not.
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_bytes().hash(state);
    }
}

impl Strings {
    pub(super) fn get(&self, number: u64) -> Option<&str> {
        self.0.get_index(usize::try_from(number).ok()?).map(|Text(text)| text.as_ref())
    }

    pub(super) fn number(&self, text: &[u8]) -> Option<u64> {
        LENGTHS.contains(&text.len()).then(|| self.0.get_index_of(text)).flatten().map(|number| number as u64)
    }
}

/// A candidate, identified by its hash. A collision costs a few bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    objects: u32,
    /// The hash of the object in which it was last seen.
    last: u32,
}

impl Dictionary {
    /// Locks the strings for reading. Release it soon: no string can be added meanwhile.
    pub(super) fn strings(&self) -> RwLockReadGuard<'_, Strings> {
        self.strings.read()
    }

    /// Counts the strings of an object that are not in the dictionary, and adds those that have become frequent.
    pub(super) fn learn<'a>(&self, object: &str, texts: impl IntoIterator<Item = &'a [u8]>) {
        let object = self.hasher.hash_one(object) as u32;
        let mut frequent = Vec::new();
        {
            let mut candidates = self.candidates.lock();
            for text in texts.into_iter().filter(|text| LENGTHS.contains(&text.len())) {
                if candidates.len() >= CANDIDATES {
                    candidates.clear();
                }
                let candidate = candidates.entry(self.hasher.hash_one(text)).or_default();
                if candidate.objects == 0 || candidate.last != object {
                    *candidate = Candidate { objects: candidate.objects + 1, last: object };
                }
                if candidate.objects >= OBJECTS {
                    frequent.push(text);
                }
            }
        }
        if !frequent.is_empty() {
            let mut strings = self.strings.write();
            let free = CAPACITY.saturating_sub(strings.0.len());
            let frequent = frequent.into_iter().filter_map(|text| str::from_utf8(text).ok());
            strings.0.extend(frequent.take(free).map(|text| Text(text.into())));
        }
    }
}
