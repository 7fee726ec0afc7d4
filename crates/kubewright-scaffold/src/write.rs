//! Writing of all planned changes, or none.
//!
//! All files are first written to a temporary directory in the project, since a rename is atomic only within a file
//! system. Each file is then renamed to its final path, in the order of the [plan](crate::plan): a reader sees the old
//! or the new content of a file, never a part of it. Files to delete are removed at their turn, and then the
//! directories that became empty. If a step fails, the earlier ones are undone.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use thiserror::Error;

use crate::plan::{Change, Source};

/// The prefix of the name of the temporary directory.
const STAGE: &str = ".kubewright-";

/// A failure to write.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Another program has changed a file meanwhile.
    #[error("{0} was changed by another program meanwhile: run the command again; nothing was written")]
    Changed(PathBuf),
    /// A path leads out of the project through a symbolic link.
    #[error("{0} leads out of the project by a symbolic link; nothing was written")]
    Outside(PathBuf),
    /// The file system reported an error; nothing was changed.
    #[error("cannot write {path}: {why}; nothing was changed")]
    Failed {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
    /// The file system reported an error, and another one when the changes were undone.
    #[error("cannot write {path}: {why}; restoring {undone} failed too ({undo}): its old content is in {stage}")]
    Half {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: io::Error,
        /// The file that could not be restored.
        undone: PathBuf,
        /// The reason.
        undo: io::Error,
        /// The directory that contains the old files.
        stage: PathBuf,
    },
}

/// The directory of a project.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a value for a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes all changes, or none. Missing directories are created, and overwritten files keep their permissions.
    ///
    /// # Errors
    /// Returns an error if a file has changed since it was planned, or if the file system reports one.
    pub fn write(&self, changes: &[Change]) -> Result<(), WriteError> {
        if changes.is_empty() {
            return Ok(());
        }
        for change in changes {
            self.check(change)?;
        }
        let failed = |why| WriteError::Failed { path: self.0.clone(), why };
        let stage = tempfile::Builder::new().prefix(STAGE).tempdir_in(&self.0).map_err(failed)?;
        for (index, change) in changes.iter().enumerate() {
            let path = self.0.join(&change.path);
            prepare(&stage, index, change, &path).map_err(|why| WriteError::Failed { path, why })?;
        }
        let mut moves = Transaction { stage, done: Vec::new(), folders: Vec::new() };
        for (index, change) in changes.iter().enumerate() {
            let path = self.0.join(&change.path);
            let moved = match change.after {
                Some(_) => moves.carry_out(index, &path, change.before.is_some()),
                None => moves.remove(index, &path),
            };
            if let Err(why) = moved {
                return Err(moves.undo(path, why));
            }
        }
        for change in changes.iter().filter(|change| change.after.is_none()) {
            // Directories that are not empty remain.
            let above = self.0.join(&change.path);
            let folders = above.ancestors().skip(1).take_while(|folder| *folder != self.0);
            let _ = folders.map(fs::remove_dir).find(Result::is_err);
        }
        Ok(())
    }

    /// Checks that a file is within the project, and unchanged since it was planned.
    fn check(&self, change: &Change) -> Result<(), WriteError> {
        let path = self.0.join(&change.path);
        let failed = |why| WriteError::Failed { path: path.clone(), why };
        let root = self.0.canonicalize().map_err(failed)?;
        let there = path.ancestors().find(|ancestor| ancestor.symlink_metadata().is_ok()).unwrap_or(&self.0);
        if !there.canonicalize().map_err(failed)?.starts_with(&root) {
            return Err(WriteError::Outside(path));
        }
        if self.read(&change.path).map_err(failed)? != change.before {
            return Err(WriteError::Changed(path));
        }
        Ok(())
    }
}

