//! Checks of a bundle: the rules of the published schemas, and those of catalogs.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use super::{ANNOTATION, CSV, CSV_VERSION, bundle::is_semantic, items, text};
use crate::yaml;

/// Optional checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suite {
    /// What OperatorHub.io requires.
    OperatorHub,
    /// Advice on versions, resources and descriptions.
    GoodPractices,
}

/// A mistake in a bundle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Finding {
    /// Whether it is only advice.
    pub is_warning: bool,
    /// The file in the bundle.
    pub file: String,
    /// The field; empty for the whole file.
    pub field: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() { String::new() } else { format!(" {}:", self.field) };
        write!(f, "{}:{field} {}", self.file, self.message)
    }
}

const METADATA: &str = "metadata/annotations.yaml";
/// The kinds that OLM installs from a bundle.
const KINDS: [&str; 21] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterServiceVersion",
    "ConfigMap",
    "ConsoleCLIDownload",
    "ConsoleLink",
    "ConsolePlugin",
    "ConsoleQuickStart",
    "ConsoleYAMLSample",
    "CustomResourceDefinition",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PriorityClass",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
];
const MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
const WEBHOOKS: [&str; 3] = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ConversionWebhook"];
const CAPABILITIES: [&str; 5] = ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
const ICONS: [&str; 5] = ["image/gif", "image/jpeg", "image/png", "image/svg+xml", ""];

/// The mistakes so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, file: &str, field: impl Into<String>, message: impl Into<String>) {
        self.add(false, file, field.into(), message.into());
    }

    fn warning(&mut self, file: &str, field: impl Into<String>, message: impl Into<String>) {
        self.add(true, file, field.into(), message.into());
    }

    fn add(&mut self, is_warning: bool, file: &str, field: String, message: String) {
        self.0.push(Finding { is_warning, file: file.into(), field, message });
    }
}

/// Checks the files of a bundle, by path in its directory, and returns the mistakes, errors first.
pub fn validate(files: &BTreeMap<String, String>, suites: &[Suite]) -> Vec<Finding> {
    let mut found = Findings::default();
    metadata(files, &mut found);
    let mut objects = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
        match yaml::read(content) {
            Ok(documents) => objects
                .extend(documents.into_iter().filter(|object| !object.is_null()).map(|object| (path.as_str(), object))),
            Err(error) => found.error(path, "", error.to_string()),
        }
    }
    for (path, object) in &objects {
        for field in ["apiVersion", "kind", "metadata.name"] {
            if text(object, &format!("/{}", field.replace('.', "/"))).is_empty() {
                found.error(path, field, "is missing");
            }
        }
        let kind = text(object, "/kind");
        if !kind.is_empty() && !KINDS.contains(&kind) {
            found.error(path, "kind", format!("{kind} is not a kind that OLM installs from a bundle: remove the file, or let the operator create the object"));
        }
    }
    let versions: Vec<_> = objects.iter().filter(|(_, object)| object["kind"] == CSV).collect();
    match versions[..] {
        [(path, csv)] => service_version(path, csv, &objects, suites, &mut found),
        _ => found.error(
            "manifests",
            "",
            format!("has {} objects of the kind {CSV}, and needs exactly one", versions.len()),
        ),
    }
    found.0.sort();
    found.0
}

