//! What ends a controller, and with it the manager.

use std::time::Duration;

use thiserror::Error;

use crate::object::ObjectKey;

/// Why a controller has ended by itself.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// Its caches were not filled in the time that [`Controller::cache_sync_timeout`](super::Controller::cache_sync_timeout)
    /// gives.
    #[error("the controller {controller} has waited {timeout:?} for its caches, and gives up: {missing}")]
    NotSynced {
        /// The controller's name.
        controller: String,
        /// How long it has waited.
        timeout: Duration,
        /// The kinds that are missing, and why.
        missing: String,
    },
    /// Its reconciler panicked, and [`Controller::recover_panic`](super::Controller::recover_panic) says that this is the end.
    #[error("the reconciler of {controller} panicked at {object}: {message}")]
    Panicked {
        /// The controller's name.
        controller: String,
        /// The object that it worked on.
        object: ObjectKey,
        /// What the panic said.
        message: String,
    },
}
