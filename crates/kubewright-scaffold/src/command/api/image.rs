//! The plugin `deploy-image`: a kind whose controller runs an image in a Deployment.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ApiError;
use crate::project::{Project, Resource};

/// The key of the plugin in `PROJECT`.
pub(crate) const KEY: &str = "deploy-image.rust.kubewright.dev/v1-alpha";

/// The image that a controller runs, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeployImage {
    /// The image.
    pub image: String,
    /// The command of the container; empty for that of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The default port of the container, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The user ID of the container, if it is not that of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
}

impl DeployImage {
    /// Creates options for an image.
    pub fn new(image: &str) -> Self {
        Self { image: image.to_owned(), ..Self::default() }
    }

    /// Checks that the texts can be written in string literals.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let is_odd =
            |text: &str| text.contains(['"', '\\', '@']) && !is_digest(text) || text.chars().any(char::is_control);
        let texts = [&self.image].into_iter().chain(&self.command);
        match texts.into_iter().find(|text| is_odd(text)) {
            Some(odd) => Err(ApiError::Image(odd.clone())),
            None if self.image.is_empty() || self.image.contains(' ') => Err(ApiError::Image(self.image.clone())),
            None => Ok(()),
        }
    }

    /// Adds the options to the settings of the plugin in `PROJECT`, in kubebuilder's form.
    pub(super) fn note(&self, project: &mut Project, resource: &Resource) {
        let mut options = json!({"image": self.image});
        if !self.command.is_empty() {
            options["containerCommand"] = self.command.join(",").into();
        }
        if let Some(port) = self.port {
            options["containerPort"] = port.to_string().into();
        }
        if let Some(user) = self.run_as_user {
            options["runAsUser"] = user.to_string().into();
        }
        let mut entry = key(resource);
        entry["options"] = options;
        let settings = project.plugins.entry(KEY.into()).or_insert_with(|| json!({"resources": []}));
        let Some(resources) = settings["resources"].as_array_mut() else { return };
        resources.retain(|other| !is_same(other, resource));
        resources.push(entry);
    }

    /// Reads the options of a kind from `PROJECT`.
    pub(crate) fn of(project: &Project, resource: &Resource) -> Option<Self> {
        let resources = project.plugins.get(KEY)?.get("resources")?.as_array()?;
        let options = resources.iter().find(|entry| is_same(entry, resource))?.get("options")?;
        let text = |name: &str| options.get(name).and_then(Value::as_str);
        Some(Self {
            image: text("image")?.to_owned(),
            command: text("containerCommand").map(words).unwrap_or_default(),
            port: text("containerPort").and_then(|port| port.parse().ok()),
            run_as_user: text("runAsUser").and_then(|user| user.parse().ok()),
        })
    }

    /// Removes a kind from the settings of the plugin.
    pub(crate) fn forget(project: &mut Project, resource: &Resource) {
        let Some(resources) = project.plugins.get_mut(KEY).and_then(|settings| settings["resources"].as_array_mut())
        else {
            return;
        };
        resources.retain(|entry| !is_same(entry, resource));
        if resources.is_empty() {
            project.plugins.remove(KEY);
        }
    }
}

/// Returns the words of a command that are separated by commas.
fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

/// Returns whether a text is an image with a digest.
fn is_digest(text: &str) -> bool {
    text.matches('@').count() == 1 && text.contains("@sha256:") && !text.contains(['"', '\\'])
}

fn key(resource: &Resource) -> Value {
    let mut key = json!({"version": resource.version, "kind": resource.kind});
    for (name, value) in [("domain", &resource.domain), ("group", &resource.group)] {
        if !value.is_empty() {
            key[name] = value.as_str().into();
        }
    }
    key
}

fn is_same(entry: &Value, resource: &Resource) -> bool {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("domain"), text("group"), text("version"), text("kind"))
        == (&resource.domain, &resource.group, &resource.version, &resource.kind)
}
