//! Validation of pods and pod templates beyond their schema, in Kubernetes' wording.

use std::collections::BTreeSet;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

use crate::{
    fields::{each, has, list, set, text},
    registry::builtin::check::{at_least, each_sentence, one_of, positive_port},
};

/// Checks the spec of a pod or template at `path`.
pub(in crate::registry::builtin) fn spec(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let volumes = volumes(spec, path, &mut causes);
    if list(spec, "/containers").is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for field in ["initContainers", "containers"] {
        for (index, container) in list(spec, &format!("/{field}")).iter().enumerate() {
            let path = format!("{path}.{field}[{index}]");
            self::container(container, &path, &volumes, &mut causes);
            let name = &container["name"];
            if name.as_str().is_some_and(|name| !name.is_empty() && !names.insert(name)) {
                causes.push(Cause::duplicate(format!("{path}.name"), name));
            }
        }
    }
    one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"], &mut causes);
    one_of(spec, path, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], &mut causes);
    at_least(spec, path, "terminationGracePeriodSeconds", 0, &mut causes);
    if let Some(deadline) = spec.get("activeDeadlineSeconds").filter(|value| !value.is_null())
        && !deadline.as_i64().is_some_and(|seconds| (1..=i64::from(i32::MAX)).contains(&seconds))
    {
        let why = "must be between 1 and 2147483647, inclusive";
        causes.push(Cause::invalid(format!("{path}.activeDeadlineSeconds"), deadline, why));
    }
    for field in ["serviceAccountName", "nodeName"] {
        each_sentence(spec, path, field, name::dns1123_subdomain, &mut causes);
    }
    for field in ["hostname", "subdomain"] {
        each_sentence(spec, path, field, name::dns1123_label, &mut causes);
    }
    causes
}

/// Checks a pod template at `path`.
pub(in crate::registry::builtin) fn template(template: &Value, path: &str) -> Vec<Cause> {
    let mut causes = name::labels(&format!("{path}.metadata.labels"), &template["metadata"]["labels"]);
    causes.extend(name::annotations(&format!("{path}.metadata.annotations"), &template["metadata"]["annotations"]));
    causes.extend(spec(&template["spec"], &format!("{path}.spec")));
    causes
}

fn volumes<'a>(spec: &'a Value, path: &str, causes: &mut Vec<Cause>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in list(spec, "/volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        let name = text(volume, "/name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
            continue;
        }
        each_sentence(volume, &path, "name", name::dns1123_label, causes);
        if !names.insert(name) {
            causes.push(Cause::duplicate(format!("{path}.name"), &volume["name"]));
        }
    }
    names
}

fn container(container: &Value, path: &str, volumes: &BTreeSet<&str>, causes: &mut Vec<Cause>) {
    if text(container, "/name").is_empty() {
        causes.push(Cause::required(format!("{path}.name"), ""));
    } else {
        each_sentence(container, path, "name", name::dns1123_label, causes);
    }
    let image = text(container, "/image");
    if image.is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        causes.push(Cause::invalid(format!("{path}.image"), &container["image"], why));
    }
    one_of(container, path, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], causes);
    one_of(container, path, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], causes);
    ports(container, path, causes);
    environment(container, path, causes);
    mounts(container, path, volumes, causes);
}

fn ports(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut names = BTreeSet::new();
    for (index, port) in list(container, "/ports").iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        each_sentence(port, &path, "name", name::port_name, causes);
        let name = text(port, "/name");
        if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(format!("{path}.name"), &port["name"]));
        }
        if has(port, "/containerPort") && port["containerPort"] != 0 {
            positive_port(&port["containerPort"], &format!("{path}.containerPort"), causes);
        } else {
            causes.push(Cause::required(format!("{path}.containerPort"), ""));
        }
        if has(port, "/hostPort") && port["hostPort"] != 0 {
            positive_port(&port["hostPort"], &format!("{path}.hostPort"), causes);
        }
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], causes);
    }
}

