//! The file systems of the host, with a layer above each that keeps what a container writes.
//!
//! The layers are those of overlays (<https://docs.kernel.org/filesystems/overlayfs.html>). File systems of the kernel,
//! of other machines and those that can't be written have none: containers see them as the host does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use crate::node::{
    mounts::{MOUNTS, MountPoint, mount_points},
    node_directory,
};

/// The types of file systems that get a layer.
const LAYERED: [&str; 7] = ["btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs"];
/// The types of file systems that containers don't see: root file systems of other containers, and namespaces.
const HIDDEN: [&str; 2] = ["nsfs", "overlay"];

/// A layer above a file system of the host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layer {
    /// The directory of what the container writes.
    pub(super) upper: PathBuf,
    /// The directory for the overlay's own use.
    work: PathBuf,
}

/// The file systems of the host that a container sees, by their mount points, with their layers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layers(BTreeMap<PathBuf, Option<Layer>>);

impl Layers {
    /// Creates empty layers in `folder`.
    ///
    /// # Errors
    /// If the mounts can't be read, the path of the directory can't be written in the options of a mount, or a
    /// directory can't be created.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        if !is_plain(folder) {
            return Err(io::Error::other(format!("{} has characters that separate options", folder.display())));
        }
        let mut layers = BTreeMap::new();
        for (number, (point, is_layered)) in file_systems(&fs::read(MOUNTS)?).into_iter().enumerate() {
            let layer = if is_layered && point.is_dir() {
                let folder = folder.join(number.to_string());
                let layer = Layer { upper: folder.join("upper"), work: folder.join("work") };
                fs::create_dir_all(&layer.work)?;
                create_like(&layer.upper, &point)?;
                Some(layer)
            } else {
                None
            };
            layers.insert(point, layer);
        }
        Ok(Self(layers))
    }

    /// Returns the mount points with the options of the overlays on them; those without are shared. A mount point comes
    /// before those in it.
    pub(super) fn mounts(&self) -> impl Iterator<Item = (&Path, Option<String>)> {
        self.0.iter().map(|(point, layer)| {
            let options = layer.as_ref().map(|layer| {
                let [lower, upper, work] = [point, &layer.upper, &layer.work].map(|path| path.display());
                // What a container writes doesn't outlive it, and so nothing has to reach the disk.
                format!("lowerdir={lower},upperdir={upper},workdir={work},volatile")
            });
            (point.as_path(), options)
        })
    }

    /// Returns where a path of the host, without links, is kept once a container writes it; `None` if it shares the
    /// file system.
    pub(super) fn upper(&self, path: &Path) -> Option<PathBuf> {
        let (point, layer) = path.ancestors().find_map(|path| self.0.get_key_value(path))?;
        Some(super::joined(&layer.as_ref()?.upper, path.strip_prefix(point).ok()?))
    }

    /// Creates the directories of a path of the host, which exists there, in its layer. Returns the last of them, or
    /// `None` if the file system is shared.
    ///
    /// # Errors
    /// If a directory can't be created.
    pub(super) fn mirror(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let Some(upper) = self.upper(path) else { return Ok(None) };
        let mut missing: Vec<_> =
            path.ancestors().zip(upper.ancestors()).take_while(|(_, upper)| !upper.exists()).collect();
        while let Some((path, upper)) = missing.pop() {
            create_like(upper, path)?;
        }
        Ok(Some(upper))
    }
}

/// Creates a directory with the owner and permissions of another one.
fn create_like(path: &Path, other: &Path) -> io::Result<()> {
    let metadata = fs::metadata(other)?;
    fs::create_dir(path)?;
    std::os::unix::fs::chown(path, Some(metadata.uid()), Some(metadata.gid()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode()))
}

/// Returns whether a path means itself in the options of a mount.
fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b":,\\\" \t\n".contains(byte))
}

