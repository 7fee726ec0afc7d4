//! Kinds that the project does not define: built-in ones, and those of other crates.

use serde::{Deserialize, Serialize};

use crate::{
    name::{Kind, Version},
    project::{Project, Resource},
};

/// The built-in groups, as given to `--group`, and their domains. The modules of k8s-openapi are named after the first
/// part of the group.
const CORE: &[(&str, &str)] = &[
    ("admissionregistration", "k8s.io"),
    ("apiextensions", "k8s.io"),
    ("apps", ""),
    ("authentication", "k8s.io"),
    ("authorization", "k8s.io"),
    ("autoscaling", ""),
    ("batch", ""),
    ("certificates", "k8s.io"),
    ("coordination", "k8s.io"),
    ("core", ""),
    ("discovery", "k8s.io"),
    ("events", "k8s.io"),
    ("flowcontrol.apiserver", "k8s.io"),
    ("networking", "k8s.io"),
    ("node", "k8s.io"),
    ("policy", ""),
    ("rbac.authorization", "k8s.io"),
    ("resource", "k8s.io"),
    ("scheduling", "k8s.io"),
    ("storage", "k8s.io"),
];

/// A type in another crate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalApi {
    /// The Rust path of the module with the type: `gateway_api::gateways`.
    pub path: String,
    /// The domain of its group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// The crate, optionally with a version after `@`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
}

/// The location of a type that the project does not define.
#[derive(Debug)]
pub(super) struct ExternalType {
    /// The domain of its group.
    pub(super) domain: String,
    path: String,
    is_core: bool,
    module: String,
}

impl ExternalType {
    /// Returns the given external type, or else the built-in type of the group, unless the project defines the kind in
    /// a group of the same short name.
    pub(super) fn find(
        project: &Project,
        group: &str,
        version: &Version,
        kind: &Kind,
        external: Option<&ExternalApi>,
    ) -> Option<Self> {
        if let Some(ExternalApi { path, domain, module }) = external {
            let (domain, path, module) = (domain.clone(), path.clone(), module.clone());
            return Some(Self { domain, path, is_core: false, module });
        }
        let is_own = |own: &Resource| own.api.is_some() && own.group == group && own.kind == kind.as_str();
        if project.resources.iter().any(is_own) {
            return None;
        }
        let (group, domain) = CORE.iter().find(|(known, _)| *known == group)?;
        let (domain, path) = ((*domain).to_owned(), core_path(group, version));
        Some(Self { domain, path, is_core: true, module: String::new() })
    }

    /// Sets the location in a resource.
    pub(super) fn note(self, resource: &mut Resource) {
        (resource.core, resource.external) = (self.is_core, !self.is_core);
        (resource.path, resource.module) = (self.path, self.module);
    }
}

/// Returns the name for `--group` of a built-in group that is given with its domain, such as `networking` for
/// `networking.k8s.io`.
pub(super) fn without_domain(group: &str) -> Option<&'static str> {
    let is_it = |(known, domain): &&(&str, &str)| {
        !domain.is_empty() && group.strip_suffix(domain).and_then(|rest| rest.strip_suffix('.')) == Some(*known)
    };
    CORE.iter().find(is_it).map(|(known, _)| *known)
}

/// Returns the module of a built-in group.
fn core_path(group: &str, version: &Version) -> String {
    match group.split('.').next().unwrap_or_default() {
        "apiextensions" => format!("k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::{version}"),
        module => format!("k8s_openapi::api::{module}::{version}"),
    }
}