fn metadata(files: &BTreeMap<String, String>, found: &mut Findings) {
    let Some(content) = files.get(METADATA) else {
        return found.error(METADATA, "", "is missing: run kubewright generate bundle");
    };
    let documents = match yaml::read(content) {
        Ok(documents) => documents,
        Err(error) => return found.error(METADATA, "", error.to_string()),
    };
    let empty = Value::Null;
    let annotations = documents.first().map_or(&empty, |first| &first["annotations"]);
    let mut get = |name: &str| {
        let field = format!("annotations.{ANNOTATION}{name}");
        let value = annotations.get(format!("{ANNOTATION}{name}")).and_then(Value::as_str).unwrap_or_default();
        if value.is_empty() {
            found.error(METADATA, field, "is missing");
        }
        value
    };
    let (mediatype, manifests, folder) = (get("mediatype.v1"), get("manifests.v1"), get("metadata.v1"));
    let (_, channels) = (get("package.v1"), get("channels.v1"));
    let field = |name: &str| format!("annotations.{ANNOTATION}{name}");
    if !mediatype.is_empty() && mediatype != "registry+v1" {
        found.error(METADATA, field("mediatype.v1"), format!("is {mediatype:?}, and must be registry+v1"));
    }
    for (name, value, expected) in [("manifests.v1", manifests, "manifests/"), ("metadata.v1", folder, "metadata/")] {
        if !value.is_empty() && value != expected {
            found.error(METADATA, field(name), format!("is {value:?}, and must be {expected}"));
        }
    }
    let channels: Vec<_> = channels.split(',').collect();
    if channels.len() > 1 || !channels[0].is_empty() {
        let is_channel = |name: &&str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
                && !name.is_empty()
        };
        if let Some(odd) = channels.iter().find(|name| !is_channel(name)) {
            found.error(METADATA, field("channels.v1"), format!("{odd:?} is not the name of a channel"));
        }
    }
    match annotations.get(format!("{ANNOTATION}channel.default.v1")).and_then(Value::as_str) {
        Some(default) if !channels.contains(&default) => {
            found.warning(
                METADATA,
                field("channel.default.v1"),
                format!("{default:?} is not among the channels {}", channels.join(", ")),
            );
        }
        _ => {}
    }
}

type Objects<'a> = [(&'a str, Value)];

fn service_version(path: &str, csv: &Value, objects: &Objects<'_>, suites: &[Suite], found: &mut Findings) {
    if text(csv, "/apiVersion") != CSV_VERSION {
        found.error(path, "apiVersion", format!("is {:?}, and must be {CSV_VERSION}", text(csv, "/apiVersion")));
    }
    let version = text(csv, "/spec/version");
    if !is_semantic(version) {
        found.error(path, "spec.version", format!("{version:?} is not a semantic version such as 0.1.0"));
    }
    let name = text(csv, "/metadata/name");
    if !name.ends_with(&format!("v{version}")) {
        found.warning(path, "metadata.name", format!("{name:?} should end with .v{version}"));
    }
    if text(csv, "/spec/displayName").is_empty() {
        found.error(path, "spec.displayName", "is missing");
    }
    match text(csv, "/spec/minKubeVersion") {
        "" => found.warning(
            path,
            "spec.minKubeVersion",
            "is missing: set the oldest Kubernetes that the operator works with",
        ),
        oldest if !is_semantic(oldest) => {
            found.error(path, "spec.minKubeVersion", format!("{oldest:?} is not a semantic version such as 1.29.0"));
        }
        _ => {}
    }
    if let Some(replaces) = csv.pointer("/spec/replaces")
        && replaces.as_str().is_none_or(str::is_empty)
    {
        found.error(path, "spec.replaces", "must be the name of another ClusterServiceVersion");
    }
    modes(path, csv, found);
    install(path, csv, found);
    let owned = definitions(path, csv, objects, found);
    examples(path, csv, &owned, found);
    webhooks(path, csv, found);
    icons(path, csv, found);
    for suite in suites {
        match suite {
            Suite::OperatorHub => operator_hub(path, csv, found),
            Suite::GoodPractices => good_practices(path, csv, found),
        }
    }
}

