//! The diagnosis of a Deployment that is not ready, based on its pods, their events and their logs.

use std::fmt::Write;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Event, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};

use super::{Remote, problem::PodProblem};
use crate::event::{count, last_seen};

/// The maximum number of pods in the report, since they usually fail in the same way.
const PODS: usize = 2;
/// The maximum number of events for each object.
const EVENTS: usize = 4;
/// The maximum number of lines from each log.
const LOG_LINES: i64 = 12;

/// Returns the report, each line preceded by a line break. Information that cannot be read is omitted.
pub(super) async fn diagnose(
    remote: &Remote,
    deployment: &Deployment,
    pods: &[Pod],
    problem: Option<&PodProblem>,
) -> String {
    let namespace = deployment.namespace().unwrap_or_default();
    let mut report = String::new();
    if pods.is_empty() {
        events(remote, &namespace, deployment, &mut report).await;
    }
    for pod in pods.iter().take(PODS) {
        describe(pod, &mut report);
        events(remote, &namespace, pod, &mut report).await;
        logs(remote, &namespace, pod, &mut report).await;
    }
    if pods.len() > PODS {
        line(&mut report, 1, &format!("and {} more pods", pods.len() - PODS));
    }
    if let Some(problem) = problem {
        line(&mut report, 1, problem.hint);
    }
    report
}

fn line(report: &mut String, depth: usize, text: &str) {
    // Writing to a string cannot fail.
    let _ = write!(report, "\n{:depth$}{text}", "", depth = depth * 2);
}

/// Adds the status of a pod.
fn describe(pod: &Pod, report: &mut String) {
    let status = pod.status.clone().unwrap_or_default();
    line(report, 1, &format!("pod {} is {}", pod.name_any(), status.phase.as_deref().unwrap_or("Pending")));
    let mut seen = Vec::new();
    for condition in status.conditions.iter().flatten().filter(|condition| condition.status == "False") {
        // Several conditions often have the same message.
        if seen.contains(&&condition.message) {
            continue;
        }
        seen.push(&condition.message);
        let text = |text: &Option<String>| text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        line(
            report,
            2,
            &format!("{} is false{}{}", condition.type_, text(&condition.reason), text(&condition.message)),
        );
    }
    for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
        for text in container_states(container) {
            line(report, 2, &text);
        }
    }
}

fn container_states(container: &ContainerStatus) -> Vec<String> {
    let name = &container.name;
    let mut found = Vec::new();
    if let Some(waiting) = container.state.as_ref().and_then(|state| state.waiting.as_ref()) {
        let (reason, message) = (waiting.reason.as_deref().unwrap_or_default(), waiting.message.as_deref());
        let message = message.map(|message| format!(": {message}")).unwrap_or_default();
        found.push(format!("container {name} is waiting: {reason}{message}"));
    }
    let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| state.as_ref()?.terminated.clone();
    if let Some(ended) = ended(&container.state).or_else(|| ended(&container.last_state)) {
        let reason = ended.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let times = container.restart_count;
        found.push(format!("container {name} exited with code {}{reason}, {times} restarts", ended.exit_code));
    }
    found
}

/// Adds the last warning events of an object.
async fn events(remote: &Remote, namespace: &str, object: &impl ResourceExt, report: &mut String) {
    let chosen = ListParams::default().fields(&format!("involvedObject.uid={}", object.uid().unwrap_or_default()));
    let found = Api::<Event>::namespaced(remote.client.clone(), namespace).list(&chosen).await;
    let mut found = found.map(|list| list.items).unwrap_or_default();
    found.retain(|event| event.type_.as_deref() == Some("Warning"));
    found.sort_by_key(last_seen);
    for event in found.iter().rev().take(EVENTS).rev() {
        let (reason, message) = (event.reason.as_deref(), event.message.as_deref());
        let times = count(event);
        let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
        line(
            report,
            2,
            &format!("event {}{times}: {}", reason.unwrap_or_default(), message.unwrap_or_default().trim_end()),
        );
    }
}

/// Adds the last log lines of the containers that ran. For a container that waits for its restart, those are from the
/// previous run.
async fn logs(remote: &Remote, namespace: &str, pod: &Pod, report: &mut String) {
    let pods: Api<Pod> = Api::namespaced(remote.client.clone(), namespace);
    let status = pod.status.clone().unwrap_or_default();
    for container in status.container_statuses.iter().flatten().filter(|container| has_run(container)) {
        let waits = container.state.as_ref().is_some_and(|state| state.waiting.is_some());
        let chosen = LogParams {
            container: Some(container.name.clone()),
            tail_lines: Some(LOG_LINES),
            previous: waits,
            ..LogParams::default()
        };
        let text = match pods.logs(&pod.name_any(), &chosen).await {
            Ok(text) => text,
            Err(_) => continue,
        };
        if !text.trim().is_empty() {
            line(report, 2, &format!("last lines of the log of {}:", container.name));
            text.lines().for_each(|text| line(report, 3, text));
        }
    }
}

fn has_run(container: &ContainerStatus) -> bool {
    let has = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    has(&container.state) || has(&container.last_state)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_described_by_its_false_conditions_and_waiting_containers() {
        let pod = json!({
            "metadata": {"name": "cow-1"},
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready: [manager]"},
                ],
                "containerStatuses": [{
                    "name": "manager", "image": "cow", "imageID": "", "ready": false, "restartCount": 2,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
                    "lastState": {"terminated": {"exitCode": 101, "reason": "Error"}},
                }],
            },
        });
        let mut report = String::new();
        describe(&serde_json::from_value(pod).unwrap(), &mut report);
        let expected = "
  pod cow-1 is Running
    Ready is false: ContainersNotReady: unready: [manager]
    container manager is waiting: CrashLoopBackOff: back-off 20s
    container manager exited with code 101 (Error), 2 restarts";
        assert_eq!(report, expected);
    }
}
