//! What plugins are shown: the texts of a project.

use std::{collections::BTreeMap, fs, io, path::Path};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::plan::Layers;

/// Folders that nobody scaffolds into.
const NOT_SHOWN: [&str; 2] = [".git", "target"];
/// How many bytes a file may have. Larger ones are data.
const LARGEST: u64 = 1 << 20;
/// How many bytes all may have.
const ALL: usize = 32 << 20;

/// All texts of a folder by path, as they are after the changes so far. Links are not followed.
pub(super) fn shown(root: &Path, layers: &Layers<'_>) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    let mut size = 0;
    while let Some(folder) = folders.pop() {
        let failed = || format!("look into {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().with_context(failed)?);
            let name = path.strip_prefix(root).ok().and_then(Path::to_str);
            // A name that is no text can't be said in JSON.
            let Some(name) = name else { continue };
            if kind.is_dir() && !NOT_SHOWN.contains(&name) {
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
            if size > ALL {
                bail!(
                    "{} has more than {} MiB of texts to show to a plugin: is it a project's folder?",
                    root.display(),
                    ALL >> 20
                );
            }
        }
    }
    files.extend(layers.changed().map(|(path, text)| (path.to_owned(), text.to_owned())));
    Ok(files)
}