/// Returns the mount points of the file systems that containers see, and whether each gets a layer. Those below one
/// that has none belong to it.
fn file_systems(mounts: &[u8]) -> BTreeMap<PathBuf, bool> {
    #[derive(PartialEq)]
    enum Kind {
        Layered,
        Shared,
        Hidden,
    }
    let mut found = BTreeMap::new();
    // A later mount hides an earlier one at the same mount point. The volumes of other pods aren't seen.
    for MountPoint { path: point, is_writable, kind, .. } in
        mount_points(mounts).filter(|mount| !node_directory::is_below(&mount.path))
    {
        let kind = if point == Path::new("/") {
            Kind::Layered
        } else if HIDDEN.contains(&kind) {
            Kind::Hidden
        } else if is_writable && LAYERED.contains(&kind) && is_plain(&point) {
            Kind::Layered
        } else {
            Kind::Shared
        };
        found.insert(point, kind);
    }
    let whole = found.iter().filter(|(_, kind)| **kind != Kind::Layered);
    let whole: BTreeSet<_> = whole.map(|(point, _)| point.clone()).collect();
    let seen = found
        .into_iter()
        .filter(|(point, kind)| *kind != Kind::Hidden && !point.ancestors().skip(1).any(|outer| whole.contains(outer)));
    seen.map(|(point, kind)| (point, kind == Kind::Layered)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:20 / /proc rw shared:2 - proc proc rw
24 23 0:21 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
25 22 0:22 / /run rw,nosuid shared:3 - tmpfs tmpfs rw
26 22 0:23 / /media/a\040b rw - ext4 /dev/vdb rw
27 22 0:24 / /snap/core ro - squashfs /dev/loop0 ro
28 22 0:25 / /var/lib/docker/overlay2/abc/merged rw - overlay overlay rw
29 25 0:26 / /run/netns/x rw - nsfs nsfs rw
30 22 0:27 / /mnt/ro ro - ext4 /dev/vdc ro
31 22 0:28 / /srv rw - ext4 /dev/vdd rw
32 31 0:29 / /srv rw - nfs4 server:/srv rw
33 22 0:30 / /gone//deleted rw - tmpfs tmpfs rw
34 28 0:31 / /var/lib/docker/overlay2/abc/merged/tmp rw - ext4 /dev/vda rw
broken";

    #[test]
    fn disks_and_memory_have_layers_and_the_rest_is_shared() {
        let found = file_systems(TEXT.as_bytes());
        let found: Vec<_> = found.iter().map(|(point, layered)| (point.to_str().expect("text"), *layered)).collect();
        let expect = [
            ("/", true),
            ("/media/a b", false),
            ("/mnt/ro", false),
            ("/proc", false),
            ("/run", true),
            ("/snap/core", false),
            ("/srv", false),
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn a_root_of_any_type_has_a_layer() {
        let found = file_systems(b"1 0 0:1 / / ro - overlay overlay rw");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(PathBuf::from("/"), true)]);
    }

    #[test]
    fn a_path_belongs_to_the_innermost_file_system() {
        let layer = |name: &str| Some(Layer { upper: PathBuf::from(name), work: PathBuf::new() });
        let layers = [("/", layer("/a")), ("/run", layer("/b")), ("/run/x", None)];
        let layers = Layers(layers.map(|(point, layer)| (PathBuf::from(point), layer)).into());
        let upper = |path: &str| layers.upper(Path::new(path)).map(|path| path.display().to_string());
        assert_eq!(upper("/etc/passwd").as_deref(), Some("/a/etc/passwd"));
        assert_eq!((upper("/").as_deref(), upper("/run").as_deref()), (Some("/a"), Some("/b")));
        assert_eq!(upper("/run/secrets/x").as_deref(), Some("/b/secrets/x"));
        assert_eq!(upper("/run/x/y"), None);
        assert_eq!(upper("/runner").as_deref(), Some("/a/runner"));
    }

    #[test]
    fn directories_of_the_host_are_mirrored_with_their_permissions() {
        let (host, folder) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let deep = host.path().join("a/b");
        fs::create_dir_all(&deep).expect("made");
        fs::set_permissions(&deep, fs::Permissions::from_mode(0o1777)).expect("set");
        let upper = folder.path().join("upper");
        fs::create_dir(&upper).expect("made");
        let layer = Layer { upper: upper.clone(), work: PathBuf::new() };
        let layers = Layers(BTreeMap::from([(host.path().to_owned(), Some(layer))]));
        for _ in 0..2 {
            assert_eq!(layers.mirror(&deep).expect("made"), Some(upper.join("a/b")));
        }
        assert_eq!(fs::metadata(upper.join("a/b")).expect("there").mode() & 0o7777, 0o1777);
    }
}