fn modes(path: &str, csv: &Value, found: &mut Findings) {
    let modes = items(csv, "/spec/installModes");
    for (index, mode) in modes.iter().enumerate() {
        let field = format!("spec.installModes[{index}]");
        if !MODES.contains(&text(mode, "/type")) {
            found.error(
                path,
                format!("{field}.type"),
                format!("{:?} must be one of {}", text(mode, "/type"), MODES.join(", ")),
            );
        }
        if !mode["supported"].is_boolean() {
            found.error(path, format!("{field}.supported"), "must be true or false");
        }
    }
    if !modes.iter().any(|mode| mode["supported"] == true) {
        found.error(path, "spec.installModes", "supports no mode: set one of them to true");
    }
}

fn install(path: &str, csv: &Value, found: &mut Findings) {
    if text(csv, "/spec/install/strategy") != "deployment" {
        found.error(path, "spec.install.strategy", "must be deployment");
    }
    let deployments = items(csv, "/spec/install/spec/deployments");
    if deployments.is_empty() {
        found.error(path, "spec.install.spec.deployments", "is empty");
    }
    for (index, deployment) in deployments.iter().enumerate() {
        let field = format!("spec.install.spec.deployments[{index}]");
        if text(deployment, "/name").is_empty() {
            found.error(path, format!("{field}.name"), "is missing");
        }
        let containers = items(deployment, "/spec/template/spec/containers");
        if containers.is_empty() {
            found.error(path, format!("{field}.spec.template.spec.containers"), "is empty");
        }
        for (container, value) in containers.iter().enumerate().filter(|(_, value)| text(value, "/image").is_empty()) {
            let name = text(value, "/name");
            found.error(
                path,
                format!("{field}.spec.template.spec.containers[{container}].image"),
                format!("of {name:?} is missing"),
            );
        }
    }
    for list in ["permissions", "clusterPermissions"] {
        for (index, permission) in items(csv, &format!("/spec/install/spec/{list}")).iter().enumerate() {
            let field = format!("spec.install.spec.{list}[{index}]");
            if text(permission, "/serviceAccountName").is_empty() {
                found.error(path, format!("{field}.serviceAccountName"), "is missing");
            }
            for (rule, _) in
                items(permission, "/rules").iter().enumerate().filter(|(_, rule)| items(rule, "/verbs").is_empty())
            {
                found.error(path, format!("{field}.rules[{rule}].verbs"), "is empty");
            }
        }
    }
}

/// Checks the owned kinds against the definitions of the bundle, and returns them as API versions and kinds.
fn definitions(path: &str, csv: &Value, objects: &Objects<'_>, found: &mut Findings) -> Vec<(String, String)> {
    let mut kinds = Vec::new();
    let defined = |name: &str, version: &str| {
        let is_it = |object: &&(&str, Value)| {
            object.1["kind"] == "CustomResourceDefinition" && text(&object.1, "/metadata/name") == name
        };
        let definition = objects.iter().find(is_it)?;
        let is_served = items(&definition.1, "/spec/versions").iter().any(|other| text(other, "/name") == version);
        Some((definition, is_served))
    };
    let owned = items(csv, "/spec/customresourcedefinitions/owned");
    for (index, entry) in owned.iter().enumerate() {
        let field = format!("spec.customresourcedefinitions.owned[{index}]");
        for part in ["name", "kind", "version"].iter().filter(|part| text(entry, &format!("/{part}")).is_empty()) {
            found.error(path, format!("{field}.{part}"), "is missing");
        }
        let (name, version) = (text(entry, "/name"), text(entry, "/version"));
        match defined(name, version) {
            None => found.error(path, &field, format!("the bundle has no CustomResourceDefinition {name}")),
            Some((_, false)) => {
                found.error(path, format!("{field}.version"), format!("{name} has no version {version}"))
            }
            Some(((_, definition), true)) if text(definition, "/spec/names/kind") != text(entry, "/kind") => {
                found.error(
                    path,
                    format!("{field}.kind"),
                    format!("{name} is of the kind {}", text(definition, "/spec/names/kind")),
                );
            }
            Some(((_, definition), true)) => {
                kinds.push((format!("{}/{version}", text(definition, "/spec/group")), text(entry, "/kind").to_owned()));
            }
        }
        if owned[..index].iter().any(|other| text(other, "/name") == name && text(other, "/version") == version) {
            found.error(path, field, format!("{name} in version {version} occurs twice"));
        }
    }
    for (file, definition) in objects.iter().filter(|(_, object)| object["kind"] == "CustomResourceDefinition") {
        for version in items(definition, "/spec/versions") {
            let (name, version) = (text(definition, "/metadata/name"), text(version, "/name"));
            if !owned.iter().any(|entry| text(entry, "/name") == name && text(entry, "/version") == version) {
                found.error(
                    file,
                    "spec.versions",
                    format!("{name} in version {version} is not among spec.customresourcedefinitions.owned of {path}"),
                );
            }
        }
    }
    for (index, entry) in items(csv, "/spec/customresourcedefinitions/required").iter().enumerate() {
        for part in ["name", "kind", "version"].iter().filter(|part| text(entry, &format!("/{part}")).is_empty()) {
            found.error(path, format!("spec.customresourcedefinitions.required[{index}].{part}"), "is missing");
        }
    }
    kinds
}

