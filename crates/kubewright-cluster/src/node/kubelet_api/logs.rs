//! The log files of the machine, `/logs/`.

use std::{
    fs,
    io::{self, Read},
    path::{Component, Path},
};

/// The directory.
pub(super) const DIRECTORY: &str = "/var/log";
/// The most bytes of a file that an answer has.
const LIMIT: u64 = 16 << 20;
/// The most entries of a directory that an answer names.
const ENTRIES: usize = 10_000;

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The beginning of a file.
    File(Vec<u8>),
    /// A page with the names of a directory's entries as links.
    Directory(String),
}

/// Reads a path below a directory. Blocks.
///
/// # Errors
/// If there is no such file, it can't be read, or the path leads out of the directory.
pub(super) fn read(directory: &Path, path: &str) -> io::Result<Found> {
    let path = Path::new(path.trim_start_matches('/'));
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let path = directory.join(path);
    let metadata = fs::metadata(&path)?;
    if metadata.is_file() {
        let mut content = Vec::new();
        fs::File::open(&path)?.take(LIMIT).read_to_end(&mut content)?;
        return Ok(Found::File(content));
    }
    if !metadata.is_dir() {
        // To read a pipe could take forever.
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&path)?.take(ENTRIES) {
        let entry = entry?;
        let suffix = if entry.path().is_dir() { "/" } else { "" };
        names.push(escaped(&entry.file_name().to_string_lossy()) + suffix);
    }
    names.sort();
    let links: String = names.iter().map(|name| format!("<a href=\"{name}\">{name}</a>\n")).collect();
    Ok(Found::Directory(format!("<!doctype html>\n<pre>\n{links}</pre>\n")))
}

/// Returns a text without the characters of HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_are_read_and_nothing_outside() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("log")).expect("made");
        fs::create_dir(folder.path().join("log/a<b")).expect("made");
        fs::write(folder.path().join("log/messages"), "hello\n").expect("written");
        fs::write(folder.path().join("secret"), "secret").expect("written");
        let read = |path: &str| read(&folder.path().join("log"), path);
        assert_eq!(read("/messages").expect("a file"), Found::File(b"hello\n".to_vec()));
        let Found::Directory(page) = read("/").expect("a directory") else { panic!("a file") };
        assert!(page.contains("<a href=\"a&lt;b/\">a&lt;b/</a>\n<a href=\"messages\">messages</a>\n"), "{page}");
        assert_eq!(read("").expect("a directory"), Found::Directory(page));
        for path in ["/../secret", "/nothing", "/messages/deep"] {
            read(path).expect_err(path);
        }
    }
}
