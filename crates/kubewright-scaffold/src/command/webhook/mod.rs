//! `kubewright create webhook`: adds admission webhooks of a kind, or its conversion.

mod conversion;
mod files;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::external_api::{ExternalApi, ExternalType, without_domain};
use crate::{
    name::{Kind, Version},
    plan::Plan,
    project::{self, Key, Project, ProjectError, Resource, Webhooks},
    template::TemplateError,
};

/// The template of the test main file.
const TESTS: &str = include_str!("../../../templates/api/tests_main.rs.in");

/// A failure to add a webhook. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// No webhook was requested.
    #[error("nothing to do: set --defaulting, --programmatic-validation or --conversion")]
    Nothing,
    /// The kind is not in the project.
    #[error(
        "the project has no {kind} in version {version}: run kubewright create api first, \
         or use --external-api-path for a type of another crate"
    )]
    NoKind {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
    },
    /// The group of a built-in kind was given with its domain. Contains the name for `--group`.
    #[error("the groups of built-in kinds are named without k8s.io: use --group {0}")]
    WithDomain(&'static str),
    /// The webhooks already exist.
    #[error("{kind} in version {version} already has {what}: edit it, or use --force to overwrite the file")]
    Exists {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// The existing webhooks.
        what: String,
    },
    /// Conversion was requested for a kind that the project does not define.
    #[error("{0} is not defined in this project, so its versions are converted elsewhere: omit --conversion")]
    NotOurs(String),
    /// Only one of `--conversion` and `--spoke` was given.
    #[error(
        "--conversion and --spoke belong together: --version is the hub and storage version, --spoke the other versions"
    )]
    Spokes,
    /// Another version is the hub.
    #[error("{hub} is already the hub of {kind}: use --version {hub}, and --spoke for new versions")]
    OtherHub {
        /// The kind.
        kind: String,
        /// The hub.
        hub: String,
    },
    /// The hub was given as a spoke.
    #[error("{0} is the hub: use --spoke for the other versions")]
    Itself(String),
    /// A placeholder in a template has no value.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// `PROJECT` cannot be written.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// The options of `create webhook`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateWebhook {
    /// The group of the kind, without the domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version; for a conversion, the hub.
    pub version: Version,
    /// The kind.
    pub kind: Kind,
    /// Whether to add a defaulting webhook.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub defaulting: bool,
    /// Whether to add a validating webhook.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub validation: bool,
    /// Whether to add a conversion.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub conversion: bool,
    /// The versions that are converted to and from the hub.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spokes: Vec<Version>,
    /// Whether existing files are overwritten.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub force: bool,
    /// The location of the type, if it is in another crate and not in `PROJECT` yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalApi>,
}

impl CreateWebhook {
    /// Creates options without webhooks.
    pub fn new(group: &str, version: Version, kind: Kind) -> Self {
        let (group, spokes) = (group.to_owned(), Vec::new());
        let (defaulting, validation, conversion, force, external) = (false, false, false, false, None);
        Self { group, version, kind, defaulting, validation, conversion, spokes, force, external }
    }

