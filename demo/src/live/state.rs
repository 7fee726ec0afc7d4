//! Summaries of an object's spec and status.

use jiff::Timestamp;
use serde_json::Value;

/// The health of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// As specified.
    Good,
    /// In progress.
    Waiting,
    /// Failed.
    Bad,
}

/// Returns the summary and health of an object. `ports` are the node ports of its Services.
pub(super) fn of(object: &Value, ports: &[i64]) -> (String, Health) {
    match text(object, "/kind").as_str() {
        "At" => at(object),
        "PodSet" => (podset(object), by_ready(object)),
        "CronJob" => (cronjob(object), by_ready(object)),
        "Guestbook" => (guestbook(object, ports), by_ready(object)),
        "Lolcow" => (lolcow(object), by_ready(object)),
        "Deployment" => replicas(object, "Deployment"),
        "ReplicaSet" => replicas(object, "ReplicaSet"),
        "Job" => job(object),
        "Service" => (service(object), Health::Good),
        _ => pod(object),
    }
}

/// Returns the conditions in short: `Ready` with its reason, and other true ones.
pub(super) fn conditions(object: &Value) -> String {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut words = Vec::new();
    for condition in conditions.into_iter().flatten() {
        let (type_, holds) = (text(condition, "/type"), condition["status"] == "True");
        match type_.as_str() {
            "Ready" => {
                words.insert(
                    0,
                    format!("{} {}", if holds { "Ready" } else { "not ready:" }, text(condition, "/reason")),
                );
            }
            _ if holds => words.push(type_),
            _ => {}
        }
    }
    words.join(", ")
}

/// Returns whether the condition `Ready` is true.
pub(super) fn is_ready(object: &Value) -> Option<bool> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
    Some(ready["status"] == "True")
}

fn by_ready(object: &Value) -> Health {
    if is_ready(object) == Some(true) { Health::Good } else { Health::Waiting }
}

fn at(at: &Value) -> (String, Health) {
    let phase = text(at, "/status/phase");
    let health = match (phase.as_str(), is_ready(at)) {
        (_, Some(false)) => Health::Bad,
        ("DONE", _) => Health::Good,
        _ => Health::Waiting,
    };
    (format!("{phase} at {}: {}", text(at, "/spec/schedule"), text(at, "/spec/command")), health)
}

fn podset(podset: &Value) -> String {
    let desired = number(podset, "/spec/replicas");
    // The two flavours have different names for this number.
    let running = number(podset, "/status/availableReplicas").max(number(podset, "/status/replicas"));
    let group = text(podset, "/apiVersion");
    format!("{running} of {desired} pods ({})", group.split('/').next().unwrap_or_default())
}

fn cronjob(cronjob: &Value) -> String {
    let active = cronjob.pointer("/status/active").and_then(Value::as_array).map_or(0, Vec::len);
    let next: Option<Timestamp> = text(cronjob, "/status/nextScheduleTime").parse().ok();
    let next = match next {
        _ if cronjob.pointer("/spec/suspend") == Some(&Value::Bool(true)) => "suspended".to_owned(),
        Some(next) => format!("next run {}", next.strftime("%H:%M:%S")),
        None => "no next run".to_owned(),
    };
    format!("{next}, {active} active, schedule {}", text(cronjob, "/spec/schedule"))
}

fn guestbook(guestbook: &Value, ports: &[i64]) -> String {
    let standby = guestbook.pointer("/status/standby").and_then(Value::as_array).map_or(0, Vec::len);
    let active = text(guestbook, "/status/active");
    let active = if active.is_empty() { "no pod" } else { active.as_str() };
    let address = ports.first().map_or_else(String::new, |port| format!("http://127.0.0.1:{port} "));
    format!("{address}by {active}, {standby} standing by")
}

fn lolcow(lolcow: &Value) -> String {
    let url = text(lolcow, "/status/url");
    let url = if url.is_empty() { "no address yet" } else { url.as_str() };
    format!("{url} {:?}", text(lolcow, "/spec/greeting"))
}

fn replicas(object: &Value, kind: &str) -> (String, Health) {
    let (desired, ready) = (number(object, "/spec/replicas"), number(object, "/status/readyReplicas"));
    let revision = text(object, "/metadata/annotations/deployment.kubernetes.io~1revision");
    let words = format!("{kind}, {ready} of {desired} ready, revision {revision}");
    (words, if ready == desired { Health::Good } else { Health::Waiting })
}

