//! The files under an operator's `config`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use k8s_openapi::{
    api::rbac::v1::ClusterRole, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kubewright_cluster::faults::Faults;

/// What the requests so far would need to be allowed: `group resource verb`, with `-` for the core group.
pub fn needed(faults: &Faults) -> BTreeSet<String> {
    let seen = faults.seen().into_iter().map(|seen| seen.request);
    seen.map(|it| {
        let group = if it.group.is_empty() { "-" } else { &it.group };
        format!("{group} {} {}", it.resource, format!("{:?}", it.verb).to_lowercase())
    })
    .collect()
}

/// What a role allows, in the same form.
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

/// The folder `config` of an operator; [`config!`](crate::config) gives that of the crate under test.
pub struct Config(PathBuf);

/// The folder `config` of the crate that says so.
#[macro_export]
macro_rules! config {
    () => {
        $crate::Config::of(env!("CARGO_MANIFEST_DIR"))
    };
}

impl Config {
    /// That of a crate, by the crate's folder.
    pub fn of(krate: &str) -> Self {
        Self(PathBuf::from(krate).join("config"))
    }

    /// The text of a file.
    pub fn read(&self, file: &str) -> String {
        let path = self.0.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// What the operator's role allows, as [`needed`] says what it needs.
    pub fn allowed(&self) -> BTreeSet<String> {
        allowed(&self.read("rbac/role.yaml"))
    }

    /// That the committed CRDs are those of the types.
    pub fn check_crds(&self, crds: Vec<CustomResourceDefinition>) {
        for crd in crds {
            let file = format!("crd/bases/{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            self.check(&file, &serde_saphyr::to_string(&crd).unwrap());
        }
    }

    /// That a committed file is as it is generated. `cargo xtask generate` sets `KUBEWRIGHT_GENERATE`, and it is written anew.
    pub fn check(&self, file: &str, generated: &str) {
        if std::env::var_os("KUBEWRIGHT_GENERATE").is_some() {
            fs::write(self.0.join(file), generated).unwrap();
        }
        assert!(self.read(file) == generated, "{file} differs from what it is made of: run cargo xtask generate");
    }
}
