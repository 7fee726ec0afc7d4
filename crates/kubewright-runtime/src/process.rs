//! The names of this process and its host.

use std::{env, fs, path::Path};

/// Returns the host name, which in a pod is the pod's name.
pub(crate) fn hostname() -> String {
    let kernel = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).or_else(kernel);
    name.map_or_else(|| "localhost".into(), |name| name.trim().into())
}

/// Returns the name of the running binary, the default name of its lease and webhooks.
pub(crate) fn program_name() -> String {
    let program = env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_stem).map(|name| name.to_string_lossy().replace('_', "-"));
    name.unwrap_or_else(|| "operator".into())
}
