//! Lookup of plugins in the directories that kubebuilder uses.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::external::PluginKey;

use super::Plugin;
use crate::directory::entry_names;

/// The environment variable with the directory of plugins.
const ROOT: &str = "EXTERNAL_PLUGINS_PATH";

/// Finds the plugin of a key: `NAME/VERSION/NAME` in the directory of plugins, with any extension.
pub(super) fn plugin(key: &PluginKey) -> Result<Plugin> {
    let root = root()?;
    let folder = root.join(key.name()).join(key.version());
    let names = if folder.is_dir() { entry_names(&folder)? } else { Vec::new() };
    let is_it = |name: &&String| {
        let rest = name.strip_prefix(key.name());
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(|end| !end.contains('.')))
    };
    // The names are sorted, so a name without an extension comes first.
    let Some(name) = names.iter().find(is_it) else {
        bail!("plugin {key} not found: {} does not exist; {}", folder.join(key.name()).display(), installed(&root));
    };
    let program = folder.join(name);
    let mode = fs::metadata(&program)
        .with_context(|| format!("read the metadata of {}", program.display()))?
        .permissions()
        .mode();
    if mode & 0o111 == 0 {
        bail!("plugin {key} is not executable: run chmod +x {}", program.display());
    }
    Ok(Plugin { key: key.clone(), program })
}

/// Returns the directory of plugins.
fn root() -> Result<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(root) = variable(ROOT) {
        return root.canonicalize().with_context(|| format!("find {}, the directory in {ROOT}", root.display()));
    }
    let below = Path::new("kubebuilder/plugins");
    if let Some(settings) = variable("XDG_CONFIG_HOME") {
        return Ok(settings.join(below));
    }
    let home = env::home_dir().with_context(|| format!("there is no home directory: set {ROOT}"))?;
    let settings = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
    Ok(home.join(settings).join(below))
}

/// Lists the installed plugins, for an error message.
fn installed(root: &Path) -> String {
    let folders = |path: &Path| entry_names(path).unwrap_or_default();
    let versions = |name: String| {
        let found = folders(&root.join(&name));
        found.into_iter().map(move |version| format!("{name}/{version}"))
    };
    let keys: Vec<_> =
        folders(root).into_iter().flat_map(versions).filter(|key| key.parse::<PluginKey>().is_ok()).collect();
    let place = if env::var_os(ROOT).is_some_and(|root| root != OsStr::new("")) {
        String::new()
    } else {
        format!(", or set {ROOT}")
    };
    if keys.is_empty() { format!("install it{place}") } else { format!("use one of {}{place}", keys.join(", ")) }
}
