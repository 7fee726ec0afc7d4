//! The error of a [workspace](crate::context), which is one of [`ClientError`].

use thiserror::Error;

use super::ClientError;

/// The largest memory, in bytes of JSON. A config map may have four times as much, but it goes over the wire with each reconcile.
pub const LARGEST_WORKSPACE: usize = 256 * 1024;

/// Why a workspace can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// A config map has its name, and is no workspace.
    #[error("config map {name} is not a workspace of {owner}: rename or delete it, for its name is needed")]
    Foreign {
        /// The config map's key.
        name: String,
        /// The reconciled object.
        owner: String,
    },
    /// It doesn't hold what the type says, mostly because an older or newer version wrote it.
    #[error(
        "the memory in config map {name} can't be read: {source}; \
         let the type accept it, use `or_default` to begin anew, or delete the config map"
    )]
    Undecodable {
        /// The config map's key.
        name: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The value can't be written as JSON.
    #[error("the memory for config map {name} can't be written: {source}")]
    Unencodable {
        /// The config map's key.
        name: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// There is more to remember than [`LARGEST_WORKSPACE`].
    #[error("the memory for config map {name} has {size} bytes, and {LARGEST_WORKSPACE} are the most: remember less")]
    TooLarge {
        /// The config map's key.
        name: String,
        /// The size of the new value.
        size: usize,
    },
    /// The reconciled object has no namespace where a config map could be.
    #[error("{owner} is in no namespace: say where its workspace is to be, with `in_namespace`")]
    NoNamespace {
        /// The reconciled object.
        owner: String,
    },
}

impl From<WorkspaceError> for ClientError {
    fn from(error: WorkspaceError) -> Self {
        Self::Workspace(Box::new(error))
    }
}
