//! Recently received objects in decoded form: a key that is woken by a change mostly reads the changed object next.

use std::{
    any::{Any, TypeId},
    collections::VecDeque,
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;

use super::store::Row;

/// An object decoded as some type.
pub(super) type Typed = dyn Any + Send + Sync;

/// An object decoded as every type that reads its kind.
pub(super) type Types = Arc<[(TypeId, Arc<Typed>)]>;

/// The number of objects to keep. When more keys than this wait, most of their objects have been evicted by the time
/// they run, and are unpacked instead.
const CAPACITY: usize = 16;

/// The upper bound while no time is left for evictions.
const MAX_LEN: usize = 2 * CAPACITY;

/// The most recently received objects of one kind, decoded.
#[derive(Default)]
pub(super) struct DecodedCache(Mutex<VecDeque<(Row, Types)>>);

impl fmt::Debug for DecodedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DecodedCache").field(&self.0.lock().len()).finish()
    }
}

impl DecodedCache {
    /// Adds a decoded object. The oldest ones are left to [`DecodedCache::evict`], unless that has not run for long.
    pub(super) fn insert(&self, row: &Row, types: &Types) {
        let mut kept = self.0.lock();
        // Dropped after the lock is released.
        let _evicted = if kept.len() < MAX_LEN { None } else { kept.pop_back() };
        kept.push_front((row.clone(), types.clone()));
        drop(kept);
    }

    /// Returns whether there are objects to evict.
    pub(super) fn is_over_capacity(&self) -> bool {
        self.0.lock().len() > CAPACITY
    }

    /// Drops the oldest objects beyond the capacity.
    pub(super) fn evict(&self) {
        let mut kept = self.0.lock();
        let rest = kept.len().min(CAPACITY);
        let evicted = kept.split_off(rest);
        drop(kept);
        drop(evicted);
    }

    /// Returns the object of exactly this row as a `T`, if it is still kept.
    pub(super) fn get<T: Any + Send + Sync>(&self, row: &Row) -> Option<Arc<T>> {
        let types = self.0.lock().iter().find(|(kept, _)| kept.is_same(row)).map(|(_, types)| types.clone())?;
        typed(&types)
    }
}

/// Returns the object decoded as a `T`, if it was.
pub(super) fn typed<T: Any + Send + Sync>(types: &Types) -> Option<Arc<T>> {
    let (_, object) = types.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
    object.clone().downcast().ok()
}
