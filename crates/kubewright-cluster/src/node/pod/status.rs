//! A pod's status, as the kubelet reports it (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>).

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
        ContainerUser, HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{
    container::{Record, Role, State, Terminated},
    machine::Machine,
    restart::may_restart_all,
    spec,
};

/// The roles of init containers.
const INIT: &[Role] = &[Role::Init, Role::Sidecar];

/// The type of the condition while a container waits for its restart with new resources.
const RESIZING: &str = "PodResizeInProgress";
/// The type of the condition while all containers of a pod end in order to be restarted.
const RESTARTING: &str = "AllContainersRestarting";

impl Machine {
    /// Returns the current status. `now` is only used for the transition times of conditions that have changed, so that
    /// the status is the same as long as nothing changes.
    pub(crate) fn status(&self, now: Timestamp) -> PodStatus {
        let phase = self.phase();
        let failure = self.failure.as_ref().filter(|_| phase == "Failed");
        let statuses = |roles: &[Role]| -> Vec<_> {
            let records = self.containers.iter().filter(|record| roles.contains(&record.role));
            records.map(|record| self.container_status(record)).collect()
        };
        // Those of init containers are in the order of the pod, the others in that of their names.
        let sorted = |role| {
            let mut list: Vec<_> = statuses(&[role]);
            list.sort_by(|one: &ContainerStatus, other| one.name.cmp(&other.name));
            list
        };
        let present = |statuses: Vec<_>| Some(statuses).filter(|list| !list.is_empty());
        PodStatus {
            conditions: Some(self.conditions(phase, now)),
            container_statuses: Some(sorted(Role::Main)),
            ephemeral_container_statuses: present(sorted(Role::Ephemeral)),
            host_ip: Some(self.host_address.to_string()),
            host_ips: Some(vec![HostIP { ip: self.host_address.to_string() }]),
            init_container_statuses: present(statuses(INIT)),
            message: failure.map(|failure| failure.message.clone()),
            observed_generation: self.pod.metadata.generation,
            phase: Some(phase.into()),
            pod_ip: Some(self.address.clone()),
            pod_ips: Some(vec![PodIP { ip: self.address.clone() }]),
            reason: failure.map(|failure| failure.reason.to_owned()),
            start_time: Some(Time(self.started)),
            ..PodStatus::default()
        }
    }

    /// Returns the pod's phase, based on the states of its containers.
    pub(crate) fn phase(&self) -> &'static str {
        let main = || self.containers.iter().filter(|record| record.role == Role::Main);
        let ended_well = |record: &Record| record.ended().is_some_and(|ended| ended.code == 0);
        if self.is_over() {
            let succeeded = main().all(ended_well) && self.failure.is_none();
            return if succeeded { "Succeeded" } else { "Failed" };
        }
        if main().all(Record::has_run) { "Running" } else { "Pending" }
    }

    fn container_status(&self, record: &Record) -> ContainerStatus {
        let has_init = self.containers.iter().any(|record| INIT.contains(&record.role));
        let requests = || spec::find(&self.pod, &record.name)?.resources.clone()?.requests;
        let id = match &record.state {
            State::Running(running) => Some(running.id.clone()),
            State::Terminated(ended) => Some(ended.id.clone()),
            _ => record.last.as_ref().map(|ended| ended.id.clone()),
        };
        ContainerStatus {
            name: record.name.clone(),
            image: record.image.clone(),
            image_id: if id.is_some() { format!("kubewright://{}", record.image) } else { String::new() },
            container_id: id.filter(|id| !id.is_empty()).map(|id| container_id(&id)),
            ready: record.is_ready(),
            started: (record.role != Role::Ephemeral).then(|| record.has_started()),
            restart_count: record.restarts,
            resources: record.has_run().then(|| record.resources.clone()),
            user: record.identity.as_ref().map(|found| ContainerUser { linux: Some(found.status()) }),
            allocated_resources: requests().filter(|requests| record.has_run() && !requests.is_empty()),
            state: Some(state(record, has_init)),
            // Never absent in a stored object, with which this one is compared.
            last_state: Some(record.last.as_ref().map(terminated).unwrap_or_default()),
            ..ContainerStatus::default()
        }
    }

    fn initialized(&self) -> bool {
        self.containers.iter().all(Record::lets_pass)
    }

    /// Returns the node's conditions, and those of other writers.
    fn conditions(&self, phase: &str, now: Timestamp) -> Vec<PodCondition> {
        let present = self.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let unready = |roles: &[Role]| {
            let records = self.containers.iter().filter(|record| roles.contains(&record.role));
            let names: Vec<_> =
                records.filter(|record| !record.is_ready()).map(|record| record.name.as_str()).collect();
            names.join(" ")
        };
        let over = match phase {
            "Succeeded" => Some("PodCompleted"),
            "Failed" => Some("PodFailed"),
            _ => None,
        };
        let containers = match (over, unready(&[Role::Sidecar, Role::Main])) {
            (Some(reason), _) => ConditionStatus::no(reason, String::new()),
            (None, names) if names.is_empty() => ConditionStatus::yes(),
            (None, names) => {
                ConditionStatus::no("ContainersNotReady", format!("containers with unready status: [{names}]"))
            }
        };
        let initialized = if self.initialized() {
            ConditionStatus { reason: over.filter(|reason| *reason == "PodCompleted"), ..ConditionStatus::yes() }
        } else {
            let message = format!("containers with incomplete status: [{}]", unready(INIT));
            ConditionStatus::no("ContainersNotInitialized", message)
        };
        let ready = match gate(&self.pod, present) {
            Some(message) if containers.holds => ConditionStatus::no("ReadinessGatesNotReady", message),
            _ => containers.clone(),
        };
        let ours = [
            ("PodReadyToStartContainers", ConditionStatus { holds: over.is_none(), ..ConditionStatus::yes() }),
            ("Initialized", initialized),
            ("Ready", ready),
            ("ContainersReady", containers),
            ("PodScheduled", ConditionStatus::yes()),
        ];
        let generation = self.pod.metadata.generation;
        let mut conditions: Vec<_> =
            ours.iter().map(|(kind, judgement)| judgement.condition(kind, present, generation, now)).collect();
        if self.is_resizing() {
            conditions.push(ConditionStatus::yes().condition(RESIZING, present, generation, now));
        }
        if may_restart_all(&self.pod) {
            let restarting = match over {
                None if self.restarting_all.is_some() => ConditionStatus {
                    reason: Some("RestartAllContainersStarted"),
                    message: Some("container exited with restart policy rule".into()),
                    ..ConditionStatus::yes()
                },
                reason => ConditionStatus { holds: false, reason, message: None },
            };
            conditions.push(restarting.condition(RESTARTING, present, generation, now));
        }
        let is_ours = |one: &PodCondition| {
            [RESIZING, RESTARTING].contains(&&*one.type_) || ours.iter().any(|(kind, _)| one.type_ == *kind)
        };
        conditions.extend(present.iter().filter(|one| !is_ours(one)).cloned());
        conditions
    }
}

