//! Where pictures are kept.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::BrowserError;

/// The environment variable that has the pictures of the documentation rewritten, as `cargo xtask pictures` does.
pub const PICTURES: &str = "KUBEWRIGHT_PICTURES";

/// Which pictures they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// Those of a test, to be looked at: `target/screenshots`.
    Screenshots,
    /// Those that the README shows: `docs/pictures`. They are only written when [`PICTURES`] is set.
    Documentation,
}

/// Keeps a picture under a name without its ending.
///
/// # Errors
/// [`BrowserError::Picture`] if it can't be written.
pub fn keep(folder: Folder, name: &str, png: &[u8]) -> Result<(), BrowserError> {
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

/// Cargo's folder for what it builds.
fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}
