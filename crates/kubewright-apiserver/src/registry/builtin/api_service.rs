//! `APIService`s: the versions of groups that the server serves
//! (<https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/>).
//!
//! Requests are sent to the Services of those that name one by [`aggregation`](crate::aggregation).

use std::sync::Arc;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

use super::{
    columns::{age, string},
    types::TYPES,
    validation::{
        Errors, Path, boolean, field, inclusive_range, int, items, optional_string, string as text_field, validate_text,
    },
};
use crate::{
    aggregation::ApiServices,
    fields::{fill, list, present, set, text, within},
    registry::{Column, Strategy},
};

/// The priorities of the groups. In each, the greatest stable version has the greatest priority.
const GROUPS: &[(&str, i64)] = &[
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
];

/// The priorities of versions within their groups, where they aren't 15.
const VERSIONS: &[(&str, &str, i64)] = &[
    ("", "v1", 1),
    ("autoscaling", "v2", 30),
    ("flowcontrol.apiserver.k8s.io", "v1", 21),
    ("resource.k8s.io", "v1", 21),
];

/// Returns an object for each version of a group that the server itself serves.
pub(super) fn local_services() -> Vec<Value> {
    let mut versions: Vec<(&str, &str)> = TYPES.iter().map(|builtin| (builtin.group, builtin.version)).collect();
    versions.sort_unstable();
    versions.dedup();
    // The server of this kind isn't one of those that it lists.
    versions.retain(|(group, _)| *group != "apiregistration.k8s.io");
    versions.into_iter().map(|(group, version)| local_service(group, version)).collect()
}

fn local_service(group: &str, version: &str) -> Value {
    let minimum = GROUPS.iter().find(|(known, _)| *known == group).map_or(1000, |(_, priority)| *priority);
    let of_version = |known: &&(&str, &str, i64)| (known.0, known.1) == (group, version);
    let mut spec = json!({
        "version": version, "groupPriorityMinimum": minimum,
        "versionPriority": VERSIONS.iter().find(of_version).map_or(15, |(_, _, priority)| *priority),
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    let labels = json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"});
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": labels}, "spec": spec,
    })
}

/// The strategy of API services.
#[derive(Debug)]
pub(super) struct ApiServiceStrategy {
    /// The APIServices by which requests are routed, which this strategy keeps up to date.
    pub(super) services: Arc<ApiServices>,
}

impl Strategy for ApiServiceStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| present(spec, "service", |service| fill(service, "port", 443)));
    }

    fn prepare_create(&self, object: &mut Value) {
        let is_local = field(&object["spec"], "service").is_none();
        let condition = json!({
            "type": "Available", "status": "True", "lastTransitionTime": object["metadata"]["creationTimestamp"],
            "reason": "Local", "message": "Local APIServices are always available",
        });
        set(object, "status", if is_local { json!({"conditions": [condition]}) } else { json!({}) });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            if old.is_some() {
                let name = text(new, "/metadata/name");
                errors.invalid_text(&Path::new("metadata.name"), name, &self.check_name(new, name));
            }
            validate_api_service(new, errors);
        })
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        const VALUES: &[&str] = &["True", "False", "Unknown"];
        Errors::collect(|errors| {
            let path = Path::new("status.conditions");
            for (index, condition) in items(&new["status"], "conditions").iter().enumerate() {
                let status = text_field(condition, "status");
                if !VALUES.contains(&status) {
                    errors.not_supported(&path.index(index).child("status"), status, VALUES);
                }
            }
        })
    }

    fn check_name(&self, service: &Value, name: &str) -> Vec<String> {
        let wrong = name::path_segment(name);
        let expected = format!("{}.{}", text(service, "/spec/version"), text(service, "/spec/group"));
        if !wrong.is_empty() || name == expected {
            return wrong;
        }
        vec![format!("must be `spec.version+\".\"+spec.group`: {expected:?}")]
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.services.replace(before, after);
    }
}

