//! Which containers run again after their end, by the restart policies of the pod and its containers, and their rules
//! (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restarts>).

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{
    container::{Moment, Record, Role, State, Waiting},
    machine::{Effect, Machine},
};

/// The action of a rule that restarts the container.
const RESTART: &str = "Restart";
/// The action of a rule that restarts all containers of the pod.
const RESTART_ALL: &str = "RestartAllContainers";

impl Machine {
    /// Returns whether a container that ended with `code` is restarted.
    pub(super) fn restarts(&self, index: usize, code: i32) -> bool {
        let by_rule = || self.spec(index).is_some_and(|container| action(&container, code) == Some(RESTART));
        match self.containers[index].role {
            Role::Init | Role::Main => {
                (!self.is_complete(index, code) && by_rule()) || self.policy_restarts(index, code)
            }
            Role::Sidecar | Role::Ephemeral => self.policy_restarts(index, code),
        }
    }

    /// Returns whether the policy of a container, without its rules, restarts it after an end with `code`.
    pub(super) fn policy_restarts(&self, index: usize, code: i32) -> bool {
        let main_runs = || self.containers.iter().any(|other| other.role == Role::Main && other.ended().is_none());
        match self.containers[index].role {
            Role::Sidecar => main_runs(),
            Role::Ephemeral => false,
            Role::Init | Role::Main if self.is_complete(index, code) => false,
            Role::Init | Role::Main => match self.policy(index).as_str() {
                "Never" => false,
                "OnFailure" => code != 0,
                _ => true,
            },
        }
    }

    /// Returns `Always`, `OnFailure` or `Never`: the policy of a container, or that of the pod.
    pub(super) fn policy(&self, index: usize) -> String {
        let own = self.spec(index).and_then(|container| container.restart_policy.clone());
        let of_pod = || self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.clone());
        own.or_else(of_pod).unwrap_or_else(|| "Always".into())
    }

    /// Returns whether an end is that of an init container which has done its part.
    fn is_complete(&self, index: usize, code: i32) -> bool {
        self.containers[index].role == Role::Init && code == 0
    }

    /// Returns whether a rule of a container restarts all containers after its end with `code`.
    pub(super) fn restarts_all(&self, index: usize, code: i32) -> bool {
        let is_ephemeral = self.containers[index].role == Role::Ephemeral;
        !is_ephemeral && self.spec(index).is_some_and(|container| action(&container, code) == Some(RESTART_ALL))
    }

    /// If all containers are to be restarted, kills those that still run, and resets all of them once none runs.
    /// Returns whether containers may be started.
    pub(super) fn reset_all(&mut self, now: Moment) -> bool {
        let Some(source) = self.restarting_all else { return true };
        for (index, record) in self.containers.iter_mut().enumerate() {
            if let State::Running(running) = &mut record.state
                && record.role != Role::Ephemeral
                && !std::mem::replace(&mut running.killed, true)
            {
                running.kill_at = Some(now.monotonic);
                self.effects.push(Effect::Kill(index));
            }
        }
        if self.containers.iter().any(|record| record.role != Role::Ephemeral && record.is_alive()) {
            return false;
        }
        self.restarting_all = None;
        for (index, record) in self.containers.iter_mut().enumerate() {
            if record.role != Role::Ephemeral {
                reset(record, source == index, now);
            }
        }
        true
    }
}

/// Lets a container start again. That which caused it waits as after a crash.
fn reset(record: &mut Record, is_source: bool, now: Moment) {
    record.has_begun = false;
    if let State::Terminated(ended) = std::mem::replace(&mut record.state, State::Pending) {
        record.last = Some(ended);
    }
    let delay = if is_source { record.crash.crashed(now.monotonic) } else { Duration::ZERO };
    if !delay.is_zero() {
        let (until, reason) = (now.monotonic + delay, "CrashLoopBackOff");
        let message = "back-off restarting all containers".to_owned();
        record.state = State::Waiting(Waiting { until, reason, message, then: None });
    }
}

/// Returns whether a container of a pod may restart all.
pub(super) fn may_restart_all(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == RESTART_ALL)
}

/// Returns the action of the first rule of a container that an exit code matches.
fn action(container: &Container, code: i32) -> Option<&str> {
    let matches = |operator: &str, values: &[i32]| match operator {
        "In" => values.contains(&code),
        "NotIn" => !values.contains(&code),
        _ => false,
    };
    let rule = container.restart_policy_rules.iter().flatten().find(|rule| {
        let codes = rule.exit_codes.as_ref();
        codes.is_some_and(|codes| matches(&codes.operator, codes.values.as_deref().unwrap_or_default()))
    });
    rule.map(|rule| rule.action.as_str())
}
