//! The directories of a run of a container.

use std::{
    io,
    os::unix::fs::chown,
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::Container;

use crate::node::{identity::Identity, view::View};

/// The directories of a run.
pub(super) struct Directory {
    /// The container's own directory, empty at the start of each run.
    pub(super) home: PathBuf,
    /// The working directory.
    pub(super) work: PathBuf,
}

impl Directory {
    /// Creates a new directory for a run, which belongs to `identity`. `workingDir` is used unchanged if it exists on
    /// the host, and is created in the new directory otherwise.
    pub(super) fn create(
        pod_directory: &Path,
        container: &Container,
        run: i32,
        identity: Option<&Identity>,
    ) -> io::Result<Self> {
        make(pod_directory)?;
        let home = pod_directory.join(&container.name);
        if run > 0 && home.exists() {
            std::fs::remove_dir_all(&home)?;
        }
        make(&home)?;
        let work = match container.working_dir.as_deref().map(Path::new) {
            None => home.clone(),
            Some(path) if path.is_absolute() && path.is_dir() => path.into(),
            Some(path) => {
                let inside: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
                let work = home.join(inside);
                std::fs::create_dir_all(&work)?;
                work
            }
        };
        let inside = work.ancestors().take_while(|path| path.starts_with(&home));
        for path in inside.chain([home.as_path()]) {
            set_owner(path, identity)?;
        }
        Ok(Self { home, work })
    }

    /// Sets the working directory to the path at which the container sees it. `path` is its `workingDir`, which is
    /// created in its layer unless a volume has it (`is_mounted`). With file systems of its own, a container without
    /// one begins in their root, as with an image that sets none.
    pub(super) fn enter(
        &mut self,
        view: &View,
        path: Option<&Path>,
        is_mounted: bool,
        identity: Option<&Identity>,
    ) -> io::Result<()> {
        let absolute = path.filter(|path| path.is_absolute());
        let created = absolute.map(|path| create_in_layer(view, path, identity)).transpose()?.unwrap_or(false);
        self.work = match absolute {
            Some(path) if is_mounted || created => path.into(),
            None if path.is_none() && view.is_isolated() => "/".into(),
            _ => view.inside(&self.work),
        };
        Ok(())
    }
}

/// Creates the working directory in the layer of a container. Returns whether the container finds it at its path.
fn create_in_layer(view: &View, path: &Path, identity: Option<&Identity>) -> io::Result<bool> {
    let Some(made) = view.create_directory(path)? else { return Ok(false) };
    set_owner(&made, identity.filter(|_| !path.is_dir()))?;
    Ok(true)
}

/// Sets the owner of a directory to the user and the group of a container.
fn set_owner(path: &Path, identity: Option<&Identity>) -> io::Result<()> {
    match identity {
        Some(Identity { user, group, .. }) => chown(path, Some(*user), Some(*group)),
        None => Ok(()),
    }
}

/// Creates a directory, but not its parents: once the node is gone, its directory must not be created again.
fn make(directory: &Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}