fn examples(path: &str, csv: &Value, owned: &[(String, String)], found: &mut Findings) {
    let field = "metadata.annotations.alm-examples";
    let examples = match text(csv, "/metadata/annotations/alm-examples") {
        "" => Vec::new(),
        given => match serde_json::from_str::<Vec<Value>>(given) {
            Ok(examples) => examples,
            Err(error) => return found.error(path, field, format!("is not a JSON list of objects: {error}")),
        },
    };
    for (index, example) in examples.iter().enumerate() {
        let key = (text(example, "/apiVersion").to_owned(), text(example, "/kind").to_owned());
        if !owned.contains(&key) {
            found.error(path, format!("{field}[{index}]"), format!("{} {} is not an owned kind", key.0, key.1));
        }
    }
    for (api, kind) in owned {
        if !examples.iter().any(|example| text(example, "/apiVersion") == api && text(example, "/kind") == kind) {
            found.warning(path, field, format!("has no example of {api} {kind}: add one to config/samples"));
        }
    }
}

fn webhooks(path: &str, csv: &Value, found: &mut Findings) {
    let deployments = items(csv, "/spec/install/spec/deployments");
    let modes = items(csv, "/spec/installModes");
    for (index, webhook) in items(csv, "/spec/webhookdefinitions").iter().enumerate() {
        let at = |part: &str| format!("spec.webhookdefinitions[{index}].{part}");
        let kind = text(webhook, "/type");
        if !WEBHOOKS.contains(&kind) {
            found.error(path, at("type"), format!("{kind:?} must be one of {}", WEBHOOKS.join(", ")));
        }
        for part in
            ["generateName", "sideEffects"].into_iter().filter(|part| text(webhook, &format!("/{part}")).is_empty())
        {
            found.error(path, at(part), "is missing");
        }
        if items(webhook, "/admissionReviewVersions").is_empty() {
            found.error(path, at("admissionReviewVersions"), "is empty");
        }
        let deployment = text(webhook, "/deploymentName");
        if !deployments.iter().any(|other| text(other, "/name") == deployment) {
            found.error(path, at("deploymentName"), format!("{deployment:?} is not a Deployment of spec.install"));
        }
        if !text(webhook, "/webhookPath").is_empty() && !text(webhook, "/webhookPath").starts_with('/') {
            found.error(path, at("webhookPath"), "must begin with /");
        }
        if let Some(port) = webhook.get("containerPort")
            && !port.as_u64().is_some_and(|port| (1..=65535).contains(&port))
        {
            found.error(path, at("containerPort"), format!("{port} is not a port from 1 to 65535"));
        }
        if kind == "ConversionWebhook" {
            if items(webhook, "/conversionCRDs").is_empty() {
                found.error(path, at("conversionCRDs"), "is empty");
            }
            let is_global = modes.iter().any(|mode| mode["type"] == "AllNamespaces" && mode["supported"] == true);
            if !is_global || modes.iter().any(|mode| mode["type"] != "AllNamespaces" && mode["supported"] == true) {
                found.error(
                    path,
                    "spec.installModes",
                    "must support AllNamespaces only, since conversion webhooks concern all namespaces",
                );
            }
        }
    }
}