/// The status, reason and message of a condition.
#[derive(Clone, Debug)]
struct ConditionStatus {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionStatus {
    fn yes() -> Self {
        Self { holds: true, reason: None, message: None }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { holds: false, reason: Some(reason), message: Some(message).filter(|text| !text.is_empty()) }
    }

    fn condition(&self, kind: &str, present: &[PodCondition], generation: Option<i64>, now: Timestamp) -> PodCondition {
        let status = if self.holds { "True" } else { "False" };
        let same = present.iter().find(|condition| condition.type_ == kind && condition.status == status);
        PodCondition {
            type_: kind.into(),
            status: status.into(),
            reason: self.reason.map(Into::into),
            message: self.message.clone(),
            last_transition_time: same.and_then(|one| one.last_transition_time.clone()).or(Some(Time(now))),
            observed_generation: generation,
            ..PodCondition::default()
        }
    }
}

/// Returns the message about readiness gates that aren't met.
fn gate(pod: &Pod, present: &[PodCondition]) -> Option<String> {
    let gates = pod.spec.as_ref()?.readiness_gates.as_ref()?;
    let closed = gates.iter().filter_map(|gate| {
        let kind = &gate.condition_type;
        match present.iter().find(|condition| condition.type_ == *kind) {
            Some(condition) if condition.status == "True" => None,
            Some(_) => Some(format!("the status of pod readiness gate {kind:?} is not \"True\"")),
            None => Some(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
        }
    });
    let closed: Vec<_> = closed.collect();
    (!closed.is_empty()).then(|| closed.join(", "))
}

fn container_id(id: &str) -> String {
    format!("kubewright://{id}")
}

/// Returns the state of a container. `has_init` is whether the pod has init containers: each container that has never
/// run is `PodInitializing` then, even an init container.
fn state(record: &Record, has_init: bool) -> ContainerState {
    let creating = if has_init { "PodInitializing" } else { "ContainerCreating" };
    let waiting = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.into()), message }),
        ..ContainerState::default()
    };
    match &record.state {
        State::Running(running) => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(running.since)) }),
            ..ContainerState::default()
        },
        State::Terminated(ended) => terminated(ended),
        // A missing volume is only reported by an event.
        State::Waiting(found) if found.reason == "ContainerCreating" => waiting(creating, None),
        State::Waiting(found) => waiting(found.reason, Some(found.message.clone())),
        State::Pending | State::Starting => waiting(creating, None),
    }
}

fn terminated(ended: &Terminated) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(&ended.id).filter(|id| !id.is_empty()).map(|id| container_id(id)),
            exit_code: ended.code,
            finished_at: Some(Time(ended.finished)),
            message: ended.message.clone(),
            reason: Some(ended.reason.into()),
            signal: None,
            started_at: Some(Time(ended.started)),
        }),
        ..ContainerState::default()
    }
}

/// Returns the merge patch that sets a pod's status. It contains the conditions of other writers, so the version of the
/// pod from which the status was made is a precondition, as is its UID.
pub(crate) fn patch(uid: &str, version: &str, status: &PodStatus) -> Value {
    let mut status = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = status.as_object_mut() {
        for field in ["reason", "message"] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    json!({"metadata": {"uid": uid, "resourceVersion": version}, "status": status})
}
