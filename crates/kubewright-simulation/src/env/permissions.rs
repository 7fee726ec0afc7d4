//! The files under an operator's `config`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kubewright_cluster::faults::Faults;

/// Returns the permissions that the requests so far required, as `group resource verb`, with `-` for the core group.
pub fn needed(faults: &Faults) -> BTreeSet<String> {
    let seen = faults.requests().into_iter().map(|seen| seen.request);
    seen.map(|it| {
        let group = if it.group.is_empty() { "-" } else { &it.group };
        format!("{group} {} {}", it.resource, format!("{:?}", it.verb).to_lowercase())
    })
    .collect()
}

/// Returns the permissions that a role grants, in the same form.
fn allowed(role: &str) -> BTreeSet<String> {
    let role: ClusterRole = serde_saphyr::from_str(role).unwrap();
    let mut allowed = BTreeSet::new();
    for rule in role.rules.unwrap_or_default() {
        for group in rule.api_groups.iter().flatten() {
            let group = if group.is_empty() { "-" } else { group };
            for resource in rule.resources.iter().flatten() {
                allowed.extend(rule.verbs.iter().map(|verb| format!("{group} {resource} {verb}")));
            }
        }
    }
    allowed
}

/// The `config` directory of an operator; [`config!`](crate::config) returns that of the crate under test.
pub struct Config(PathBuf);

/// Returns the `config` directory of the invoking crate.
#[macro_export]
macro_rules! config {
    () => {
        $crate::Config::of(env!("CARGO_MANIFEST_DIR"))
    };
}

impl Config {
    /// Returns the `config` directory below a crate's directory.
    pub fn of(krate: &str) -> Self {
        Self(PathBuf::from(krate).join("config"))
    }

    /// Reads a file.
    pub fn read(&self, file: &str) -> String {
        let path = self.0.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns the permissions that the operator's role grants, in the form of [`needed`].
    pub fn allowed(&self) -> BTreeSet<String> {
        allowed(&self.read("rbac/role.yaml"))
    }
}
