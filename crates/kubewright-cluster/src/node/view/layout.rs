//! The root directory of a container, and the table of the mounts that put it together.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use super::{
    Mount, OWN, Propagation, Tools, ViewOptions, VisibleProcesses, host_root, joined, layers::Layers, resolve,
};
use crate::node::node_directory;

/// The maximum number of entries of a directory that is replaced.
const ENTRIES: usize = 4096;
/// The directories whose file systems are the kernel's, which are never read-only.
const OF_KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Puts a root directory together.
pub(super) struct Layout<'a> {
    /// The mount point of the root directory.
    root: &'a Path,
    /// The layers above the file systems of the host; `None` if the container shares them.
    layers: Option<&'a Layers>,
    /// What is in the root directory before anything is mounted there.
    files: PathBuf,
    /// The directories of the host that are replaced, with what replaces them.
    opened: BTreeMap<PathBuf, PathBuf>,
    /// The lines of the table of mounts.
    lines: String,
    /// Whether what isn't a mount of the container is read-only.
    read_only: bool,
    /// Whether the processes in `/proc` are those of a namespace.
    own_processes: bool,
    /// Whether the mounts begin with the propagation of the host's, so that each has to be made private that isn't to
    /// be propagated.
    propagates: bool,
}

impl<'a> Layout<'a> {
    /// Starts with the file systems of the host.
    ///
    /// # Errors
    /// If a file can't be created.
    pub(super) fn new(
        root: &'a Path,
        layers: Option<&'a Layers>,
        options: &ViewOptions,
        propagates: bool,
    ) -> io::Result<Self> {
        let read_only = options.read_only;
        let own_processes = options.processes != VisibleProcesses::Host;
        let files = layers.and_then(|layers| layers.upper(Path::new("/"))).unwrap_or_else(|| root.to_owned());
        let (opened, lines) = (BTreeMap::new(), String::new());
        let mut layout = Self { root, layers, files, opened, lines, read_only, own_processes, propagates };
        fs::create_dir_all(layout.files.join(OWN).join("host"))?;
        match layers {
            Some(layers) => layout.mount_layers(layers),
            None => layout.bind_host()?,
        }
        Ok(layout)
    }

    /// Adds the mounts of a container, parents first. With layers, `own` is a directory that it shares with the host.
    ///
    /// # Errors
    /// If a mount point can't be created, or a mount path can't be used.
    pub(super) fn add(&mut self, mounts: &[Mount], own: &Path, tools: &Tools) -> io::Result<()> {
        self.open(mounts)?;
        if self.layers.is_some() {
            self.share_sources(mounts, own)?;
        }
        for mount in mounts {
            let target = self.mount_point(mount, mounts)?;
            let propagation = if self.propagates { mount.propagation } else { Propagation::None };
            self.bind(&mount.source, &target, mount.read_only && tools.read_only, propagation);
        }
        self.link_entries()
    }

    /// Returns the table of the mounts, as in `/etc/fstab`.
    pub(super) fn table(&self) -> &str {
        &self.lines
    }

    /// Returns a path of the host below the new root.
    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn line(&mut self, source: &Path, target: &Path, read_only: bool) {
        self.bind(source, target, read_only, Propagation::None);
    }

    fn bind(&mut self, source: &Path, target: &Path, read_only: bool, propagation: Propagation) {
        let read_only = if read_only { ",ro" } else { "" };
        let option = match propagation {
            Propagation::None if self.propagates => ",rprivate",
            Propagation::None | Propagation::Bidirectional => "",
            Propagation::HostToContainer => ",rslave",
        };
        self.entry(source, target, &format!("none rbind{read_only}{option}"));
    }

    fn entry(&mut self, source: &Path, target: &Path, options: &str) {
        let escaped = |path: &Path| {
            let text = path.to_string_lossy();
            text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
        };
        // Writing to a string doesn't fail.
        let _ = writeln!(self.lines, "{} {} {options} 0 0", escaped(source), escaped(target));
    }

    /// Mounts the file systems of the host, with layers above them.
    fn mount_layers(&mut self, layers: &Layers) {
        let suffix = if self.read_only { ",ro" } else { "" };
        for (point, overlay) in layers.mounts() {
            let target = self.inside(point);
            match overlay {
                Some(options) => self.entry(Path::new("overlay"), &target, &format!("overlay {options}{suffix}")),
                None if self.own_processes && point == Path::new("/proc") => {
                    self.entry(Path::new("proc"), &target, "proc defaults");
                }
                None => self.line(point, &target, self.read_only && !is_of_kernel(point)),
            }
            if point == Path::new("/") {
                self.bind_root();
            }
        }
    }

    /// Binds the host's own root.
    fn bind_root(&mut self) {
        self.line(Path::new("/"), &self.inside(&host_root()), self.read_only);
    }

    /// Binds the directories of the host.
    fn bind_host(&mut self) -> io::Result<()> {
        if self.read_only {
            self.line(self.root, self.root, true);
        }
        self.bind_root();
        for entry in fs::read_dir("/")? {
            let entry = entry?;
            let (path, target) = (entry.path(), self.root.join(entry.file_name()));
            let sort = entry.file_type()?;
            if sort.is_symlink() {
                symlink(fs::read_link(&path)?, target)?;
            } else if entry.file_name() != OWN {
                create(&target, sort.is_dir())?;
                self.line(&path, &target, self.read_only && !is_of_kernel(&path));
            }
        }
        Ok(())
    }

