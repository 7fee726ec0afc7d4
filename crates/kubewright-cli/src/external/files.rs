//! The project files that plugins receive.

use std::{collections::BTreeMap, fs, io, path::Path};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::plan::Overlay;

/// The directories that are never scaffolded into.
const EXCLUDED: [&str; 2] = [".git", "target"];
/// The maximum size of a file in bytes. Larger files are data and not sources.
const LARGEST: u64 = 1 << 20;
/// The maximum total size in bytes.
const LARGEST_TOTAL: usize = 32 << 20;

/// Returns all text files of a directory by path, with the changes that are planned so far. Symbolic links are not
/// followed.
pub(super) fn text_files(root: &Path, overlay: &Overlay<'_>) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    let mut size = 0;
    while let Some(folder) = folders.pop() {
        let failed = || format!("read the directory {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().with_context(failed)?);
            let name = path.strip_prefix(root).ok().and_then(Path::to_str);
            // A name that is not UTF-8 cannot be represented in JSON.
            let Some(name) = name else { continue };
            if kind.is_dir() && !EXCLUDED.contains(&name) {
                folders.push(path);
            } else if kind.is_file() && entry.metadata().with_context(failed)?.len() <= LARGEST {
                match fs::read_to_string(&path) {
                    Ok(text) => {
                        size += text.len();
                        files.insert(name.to_owned(), text);
                    }
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                    Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
                }
            }
            if size > LARGEST_TOTAL {
                bail!(
                    "{} has more than {} MiB of text files, too much for a plugin: check that it is a project",
                    root.display(),
                    LARGEST_TOTAL >> 20
                );
            }
        }
    }
    for (path, text) in overlay.changed() {
        match text {
            Some(text) => drop(files.insert(path.to_owned(), text.to_owned())),
            None => drop(files.remove(path)),
        }
    }
    Ok(files)
}