fn icons(path: &str, csv: &Value, found: &mut Findings) {
    for (index, icon) in items(csv, "/spec/icon").iter().enumerate() {
        let (data, kind) = (text(icon, "/base64data"), text(icon, "/mediatype"));
        if !ICONS.contains(&kind) {
            found.error(
                path,
                format!("spec.icon[{index}].mediatype"),
                format!("{kind:?} must be one of {}", ICONS[..4].join(", ")),
            );
        }
        if data.is_empty() != kind.is_empty() {
            found.error(path, format!("spec.icon[{index}]"), "has one of base64data and mediatype, and needs both");
        }
        if !data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=\n".contains(&byte)) {
            found.error(path, format!("spec.icon[{index}].base64data"), "is not base64");
        }
    }
}

/// What OperatorHub.io requires in addition.
fn operator_hub(path: &str, csv: &Value, found: &mut Findings) {
    for (field, hint) in
        [("description", "what users read in the catalog"), ("provider.name", "who provides the operator")]
    {
        if text(csv, &format!("/spec/{}", field.replace('.', "/"))).is_empty() {
            found.error(path, format!("spec.{field}"), format!("is missing: set {hint}"));
        }
    }
    if !items(csv, "/spec/icon").iter().any(|icon| !text(icon, "/base64data").is_empty()) {
        found.error(path, "spec.icon", "is missing: set base64data and mediatype of an image");
    }
    let maintainers = items(csv, "/spec/maintainers");
    if maintainers.is_empty() {
        found.error(path, "spec.maintainers", "is empty");
    }
    for (index, maintainer) in maintainers.iter().enumerate() {
        let email = text(maintainer, "/email");
        let is_email = email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
        if !is_email {
            found.error(path, format!("spec.maintainers[{index}].email"), format!("{email:?} is not an address"));
        }
        if text(maintainer, "/name").is_empty() {
            found.error(path, format!("spec.maintainers[{index}].name"), "is missing");
        }
    }
    for (index, link) in items(csv, "/spec/links").iter().enumerate() {
        let url = text(link, "/url");
        if !url.starts_with("https://") && !url.starts_with("http://") {
            found.error(path, format!("spec.links[{index}].url"), format!("{url:?} is not a URL"));
        }
    }
    let capabilities = text(csv, "/metadata/annotations/capabilities");
    if !CAPABILITIES.contains(&capabilities) {
        found.error(
            path,
            "metadata.annotations.capabilities",
            format!("{capabilities:?} must be one of {}", CAPABILITIES.join(", ")),
        );
    }
}

/// Advice.
fn good_practices(path: &str, csv: &Value, found: &mut Findings) {
    for (index, deployment) in items(csv, "/spec/install/spec/deployments").iter().enumerate() {
        for (container, value) in items(deployment, "/spec/template/spec/containers").iter().enumerate() {
            if value.pointer("/resources/requests").is_none() {
                let field = format!(
                    "spec.install.spec.deployments[{index}].spec.template.spec.containers[{container}].resources.requests"
                );
                found.warning(path, field, "is missing: set the CPU and memory that the operator needs");
            }
        }
    }
    for (index, entry) in items(csv, "/spec/customresourcedefinitions/owned").iter().enumerate() {
        for part in
            ["displayName", "description"].into_iter().filter(|part| text(entry, &format!("/{part}")).is_empty())
        {
            found.warning(path, format!("spec.customresourcedefinitions.owned[{index}].{part}"), "is missing");
        }
    }
}
