//! The columns of pods, and the rules that derive a pod's displayed status.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    fields::{flag, has, int, list, text},
    registry::{
        Column,
        builtin::columns::{NONE, age, string, value_or},
    },
    table::age_of,
};

/// Returns the columns of pods.
pub(in crate::registry::builtin) fn columns() -> Vec<Column> {
    vec![
        string("Ready", |pod, _| {
            let summary = Summary::of(pod);
            format!("{}/{}", summary.ready, summary.containers).into()
        }),
        string("Status", |pod, _| Summary::of(pod).status.into()),
        string("Restarts", |pod, now| Summary::of(pod).restarts_at(now).into()),
        age(),
        string("IP", |pod, _| {
            let own = text(pod, "/status/podIPs/0/ip");
            if own.is_empty() { NONE.into() } else { own.into() }
        })
        .wide(),
        string("Node", |pod, _| value_or(pod, "/spec/nodeName", NONE)).wide(),
        string("Nominated Node", |pod, _| value_or(pod, "/status/nominatedNodeName", NONE)).wide(),
        string("Readiness Gates", |pod, _| readiness_gates(pod).into()).wide(),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let open = gates.iter().filter(|gate| is_true(pod, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

fn is_true(pod: &Value, condition: &str) -> bool {
    list(pod, "/status/conditions")
        .iter()
        .any(|found| text(found, "/type") == condition && text(found, "/status") == "True")
}

/// The row of a pod.
struct Summary {
    status: String,
    ready: usize,
    containers: usize,
    restarts: Restarts,
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += int(container, "/restartCount");
        self.last = self.last.max(text(container, "/lastState/terminated/finishedAt").parse().ok());
    }
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let reason = text(pod, "/status/reason");
        let gated = list(pod, "/status/conditions").iter().any(|condition| {
            text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
        });
        let status = match () {
            () if gated => "SchedulingGated",
            () if !reason.is_empty() => reason,
            () => phase,
        };
        let sidecars = list(pod, "/spec/initContainers").iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Self {
            status: status.into(),
            ready: 0,
            containers: list(pod, "/spec/containers").len() + sidecars,
            restarts: Restarts::default(),
        };
        if summary.initialize(pod) || is_true(pod, "Initialized") {
            summary.restarts = restarts_of_sidecars(pod);
            summary.run(pod);
        }
        if has(pod, "/metadata/deletionTimestamp") {
            if reason == "NodeLost" {
                summary.status = "Unknown".into();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.status = "Terminating".into();
            }
        }
        summary
    }

    /// Evaluates the init containers. Returns whether all have finished. If not, the first unfinished one determines
    /// the status.
    fn initialize(&mut self, pod: &Value) -> bool {
        for (index, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.restarts.add(container);
            let ended = has(container, "/state/terminated");
            if ended && int(container, "/state/terminated/exitCode") == 0 {
                continue;
            }
            if stays(pod, container) && flag(container, "/started") {
                self.ready += usize::from(flag(container, "/ready"));
                continue;
            }
            let waiting = text(container, "/state/waiting/reason");
            self.status = match () {
                () if ended => format!("Init:{}", end_of(container)),
                () if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                () => format!("Init:{index}/{}", list(pod, "/spec/initContainers").len()),
            };
            return false;
        }
        true
    }

    /// Evaluates the containers. The first one that isn't running determines the status.
    fn run(&mut self, pod: &Value) {
        let mut running = false;
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.status = waiting.into();
            } else if has(container, "/state/terminated") {
                self.status = end_of(container);
            } else if flag(container, "/ready") && has(container, "/state/running") {
                running = true;
                self.ready += 1;
            }
        }
        if running && self.status == "Completed" {
            self.status = if is_true(pod, "Ready") { "Running" } else { "NotReady" }.into();
        }
    }

    fn restarts_at(&self, now: Timestamp) -> String {
        match self.restarts.last {
            Some(last) if self.restarts.count > 0 => {
                format!("{} ({} ago)", self.restarts.count, age_of(Some(&last.to_string().into()), now))
            }
            _ => self.restarts.count.to_string(),
        }
    }
}

