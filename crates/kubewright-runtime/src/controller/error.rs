//! Errors that end a controller, and with it the manager.

use std::time::Duration;

use thiserror::Error;

use crate::object::ObjectKey;

/// The error with which a controller ends.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The first lists of its kinds were not complete within
    /// [`Controller::cache_sync_timeout`](super::Controller::cache_sync_timeout).
    #[error("the cache of the controller {controller} did not sync within {timeout:?}: {missing}")]
    NotSynced {
        /// The controller's name.
        controller: String,
        /// The timeout.
        timeout: Duration,
        /// The missing kinds, with the reasons.
        missing: String,
    },
    /// Its reconciler panicked, and [`Controller::recover_panic`](super::Controller::recover_panic) is off.
    #[error("the reconciler of {controller} panicked for {object}: {message}")]
    Panicked {
        /// The controller's name.
        controller: String,
        /// The reconciled object.
        object: ObjectKey,
        /// The panic's message.
        message: String,
    },
}
