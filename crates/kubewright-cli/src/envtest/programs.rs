//! The directory of the programs.

use std::{
    env, fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// The second line of every script. Files without it are never replaced.
const MARK: &str = "# written by kubewright envtest, and replaced by it";

/// Writes the programs into a directory, and returns its absolute path.
///
/// # Errors
/// If a file is there that was not written by this command. Nothing is written then.
pub(crate) fn write(directory: &Path) -> Result<PathBuf> {
    let directory = std::path::absolute(directory)?;
    fs::create_dir_all(&directory).with_context(|| format!("create the directory {}", directory.display()))?;
    let command = env::current_exe().context("find the program kubewright")?;
    let command = quoted(&command)?;
    let scripts = [
        ("etcd", format!("exec {command} envtest --run etcd -- \"$@\"")),
        ("kube-apiserver", format!("exec {command} envtest --run kube-apiserver -- \"$@\"")),
        ("kubectl", kubectl(&directory)?),
    ];
    for (name, _) in &scripts {
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(content) if !content.windows(MARK.len()).any(|part| part == MARK.as_bytes()) => {
                bail!("{} was not written by kubewright envtest: choose another directory", path.display())
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("read {}", path.display()));
            }
            _ => {}
        }
    }
    for (name, script) in scripts {
        let path = directory.join(name);
        replace(&directory, &path, &format!("#!/bin/sh\n{MARK}\n{script}\n"))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(directory)
}

/// Replaces a script at once, so that one that is being started stays whole.
fn replace(directory: &Path, path: &Path, text: &str) -> Result<()> {
    let mut file = tempfile::Builder::new().prefix(".envtest-").tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
    file.persist(path)?;
    Ok(())
}

/// Returns the script of kubectl: the one in `PATH`.
fn kubectl(directory: &Path) -> Result<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let elsewhere = env::split_paths(&path).filter(|folder| folder.is_absolute() && folder != directory);
    let found = elsewhere.map(|folder| folder.join("kubectl")).find(|path| path.is_file());
    Ok(match found {
        Some(path) => format!("exec {} \"$@\"", quoted(&path)?),
        None => "echo 'kubectl was not in PATH when kubewright envtest wrote this: install it, and run the command again' >&2\nexit 127".into(),
    })
}

/// Returns a path as a word of a shell.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))?;
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}
