//! The strings, lists and maps that the objects of a kind have in common.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher},
    ops::{Range, RangeInclusive},
    str,
    sync::Arc,
};

use foldhash::fast::FixedState;
use indexmap::IndexSet;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

/// The maximum number of shared strings, and that of shared lists and maps. Later ones are written in place.
const CAPACITY: usize = 8192;
/// The lengths of strings that are shared. A reference takes two to three bytes, so shorter strings gain nothing.
const LENGTHS: RangeInclusive<usize> = 3..=160;
/// The packed lengths of lists and maps that are shared.
const VALUE_LENGTHS: RangeInclusive<usize> = 4..=512;
/// The number of objects in which a string, list or map must occur before it is shared.
const OBJECTS: u32 = 8;
/// The number of candidates at a time. When it is reached all are dropped: frequent strings come back.
const CANDIDATES: usize = 4096;

/// Tables of shared strings and of shared lists and maps, by number. Use one for each kind, for all calls that concern
/// its objects: bytes packed with one dictionary are readable only with the same one.
///
/// It only grows, up to 8,192 strings of at most 160 bytes and as many lists and maps of at most 512 packed bytes, so
/// that packed objects stay readable. What is added has occurred in eight different objects; values that are unique to
/// an object, such as names and addresses, stay out. An empty dictionary costs nothing. Hash collisions crafted by a
/// client can slow it down only within that bound.
#[derive(Debug, Default)]
pub struct Dictionary {
    shared: RwLock<Shared>,
    candidates: Mutex<Candidates>,
}

/// The content of a dictionary, locked for reading.
#[derive(Debug, Default)]
pub(super) struct Shared {
    strings: IndexSet<Text, FixedState>,
    values: IndexSet<Arc<[u8]>, FixedState>,
}

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

impl Shared {
    pub(super) fn string(&self, number: u64) -> Option<&str> {
        self.strings.get_index(usize::try_from(number).ok()?).map(|Text(text)| text.as_ref())
    }

    /// Returns the tokens of a list or map.
    pub(super) fn value(&self, number: u64) -> Option<&[u8]> {
        self.values.get_index(usize::try_from(number).ok()?).map(AsRef::as_ref)
    }

    pub(super) fn string_number(&self, text: &[u8]) -> Option<u64> {
        LENGTHS.contains(&text.len()).then(|| self.strings.get_index_of(text)).flatten().map(|number| number as u64)
    }

    pub(super) fn value_number(&self, bytes: &[u8]) -> Option<u64> {
        VALUE_LENGTHS
            .contains(&bytes.len())
            .then(|| self.values.get_index_of(bytes))
            .flatten()
            .map(|number| number as u64)
    }
}

/// What an object contains that the dictionary doesn't have.
#[derive(Debug, Default)]
pub(super) struct Unknown<'a> {
    pub(super) strings: Vec<&'a [u8]>,
    /// The places of lists and maps in the packed bytes, each after those inside of it.
    pub(super) values: Vec<Range<usize>>,
}

/// How often strings, lists and maps have occurred that are not shared.
#[derive(Debug, Default)]
struct Candidates {
    seen: HashMap<u64, Candidate, FixedState>,
    hasher: FixedState,
}

impl Candidates {
    /// Counts an occurrence in an object, which is given by its hash. Returns whether there were enough.
    fn count(&mut self, bytes: &[u8], object: u32) -> bool {
        if self.seen.len() >= CANDIDATES {
            self.seen.clear();
        }
        let candidate = self.seen.entry(self.hasher.hash_one(bytes)).or_default();
        if candidate.objects == 0 || candidate.last != object {
            *candidate = Candidate { objects: candidate.objects + 1, last: object };
        }
        candidate.objects >= OBJECTS
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
    /// Locks the tables for reading. Release it soon: nothing can be added meanwhile.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, Shared> {
        self.shared.read()
    }

    /// Counts what an object contains that the dictionary doesn't have, and adds what has become frequent. `bytes` are
    /// those of the packed object.
    pub(super) fn learn(&self, object: &str, bytes: &[u8], unknown: &Unknown<'_>) {
        let (mut strings, mut values) = (Vec::new(), Vec::new());
        {
            let mut candidates = self.candidates.lock();
            let object = candidates.hasher.hash_one(object) as u32;
            for text in unknown.strings.iter().filter(|text| LENGTHS.contains(&text.len())) {
                if candidates.count(text, object) {
                    strings.extend(str::from_utf8(text));
                }
            }
            // The same list or map has other bytes once its strings are shared.
            if strings.is_empty() {
                // What surrounds others comes first, and stands for them too.
                let mut inner = usize::MAX;
                for range in unknown.values.iter().rev() {
                    let value = bytes.get(range.clone()).unwrap_or_default();
                    if range.start < inner && VALUE_LENGTHS.contains(&value.len()) && candidates.count(value, object) {
                        inner = range.start;
                        values.push(value);
                    }
                }
            }
        }
        if strings.is_empty() && values.is_empty() {
            return;
        }
        let mut shared = self.shared.write();
        let free = CAPACITY.saturating_sub(shared.strings.len());
        shared.strings.extend(strings.into_iter().take(free).map(|text| Text(text.into())));
        let free = CAPACITY.saturating_sub(shared.values.len());
        shared.values.extend(values.into_iter().take(free).map(Arc::from));
    }
}
