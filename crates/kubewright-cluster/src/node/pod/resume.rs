//! Pods that the node has run before: their processes are gone, as those of a kubelet are after its machine has
//! restarted.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};

use super::{
    container::{Role, State, Terminated},
    machine::Machine,
};
use crate::node::identity::Identity;

/// The exit code of a container whose end nobody has seen: that of a killed process.
const LOST: i32 = 137;

impl Machine {
    /// Continues from the status that the pod has. What ran has ended, and runs again if its restart policy says so;
    /// init containers run again unless the policy is `Never`.
    pub(crate) fn resume(&mut self, now: Timestamp) {
        let pod = self.pod.clone();
        let Some(status) = &pod.status else { return };
        if let Some(started) = &status.start_time {
            self.started = started.0;
        }
        let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
        for status in lists.into_iter().flatten().flatten() {
            self.resume_container(status, now);
        }
    }

    fn resume_container(&mut self, status: &ContainerStatus, now: Timestamp) {
        let Some(index) = self.containers.iter().position(|record| record.name == status.name) else { return };
        let (role, policy) = (self.containers[index].role, self.policy(index));
        let state = status.state.clone().unwrap_or_default();
        let record = &mut self.containers[index];
        record.restarts = status.restart_count;
        record.identity = status.user.as_ref().and_then(|user| user.linux.as_ref()).and_then(Identity::from_status);
        record.last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()).map(|last| ended(last, now));
        let running = state.running.map(|running| Terminated {
            id: status.container_id.as_deref().map(id_of).unwrap_or_default(),
            code: LOST,
            reason: "ContainerStatusUnknown",
            message: Some("The container could not be located when the node started again".into()),
            started: running.started_at.map_or(now, |started| started.0),
            finished: now,
        });
        let Some(end) = running.or_else(|| state.terminated.map(|terminated| ended(&terminated, now))) else { return };
        let again = match role {
            Role::Sidecar => true,
            Role::Init => policy != "Never",
            Role::Main | Role::Ephemeral => self.restarts(index, end.code),
        };
        let record = &mut self.containers[index];
        if again {
            record.last = Some(end);
        } else {
            record.state = State::Terminated(end);
        }
    }
}

fn ended(found: &ContainerStateTerminated, now: Timestamp) -> Terminated {
    Terminated {
        id: found.container_id.as_deref().map(id_of).unwrap_or_default(),
        code: found.exit_code,
        reason: match found.reason.as_deref() {
            Some("StartError") => "StartError",
            Some("ContainerStatusUnknown") => "ContainerStatusUnknown",
            _ if found.exit_code == 0 => "Completed",
            _ => "Error",
        },
        message: found.message.clone(),
        started: found.started_at.as_ref().map_or(now, |time| time.0),
        finished: found.finished_at.as_ref().map_or(now, |time| time.0),
    }
}

fn id_of(text: &str) -> String {
    text.rsplit("://").next().unwrap_or_default().to_owned()
}
