//! A directory to run commands in.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A temporary directory.
pub(crate) struct Folder {
    root: tempfile::TempDir,
    name: String,
}

impl Folder {
    /// Creates an empty directory.
    pub(crate) fn new(name: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(name)).unwrap();
        Self { root, name: name.into() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join(&self.name)
    }

    /// Creates a project with the kind `Captain`.
    pub(crate) fn with_captain() -> Self {
        let folder = Self::new("ship");
        folder.run("init --domain testproject.org");
        folder.run("create api --group crew --version v1 --kind Captain");
        folder
    }

    /// Runs `kubewright` with some words, separated by spaces.
    pub(crate) fn try_run(&self, line: &str) -> Output {
        self.try_run_in("", line)
    }

    /// Runs the command in a subdirectory.
    pub(crate) fn try_run_in(&self, below: &str, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.args(line.split_whitespace()).current_dir(self.path().join(below)).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Runs the command, which must succeed, and returns its error output.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "kubewright {line}: {stderr}");
        stderr
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Replaces text in an existing file.
    pub(crate) fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} has no {from:?}");
        self.write(path, &text.replace(from, to));
    }

    /// Returns all files with their contents, and all directories.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        files(&self.path(), true)
    }
}

/// Returns the files of a directory with their contents, and optionally the subdirectories, without those of git.
pub(crate) fn files(root: &Path, with_folders: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name == ".git" {
                continue;
            }
            if path.is_dir() {
                if with_folders {
                    found.insert(format!("{name}/"), String::new());
                }
                folders.push(path);
            } else {
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}
