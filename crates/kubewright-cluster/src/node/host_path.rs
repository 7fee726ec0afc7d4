//! Directories and files of the host as volumes of pods
//! (<https://kubernetes.io/docs/concepts/storage/volumes/#hostpath-volume-types>).

use std::{fs, io, os::unix::fs::FileTypeExt, path::Path};

/// Creates what is missing at a path, if the type of the volume says so, and checks what is there. A missing path
/// without a type becomes a directory, as container runtimes do it.
///
/// # Errors
/// If the path can't be created or read, or is something else; the message is then the kubelet's.
pub(crate) fn ensure(path: &Path, kind: &str) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        match kind {
            "" | "DirectoryOrCreate" => fs::create_dir_all(path)?,
            "FileOrCreate" => drop(fs::OpenOptions::new().create(true).append(true).open(path)?),
            _ => {}
        }
    }
    let found = fs::metadata(path).ok().map(|metadata| metadata.file_type());
    let is = |check: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(check);
    let (matches, expected) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(fs::FileType::is_socket), "socket file"),
        "CharDevice" => (is(fs::FileType::is_char_device), "character device"),
        "BlockDevice" => (is(fs::FileType::is_block_device), "block device"),
        _ => (true, ""),
    };
    if matches {
        return Ok(());
    }
    Err(io::Error::other(format!("hostPath type check failed: {} is not a {expected}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_create_and_check() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, kind) in
            [("a/b", ""), ("c/d", "DirectoryOrCreate"), ("c/d", "Directory"), ("e", "FileOrCreate"), ("e", "File")]
        {
            ensure(&at(name), kind).unwrap();
        }
        assert!(at("a/b").is_dir() && at("c/d").is_dir() && at("e").is_file());
        ensure(Path::new("/dev/null"), "CharDevice").unwrap();
        for (name, kind, expected) in
            [("e", "Directory", "directory"), ("a", "FileOrCreate", "file"), ("x", "Socket", "socket file")]
        {
            let message = ensure(&at(name), kind).unwrap_err().to_string();
            assert_eq!(message, format!("hostPath type check failed: {} is not a {expected}", at(name).display()));
        }
        assert!(!at("x").exists());
    }
}
