//! Errors that end a controller, and with it the manager.

use std::time::Duration;

use thiserror::Error;

use crate::object::ObjectKey;

/// The error of a reconcile whose object has another scope than its controller was made for.
#[derive(Debug, Error)]
#[error(
    "{kind} has become {}, but the controller {controller} was made for a {} kind: restart the operator, or remove the controller and add it again",
    scope(*is_namespaced), scope(!*is_namespaced)
)]
pub(super) struct ScopeChanged {
    pub(super) kind: String,
    pub(super) controller: String,
    /// Whether the kind is namespaced now.
    pub(super) is_namespaced: bool,
}

fn scope(is_namespaced: bool) -> &'static str {
    if is_namespaced { "namespaced" } else { "cluster-scoped" }
}

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
