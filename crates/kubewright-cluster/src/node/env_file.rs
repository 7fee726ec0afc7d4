//! Files with variables that a container writes for others, `fileKeyRef`
//! (<https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/#env-file-syntax>).

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, FileKeySelector};

/// The greatest size of a file in bytes.
const MOST: u64 = 1 << 20;

/// A file that isn't as the syntax demands, or isn't one of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The texts of files by volume and path; `None` for a missing one.
pub(crate) type EnvFiles = BTreeMap<(String, String), Result<Option<String>, Malformed>>;

/// Reads the files that a container's variables refer to. `directory` returns that of a volume of the pod, by its name.
pub(crate) fn read(container: &Container, directory: impl Fn(&str) -> Option<PathBuf>) -> EnvFiles {
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let keys = sources.filter_map(|source| source.file_key_ref.as_ref());
    let texts = keys.map(|key| {
        let text = directory(&key.volume_name).map_or(Ok(None), |directory| text(&directory, &key.path));
        (name(key), text)
    });
    texts.collect()
}

/// Returns the name of a file among those that were read.
pub(crate) fn name(key: &FileKeySelector) -> (String, String) {
    (key.volume_name.clone(), key.path.clone())
}

/// Returns the text of a file below a directory. Links that lead out of it aren't followed.
fn text(directory: &Path, path: &str) -> Result<Option<String>, Malformed> {
    let read = || {
        let (directory, path) = (directory.canonicalize()?, directory.join(path).canonicalize()?);
        let mut text = String::new();
        let is_inside = path.starts_with(directory) && path.metadata()?.is_file();
        if !is_inside || File::open(path)?.take(MOST + 1).read_to_string(&mut text)? as u64 > MOST {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Ok(text)
    };
    match read() {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(_) => Err(Malformed),
    }
}

/// Returns the value of a variable in a file; `None` if the file doesn't have it.
///
/// # Errors
/// If the lines up to that of the variable aren't as the syntax demands.
pub(crate) fn value<'a>(text: &'a str, key: &str) -> Result<Option<&'a str>, Malformed> {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, next)| next.trim_start());
            continue;
        }
        let (name, after) = rest.split_once('=').ok_or(Malformed)?;
        let name = name.trim_end_matches([' ', '\t']);
        let quoted = after.trim_start_matches([' ', '\t']).strip_prefix('\'').ok_or(Malformed)?;
        let (value, after) = quoted.split_once('\'').ok_or(Malformed)?;
        let (end, next) = after.split_once('\n').unwrap_or((after, ""));
        if name.is_empty() || name.contains('\n') || !end.trim().is_empty() {
            return Err(Malformed);
        }
        if name == key {
            return Ok(Some(value));
        }
        rest = next.trim_start();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn values_are_in_single_quotes() {
        let check = |text: &str, expect| assert_eq!(value(text, "A"), expect, "{text}");
        check("A='a'", Ok(Some("a")));
        check("\n # no\n#A='no'\n  B = '#b\n\n=c' \r\n\tA\t=  'a \"$X\" \n b'\nrest", Ok(Some("a \"$X\" \n b")));
        check("B='b'", Ok(None));
        check("", Ok(None));
        for text in ["A=a", "A=\"a\"", "A='a", "A='a''b'", "A='a'$B", "='a'", "B\nA='a'", "B", "é"] {
            check(text, Err(Malformed));
        }
    }

    #[test]
    fn files_are_those_of_the_volume() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).expect("a volume");
        fs::write(volume.join("a.env"), "A='a'").expect("a file");
        fs::write(folder.path().join("secret"), "A='a'").expect("a file");
        std::os::unix::fs::symlink("../secret", volume.join("link")).expect("a link");
        assert_eq!(text(&volume, "a.env"), Ok(Some("A='a'".into())));
        assert_eq!(text(&volume, "b.env"), Ok(None));
        for path in ["link", "../secret", "."] {
            assert_eq!(text(&volume, path), Err(Malformed), "{path}");
        }
        fs::write(volume.join("long"), " ".repeat(MOST as usize + 1)).expect("a file");
        assert_eq!(text(&volume, "long"), Err(Malformed));
    }
}
