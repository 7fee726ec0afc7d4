//! Reads of types that a controller doesn't declare, which make a readiness check fail.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;

use crate::client::ClientError;

/// The errors about types that were read and aren't declared. Clones share them. There are as many as such reads in the
/// program.
#[derive(Clone, Debug, Default)]
pub(crate) struct UndeclaredReads(Arc<Mutex<BTreeSet<String>>>);

impl UndeclaredReads {
    /// Records an error, and returns it.
    pub(super) fn noted(&self, error: ClientError) -> ClientError {
        self.0.lock().insert(error.to_string());
        error
    }

    /// Returns an error with all records.
    pub(crate) fn check(&self) -> Result<(), String> {
        let errors = self.0.lock();
        if errors.is_empty() { Ok(()) } else { Err(errors.iter().cloned().collect::<Vec<_>>().join("; ")) }
    }
}