fn job(job: &Value) -> (String, Health) {
    let holds = |type_: &str| {
        let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
        conditions.is_some_and(|all| all.iter().any(|it| it["type"] == type_ && it["status"] == "True"))
    };
    let at = text(job, "/metadata/annotations/batch.tutorial.kubebuilder.io~1scheduled-at");
    let (word, health) = match (holds("Complete"), holds("Failed")) {
        (true, _) => ("Complete", Health::Good),
        (_, true) => ("Failed", Health::Bad),
        _ => ("running", Health::Waiting),
    };
    (format!("Job of {at}, {word}"), health)
}

fn service(service: &Value) -> String {
    let port = service.pointer("/spec/ports/0").cloned().unwrap_or_default();
    let address = text(service, "/spec/clusterIP");
    match port["nodePort"].as_i64() {
        Some(node_port) => format!("Service, {address}:{} and node port {node_port}", port["port"]),
        None => format!("Service, {address}:{}", port["port"]),
    }
}

fn pod(pod: &Value) -> (String, Health) {
    let waiting = pod
        .pointer("/status/containerStatuses")
        .and_then(Value::as_array)
        .and_then(|statuses| statuses.iter().find_map(|status| status.pointer("/state/waiting/reason")?.as_str()));
    let phase = text(pod, "/status/phase");
    let leaving = pod.pointer("/metadata/deletionTimestamp").is_some();
    match (leaving, waiting, phase.as_str()) {
        (true, ..) => ("Terminating".to_owned(), Health::Waiting),
        (_, Some("ContainerCreating" | "PodInitializing"), _) => ("starting".to_owned(), Health::Waiting),
        (_, Some(reason), _) => (reason.to_owned(), Health::Bad),
        (_, _, "Running") if is_ready(pod) == Some(false) => ("Running, not ready".to_owned(), Health::Waiting),
        (_, _, "Running" | "Succeeded") => (phase, Health::Good),
        (_, _, "Failed") => (phase, Health::Bad),
        _ => (phase, Health::Waiting),
    }
}

pub(super) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(object: &Value) -> (String, Health) {
        of(object, &[30081])
    }

    #[test]
    fn a_pod_that_cannot_start_is_bad_news() {
        let waiting = json!([{ "state": { "waiting": { "reason": "ErrImagePull" } } }]);
        let pod = json!({ "kind": "Pod", "status": { "phase": "Pending", "containerStatuses": waiting } });
        assert_eq!(said(&pod), ("ErrImagePull".to_owned(), Health::Bad));
    }

    #[test]
    fn a_cronjob_shows_its_next_run() {
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "Scheduled" },
            { "type": "Missed", "status": "False", "reason": "Started" }]);
        let cronjob = json!({ "kind": "CronJob", "spec": { "schedule": "* * * * *" },
            "status": { "active": [{}], "nextScheduleTime": "2026-01-01T00:01:00Z", "conditions": ready } });
        let words = "next run 00:01:00, 1 active, schedule * * * * *";
        assert_eq!(said(&cronjob), (words.to_owned(), Health::Good));
        assert_eq!(conditions(&cronjob), "Ready Scheduled");
        let suspended = json!({ "kind": "CronJob", "spec": { "schedule": "* * * * *", "suspend": true } });
        assert!(said(&suspended).0.starts_with("suspended, 0 active"));
    }

    #[test]
    fn the_pages_tell_their_addresses() {
        let guestbook = json!({ "kind": "Guestbook", "status": { "active": "g-1", "standby": ["g-2", "g-3"] } });
        assert_eq!(said(&guestbook).0, "http://127.0.0.1:30081 by g-1, 2 standing by");
        let lolcow = json!({ "kind": "Lolcow", "spec": { "greeting": "Moo" },
            "status": { "url": "http://127.0.0.1:30685", "conditions": [
                { "type": "Ready", "status": "False", "reason": "RollingOut" }, { "type": "Progressing", "status": "True" }] } });
        assert_eq!(said(&lolcow), ("http://127.0.0.1:30685 \"Moo\"".to_owned(), Health::Waiting));
        assert_eq!(conditions(&lolcow), "not ready: RollingOut, Progressing");
    }
}
