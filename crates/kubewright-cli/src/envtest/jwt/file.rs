//! Changes of the file of `--authentication-config`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::{
    Authenticators,
    config::{AnonymousConfig, AuthenticationConfig},
    discover,
};
use crate::shell::Shell;

/// The longest time between two reads of the file.
const PERIOD: Duration = Duration::from_secs(60);
/// The longest wait for the issuers of a changed file.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file that is followed.
pub(super) struct File {
    path: PathBuf,
    /// The content that was used last, or can't be used.
    text: String,
    /// Which requests without credentials are accepted. This can't change.
    anonymous: Option<AnonymousConfig>,
    /// The watch of the file's directory, if the system has one.
    watch: Option<(RecommendedWatcher, Arc<Notify>)>,
}

impl File {
    /// Begins to follow a file with this content.
    pub(super) fn new(path: &str, text: String, anonymous: Option<AnonymousConfig>) -> Self {
        let path = PathBuf::from(path);
        let watch = watch(&path).ok();
        Self { path, text, anonymous, watch }
    }

    /// Completes when the file has another content, and returns it.
    pub(super) async fn changed(&mut self) -> String {
        loop {
            match fs::read_to_string(&self.path) {
                Ok(text) if text != self.text => return text,
                Err(error) => tracing::debug!(%error, path = %self.path.display(), "the file can't be read"),
                Ok(_) => {}
            }
            let notified = async {
                match &self.watch {
                    Some((_, notify)) => notify.notified().await,
                    None => std::future::pending().await,
                }
            };
            // Systems don't notify about all changes of all files.
            let _ = tokio::time::timeout(PERIOD, notified).await;
        }
    }

    /// Uses another content, unless it is wrong or one of its issuers doesn't answer within a minute.
    pub(super) async fn reload(&mut self, text: &str, authenticators: &Authenticators, shell: &Shell) {
        let built =
            AuthenticationConfig::parse(text).and_then(|config| authenticators.build(&config, Some(&self.anonymous)));
        let path = self.path.display();
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                shell.warning(&format!("{path} has changed, but the earlier configuration is kept: {error:#}"));
                text.clone_into(&mut self.text);
                return;
            }
        };
        let warn = |why: String| shell.warning(&why);
        if tokio::time::timeout(PATIENCE, discover(&built, warn)).await.is_ok() {
            authenticators.set(built);
            text.clone_into(&mut self.text);
        } else {
            shell
                .warning(&format!("{path} has changed, but the earlier configuration is kept: no answer of an issuer"));
        }
    }
}

/// Watches the directory of a file, since editors and kubelets replace files.
fn watch(path: &Path) -> notify::Result<(RecommendedWatcher, Arc<Notify>)> {
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Reading a file is an event, too.
        if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
            notify.notify_one();
        }
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok((watcher, changed))
}
