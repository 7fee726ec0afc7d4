//! Reading directories.

use std::path::Path;

use anyhow::{Context, Result};

/// Returns the sorted names of the entries of a directory. Invalid UTF-8 is replaced.
pub(crate) fn entry_names(directory: &Path) -> Result<Vec<String>> {
    let failed = || format!("read the directory {}", directory.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        names.push(entry.with_context(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