    /// Checks the options, and plans the changes of files, including `PROJECT`.
    ///
    /// # Errors
    /// Returns an error if the options are invalid.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), WebhookError> {
        let mut project = project.clone();
        let resource = self.note(&mut project)?.clone();
        plan.force(self.force);
        files::plan(self, &project, &resource, plan)?;
        plan.replace(project::FILE, project.write()?);
        Ok(())
    }

    /// Checks the options, and adds the webhooks to the project.
    ///
    /// # Errors
    /// Returns an error if the options are invalid; the project is unchanged.
    pub fn note<'a>(&self, project: &'a mut Project) -> Result<&'a Resource, WebhookError> {
        if !self.defaulting && !self.validation && !self.conversion {
            return Err(WebhookError::Nothing);
        }
        if self.conversion == self.spokes.is_empty() {
            return Err(WebhookError::Spokes);
        }
        if self.spokes.contains(&self.version) {
            return Err(WebhookError::Itself(self.version.to_string()));
        }
        for spoke in &self.spokes {
            self.resource_index(project, spoke)?;
        }
        if let Some(hub) = self.other_hub(project) {
            return Err(WebhookError::OtherHub { kind: self.kind.to_string(), hub });
        }
        let index = match self.resource_index(project, &self.version) {
            Ok(index) => index,
            Err(missing) => self.add(project).ok_or(missing)?,
        };
        let resource = &mut project.resources[index];
        if self.conversion && resource.api.is_none() {
            return Err(WebhookError::NotOurs(self.kind.to_string()));
        }
        let there = resource.webhooks.clone().unwrap_or_default();
        let what = self.twice(&there);
        if !self.force && !what.is_empty() {
            let (kind, version) = (self.kind.to_string(), self.version.to_string());
            return Err(WebhookError::Exists { kind, version, what: what.join(" and ") });
        }
        let mut more = Webhooks::default();
        (more.defaulting, more.validation, more.conversion) = (self.defaulting, self.validation, self.conversion);
        more.spoke = self.spokes.iter().map(ToString::to_string).collect();
        resource.webhooks.get_or_insert_default().join(more);
        Ok(resource)
    }

    /// Returns another version of the kind that is already a hub.
    fn other_hub(&self, project: &Project) -> Option<String> {
        let is_it = |resource: &&Resource| {
            let Key { group, version, kind, .. } = resource.key();
            let is_hub = resource.webhooks.as_ref().is_some_and(|webhooks| webhooks.conversion);
            is_hub && (group, kind) == (self.group.as_str(), self.kind.as_str()) && version != self.version.as_str()
        };
        self.conversion.then(|| project.resources.iter().find(is_it)).flatten().map(|hub| hub.version.clone())
    }

    /// Returns the index of the resource of the kind in a version. Its domain may differ from that of the project.
    fn resource_index(&self, project: &Project, version: &Version) -> Result<usize, WebhookError> {
        let is_it = |resource: &Resource| {
            let Key { group, version: of, kind, .. } = resource.key();
            (group, of, kind) == (self.group.as_str(), version.as_str(), self.kind.as_str())
        };
        let missing = || {
            let unknown = || WebhookError::NoKind { kind: self.kind.to_string(), version: version.to_string() };
            without_domain(&self.group).map_or_else(unknown, WebhookError::WithDomain)
        };
        project.resources.iter().position(is_it).ok_or_else(missing)
    }

    /// Adds a kind that the project does not define. For such a kind, later checks reject only conversion.
    fn add(&self, project: &mut Project) -> Option<usize> {
        if self.conversion {
            return None;
        }
        let external = ExternalType::find(project, &self.group, &self.version, &self.kind, self.external.as_ref())?;
        let (domain, version, kind) = (external.domain.clone(), self.version.as_str(), self.kind.as_str());
        let resource = project.resource_mut(&Key { group: &self.group, domain: &domain, version, kind });
        resource.plural = self.kind.plural().to_string();
        external.note(resource);
        self.resource_index(project, &self.version).ok()
    }

    /// Returns the requested webhooks that already exist. Adding another spoke is not a duplicate conversion.
    fn twice(&self, there: &Webhooks) -> Vec<&'static str> {
        let is_known = |spoke: &Version| there.spoke.iter().any(|known| known == spoke.as_str());
        let wanted = [
            (self.defaulting && there.defaulting, "a defaulting webhook"),
            (self.validation && there.validation, "a validating webhook"),
            (self.conversion && self.spokes.iter().any(is_known), "a conversion for one of these versions"),
        ];
        wanted.into_iter().filter_map(|(is_twice, what)| is_twice.then_some(what)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CreateApi;

    fn project() -> Project {
        let mut project = Project::new("my-operator".parse().unwrap(), Some("my.domain".parse().unwrap()));
        for version in ["v1", "v2"] {
            let group = Some("batch".parse().unwrap());
            let mut api = CreateApi::new(group, version.parse().unwrap(), "CronJob".parse().unwrap());
            api.controller = version == "v1";
            api.note(&mut project).unwrap();
        }
        project
    }

    fn webhook(version: &str) -> CreateWebhook {
        CreateWebhook::new("batch", version.parse().unwrap(), "CronJob".parse().unwrap())
    }

    fn refused(webhook: &CreateWebhook, project: &mut Project) -> String {
        let before = project.clone();
        let error = webhook.note(project).unwrap_err().to_string();
        assert_eq!(*project, before);
        error
    }

    #[test]
    fn webhooks_are_added_separately() {
        let mut project = project();
        let mut first = webhook("v1");
        first.defaulting = true;
        first.note(&mut project).unwrap();
        first.validation = true;
        assert!(refused(&first, &mut project).contains("v1 already has a defaulting webhook"));
        first.defaulting = false;
        let webhooks = first.note(&mut project).unwrap().webhooks.clone().unwrap();
        assert!(webhooks.defaulting && webhooks.validation && webhooks.webhook_version == "v1");
        first.force = true;
        first.note(&mut project).unwrap();
    }

    #[test]
    fn conversion_has_a_hub_and_spokes() {
        let mut project = project();
        let mut hub = webhook("v2");
        hub.conversion = true;
        assert!(refused(&hub, &mut project).contains("belong together"));
        hub.spokes = vec!["v2".parse().unwrap()];
        assert!(refused(&hub, &mut project).contains("is the hub"));
        hub.spokes = vec!["v3".parse().unwrap()];
        assert!(refused(&hub, &mut project).contains("no CronJob in version v3"));
        hub.spokes = vec!["v1".parse().unwrap()];
        assert_eq!(hub.note(&mut project).unwrap().webhooks.as_ref().unwrap().spoke, ["v1"]);
        assert!(refused(&hub, &mut project).contains("a conversion for one of these versions"));
        (hub.version, hub.spokes) = ("v1".parse().unwrap(), vec!["v2".parse().unwrap()]);
        assert!(refused(&hub, &mut project).contains("v2 is already the hub of CronJob: use --version v2"));
    }

    #[test]
    fn invalid_options_are_errors() {
        let mut project = project();
        assert!(refused(&webhook("v1"), &mut project).contains("--defaulting"));
        let mut unknown = webhook("v9");
        unknown.validation = true;
        assert!(refused(&unknown, &mut project).contains("kubewright create api first"));
    }

    #[test]
    fn foreign_kinds_may_have_webhooks() {
        let mut project = project();
        let mut pods = CreateWebhook::new("core", "v1".parse().unwrap(), "Pod".parse().unwrap());
        pods.validation = true;
        let resource = pods.note(&mut project).unwrap();
        assert!(
            resource.core && resource.path == "k8s_openapi::api::core::v1" && resource.qualified_group().is_empty()
        );
        let mut other = CreateWebhook::new("cert-manager", "v1".parse().unwrap(), "Certificate".parse().unwrap());
        other.defaulting = true;
        assert!(refused(&other, &mut project).contains("--external-api-path"));
        let (path, domain, module) = ("cert_manager::v1".into(), "io".into(), "cert-manager@1".into());
        other.external = Some(ExternalApi { path, domain, module });
        assert!(other.note(&mut project).unwrap().external);
        let mut ingresses = CreateWebhook::new("networking.k8s.io", "v1".parse().unwrap(), "Ingress".parse().unwrap());
        ingresses.validation = true;
        assert!(refused(&ingresses, &mut project).ends_with(": use --group networking"));
        ingresses.group = "networking".into();
        assert_eq!(ingresses.note(&mut project).unwrap().qualified_group(), "networking.k8s.io");
    }
}
