//! Errors of [workspaces](crate::context), which are part of [`ClientError`].

use thiserror::Error;

use super::ClientError;

/// The maximum size of a workspace, in bytes of JSON. A config map may be four times as large, but a workspace is
/// transferred with each reconcile.
pub const LARGEST_WORKSPACE: usize = 256 * 1024;

/// An error of reading or writing a workspace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// A config map of the workspace's name exists and is not a workspace of the object.
    #[error("config map {name} is not a workspace of {owner}: rename or delete it")]
    Foreign {
        /// The config map's key.
        name: String,
        /// The reconciled object.
        owner: String,
    },
    /// The content can't be decoded as the type, usually because an older or newer version wrote it.
    #[error(
        "can't decode the workspace in config map {name}: {source}; \
         make the type accept it, replace it with `or_default`, or delete the config map"
    )]
    Undecodable {
        /// The config map's key.
        name: String,
        /// The serde error.
        #[source]
        source: serde_json::Error,
    },
    /// The value can't be serialized to JSON.
    #[error("can't encode the workspace for config map {name}: {source}")]
    Unencodable {
        /// The config map's key.
        name: String,
        /// The serde error.
        #[source]
        source: serde_json::Error,
    },
    /// The value is larger than [`LARGEST_WORKSPACE`].
    #[error("the workspace for config map {name} has {size} bytes, more than {LARGEST_WORKSPACE}: store less")]
    TooLarge {
        /// The config map's key.
        name: String,
        /// The size of the value in bytes.
        size: usize,
    },
    /// The reconciled object is cluster-scoped, and no namespace for its config map is set.
    #[error("{owner} is cluster-scoped: set the namespace of its workspace with `in_namespace`")]
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
