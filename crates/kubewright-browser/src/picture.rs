//! The folders of pictures.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::BrowserError;

/// The environment variable that enables writing the documentation's pictures, as set by `cargo xtask pictures`.
pub const PICTURES: &str = "KUBEWRIGHT_PICTURES";

/// A folder of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The pictures of tests, for inspection: `target/screenshots`.
    Screenshots,
    /// The pictures of the README: `docs/pictures`. They are only written when [`PICTURES`] is set.
    Documentation,
}

/// Saves a picture under a name without extension.
///
/// # Errors
/// [`BrowserError::Picture`] if it can't be written.
pub fn save(folder: Folder, name: &str, png: &[u8]) -> Result<(), BrowserError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = match folder {
        Folder::Screenshots => target(&root).join("screenshots"),
        Folder::Documentation if env::var_os(PICTURES).is_some() => root.join("docs/pictures"),
        Folder::Documentation => return Ok(()),
    };
    let path = folder.join(format!("{name}.png"));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&path, png))
        .map_err(|source| BrowserError::Picture { path: path.display().to_string(), source })
}

/// Returns Cargo's target folder.
fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}
