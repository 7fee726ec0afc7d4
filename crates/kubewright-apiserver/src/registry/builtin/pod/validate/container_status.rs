//! Statuses of containers in an update of the status of a pod.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::registry::builtin::validation::{
    Errors, Path, entries, field, int, items, optional_string, string, validate_id,
};

const STATUS: Path<'static> = Path::new("status");
/// The states of the health of a device.
const HEALTH: &[&str] = &["Healthy", "Unhealthy", "Unknown"];
/// The greatest length of a message about the health of a device.
const MAX_MESSAGE: usize = 1024;

/// Checks the statuses of the containers of all kinds.
pub(super) fn validate_container_statuses(old: &Value, new: &Value, errors: &mut Errors) {
    // Where one container may restart all, none is ended for good.
    if !may_restart_all(&old["spec"]) {
        validate_transitions(old, new, "containerStatuses", Some("containers"), errors);
        validate_transitions(old, new, "initContainerStatuses", Some("initContainers"), errors);
    }
    validate_transitions(old, new, "ephemeralContainerStatuses", None, errors);
}

/// Checks the users and the resources that the statuses of containers name.
pub(super) fn validate_container_details(pod: &Value, errors: &mut Errors) {
    const LISTS: [(&str, Option<&str>); 3] = [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ];
    let is_windows = string(&pod["spec"]["os"], "name") == "windows";
    let statuses = |list| items(&pod["status"], list).iter().enumerate();
    for (list, _) in LISTS {
        for (index, status) in statuses(list) {
            let Some(user) = field(&status["user"], "linux") else { continue };
            let path = STATUS.child(list);
            let path = path.index(index);
            let path = path.child("user");
            match is_windows {
                true => errors.forbidden(&path.child("linux"), "cannot be set for a windows pod"),
                false => validate_user(user, &path.child("linux"), errors),
            }
        }
    }
    for (list, containers) in LISTS {
        let path = STATUS.child(list);
        for (index, status) in statuses(list) {
            let path = path.index(index);
            let path = path.child("allocatedResourcesStatus");
            match containers {
                Some(containers) => {
                    validate_resources(status, items(&pod["spec"], containers), &path, errors);
                }
                None if items(status, "allocatedResourcesStatus").is_empty() => {}
                None => errors.forbidden(&path, "must not be specified in container status"),
            }
        }
    }
}

/// Checks the IDs of the user and of the groups that a container has.
fn validate_user(user: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["uid", "gid"] {
        validate_id(int(user, name), &path.child(name), errors);
    }
    let path = path.child("supplementalGroups");
    for (index, group) in items(user, "supplementalGroups").iter().enumerate() {
        validate_id(group.as_i64().unwrap_or_default(), &path.index(index), errors);
    }
}

fn may_restart_all(spec: &Value) -> bool {
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| items(spec, list));
    let mut rules = containers.flat_map(|container| items(container, "restartPolicyRules"));
    rules.any(|rule| string(rule, "action") == "RestartAllContainers")
}

