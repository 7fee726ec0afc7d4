//! `kubewright create webhook`: what is done with objects of a kind before they are stored, and how its versions are converted.

mod conversion;
mod files;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::foreign::{External, Foreign};
use crate::{
    name::{Kind, Version},
    plan::Plan,
    project::{self, Key, Project, ProjectError, Resource, Webhooks},
    template::TemplateError,
};

/// What the tests of a project begin as.
const TESTS: &str = include_str!("../../../templates/api/tests_main.rs.in");

/// Why no webhook is scaffolded. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// None is wanted.
    #[error("there is nothing to do: give --defaulting, --programmatic-validation or --conversion")]
    Nothing,
    /// The kind isn't in the project.
    #[error(
        "the project has no {kind} in version {version}: make it with kubewright create api first, \
         or name the crate that has its type with --external-api-path"
    )]
    NoKind {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
    },
    /// They are there.
    #[error("{kind} in version {version} has {what} already: edit it, or use --force to make the file anew")]
    Exists {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// Which are there.
        what: String,
    },
    /// A kind of another is to be converted.
    #[error("{0} is not a kind of this project, so its versions are for others to convert: leave --conversion out")]
    NotOurs(String),
    /// Versions to convert without conversion, or the other way round.
    #[error("--conversion makes this version the one that is stored, and --spoke names each other one: give both")]
    Spokes,
    /// Another version is in the middle.
    #[error("{kind} is converted by way of {hub}: give --version {hub}, and the new versions by --spoke")]
    OtherHub {
        /// The kind.
        kind: String,
        /// The version that is in the middle.
        hub: String,
    },
    /// A version is converted to itself.
    #[error("{0} is the version that is stored: --spoke is for the others")]
    Itself(String),
    /// A template asks for what it isn't given.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// `PROJECT` can't be written.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// What is to be scaffolded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateWebhook {
    /// The group of the kind, without its domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version: for conversion, the one that is stored.
    pub version: Version,
    /// The kind.
    pub kind: Kind,
    /// Whether there is to be one that sets defaults.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub defaulting: bool,
    /// Whether there is to be one that refuses.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub validation: bool,
    /// Whether versions are converted.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub conversion: bool,
    /// The versions that are converted to and from the stored one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spokes: Vec<Version>,
    /// Whether what is there is made anew.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub force: bool,
    /// Where the type is, if another crate has it and the project doesn't know it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
}

impl CreateWebhook {
    /// No webhook of this kind yet.
    pub fn new(group: &str, version: Version, kind: Kind) -> Self {
        let (group, spokes) = (group.to_owned(), Vec::new());
        let (defaulting, validation, conversion, force, external) = (false, false, false, false, None);
        Self { group, version, kind, defaulting, validation, conversion, spokes, force, external }
    }

    /// Looks whether that may be, and plans all of its files, `PROJECT` being one.
    ///
    /// # Errors
    /// If it may not.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), WebhookError> {
        let mut project = project.clone();
        let resource = self.note(&mut project)?.clone();
        plan.force(self.force);
        files::plan(self, &project, &resource, plan)?;
        plan.replace(project::FILE, project.write()?);
        Ok(())
    }

    /// Looks whether that may be, and notes it in the project.
    ///
    /// # Errors
    /// If it may not; the project is as it was.
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
            self.place(project, spoke)?;
        }
        if let Some(hub) = self.other_hub(project) {
            return Err(WebhookError::OtherHub { kind: self.kind.to_string(), hub });
        }
        let place = match self.place(project, &self.version) {
            Ok(place) => place,
            Err(missing) => self.add(project).ok_or(missing)?,
        };
        let resource = &mut project.resources[place];
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

    /// Another version of the kind that others are converted to.
    fn other_hub(&self, project: &Project) -> Option<String> {
        let is_it = |resource: &&Resource| {
            let Key { group, version, kind, .. } = resource.key();
            let is_hub = resource.webhooks.as_ref().is_some_and(|webhooks| webhooks.conversion);
            is_hub && (group, kind) == (self.group.as_str(), self.kind.as_str()) && version != self.version.as_str()
        };
        self.conversion.then(|| project.resources.iter().find(is_it)).flatten().map(|hub| hub.version.clone())
    }

    /// Where among the project's resources the kind is, in a version. Its domain is its own: it may be another's kind.
    fn place(&self, project: &Project, version: &Version) -> Result<usize, WebhookError> {
        let is_it = |resource: &Resource| {
            let Key { group, version: of, kind, .. } = resource.key();
            (group, of, kind) == (self.group.as_str(), version.as_str(), self.kind.as_str())
        };
        let missing = || WebhookError::NoKind { kind: self.kind.to_string(), version: version.to_string() };
        project.resources.iter().position(is_it).ok_or_else(missing)
    }

    /// Adds a kind that the project doesn't define. Nothing after it refuses one without webhooks, but for conversion.
    fn add(&self, project: &mut Project) -> Option<usize> {
        if self.conversion {
            return None;
        }
        let foreign = Foreign::find(project, &self.group, &self.version, &self.kind, self.external.as_ref())?;
        let (domain, version, kind) = (foreign.domain.clone(), self.version.as_str(), self.kind.as_str());
        let resource = project.resource_mut(&Key { group: &self.group, domain: &domain, version, kind });
        resource.plural = self.kind.plural().to_string();
        foreign.note(resource);
        self.place(project, &self.version).ok()
    }

    /// Which of the wanted are there. Another spoke is no second conversion.
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
    fn webhooks_are_added_one_by_one() {
        let mut project = project();
        let mut first = webhook("v1");
        first.defaulting = true;
        first.note(&mut project).unwrap();
        first.validation = true;
        assert!(refused(&first, &mut project).contains("v1 has a defaulting webhook already"));
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
        assert!(refused(&hub, &mut project).contains("give both"));
        hub.spokes = vec!["v2".parse().unwrap()];
        assert!(refused(&hub, &mut project).contains("is the version that is stored"));
        hub.spokes = vec!["v3".parse().unwrap()];
        assert!(refused(&hub, &mut project).contains("no CronJob in version v3"));
        hub.spokes = vec!["v1".parse().unwrap()];
        assert_eq!(hub.note(&mut project).unwrap().webhooks.as_ref().unwrap().spoke, ["v1"]);
        assert!(refused(&hub, &mut project).contains("a conversion for one of these versions"));
        (hub.version, hub.spokes) = ("v1".parse().unwrap(), vec!["v2".parse().unwrap()]);
        assert!(refused(&hub, &mut project).contains("by way of v2: give --version v2"));
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let mut project = project();
        assert!(refused(&webhook("v1"), &mut project).contains("--defaulting"));
        let mut unknown = webhook("v9");
        unknown.validation = true;
        assert!(refused(&unknown, &mut project).contains("kubewright create api first"));
    }

    #[test]
    fn kinds_of_others_may_have_webhooks() {
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
        other.external = Some(External { path, domain, module });
        assert!(other.note(&mut project).unwrap().external);
    }
}
