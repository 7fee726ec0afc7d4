//! Watching the files that an operator is built from: its sources, those of other packages in the workspace, and
//! cargo's configuration.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::operator::Package;

/// The files besides sources that cargo reads.
const SETTINGS: [&str; 5] = ["Cargo.toml", "Cargo.lock", "rust-toolchain", "rust-toolchain.toml", "config.toml"];

/// A watch on sources. Dropping it ends the watch.
pub(super) struct Watcher {
    system: RecommendedWatcher,
    watched: BTreeSet<WatchedFolder>,
    sources: Arc<Mutex<BTreeSet<PathBuf>>>,
    changed: Arc<Notify>,
}

/// A directory, and whether its subdirectories are watched too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WatchedFolder {
    folder: PathBuf,
    is_recursive: bool,
}

impl Watcher {
    /// Starts to watch the sources of a package.
    pub(super) fn start(package: &Package) -> Result<Self> {
        let (changed, sources) = (Arc::new(Notify::new()), Arc::<Mutex<BTreeSet<PathBuf>>>::default());
        let (notify, known) = (changed.clone(), sources.clone());
        let system = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Missed events may concern any file.
            if event.is_ok_and(|event| !event.need_rescan() && !matters(&event, &known.lock())) {
                return;
            }
            notify.notify_one();
        });
        let system = system.context("watch files")?;
        let mut watcher = Self { system, watched: BTreeSet::new(), sources, changed };
        watcher.follow(package)?;
        Ok(watcher)
    }

    /// Adds the directories of new sources, after a build of `package`.
    pub(super) fn follow(&mut self, package: &Package) -> Result<()> {
        let sources: BTreeSet<_> = package.sources().into_iter().collect();
        for place in folders(package, &sources) {
            if self.watched.contains(&place) || !place.folder.is_dir() {
                continue;
            }
            let mode = if place.is_recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            self.system.watch(&place.folder, mode).with_context(|| format!("watch {}", place.folder.display()))?;
            self.watched.insert(place);
        }
        *self.sources.lock() = sources;
        Ok(())
    }

    /// Completes when a file has changed since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Returns the directories to watch.
fn folders(package: &Package, sources: &BTreeSet<PathBuf>) -> BTreeSet<WatchedFolder> {
    let deep = |folder: &Path| WatchedFolder { folder: folder.into(), is_recursive: true };
    let flat = |folder: &Path| WatchedFolder { folder: folder.into(), is_recursive: false };
    let settings = [&package.folder, &package.root];
    let settings = settings.into_iter().flat_map(|folder| [flat(folder), flat(&folder.join(".cargo"))]);
    let own = deep(&package.folder.join("src"));
    // `src` is watched recursively, since a new module may be in a new directory, and may not compile. Generated files
    // only change when other files do.
    let sources = sources.iter().filter(|source| !source.starts_with(&package.target));
    let sources = sources.filter_map(|source| {
        let is_src = |folder: &&Path| folder.file_name().is_some_and(|name| name == "src");
        source.ancestors().skip(1).find(is_src).map(deep).or_else(|| source.parent().map(flat))
    });
    settings.chain([own]).chain(sources).collect()
}

/// Returns whether an event is a change of a file that the build reads.
fn matters(event: &Event, sources: &BTreeSet<PathBuf>) -> bool {
    let is_change =
        matches!(event.kind, EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_));
    is_change && event.paths.iter().any(|path| sources.contains(path) || is_source(path))
}

fn is_source(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    // Editors write temporary files in the same directory.
    let is_rust = name.ends_with(".rs") && !name.starts_with(['.', '#']);
    is_rust || SETTINGS.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use notify::event::{AccessKind, CreateKind};
    use tokio::time::timeout;

    use super::*;

    fn package(folder: &Path) -> Package {
        Package {
            folder: folder.into(),
            name: "cow".into(),
            version: "1.0.0".into(),
            program: "cow".into(),
            root: folder.into(),
            target: folder.join("target"),
            has_examples: false,
            local: vec!["cow".into()],
        }
    }

    #[test]
    fn changes_of_build_inputs_count() {
        let sources = BTreeSet::from([PathBuf::from("/p/page.html")]);
        let event = |path: &str| Event::new(EventKind::Create(CreateKind::File)).add_path(path.into());
        for path in ["/p/src/main.rs", "/p/build.rs", "/p/Cargo.toml", "/p/.cargo/config.toml", "/p/page.html"] {
            assert!(matters(&event(path), &sources), "{path}");
        }
        for path in
            ["/p/README.md", "/p/src/.#main.rs", "/p/src/main.rs~", "/p/src/.main.rs.swp", "/p/src/4913", "/p/target"]
        {
            assert!(!matters(&event(path), &sources), "{path}");
        }
        let read = Event::new(EventKind::Access(AccessKind::Any)).add_path("/p/src/main.rs".into());
        assert!(!matters(&read, &sources), "reading is no change");
    }

    #[test]
    fn sources_of_other_packages_are_watched_and_generated_files_are_not() {
        let sources =
            ["/p/src/main.rs", "/p/build.rs", "/lib/src/deep/a.rs", "/lib/pages/a.html", "/p/target/out/made.rs"];
        let sources = sources.map(PathBuf::from).into();
        let found: Vec<_> = folders(&package(Path::new("/p")), &sources)
            .into_iter()
            .map(|place| format!("{}{}", place.folder.display(), if place.is_recursive { "/**" } else { "" }))
            .collect();
        assert_eq!(found, ["/lib/pages", "/lib/src/**", "/p", "/p/.cargo", "/p/src/**"]);
    }

    #[tokio::test]
    async fn a_module_in_a_new_directory_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        let watcher = Watcher::start(&package(folder.path())).unwrap();
        let seen = async || timeout(Duration::from_secs(30), watcher.changed()).await;
        fs::write(folder.path().join("src/main.rs"), "mod cow;").unwrap();
        seen().await.expect("a file");
        fs::create_dir_all(folder.path().join("src/cow/calf")).unwrap();
        // The new directories are only watched after the system has reported them. Until then, changes in them are
        // missed.
        let mut tries = 0..600;
        while timeout(Duration::from_millis(50), watcher.changed()).await.is_err() {
            let number = tries.next().expect("a file in a new directory is noticed");
            fs::write(folder.path().join("src/cow/calf/mod.rs"), format!("// {number}")).unwrap();
        }
    }
}