fn validate_api_service(service: &Value, errors: &mut Errors) {
    let (spec, path) = (&service["spec"], Path::new("spec"));
    let (group, version) = (text_field(spec, "group"), text_field(spec, "version"));
    let at = path.child("group");
    if group.is_empty() && version != "v1" {
        errors.required(&at, "only v1 may have an empty group and it better be legacy kube");
    } else if !group.is_empty() {
        validate_text(group, name::dns1123_subdomain, &at, errors);
    }
    validate_text(version, name::dns1035_label, &path.child("version"), errors);
    for (name, limit) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = int(spec, name);
        if !(1..=limit).contains(&priority) {
            errors.invalid(&path.child(name), priority, &format!("must be positive and less than {limit}"));
        }
    }
    validate_backend(spec, &path, errors);
}

fn validate_backend(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let bundle = optional_string(spec, "caBundle").filter(|bundle| !bundle.is_empty());
    let (insecure, at) = (boolean(spec, "insecureSkipTLSVerify"), path.child("insecureSkipTLSVerify"));
    let Some(service) = field(spec, "service") else {
        if let Some(bundle) = bundle {
            let padding = bundle.bytes().rev().take_while(|byte| *byte == b'=').count();
            let shown = format!("{} bytes", bundle.len() / 4 * 3 - padding.min(2));
            errors.invalid(&path.child("caBundle"), shown, "local APIServices may not have a caBundle");
        }
        if insecure {
            errors.invalid(&at, true, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    };
    let path = path.child("service");
    for name in ["namespace", "name"] {
        if text_field(service, name).is_empty() {
            errors.required(&path.child(name), "");
        }
    }
    let port = int(service, "port");
    if !(1..=65535).contains(&port) {
        let why = format!("port is not valid: {}", inclusive_range(1, 65535));
        errors.invalid(&path.child("port"), port, &why);
    }
    if insecure && bundle.is_some() {
        errors.invalid(&at, true, "may not be true if caBundle is present");
    }
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        string("Service", |object, _| match field(&object["spec"], "service") {
            None => "Local".into(),
            Some(service) => format!("{}/{}", text_field(service, "namespace"), text_field(service, "name")).into(),
        }),
        string("Available", |object, _| {
            let conditions = list(object, "/status/conditions");
            let Some(condition) = conditions.iter().find(|one| text(one, "/type") == "Available") else {
                return "Unknown".into();
            };
            match (text(condition, "/status"), text(condition, "/reason")) {
                ("True", _) => "True".into(),
                (status, "") => status.into(),
                (status, reason) => format!("{status} ({reason})").into(),
            }
        }),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strategy() -> ApiServiceStrategy {
        ApiServiceStrategy { services: Arc::default() }
    }

    #[test]
    fn local_services_are_valid_and_available() {
        let services = local_services();
        let names: Vec<_> = services.iter().map(|service| text(service, "/metadata/name")).collect();
        assert!(names.contains(&"v1.") && names.contains(&"v2.autoscaling") && names.contains(&"v1.apps"));
        for mut service in services {
            assert_eq!(strategy().validate(None, &service), [], "{service}");
            assert!(GROUPS.iter().any(|(group, _)| *group == text(&service, "/spec/group")), "{service}");
            strategy().prepare_create(&mut service);
            assert_eq!(service["status"]["conditions"][0]["status"], "True");
        }
    }

    #[test]
    fn services_are_checked() {
        let service = json!({
            "metadata": {"name": "x"},
            "spec": {"group": "g", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 0, "caBundle": "aGVsbG8="},
        });
        assert_eq!(strategy().check_name(&service, "x"), ["must be `spec.version+\".\"+spec.group`: \"v1.g\""]);
        assert!(strategy().check_name(&service, "v1.g").is_empty());
        let found: Vec<_> = strategy().validate(None, &service).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
                "spec.caBundle: Invalid value: \"5 bytes\": local APIServices may not have a caBundle",
            ]
        );
    }
}