/// Returns whether an init container is a sidecar, which keeps running.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

/// Returns whether a container status belongs to a sidecar.
fn stays(pod: &Value, status: &Value) -> bool {
    let name = text(status, "/name");
    list(pod, "/spec/initContainers").iter().any(|spec| text(spec, "/name") == name && is_sidecar(spec))
}

fn restarts_of_sidecars(pod: &Value) -> Restarts {
    let mut restarts = Restarts::default();
    list(pod, "/status/initContainerStatuses")
        .iter()
        .filter(|status| stays(pod, status))
        .for_each(|status| restarts.add(status));
    restarts
}

/// Returns the reason of a container's termination.
fn end_of(container: &Value) -> String {
    let reason = text(container, "/state/terminated/reason");
    let signal = int(container, "/state/terminated/signal");
    match () {
        () if !reason.is_empty() => reason.into(),
        () if signal != 0 => format!("Signal:{signal}"),
        () => format!("ExitCode:{}", int(container, "/state/terminated/exitCode")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(status: Value, expect: (&str, &str, &str)) {
        let mut pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
            "status": status,
        });
        if status_is_deleting(&pod) {
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        }
        let now = "2024-01-01T00:05:00Z".parse().unwrap();
        let summary = Summary::of(&pod);
        let ready = format!("{}/{}", summary.ready, summary.containers);
        assert_eq!((&*ready, &*summary.status, &*summary.restarts_at(now)), expect);
    }

    fn status_is_deleting(pod: &Value) -> bool {
        flag(pod, "/status/deleting")
    }

    fn running(name: &str) -> Value {
        json!({"name": name, "ready": true, "restartCount": 0, "state": {"running": {}}})
    }

    #[test]
    fn the_status_of_a_pod_is_one_word() {
        check(json!({"phase": "Pending"}), ("0/2", "Pending", "0"));
        check(json!({"phase": "Running", "containerStatuses": [running("a"), running("b")]}), ("2/2", "Running", "0"));
        check(json!({"phase": "Running", "deleting": true}), ("0/2", "Terminating", "0"));
        check(json!({"phase": "Succeeded", "deleting": true}), ("0/2", "Succeeded", "0"));
        check(json!({"phase": "Failed", "reason": "Evicted"}), ("0/2", "Evicted", "0"));
        let waiting = |reason: &str| json!({"name": "a", "state": {"waiting": {"reason": reason}}});
        check(
            json!({"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}),
            ("0/2", "ContainerCreating", "0"),
        );
        let crashing = json!({
            "name": "a", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2024-01-01T00:00:00Z"}},
        });
        check(
            json!({"phase": "Running", "containerStatuses": [crashing, running("b")]}),
            ("1/2", "CrashLoopBackOff", "3 (5m ago)"),
        );
        let completed = json!({"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        check(json!({"phase": "Succeeded", "containerStatuses": [completed]}), ("0/2", "Completed", "0"));
        check(json!({"phase": "Running", "containerStatuses": [completed, running("b")]}), ("1/2", "NotReady", "0"));
        let failed = json!({"name": "a", "state": {"terminated": {"exitCode": 3}}});
        check(json!({"phase": "Failed", "containerStatuses": [failed]}), ("0/2", "ExitCode:3", "0"));
    }

    #[test]
    fn init_containers_come_first() {
        let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
        let working = json!({"name": "j", "state": {"running": {}}});
        check(json!({"phase": "Pending", "initContainerStatuses": [working]}), ("0/2", "Init:0/2", "0"));
        check(json!({"phase": "Pending", "initContainerStatuses": [done, working]}), ("0/2", "Init:1/2", "0"));
        let failed =
            json!({"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}});
        check(json!({"phase": "Pending", "initContainerStatuses": [failed]}), ("0/2", "Init:Error", "2"));
    }
}
