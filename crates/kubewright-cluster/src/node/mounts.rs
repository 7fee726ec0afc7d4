//! File systems that the node mounts for the volumes of pods, and the table of mounts.
//!
//! They are mounted where all processes of the host see them, below the directories of the node, so that the containers
//! of a pod share them and they stay when containers restart. They are detached before these directories are removed,
//! also those of a cluster that was killed.

use std::{
    ffi::OsString,
    fs,
    io::{self, ErrorKind},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The mounts of this process.
pub(crate) const MOUNTS: &str = "/proc/self/mountinfo";

/// A mount of the host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountPoint<'a> {
    pub(crate) path: PathBuf,
    pub(crate) is_writable: bool,
    /// The type of the file system.
    pub(crate) kind: &'a str,
    /// Whether what is mounted below it is seen in other namespaces.
    is_shared: bool,
}

/// Reads the lines of `mountinfo` (<https://www.kernel.org/doc/html/latest/filesystems/proc.html>). A later mount may
/// hide an earlier one at the same path.
pub(crate) fn mount_points(table: &[u8]) -> impl Iterator<Item = MountPoint<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(mount_point)
}

fn mount_point(line: &[u8]) -> Option<MountPoint<'_>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let path = PathBuf::from(OsString::from_vec(unescaped(fields.nth(4)?)));
    let is_writable = fields.next()?.split(|byte| *byte == b',').all(|option| option != b"ro");
    let is_shared = fields.by_ref().take_while(|field| *field != b"-").any(|field| field.starts_with(b"shared:"));
    let kind = if is_shared { fields.skip_while(|field| *field != b"-").nth(1)? } else { fields.next()? };
    let kind = std::str::from_utf8(kind).ok()?;
    let is_there = !path.as_os_str().as_bytes().ends_with(b"//deleted");
    is_there.then_some(MountPoint { path, is_writable, kind, is_shared })
}

/// Replaces `\` with three octal digits by the byte that they stand for.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// Returns what is mounted at a directory or below it, in the order of the mounts.
fn mounted_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let table = match fs::read(MOUNTS) {
        Ok(table) => table,
        // Other systems have no such table, and nothing is mounted there.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let points = mount_points(&table).map(|point| point.path);
    Ok(points.filter(|path| path.starts_with(directory)).collect())
}

/// Mounts an empty file system in memory of at most `size` bytes at a directory, unless something is mounted there.
/// Returns whether it was mounted. Each user can write in it.
///
/// # Errors
/// If the system refuses it.
#[cfg(target_os = "linux")]
pub(crate) fn mount_memory(directory: &Path, size: u64) -> io::Result<bool> {
    use rustix::{
        io::Errno,
        mount::{MountFlags, mount},
    };

    if mounted_below(directory)?.iter().any(|path| path == directory) {
        return Ok(false);
    }
    let mount = |more: &str| {
        let options = std::ffi::CString::new(format!("size={size},mode=1777{more}")).map_err(|_| Errno::INVAL)?;
        mount("tmpfs", directory, "tmpfs", MountFlags::empty(), options.as_c_str())
    };
    match mount(",noswap") {
        // Linux before 6.4 doesn't know this option.
        Err(Errno::INVAL) => mount("")?,
        mounted => mounted?,
    }
    Ok(true)
}

/// Other systems have no such file systems.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub(crate) fn mount_memory(_directory: &Path, _size: u64) -> io::Result<bool> {
    Err(ErrorKind::Unsupported.into())
}

/// Makes a directory a mount of its own, unless it is one. What is mounted in it is seen in this namespace only.
///
/// # Errors
/// If the system refuses it.
pub(crate) fn bind_private(directory: &Path) -> io::Result<()> {
    bind(directory, false)
}

/// Makes a directory or file a mount of its own, unless it is one. What is mounted in it is seen in the namespaces that
/// have it, too.
///
/// # Errors
/// If the system refuses it.
pub(crate) fn bind_shared(path: &Path) -> io::Result<()> {
    bind(path, true)
}

#[cfg(target_os = "linux")]
fn bind(path: &Path, is_shared: bool) -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

    if !mounted_below(path)?.iter().any(|point| point == path) {
        mount_bind(path, path)?;
    }
    let propagation = if is_shared { MountPropagationFlags::SHARED } else { MountPropagationFlags::PRIVATE };
    Ok(mount_change(path, propagation)?)
}

#[cfg(not(target_os = "linux"))]
fn bind(_path: &Path, _is_shared: bool) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Returns the mount point that a path is below, if what is mounted there isn't seen in other namespaces.
pub(crate) fn private_mount_of(path: &Path) -> io::Result<Option<PathBuf>> {
    let path = path.canonicalize()?;
    let table = fs::read(MOUNTS)?;
    // Of several at the same path, the last one is seen.
    let mount = mount_points(&table)
        .filter(|mount| path.starts_with(&mount.path))
        .max_by_key(|mount| mount.path.components().count());
    Ok(mount.filter(|mount| !mount.is_shared).map(|mount| mount.path))
}

/// Detaches what is mounted at a path. Containers that see it keep it until they end.
#[cfg(target_os = "linux")]
pub(crate) fn detach(path: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn detach(_path: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Detaches what is mounted in a directory, and removes it with its files.
///
/// # Errors
/// If something can't be detached, so that nothing is removed, or if a file can't be removed.
pub(crate) fn remove_tree(directory: &Path) -> io::Result<()> {
    for path in mounted_below(directory)?.iter().rev() {
        detach(path)?;
    }
    if let Some(path) = mounted_below(directory)?.first() {
        return Err(io::Error::other(format!("{} is still mounted", path.display())));
    }
    fs::remove_dir_all(directory)
}

#[cfg(test)]
mod tests {
    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn lines_of_mounts_are_read() {
        let text = r"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
26 22 0:23 / /media/a\040b ro - ext4 /dev/vdb rw
33 22 0:30 / /gone//deleted rw - tmpfs tmpfs rw
broken";
        let found: Vec<_> = mount_points(text.as_bytes()).collect();
        let point = |path: &str, is_shared| {
            let is_writable = is_shared;
            MountPoint { path: path.into(), is_writable, kind: "ext4", is_shared }
        };
        assert_eq!(found, [point("/", true), point("/media/a b", false)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_in_memory_has_its_size_and_is_removed_with_its_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pod, volume) = (folder.path().join("pod"), folder.path().join("pod/volume"));
        fs::create_dir_all(&volume).expect("made");
        match mount_memory(&volume, 1 << 20) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return,
            mounted => assert!(mounted.expect("mounted")),
        }
        assert!(geteuid().is_root());
        fs::write(volume.join("small"), [1; 1 << 10]).expect("written");
        assert!(!mount_memory(&volume, 1 << 20).expect("mounted already"));
        let error = fs::write(volume.join("large"), vec![1; 2 << 20]).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(volume.join("small").exists());
        remove_tree(&pod).expect("removed");
        assert!(!pod.exists() && mounted_below(folder.path()).expect("read").is_empty());
    }
}
