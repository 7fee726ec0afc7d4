//! The kinds that the cache has not listed yet.

use thiserror::Error;

use crate::object::KindName;

/// The first lists of some kinds did not complete in time.
#[derive(Debug, Error)]
#[error("the cache is not synced: {}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(crate) struct NotSynced(pub(crate) Vec<Unsynced>);

/// A kind whose first list has not completed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}: {reason}")]
#[non_exhaustive]
pub struct Unsynced {
    /// The kind.
    pub kind: KindName,
    /// The most recent failure: a missing role, a CRD that isn't installed, a refused connection.
    pub reason: String,
}