impl Source for Folder {
    fn read(&self, path: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.0.join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Writes the new content of a file to the temporary directory, with a copy of the old one.
fn prepare(stage: &TempDir, index: usize, change: &Change, path: &Path) -> io::Result<()> {
    if change.before.is_some() {
        fs::copy(path, old_in(stage.path(), index))?;
    }
    let Some(text) = &change.after else { return Ok(()) };
    let new = new_in(stage.path(), index);
    fs::write(&new, text)?;
    if change.before.is_some() {
        fs::set_permissions(&new, fs::metadata(path)?.permissions())?;
    }
    Ok(())
}

fn new_in(stage: &Path, index: usize) -> PathBuf {
    stage.join(format!("{index}.new"))
}

fn old_in(stage: &Path, index: usize) -> PathBuf {
    stage.join(format!("{index}.old"))
}

/// The renames so far.
struct Transaction {
    stage: TempDir,
    /// The renamed files, each with the path of its old copy if the file existed.
    done: Vec<(PathBuf, Option<PathBuf>)>,
    /// The created directories, outermost first.
    folders: Vec<PathBuf>,
}

impl Transaction {
    fn carry_out(&mut self, index: usize, path: &Path, is_there: bool) -> io::Result<()> {
        let missing: Vec<_> = path.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
        for folder in missing.into_iter().rev() {
            fs::create_dir(folder)?;
            self.folders.push(folder.to_owned());
        }
        // A rename does not follow a symbolic link. The content of its target was read, so the target is replaced.
        let target = if is_there { path.canonicalize()? } else { path.to_owned() };
        fs::rename(new_in(self.stage.path(), index), &target)?;
        self.done.push((target, is_there.then(|| old_in(self.stage.path(), index))));
        Ok(())
    }

    /// Removes a file, or a symbolic link itself.
    fn remove(&mut self, index: usize, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        self.done.push((path.to_owned(), Some(old_in(self.stage.path(), index))));
        Ok(())
    }

    /// Undoes the renames in reverse order.
    fn undo(self, path: PathBuf, why: io::Error) -> WriteError {
        for (undone, old) in self.done.into_iter().rev() {
            let back = match old {
                Some(old) => fs::rename(old, &undone),
                None => fs::remove_file(&undone),
            };
            if let Err(undo) = back {
                return WriteError::Half { path, why, undone, undo, stage: self.stage.keep() };
            }
        }
        for folder in self.folders.iter().rev() {
            // A directory that is no longer empty contains files of another program.
            let _ = fs::remove_dir(folder);
        }
        WriteError::Failed { path, why }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::plan::Plan;

    /// Returns all files in a directory with their contents, and all directories.
    fn all(root: &Path) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                if path.is_dir() {
                    found.insert(format!("{name}/"), String::new());
                    folders.push(path);
                } else {
                    found.insert(name, fs::read_to_string(path).unwrap());
                }
            }
        }
        found
    }

