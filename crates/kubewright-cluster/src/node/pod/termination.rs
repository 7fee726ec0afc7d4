//! The message that a container leaves when it ends
//! (<https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/>).

use std::{
    fs::{File, Permissions},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Container;

use crate::node::{
    log::{Log, Query},
    view::{Mount, Propagation},
    volume,
};

/// The default path.
const PATH: &str = "/dev/termination-log";
/// The longest message, in bytes.
const LONGEST: usize = 4096;
/// The longest message that is taken from the log, in lines and in bytes.
const LOG: (u64, usize) = (80, 2048);

/// The file in which a container leaves its message.
#[derive(Debug)]
pub(super) struct TerminationMessage {
    file: PathBuf,
    /// Whether the end of the log stands for the message of a container that has failed.
    falls_back: bool,
}

impl TerminationMessage {
    /// Creates an empty file in the pod's directory. The container finds it below its root directory, and at its path
    /// by the mount.
    ///
    /// # Errors
    /// If the file can't be created.
    pub(super) fn create(pod_directory: &Path, root: &Path, container: &Container) -> io::Result<(Self, Mount)> {
        let path = container.termination_message_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(PATH);
        let file = pod_directory.join(format!(".termination-{}", container.name));
        File::create(&file)?;
        // The container may run as another user.
        std::fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        volume::link(root, &volume::inside(path), &file)?;
        let mount = Mount { path: path.into(), source: file.clone(), read_only: false, propagation: Propagation::None };
        let falls_back = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        Ok((Self { file, falls_back }, mount))
    }

    /// Returns the message of a container that has ended with an exit code.
    pub(super) async fn read(&self, code: i32, log: &Log) -> Option<String> {
        let message = self.written().unwrap_or_default();
        if !message.is_empty() {
            return Some(message);
        }
        if !self.falls_back || code == 0 {
            return None;
        }
        let query = Query { tail: Some(LOG.0), ..Query::default() };
        let lines: Vec<_> = log.read(query).try_collect().await.unwrap_or_default();
        let text = lines.concat();
        let end = &text[text.len().saturating_sub(LOG.1)..];
        Some(String::from_utf8_lossy(end).into_owned()).filter(|text| !text.is_empty())
    }

    fn written(&self) -> io::Result<String> {
        let mut text = Vec::new();
        File::open(&self.file)?.take(LONGEST as u64).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
