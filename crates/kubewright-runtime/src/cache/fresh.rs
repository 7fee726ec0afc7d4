//! The objects that came last, unpacked: whom a change wakes mostly reads that object next.

use std::{
    any::{Any, TypeId},
    collections::VecDeque,
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;

use super::store::Row;

/// An object as some type.
pub(super) type Typed = dyn Any + Send + Sync;

/// An object as all types that read it.
pub(super) type Types = Arc<[(TypeId, Arc<Typed>)]>;

/// How many are kept. While more keys than this wait, most have been forgotten when their turn comes, and are unpacked.
const KEPT: usize = 16;

/// How many there may be while there is no time to let go of any.
const MOST: usize = 2 * KEPT;

/// The last objects of one kind, as they were read when they came.
#[derive(Default)]
pub(super) struct Fresh(Mutex<VecDeque<(Row, Types)>>);

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fresh").field(&self.0.lock().len()).finish()
    }
}

impl Fresh {
    /// Keeps what was read of a row. What came first is to be [let go](Fresh::let_go) of, and is when that doesn't happen for long.
    pub(super) fn keep(&self, row: &Row, types: &Types) {
        let mut kept = self.0.lock();
        // Without the lock.
        let _gone = if kept.len() < MOST { None } else { kept.pop_back() };
        kept.push_front((row.clone(), types.clone()));
        drop(kept);
    }

    /// Whether there are more than are to be kept.
    pub(super) fn holds_more(&self) -> bool {
        self.0.lock().len() > KEPT
    }

    /// Lets go of what is too much.
    pub(super) fn let_go(&self) {
        let mut kept = self.0.lock();
        let rest = kept.len().min(KEPT);
        let gone = kept.split_off(rest);
        drop(kept);
        drop(gone);
    }

    /// The object of this very row as a `T`, if it is still there.
    pub(super) fn get<T: Any + Send + Sync>(&self, row: &Row) -> Option<Arc<T>> {
        let types = self.0.lock().iter().find(|(kept, _)| kept.is_same(row)).map(|(_, types)| types.clone())?;
        typed(&types)
    }
}

/// An object as a `T`, if it was read so.
pub(super) fn typed<T: Any + Send + Sync>(types: &Types) -> Option<Arc<T>> {
    let (_, object) = types.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
    object.clone().downcast().ok()
}
