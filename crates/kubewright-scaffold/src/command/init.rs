//! `kubewright init`: creates a project without APIs.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    name::{Domain, ProjectName},
    plan::Plan,
    project::{self, Project, ProjectError},
    template::TemplateError,
};

use super::{
    edit::{Edit, EditError},
    header::{License, file_header},
    templates::TemplatePlan,
};

macro_rules! templates {
    ($($path:literal from $template:literal,)*) => {
        [$(($path, include_str!(concat!("../../templates/init/", $template, ".in")))),*]
    };
}

/// The files of a new project, by path. Templates end in `.in`, since cargo would treat a directory with a `Cargo.toml`
/// as a separate package.
const FILES: &[(&str, &str)] = &templates![
    ".devcontainer/devcontainer.json" from "devcontainer/devcontainer.json",
    ".dockerignore" from "dockerignore",
    ".github/workflows/lint.yml" from "github/lint.yml",
    ".github/workflows/test-e2e.yml" from "github/test-e2e.yml",
    ".github/workflows/test.yml" from "github/test.yml",
    "Cargo.toml" from "Cargo.toml",
    "Dockerfile" from "Dockerfile",
    "config/certmanager/certificate-metrics.yaml" from "config/certmanager/certificate-metrics.yaml",
    "config/certmanager/issuer.yaml" from "config/certmanager/issuer.yaml",
    "config/certmanager/kustomization.yaml" from "config/certmanager/kustomization.yaml",
    "config/certmanager/kustomizeconfig.yaml" from "config/certmanager/kustomizeconfig.yaml",
    "config/default/cert_metrics_manager_patch.yaml" from "config/default/cert_metrics_manager_patch.yaml",
    "config/default/certmanager_replacements.yaml" from "config/default/certmanager_replacements.yaml",
    "config/default/kustomization.yaml" from "config/default/kustomization.yaml",
    "config/default/manager_metrics_patch.yaml" from "config/default/manager_metrics_patch.yaml",
    "config/default/metrics_service.yaml" from "config/default/metrics_service.yaml",
    "config/manager/kustomization.yaml" from "config/manager/kustomization.yaml",
    "config/manager/manager.yaml" from "config/manager/manager.yaml",
    "config/network-policy/allow-metrics-traffic.yaml" from "config/network-policy/allow-metrics-traffic.yaml",
    "config/network-policy/kustomization.yaml" from "config/network-policy/kustomization.yaml",
    "config/prometheus/kustomization.yaml" from "config/prometheus/kustomization.yaml",
    "config/prometheus/monitor.yaml" from "config/prometheus/monitor.yaml",
    "config/prometheus/monitor_tls_patch.yaml" from "config/prometheus/monitor_tls_patch.yaml",
    "config/rbac/kustomization.yaml" from "config/rbac/kustomization.yaml",
    "config/rbac/leader_election_role.yaml" from "config/rbac/leader_election_role.yaml",
    "config/rbac/leader_election_role_binding.yaml" from "config/rbac/leader_election_role_binding.yaml",
    "config/rbac/metrics_auth_role.yaml" from "config/rbac/metrics_auth_role.yaml",
    "config/rbac/metrics_auth_role_binding.yaml" from "config/rbac/metrics_auth_role_binding.yaml",
    "config/rbac/metrics_reader_role.yaml" from "config/rbac/metrics_reader_role.yaml",
    "config/rbac/role.yaml" from "config/rbac/role.yaml",
    "config/rbac/role_binding.yaml" from "config/rbac/role_binding.yaml",
    "config/rbac/service_account.yaml" from "config/rbac/service_account.yaml",
    "src/lib.rs" from "src/lib.rs",
    "src/main.rs" from "src/main.rs",
];

/// Files that often exist already. Existing ones are left unchanged.
const OPTIONAL_FILES: &[(&str, &str)] = &templates![
    ".cargo/config.toml" from "cargo_config.toml",
    ".gitattributes" from "gitattributes",
    ".gitignore" from "gitignore",
    "AGENTS.md" from "AGENTS.md",
    "README.md" from "README.md",
];

/// The cargo configuration. It has the profile of release builds, because cargo ignores that of a package in a
/// workspace.
const CARGO: &str = ".cargo/config.toml";

