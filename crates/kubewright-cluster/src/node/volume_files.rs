//! The files of a volume on the disk, which are replaced all at once.
//!
//! As the kubelet lays them out: a directory contains the files, the link `..data` leads to it, and links in the volume
//! lead through `..data`. A change writes another directory and replaces the one link.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Component, Path, PathBuf},
};

use super::identity::VolumeOwner;

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    /// The content.
    pub(crate) bytes: Vec<u8>,
    /// The permissions.
    pub(crate) mode: u32,
    /// The user and group, if they aren't those of the node.
    pub(crate) owner: VolumeOwner,
}

/// Files by their relative paths.
pub(crate) type Files = BTreeMap<PathBuf, VolumeFile>;

/// The link to the current files.
const DATA: &str = "..data";

/// Replaces the files of a volume, unless they are the same. Blocks until they are written. Must not be called for the
/// same volume at the same time.
pub(crate) fn replace(volume: &Path, files: &Files) -> io::Result<()> {
    fs::create_dir_all(volume)?;
    let data = volume.join(DATA);
    let old = fs::read_link(&data).ok().map(|name| volume.join(name));
    if old.as_ref().is_some_and(|old| is_same(old, files)) {
        return Ok(());
    }
    let new = fresh(volume)?;
    write(&new, files)?;
    let link = volume.join("..data_tmp");
    remove_link(&link)?;
    symlink(new.file_name().unwrap_or_default(), &link)?;
    fs::rename(&link, &data)?;
    let names: BTreeSet<OsString> = files.keys().filter_map(|path| first(path)).collect();
    for entry in fs::read_dir(volume)?.flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with("..") && !names.contains(&name) {
            remove_link(&entry.path())?;
        }
    }
    for name in names {
        let link = volume.join(&name);
        if !link.is_symlink() {
            symlink(Path::new(DATA).join(&name), link)?;
        }
    }
    old.map_or(Ok(()), fs::remove_dir_all)
}

/// Writes files that stay as they are.
pub(crate) fn write(folder: &Path, files: &Files) -> io::Result<()> {
    for (path, file) in files {
        write_file(&folder.join(path), file)?;
    }
    Ok(())
}

/// Writes a file that stays as it is, and creates its parents.
pub(crate) fn write_file(path: &Path, file: &VolumeFile) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, &file.bytes)?;
    let VolumeOwner { user, group } = file.owner;
    if user.is_some() || group.is_some() {
        chown(path, user, group)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(file.mode))
}

fn first(path: &Path) -> Option<OsString> {
    match path.components().next()? {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    }
}

/// Creates a directory with a name that isn't used.
fn fresh(volume: &Path) -> io::Result<PathBuf> {
    let mut number = 0_u32;
    loop {
        let folder = volume.join(format!("..files_{number}"));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            result => return result.map(|()| folder),
        }
    }
}

fn remove_link(link: &Path) -> io::Result<()> {
    match fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a directory contains exactly these files.
fn is_same(folder: &Path, files: &Files) -> bool {
    let same = |(path, VolumeFile { bytes, mode, .. }): (&PathBuf, &VolumeFile)| {
        let file = folder.join(path);
        let mode_of = |file: &Path| file.metadata().map(|found| found.permissions().mode() & 0o777);
        mode_of(&file).is_ok_and(|found| found == *mode) && fs::read(&file).is_ok_and(|found| found == *bytes)
    };
    files.iter().all(same) && count(folder).is_ok_and(|found| found == files.len())
}

fn count(folder: &Path) -> io::Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        found += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        let file =
            |text: &str| VolumeFile { bytes: text.as_bytes().to_vec(), mode: 0o644, owner: VolumeOwner::default() };
        all.iter().map(|(path, text)| (PathBuf::from(path), file(text))).collect()
    }

    #[test]
    fn files_are_replaced_together() {
        let folder = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).ok();
        let target = || fs::read_link(folder.path().join(DATA)).unwrap();
        replace(folder.path(), &files(&[("a", "1"), ("x/y", "2")])).unwrap();
        assert_eq!((read("a"), read("x/y")), (Some("1".into()), Some("2".into())));
        let first = target();
        replace(folder.path(), &files(&[("a", "1"), ("x/y", "2")])).unwrap();
        assert_eq!(target(), first, "nothing has changed");
        replace(folder.path(), &files(&[("a", "3"), ("b", "4")])).unwrap();
        assert_ne!(target(), first);
        assert_eq!((read("a"), read("b"), read("x/y")), (Some("3".into()), Some("4".into()), None));
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["..data", target().to_str().unwrap(), "a", "b"]);
    }

    #[test]
    fn a_mode_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        replace(folder.path(), &files(&[("a", "1")])).unwrap();
        let mut other = files(&[("a", "1")]);
        other.get_mut(Path::new("a")).unwrap().mode = 0o400;
        replace(folder.path(), &other).unwrap();
        let mode = folder.path().join("a").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
    }
}