    fn scene() -> (TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("PROJECT"), "old").unwrap();
        let folder = Folder::new(root.path());
        (root, folder)
    }

    fn changes(folder: &Folder, files: &[(&str, &str)]) -> Vec<Change> {
        let mut plan = Plan::new(folder);
        for (path, text) in files {
            plan.replace(path, *text);
        }
        plan.finish().unwrap()
    }

    #[test]
    fn all_changes_are_written_and_nothing_else_is_left() {
        let (root, folder) = scene();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(root.path().join("PROJECT"), executable).unwrap();
        folder.write(&changes(&folder, &[("PROJECT", "new"), ("a/b/c", "text"), ("a/d", "")])).unwrap();
        let expected = [("PROJECT", "new"), ("a/", ""), ("a/b/", ""), ("a/b/c", "text"), ("a/d", "")];
        let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
        assert_eq!(all(root.path()), BTreeMap::from(expected));
        assert_eq!(fs::metadata(root.path().join("PROJECT")).unwrap().permissions().mode() & 0o777, 0o755);
        folder.write(&[]).unwrap();
    }

    #[test]
    fn renames_are_undone_when_one_fails() {
        let (root, folder) = scene();
        fs::write(root.path().join("z"), "z").unwrap();
        let planned = changes(&folder, &[("a/b", "text"), ("a/c/d", "text"), ("z", "Z"), ("PROJECT", "new")]);
        // A directory in place of a file, which a rename cannot replace. The check would detect it, so it is skipped
        // here.
        let before = all(root.path());
        let mut moves =
            Transaction { stage: tempfile::tempdir_in(root.path()).unwrap(), done: Vec::new(), folders: Vec::new() };
        for (index, change) in planned.iter().enumerate() {
            prepare(&moves.stage, index, change, &root.path().join(&change.path)).unwrap();
        }
        for (index, change) in planned.iter().enumerate() {
            moves.carry_out(index, &root.path().join(&change.path), change.before.is_some()).unwrap();
        }
        let failed = moves.carry_out(9, &root.path().join("new/e"), false).unwrap_err();
        let error = moves.undo(root.path().join("new/e"), failed).to_string();
        assert!(error.contains("new/e: ") && error.ends_with("nothing was changed"), "{error}");
        assert_eq!(all(root.path()), before);
    }

    #[test]
    fn a_concurrently_changed_file_is_kept() {
        let (root, folder) = scene();
        let planned = changes(&folder, &[("PROJECT", "new"), ("a", "text")]);
        fs::write(root.path().join("PROJECT"), "another's").unwrap();
        let before = all(root.path());
        let error = folder.write(&planned).unwrap_err().to_string();
        assert!(error.contains("PROJECT was changed by another program"), "{error}");
        assert_eq!(all(root.path()), before);
    }

    #[test]
    fn nothing_is_written_after_an_error() {
        let (root, folder) = scene();
        // A file in place of a directory.
        let error = folder.write(&[Change { path: "PROJECT/a".into(), before: None, after: Some(String::new()) }]);
        assert!(matches!(error, Err(WriteError::Failed { .. })), "{error:?}");
        assert_eq!(all(root.path()).len(), 1);
        let nowhere = Folder::new(root.path().join("gone"));
        assert!(nowhere.write(&changes(&nowhere, &[("a", "")])).is_err());
    }

    #[test]
    fn deleted_files_leave_no_empty_directories() {
        let (root, folder) = scene();
        folder.write(&changes(&folder, &[("a/b/c", "1"), ("a/d", "2")])).unwrap();
        let deletion = |path: &str| {
            let mut plan = Plan::new(&folder);
            plan.delete(path).delete("missing");
            plan.finish().unwrap()
        };
        folder.write(&deletion("a/b/c")).unwrap();
        assert_eq!(all(root.path()).into_keys().collect::<Vec<_>>(), ["PROJECT", "a/", "a/d"]);
        // A failure after a deletion restores the file.
        let before = all(root.path());
        let mut planned = deletion("a/d");
        planned.push(Change { path: "e".into(), before: None, after: None });
        assert!(matches!(folder.write(&planned), Err(WriteError::Failed { .. })));
        assert_eq!(all(root.path()), before);
        folder.write(&deletion("a/d")).unwrap();
        assert_eq!(all(root.path()).into_keys().collect::<Vec<_>>(), ["PROJECT"]);
    }

    #[test]
    fn symbolic_links_do_not_lead_out_of_the_project() {
        let (root, folder) = scene();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("out")).unwrap();
        let error = folder.write(&changes(&folder, &[("out/a/b", "text")])).unwrap_err();
        assert!(matches!(error, WriteError::Outside(_)), "{error}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        // A link within the project is followed, and remains a link.
        std::os::unix::fs::symlink("PROJECT", root.path().join("same")).unwrap();
        folder.write(&changes(&folder, &[("same", "new")])).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("PROJECT")).unwrap(), "new");
        assert!(root.path().join("same").is_symlink());
    }
}