    /// Binds what is mounted at its path on the host, too, where no mount is in it: the container writes no copy of it
    /// there.
    fn share_sources(&mut self, mounts: &[Mount], own: &Path) -> io::Result<()> {
        // Without what is mounted in it, such as this root directory.
        let read_only = if self.read_only { ",ro" } else { "" };
        let option = if self.propagates { ",private" } else { "" };
        self.entry(own, &self.inside(own), &format!("none bind{read_only}{option}"));
        for Mount { source, read_only, .. } in mounts.iter().filter(|mount| !mount.source.starts_with(own)) {
            let is_above = own.starts_with(source) || mounts.iter().any(|mount| mount.path.starts_with(source));
            if !is_above && !self.is_shared(source) && source.canonicalize().is_ok_and(|plain| plain == *source) {
                // A part of what the node has mounted isn't on the file systems below the layers.
                if let Some(layers) = self.layers.filter(|_| node_directory::is_below(source)) {
                    layers.mirror(source.parent().unwrap_or(source))?;
                    if let Some(upper) = layers.upper(source) {
                        create(&upper, source.is_dir())?;
                    }
                }
                self.line(source, &self.inside(source), *read_only);
            }
        }
        Ok(())
    }

    /// Returns whether the file system of a path of the host, without links, is the host's own.
    fn is_shared(&self, path: &Path) -> bool {
        self.layers.is_none_or(|layers| layers.upper(path).is_none())
    }

    /// Creates the directories that replace those of the host in which mount paths are missing.
    fn open(&mut self, mounts: &[Mount]) -> io::Result<()> {
        let top = Path::new("/");
        let mut open = BTreeSet::new();
        let mut parents = Vec::new();
        for mount in mounts.iter().filter(|mount| outer(mount, mounts).is_none()) {
            let (existing, missing) = resolve(&mount.path)?;
            if missing.as_os_str().is_empty() {
                parents.extend(existing.parent().map(Path::to_owned));
            } else if existing != top && self.is_shared(&existing) {
                open.insert(existing);
            }
        }
        parents.extend(open.iter().cloned());
        for path in parents {
            let Some(outermost) = open.iter().find(|dir| path.starts_with(dir)).cloned() else { continue };
            open.extend(path.ancestors().take_while(|dir| dir.starts_with(&outermost)).map(Path::to_owned));
        }
        for (number, dir) in open.into_iter().enumerate() {
            let nested =
                dir.parent().zip(dir.file_name()).and_then(|(parent, name)| Some(self.opened.get(parent)?.join(name)));
            let own = nested.clone().unwrap_or_else(|| self.files.join(OWN).join(number.to_string()));
            fs::create_dir(&own)?;
            fs::set_permissions(&own, fs::Permissions::from_mode(fs::metadata(&dir)?.permissions().mode()))?;
            if nested.is_none() {
                self.line(&own, &self.inside(&dir), self.read_only);
            }
            self.opened.insert(dir, own);
        }
        Ok(())
    }

    /// Creates the mount point of a volume where it is missing, and returns its path below the new root.
    fn mount_point(&self, mount: &Mount, mounts: &[Mount]) -> io::Result<PathBuf> {
        let is_folder = mount.source.is_dir();
        if let Some(outer) = outer(mount, mounts) {
            // As with a container runtime, the mount point is in the outer volume.
            let rest = mount.path.strip_prefix(&outer.path).map_err(io::Error::other)?;
            create(&outer.source.join(rest), is_folder)?;
            let (existing, missing) = resolve(&outer.path)?;
            return Ok(joined(&self.inside(&existing), &missing).join(rest));
        }
        let (existing, missing) = resolve(&mount.path)?;
        if existing == Path::new("/") && missing.as_os_str().is_empty() {
            return Err(io::Error::other("a volume can't be mounted at /"));
        }
        let target = joined(&self.inside(&existing), &missing);
        if missing.as_os_str().is_empty() {
            let parent = existing.parent().and_then(|parent| self.opened.get(parent));
            if let Some((parent, name)) = parent.zip(existing.file_name()) {
                create(&parent.join(name), is_folder)?;
            }
        } else {
            let layer = self.layers.map(|layers| layers.mirror(&existing)).transpose()?.flatten();
            let own = layer.or_else(|| self.opened.get(&existing).cloned()).unwrap_or_else(|| self.inside(&existing));
            create(&own.join(missing), is_folder)?;
        }
        Ok(target)
    }

    /// Links what the replaced directories contain, except for mount points.
    fn link_entries(&self) -> io::Result<()> {
        let mut count = 0;
        for (dir, own) in &self.opened {
            for entry in fs::read_dir(dir)? {
                let name = entry?.file_name();
                let link = own.join(&name);
                if link.symlink_metadata().is_ok() {
                    continue;
                }
                count += 1;
                if count > ENTRIES {
                    return Err(io::Error::other(format!("{} has too many entries", dir.display())));
                }
                symlink(host_root().join(dir.strip_prefix("/").unwrap_or(dir)).join(&name), link)?;
            }
        }
        Ok(())
    }
}

/// Returns whether a path is a directory of the kernel, or in one.
fn is_of_kernel(path: &Path) -> bool {
    OF_KERNEL.iter().any(|own| path.starts_with(own))
}

/// Returns the innermost mount that another one is in.
fn outer<'a>(mount: &Mount, mounts: &'a [Mount]) -> Option<&'a Mount> {
    mounts.iter().rev().find(|other| other.path != mount.path && mount.path.starts_with(&other.path))
}

/// Creates a directory or an empty file with its parents, unless it exists.
fn create(path: &Path, is_folder: bool) -> io::Result<()> {
    if is_folder {
        return fs::create_dir_all(path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::File::create_new(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
