//! How much of a search has been done.

use std::fmt;

use serde::Serialize;

/// The part of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Phase {
    /// Runs without faults.
    #[default]
    Calm,
    /// Each fault alone.
    Singles,
    /// Pairs of faults that touch the same object.
    Pairs,
    /// Random schedules of several faults.
    Random,
    /// A failure is shrunk.
    Shrinking,
}

/// How many of the planned schedules were run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tried {
    /// The number of those that were run.
    pub tried: usize,
    /// The number of all.
    pub of: usize,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.tried, self.of)
    }
}
