//! Kinds that the project doesn't define: Kubernetes' own, and those of other crates.

use serde::{Deserialize, Serialize};

use crate::{
    name::{Kind, Version},
    project::{Project, Resource},
};

/// Kubernetes' own groups, as `--group` says them, with what their names end with. Their modules in k8s-openapi are called by the
/// first part of their names.
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

/// A kind of another crate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Where its type is, as Rust says it: `gateway_api::gateways`.
    pub path: String,
    /// What its group ends with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// The crate, with a version after `@` if that is to be said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
}

/// Where the type of a kind is that the project doesn't define.
#[derive(Debug)]
pub(super) struct Foreign {
    /// What its group ends with.
    pub(super) domain: String,
    path: String,
    is_core: bool,
    module: String,
}

impl Foreign {
    /// A kind of another crate where one is named, else one of Kubernetes' own if the group is, and the project has none of that name
    /// in a group of its own that is called so.
    pub(super) fn find(
        project: &Project,
        group: &str,
        version: &Version,
        kind: &Kind,
        external: Option<&External>,
    ) -> Option<Self> {
        if let Some(External { path, domain, module }) = external {
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

    /// Notes it in the project.
    pub(super) fn note(self, resource: &mut Resource) {
        (resource.core, resource.external) = (self.is_core, !self.is_core);
        (resource.path, resource.module) = (self.path, self.module);
    }
}

/// The module of a group of Kubernetes' own.
fn core_path(group: &str, version: &Version) -> String {
    match group.split('.').next().unwrap_or_default() {
        "apiextensions" => format!("k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::{version}"),
        module => format!("k8s_openapi::api::{module}::{version}"),
    }
}
