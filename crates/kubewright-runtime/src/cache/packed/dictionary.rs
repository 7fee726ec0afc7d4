//! The strings that a kind's objects have in common.

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

/// How many strings are shared at most. Later ones are written where they are.
const CAPACITY: usize = 8192;
/// Longer strings are not shared, and shorter ones than the first not either: a reference takes two to three bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 3..=160;
/// In how many objects a string must have been seen before it is shared.
const OBJECTS: u32 = 8;
/// How many strings are candidates at a time. Then all are forgotten: what is frequent comes again.
const CANDIDATES: usize = 4096;

/// Strings by number. It only grows, up to 8,192 strings, so that what was packed stays readable.
///
/// A string enters when it has been seen in several objects, so that names, addresses and the like, of which each object
/// has its own, don't fill it. Strings that somebody has chosen to have one hash make it slow at most as far as it grows.
#[derive(Debug, Default)]
pub(in crate::cache) struct Dictionary {
    strings: RwLock<Strings>,
    candidates: Mutex<HashMap<u64, Candidate, FixedState>>,
    hasher: FixedState,
}

/// The strings of a dictionary that doesn't change meanwhile.
#[derive(Debug, Default)]
pub(super) struct Strings(IndexSet<Text, FixedState>);

/// A string that is found by its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Text(Arc<str>);

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// As its bytes do, which `str` doesn't.
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

/// A string by its hash; an error here costs a few bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    objects: u32,
    /// The object that it was last seen in.
    last: u32,
}

impl Dictionary {
    /// Keep it short: no string can be added meanwhile.
    pub(super) fn strings(&self) -> RwLockReadGuard<'_, Strings> {
        self.strings.read()
    }

    /// Notes the strings of an object that were not in the dictionary; those that are frequent are shared from now on.
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
