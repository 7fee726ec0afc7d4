//! The work queue: keys that wait to be reconciled.

/// The priority of what has just changed.
pub const NORMAL_PRIORITY: i32 = 0;

/// The priority of what a first list shows: behind everything that has just changed.
pub const LOW_PRIORITY: i32 = -100;
