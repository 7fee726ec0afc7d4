//! Where plugins are: where kubebuilder looks for them.

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
use crate::project::entries;

/// The variable that says where.
const ROOT: &str = "EXTERNAL_PLUGINS_PATH";

/// The plugin of this key: `NAME/VERSION/NAME` below the folder of plugins, with any ending.
pub(super) fn plugin(key: &PluginKey) -> Result<Plugin> {
    let root = root()?;
    let folder = root.join(key.name()).join(key.version());
    let names = if folder.is_dir() { entries(&folder)? } else { Vec::new() };
    let is_it = |name: &&String| {
        let rest = name.strip_prefix(key.name());
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(|end| !end.contains('.')))
    };
    // They are in order, so that the one without an ending comes first.
    let Some(name) = names.iter().find(is_it) else {
        bail!("there is no plugin {key}: its program would be {}. {}", folder.join(key.name()).display(), known(&root));
    };
    let program = folder.join(name);
    let mode = fs::metadata(&program).with_context(|| format!("look at {}", program.display()))?.permissions().mode();
    if mode & 0o111 == 0 {
        bail!("the plugin {key} can't be run: chmod +x {}", program.display());
    }
    Ok(Plugin { key: key.clone(), program })
}

/// The folder of plugins.
fn root() -> Result<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(root) = variable(ROOT) {
        return root.canonicalize().with_context(|| format!("find {} of {ROOT}", root.display()));
    }
    let below = Path::new("kubebuilder/plugins");
    if let Some(settings) = variable("XDG_CONFIG_HOME") {
        return Ok(settings.join(below));
    }
    let home = env::home_dir().with_context(|| format!("there is no home folder: set {ROOT}"))?;
    let settings = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
    Ok(home.join(settings).join(below))
}

/// What there is instead.
fn known(root: &Path) -> String {
    let folders = |path: &Path| entries(path).unwrap_or_default();
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
    if keys.is_empty() { format!("There are none yet{place}") } else { format!("There are {}{place}", keys.join(", ")) }
}