fn environment(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, variable) in list(container, "/env").iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = text(variable, "/name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        } else if name.contains('=') || !name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            let why =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            causes.push(Cause::invalid(format!("{path}.name"), &variable["name"], why));
        }
        if has(variable, "/valueFrom") && !text(variable, "/value").is_empty() {
            let why = "may not be specified when `value` is not empty";
            causes.push(Cause::invalid(format!("{path}.valueFrom"), &json!(""), why));
        }
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<&str>, causes: &mut Vec<Cause>) {
    let mut places = BTreeSet::new();
    for (index, mount) in list(container, "/volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        if text(mount, "/name").is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        } else if !volumes.contains(text(mount, "/name")) {
            let message = format!("Not found: {}", mount["name"]);
            causes.push(Cause::new("FieldValueNotFound", format!("{path}.name"), message));
        }
        let place = text(mount, "/mountPath");
        if place.is_empty() {
            causes.push(Cause::required(format!("{path}.mountPath"), ""));
        } else if !places.insert(place) {
            causes.push(Cause::invalid(format!("{path}.mountPath"), &mount["mountPath"], "must be unique"));
        }
    }
}

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks an update of a pod's spec. Only a few fields may change.
pub(super) fn update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (before, after) = (list(old, "/tolerations"), list(new, "/tolerations"));
    let kept = before.iter().all(|toleration| after.iter().any(|other| same_toleration(toleration, other)));
    if !kept {
        causes.push(Cause::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    deadline(old, new, &mut causes);
    if unchangeable(old) != unchangeable(new) {
        causes.push(Cause::forbidden("spec", MAY_CHANGE));
    }
    causes
}

fn same_toleration(one: &Value, other: &Value) -> bool {
    ["key", "operator", "value", "effect"].iter().all(|field| one[field] == other[field])
}

fn deadline(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let field = "spec.activeDeadlineSeconds";
    let (before, after) = (old["activeDeadlineSeconds"].as_i64(), new["activeDeadlineSeconds"].as_i64());
    match (before, after) {
        (Some(before), Some(after)) if after > before => {
            let why = "must be less than or equal to previous value";
            causes.push(Cause::invalid(field, &after.into(), why));
        }
        (Some(_), None) => {
            causes.push(Cause::invalid(field, &Value::Null, "must not update from a positive integer to nil value"));
        }
        _ => {}
    }
}

/// Returns the spec without the fields that may change.
fn unchangeable(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for field in ["containers", "initContainers"] {
        each(&mut spec, field).for_each(|container| set(container, "image", ""));
    }
    for field in ["activeDeadlineSeconds", "tolerations"] {
        set(&mut spec, field, Value::Null);
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        set(&mut spec, "terminationGracePeriodSeconds", 1);
    }
    // Scheduling gates may be removed. An absent list counts as empty.
    set(&mut spec, "schedulingGates", Value::Null);
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(container: Value) -> Value {
        json!({"restartPolicy": "Always", "containers": [container]})
    }

    fn check(spec: Value, expect: &[&str]) {
        let found: Vec<_> = self::spec(&spec, "spec").iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.starts_with(expect), "{found:?} is not {expect:?}");
        }
    }

    #[test]
    fn invalid_specs_are_refused_as_in_kubernetes() {
        check(json!({}), &["spec.containers: Required value"]);
        check(pod(json!({"name": "c", "image": "i"})), &[]);
        check(
            pod(json!({"name": "C_", "image": ""})),
            &[
                "spec.containers[0].name: Invalid value: \"C_\": a lowercase RFC 1123 label must consist of",
                "spec.containers[0].image: Required value",
            ],
        );
        check(
            json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": " i"}]}),
            &[
                "spec.containers[1].image: Invalid value: \" i\": must not have leading or trailing whitespace",
                "spec.containers[1].name: Duplicate value: \"c\"",
            ],
        );
        check(
            json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Maybe"}),
            &[
                "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        );
        check(
            pod(json!({"name": "c", "image": "i", "ports": [{"containerPort": 70000}]})),
            &[
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ],
        );
        check(
            pod(json!({"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
        );
        check(
            pod(json!({"name": "c", "image": "i", "env": [{"name": "A", "value": "x", "valueFrom": {}}]})),
            &[
                "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            ],
        );
    }

    #[test]
    fn only_images_deadlines_and_tolerations_of_a_pod_may_change() {
        let old = pod(json!({"name": "c", "image": "i"}));
        let change = |field: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(field).unwrap() = value;
            update(&old, &new)
        };
        assert_eq!(change("/containers/0/image", json!("j")), []);
        let forbidden = change("/restartPolicy", json!("Never"));
        assert!(forbidden[0].to_string().starts_with("spec: Forbidden: pod updates may not change fields other than"));
        let mut new = old.clone();
        set(&mut new, "tolerations", json!([{"key": "a"}]));
        assert_eq!(update(&old, &new), []);
        assert_eq!(update(&new, &old)[0].field, "spec.tolerations");
    }
}
