//! The errors of a data directory.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use kubewright_apimachinery::status::Status;

/// An error that prevents a data directory from being opened. Nothing in the directory has been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// Another server uses the directory.
    #[error("the data directory {} is in use by {}", path.display(), Holder(*pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that holds the lock, if it is known.
        pid: Option<u32>,
    },
    /// A file was written by a newer version.
    #[error(
        "{} was written by a newer version of Kubewright: it has format {format}, and this version reads formats up to \
         {supported}",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        format: u64,
        /// The newest format that this version reads.
        supported: u64,
    },
    /// A file doesn't contain what was written to it.
    #[error(
        "{} is damaged at byte {offset}: expected {expected}. Restore the data directory from a copy, or remove it to begin \
         with an empty cluster",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset in bytes at which the damaged part begins.
        offset: u64,
        /// What should be there.
        expected: String,
    },
    /// A file of the directory is missing.
    #[error("the data directory is incomplete: {} is missing", path.display())]
    Missing {
        /// The missing file.
        path: PathBuf,
    },
    /// The credentials of the server can't be generated, or those in the directory can't be used.
    #[error("failed to prepare the credentials of the server")]
    Credentials(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A file or directory can't be read or written.
    #[error("failed to {action} {}", path.display())]
    Io {
        /// What was attempted, such as `read`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl DataDirError {
    pub(crate) fn credentials(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Credentials(Box::new(error))
    }

    /// Returns the conversion of an I/O error.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Names the process that holds a lock.
struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

/// The error of a change that can't be recorded. The change isn't made, except when only its way to the disk has
/// failed: then the outcome is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the change can't be stored: failed to {action} {}: {error}", path.display())]
pub(crate) struct WriteError {
    pub(super) action: &'static str,
    pub(super) path: PathBuf,
    pub(super) error: Arc<io::Error>,
}

impl WriteError {
    /// Returns the error of a change after the data directory was closed.
    pub(in crate::storage) fn closed() -> Self {
        let error = io::Error::new(io::ErrorKind::BrokenPipe, "the server has closed it");
        Self { action: "write to", path: PathBuf::from("the data directory"), error: Arc::new(error) }
    }
}

impl From<WriteError> for Status {
    fn from(error: WriteError) -> Self {
        Self::internal(error)
    }
}

impl From<WriteError> for DataDirError {
    fn from(WriteError { action, path, error }: WriteError) -> Self {
        Self::Io { action, path, source: io::Error::new(error.kind(), error) }
    }
}