/// What uses a checkout of Kubewright instead of the published crates, in the cargo configuration.
const SDK: [&str; 9] = [
    "# Uses a checkout of Kubewright instead of the published crates.\n",
    "[patch.crates-io]\n",
    "kubewright = { path = \"SDK/crates/kubewright\" }\n",
    "kubewright-cluster = { path = \"SDK/crates/kubewright-cluster\" }\n",
    "\n# Shortens the first build: dependencies are rarely debugged or changed.\n",
    "[profile.dev.package.\"*\"]\n",
    "debug = false\n",
    "incremental = false\n",
    "\n",
];

/// A failure to create a project.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InitError {
    /// A placeholder in a template has no value.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// `PROJECT` cannot be written.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The settings are invalid, as in [`Edit`].
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// The options of a new project.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Init {
    /// The project name.
    pub name: ProjectName,
    /// The domain of the API groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// The repository of the sources, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// Whether the sources of each API group are in a directory of their own.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub multigroup: bool,
    /// Whether the operator watches only its own namespace.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub namespaced: bool,
    /// The licence in the header of new files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<License>,
    /// The copyright holder in the header of new files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The plugins of the project. Without [`LAYOUT`](project::LAYOUT), only `PROJECT` is planned, and the rest is left
    /// to other plugins.
    pub layout: Vec<String>,
    /// A checkout of Kubewright to use instead of the published crates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk: Option<String>,
}

impl Init {
    /// Creates default options for a name.
    pub fn new(name: ProjectName) -> Self {
        let (domain, repo, license, owner, sdk) = Default::default();
        let layout = vec![project::LAYOUT.into()];
        Self { name, domain, repo, multigroup: false, namespaced: false, license, owner, layout, sdk }
    }

    /// Plans the files of the project.
    ///
    /// # Errors
    /// Returns an error if a template is invalid.
    pub fn plan(&self, plan: &mut Plan<'_>) -> Result<(), InitError> {
        let mut project = Project::new(self.name.clone(), self.domain.clone());
        project.repo.clone_from(&self.repo);
        project.multigroup = self.multigroup;
        project.layout.clone_from(&self.layout);
        if !self.layout.iter().any(|layout| layout == project::LAYOUT) {
            project.namespaced = self.namespaced;
            plan.create(project::FILE, project.write()?);
            return Ok(());
        }
        for (name, value) in [("license", self.license.as_ref().map(License::as_str)), ("owner", self.owner.as_deref())]
        {
            if let Some(value) = value {
                project.set(name, value);
            }
        }
        let values = vec![
            ("project", self.name.to_string()),
            ("library", self.name.library()),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("package", self.package()),
        ];
        let mut templates = TemplatePlan::new(plan, file_header(&project), values);
        for (path, template) in FILES {
            templates.create(path, template)?;
        }
        for (path, template) in OPTIONAL_FILES {
            match &self.sdk {
                Some(sdk) if *path == CARGO => {
                    let lines = SDK.map(|line| line.replace("SDK", sdk)).concat();
                    templates.create(path, &format!("{lines}{template}"))?;
                }
                _ => {
                    templates.create_if_missing(path, template)?;
                }
            }
        }
        plan.create(project::FILE, project.write()?);
        if self.namespaced {
            let edit = Edit { namespaced: Some(true), ..Edit::default() };
            edit.plan(&project, plan)?;
        }
        Ok(())
    }

    /// Returns the optional lines of the `[package]` section.
    fn package(&self) -> String {
        let mut lines = String::new();
        if let Some(spdx) = self.license.as_ref().and_then(License::spdx) {
            lines.push_str(&format!("\nlicense = \"{spdx}\""));
        }
        if !self.repo.is_empty() {
            // For Go projects this is a module path, which has no scheme.
            let scheme = if self.repo.contains("://") { "" } else { "https://" };
            lines.push_str(&format!("\nrepository = \"{scheme}{}\"", self.repo));
        }
        lines
    }
}