/// Checks that containers which have ended only run again if they are restarted. `containers` is the list in the spec
/// that has them, unless none of them is restarted.
fn validate_transitions(old: &Value, new: &Value, list: &str, containers: Option<&str>, errors: &mut Errors) {
    let spec = &old["spec"];
    for (index, before) in items(&old["status"], list).iter().enumerate() {
        let (name, Some(ended)) = (string(before, "name"), field(&before["state"], "terminated")) else { continue };
        let named = |one: &&Value| string(one, "name") == name;
        let Some(after) = items(&new["status"], list).iter().find(named) else { continue };
        if field(&after["state"], "terminated").is_some() {
            continue;
        }
        let container = containers.and_then(|containers| items(spec, containers).iter().find(named));
        if !container.is_some_and(|container| restarts(container, spec, int(ended, "exitCode"))) {
            let path = STATUS.child(list);
            errors.forbidden(&path.index(index).child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

/// Returns whether a container is restarted after it ended with a code.
fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    let by_policy = |policy: Option<&str>| match policy {
        Some("Always") => Some(true),
        Some("OnFailure") => Some(code != 0),
        Some("Never") => Some(false),
        _ => None,
    };
    let own = optional_string(container, "restartPolicy");
    if own.is_some() {
        let matches = |rule: &&Value| {
            let codes = &rule["exitCodes"];
            let listed = items(codes, "values").iter().any(|value| value.as_i64() == Some(code));
            match string(codes, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        };
        let rule = items(container, "restartPolicyRules").iter().find(matches);
        if rule.is_some_and(|rule| string(rule, "action") == "Restart") {
            return true;
        }
    }
    by_policy(own).or_else(|| by_policy(optional_string(spec, "restartPolicy"))).unwrap_or(true)
}

/// Checks the health of the resources that are allocated to a container.
fn validate_resources(status: &Value, containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let container = containers.iter().find(|container| string(container, "name") == string(status, "name"));
    for (index, resource) in items(status, "allocatedResourcesStatus").iter().enumerate() {
        let path = path.index(index);
        if let Some(container) = container {
            validate_resource_name(string(resource, "name"), &container["resources"], &path.child("name"), errors);
        }
        let (at, mut seen) = (path.child("resources"), BTreeSet::new());
        for (index, one) in items(resource, "resources").iter().enumerate() {
            let (path, health) = (at.index(index), string(one, "health"));
            if !HEALTH.contains(&health) {
                errors.not_supported(&path.child("health"), health, HEALTH);
            }
            match optional_string(one, "message") {
                Some("") => errors.required(&path.child("message"), "must be non-empty if specified"),
                Some(message) if message.len() > MAX_MESSAGE => errors.too_long(&path.child("message"), MAX_MESSAGE),
                _ => {}
            }
            if !seen.insert(string(one, "resourceID")) {
                errors.duplicate(&path.child("resourceID"), string(one, "resourceID"));
            }
        }
    }
}

/// Checks that a container has a resource: an amount that it requests, or a claim.
fn validate_resource_name(name: &str, resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (known, why) = match name.strip_prefix("claim:") {
        Some(claim) => {
            let is_one = |known: &Value| match string(known, "request") {
                "" => string(known, "name") == claim,
                request => claim.split_once('/') == Some((string(known, "name"), request)),
            };
            let why = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                       'claim:<claimName>' if request is empty";
            (items(resources, "claims").iter().any(is_one), why)
        }
        None => (
            entries(resources, "requests").any(|(known, _)| known == name),
            "must match one of the container's resource requests",
        ),
    };
    if !known {
        errors.invalid(path, name, why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn transitions(spec: &Value, list: &str, code: i64) -> usize {
        let status = |state: Value| json!({"spec": spec, "status": {list: [{"name": "c", "state": state}]}});
        let (old, new) = (status(json!({"terminated": {"exitCode": code}})), status(json!({"waiting": {}})));
        let same = Errors::collect(|errors| validate_container_statuses(&old, &old, errors));
        assert_eq!(same, []);
        Errors::collect(|errors| validate_container_statuses(&old, &new, errors)).len()
    }

    #[test]
    fn containers_that_ended_only_run_again_if_they_are_restarted() {
        const STATUSES: &str = "containerStatuses";
        let spec = |policy: &str| json!({"restartPolicy": policy, "containers": [{"name": "c"}]});
        for (policy, code, refused) in [("Always", 0, 0), ("OnFailure", 0, 1), ("OnFailure", 3, 0), ("Never", 3, 1)] {
            assert_eq!(transitions(&spec(policy), STATUSES, code), refused, "{policy} {code}");
        }
        let sidecar = json!({"name": "c", "restartPolicy": "Always"});
        let init = |container: Value| json!({"restartPolicy": "Never", "initContainers": [container]});
        assert_eq!(transitions(&init(sidecar), "initContainerStatuses", 0), 0);
        assert_eq!(transitions(&init(json!({"name": "c"})), "initContainerStatuses", 0), 1);
        assert_eq!(transitions(&spec("Always"), "ephemeralContainerStatuses", 0), 1);
        assert_eq!(transitions(&json!({"restartPolicy": "Always"}), STATUSES, 0), 1, "an unknown container");
        let ruled = |action: &str| {
            let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": [42]}});
            let container = json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": [rule]});
            json!({"restartPolicy": "Never", "containers": [container]})
        };
        assert_eq!(transitions(&ruled("Restart"), STATUSES, 42), 0);
        assert_eq!(transitions(&ruled("Restart"), STATUSES, 1), 1);
        assert_eq!(transitions(&ruled("RestartAllContainers"), STATUSES, 1), 0);
    }

    #[test]
    fn users_of_containers_have_ids() {
        let user = json!({"linux": {"uid": -1, "gid": 0, "supplementalGroups": [1, -2]}});
        let pod = json!({"status": {"containerStatuses": [{"name": "c", "user": user}]}});
        let found = Errors::collect(|errors| validate_container_details(&pod, errors));
        let fields: Vec<_> = found.iter().map(|cause| cause.field.as_str()).collect();
        let at = "status.containerStatuses[0].user.linux";
        assert_eq!(fields, [format!("{at}.uid"), format!("{at}.supplementalGroups[1]")]);
    }

    #[test]
    fn resources_of_containers_are_those_of_the_spec() {
        let resources = json!({"requests": {"cpu": "1"}, "claims": [{"name": "a"}, {"name": "b", "request": "r"}]});
        let resource = |name: &str, resources: Value| json!({"name": name, "resources": resources});
        let status = json!([
            resource(
                "cpu",
                json!([{"resourceID": "x", "health": "Healthy"}, {"resourceID": "x", "health": "?", "message": ""}])
            ),
            resource("memory", json!([])),
            resource("claim:a", json!([])),
            resource("claim:b", json!([])),
            resource("claim:b/r", json!([])),
        ]);
        let pod = json!({
            "spec": {"os": {"name": "windows"}, "containers": [{"name": "c", "resources": resources}]},
            "status": {
                "containerStatuses": [{"name": "c", "user": {"linux": {}}, "allocatedResourcesStatus": status}],
                "ephemeralContainerStatuses": [{"name": "e", "allocatedResourcesStatus": status}],
            },
        });
        let found = Errors::collect(|errors| validate_container_details(&pod, errors));
        let fields: Vec<_> = found.iter().map(|cause| cause.field.strip_prefix("status.").unwrap()).collect();
        let at = "containerStatuses[0].allocatedResourcesStatus";
        assert_eq!(
            fields,
            [
                "containerStatuses[0].user.linux",
                &format!("{at}[0].resources[1].health"),
                &format!("{at}[0].resources[1].message"),
                &format!("{at}[0].resources[1].resourceID"),
                &format!("{at}[1].name"),
                &format!("{at}[3].name"),
                "ephemeralContainerStatuses[0].allocatedResourcesStatus",
            ]
        );
    }
}