/// Returns the first entry of a directory that must not exist when a project is created. As in kubebuilder, hidden
/// files, Markdown files and names in capitals such as `LICENSE` are accepted. So are files of the scaffold, which an
/// interrupted command may have left behind, and which the plan compares.
pub fn unexpected<'a>(entries: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_ours = |name: &str| {
        let of = |path: &str| path.split('/').next() == Some(name);
        FILES.iter().any(|(path, _)| of(path))
    };
    let is_fine = |name: &str| {
        name.starts_with('.')
            || name.ends_with(".md")
            || name != project::FILE && name.bytes().all(|byte| byte.is_ascii_uppercase())
            || is_ours(name)
    };
    entries.into_iter().find(|name| !is_fine(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::{marker, template::render};

    fn files() -> BTreeMap<String, String> {
        let folder = BTreeMap::new();
        let mut plan = Plan::new(&folder);
        let mut init = Init::new("my-operator".parse().unwrap());
        init.domain = Some("my.domain".parse().unwrap());
        init.plan(&mut plan).unwrap();
        plan.finish().unwrap().into_iter().map(|change| (change.path, change.after.unwrap_or_default())).collect()
    }

    #[test]
    fn all_templates_are_filled_in() {
        let files = files();
        assert_eq!(files.len(), FILES.len() + OPTIONAL_FILES.len() + 1);
        for (path, text) in &files {
            assert!(render(text, &[]).is_ok(), "{path} has a name without a value");
            assert!(text.ends_with('\n') && !text.contains(" \n"), "{path}:\n{text}");
        }
        assert!(files["src/main.rs"].contains("my_operator::register"));
        assert_eq!(Project::read(&files["PROJECT"]).unwrap().domain, "my.domain");
    }

    #[test]
    fn kustomizations_name_existing_files() {
        let files = files();
        for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".yaml")) {
            let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
            for resource in documents.iter().filter_map(|document| document["resources"].as_array()).flatten() {
                let folder = path.rsplit_once('/').unwrap().0;
                let resource = resource.as_str().unwrap();
                let target = match resource.strip_prefix("../") {
                    Some(sibling) => format!("config/{sibling}/kustomization.yaml"),
                    None => format!("{folder}/{resource}"),
                };
                assert!(files.contains_key(&target), "{path} names {resource}");
            }
        }
    }

    #[test]
    fn all_markers_exist() {
        let files = files();
        for (path, name) in [
            ("Cargo.toml", "dependencies"),
            ("src/lib.rs", "modules"),
            ("src/lib.rs", "builder"),
            ("config/certmanager/kustomization.yaml", "certmanagerresources"),
            ("config/default/certmanager_replacements.yaml", "certmanagerreplacements"),
            ("config/default/kustomization.yaml", "certmanagerpatches"),
            ("config/default/kustomization.yaml", "defaultresources"),
            ("config/default/kustomization.yaml", "defaultpatches"),
            ("config/manager/manager.yaml", "managerenv"),
            ("config/network-policy/kustomization.yaml", "networkpolicyresources"),
            ("config/rbac/kustomization.yaml", "rbacresources"),
        ] {
            marker::insert(&files[path], path, name, "x", marker::InsertPosition::Last).unwrap().unwrap();
        }
    }

    #[test]
    fn unexpected_entries_are_found() {
        let check = |entries: &[&'static str]| unexpected(entries.iter().copied());
        assert_eq!(check(&[".git", "README.md", "LICENSE", "Cargo.toml", "src"]), None);
        assert_eq!(check(&["main.go", "go.mod"]), Some("main.go"));
        assert_eq!(check(&["PROJECT"]), Some("PROJECT"));
    }

    #[test]
    fn the_namespaced_setting_is_reversible() {
        let before = files();
        let change = |folder: &BTreeMap<String, String>, namespaced| {
            let mut plan = Plan::new(folder);
            let edit = Edit { namespaced: Some(namespaced), ..Edit::default() };
            edit.plan(&Project::read(&folder["PROJECT"]).unwrap(), &mut plan).unwrap();
            let changes =
                plan.finish().unwrap().into_iter().map(|change| (change.path, change.after.unwrap_or_default()));
            folder.clone().into_iter().chain(changes).collect::<BTreeMap<_, _>>()
        };
        let one = change(&before, true);
        assert!(one["config/rbac/role.yaml"].contains("kind: Role\n"));
        assert!(one["config/manager/manager.yaml"].contains("        - name: WATCH_NAMESPACE\n          valueFrom:"));
        assert_eq!(change(&one, true), one);
        assert_eq!(change(&one, false), before);
        let folder = BTreeMap::new();
        let mut plan = Plan::new(&folder);
        let mut init = Init::new("my-operator".parse().unwrap());
        (init.domain, init.namespaced) = (Some("my.domain".parse().unwrap()), true);
        init.plan(&mut plan).unwrap();
        let made = plan.finish().unwrap().into_iter().map(|change| (change.path, change.after.unwrap_or_default()));
        assert_eq!(made.collect::<BTreeMap<_, _>>(), one);
    }
}
