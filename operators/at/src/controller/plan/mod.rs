//! Decides the next step for an At, and builds its pod. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, ResourceExt};
use kubewright::{name::shorten, owner};
use thiserror::Error;

use super::{
    run::{GENERATION, Run, UNRECORDED},
    schedule::{self, ScheduleError},
};
use crate::api::v1alpha1::At;

/// The default image, and the name of the container.
const BUSYBOX: &str = "busybox";

/// Returns the name of an At's pod, shortened if necessary.
pub(crate) fn pod_name(at: &str) -> String {
    format!("{}-pod", shorten(at, 253 - "-pod".len()))
}

/// Returns the name of the At whose pod would have this name; `None` for a shortened name.
pub(crate) fn at_name(pod: &str) -> Option<&str> {
    pod.strip_suffix("-pod").filter(|at| !at.is_empty())
}

/// An error in a spec that only an edit can fix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SpecError {
    /// The schedule is invalid.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// The command is empty.
    #[error("the command is empty")]
    EmptyCommand,
    /// The command has an unclosed quote.
    #[error("the command has a quote that is not closed")]
    OpenQuote,
}

/// The situation of an At, which its status describes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Situation {
    /// The spec is invalid.
    Invalid(SpecError),
    /// The time has not come.
    Waiting {
        /// The scheduled time.
        due: Timestamp,
    },
    /// The scheduled time passed longer ago than the deadline.
    TooLate {
        /// The scheduled time.
        due: Timestamp,
        /// The deadline in seconds.
        deadline: i64,
    },
    /// The time has come, and the pod has to be created.
    Due {
        /// The words of the command.
        command: Vec<String>,
    },
    /// The pod's name is taken by a pod that the At doesn't control.
    Taken {
        /// The name of the pod.
        pod: String,
        /// Whether that pod belongs to a former At of the same name, so that the garbage collector will delete it.
        former: bool,
    },
    /// The API server refuses the pod.
    Refused {
        /// The message of the API server.
        message: String,
    },
    /// The command was started.
    Ran(Run, Progress),
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Progress {
    /// The pod exists and has not ended.
    Running,
    /// The pod has not ended, and the command makes no progress.
    Stuck {
        /// The reason in CamelCase.
        reason: &'static str,
        /// The message, which is stable for as long as the reason is.
        message: String,
    },
    /// The pod has ended.
    Ended {
        /// Whether it succeeded.
        succeeded: bool,
        /// The exit code of the command.
        exit_code: Option<i32>,
        /// The time at which the command ended.
        at: Option<Time>,
        /// The pod's message.
        message: Option<String>,
    },
    /// The pod is gone. The status may contain its result.
    Gone,
}

/// Returns the situation of an At that has not run, according to its spec.
pub(crate) fn situation(at: &At, now: Timestamp) -> Situation {
    let (due, command) = match read(at) {
        Ok(read) => read,
        Err(error) => return Situation::Invalid(error),
    };
    if now < due {
        return Situation::Waiting { due };
    }
    match at.spec.starting_deadline_seconds {
        Some(deadline) if now.duration_since(due) > SignedDuration::from_secs(deadline) => {
            Situation::TooLate { due, deadline }
        }
        _ => Situation::Due { command },
    }
}

fn read(at: &At) -> Result<(Timestamp, Vec<String>), SpecError> {
    let due = schedule::parse(&at.spec.schedule)?;
    let command = shell_words::split(&at.spec.command).map_err(|_| SpecError::OpenQuote)?;
    // An empty first word, as in `''`, isn't a program either.
    if command.first().is_none_or(String::is_empty) {
        return Err(SpecError::EmptyCommand);
    }
    Ok((due, command))
}

/// Returns the pod of the command, without an owner reference.
///
/// The finalizer keeps the pod until its run is recorded.
pub(crate) fn pod(at: &At, command: Vec<String>) -> Pod {
    let container = Container {
        name: BUSYBOX.into(),
        image: Some(at.spec.image.clone().unwrap_or_else(|| BUSYBOX.into())),
        command: Some(command),
        ..Container::default()
    };
    let generation = at.metadata.generation.map(|generation| (GENERATION.into(), generation.to_string()));
    Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(&at.name_any())),
            namespace: at.namespace(),
            labels: Some([("app".into(), shorten(&at.name_any(), 63))].into()),
            annotations: Some(generation.into_iter().collect()),
            finalizers: Some(vec![UNRECORDED.into()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            restart_policy: Some("OnFailure".into()),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// The owner of a pod that has the name of an At's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodOwner {
    /// This At, by UID.
    Ours,
    /// A former At of the same name.
    Former,
    /// Another controller, or no controller.
    Foreign,
}

/// Returns the owner of a pod.
pub(crate) fn owner_of(at: &At, pod: &Pod) -> PodOwner {
    match at_of(pod) {
        Some((_, uid)) if Some(uid) == at.metadata.uid.as_deref() => PodOwner::Ours,
        Some((name, _)) if Some(name) == at.metadata.name.as_deref() => PodOwner::Former,
        _ => PodOwner::Foreign,
    }
}

/// Returns the name and UID of the At that controls a pod.
pub(crate) fn at_of(pod: &Pod) -> Option<(&str, &str)> {
    let controller = owner::controller_of(pod)?;
    let ours = controller.kind == At::kind(&()) && controller.api_version == At::api_version(&());
    ours.then_some((controller.name.as_str(), controller.uid.as_str()))
}

/// Returns whether the pod's run is not recorded yet.
pub(crate) fn is_unrecorded(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == UNRECORDED)
}

/// Returns the progress of a run, by its pod.
pub(crate) fn progress(pod: Option<&Pod>) -> Progress {
    let Some(pod) = pod else { return Progress::Gone };
    let status = pod.status.clone().unwrap_or_default();
    let succeeded = match status.phase.as_deref() {
        Some("Succeeded") => true,
        Some("Failed") => false,
        _ => return stuck(pod).unwrap_or(Progress::Running),
    };
    let terminated = terminated(pod);
    let deleted = pod.metadata.deletion_timestamp.is_some().then(|| "it was deleted while it ran".to_owned());
    Progress::Ended {
        succeeded,
        exit_code: terminated.map(|terminated| terminated.exit_code),
        at: terminated.and_then(|terminated| terminated.finished_at.clone()),
        message: status.message.or(status.reason).filter(|message| !message.is_empty()).or(deleted),
    }
}

/// Returns the reason why a pod makes no progress. The kubelet's messages alternate between attempts; this one is
/// stable.
fn stuck(pod: &Pod) -> Option<Progress> {
    let status = container(pod)?;
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    let failed = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let (reason, message) = match (waiting.and_then(|waiting| waiting.reason.as_deref()), failed) {
        (Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull"), _) => {
            ("ImageUnavailable", format!("image {:?} can't be pulled", status.image))
        }
        (Some("CreateContainerConfigError" | "CreateContainerError"), _) => {
            ("NotStarted", waiting?.message.clone().unwrap_or_default())
        }
        (_, Some(failed)) if failed.exit_code != 0 => {
            let why = failed.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            ("Retrying", format!("the command fails with exit code {} and is started again{why}", failed.exit_code))
        }
        _ => return None,
    };
    Some(Progress::Stuck { reason, message })
}

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    container(pod)?.state.as_ref()?.terminated.as_ref()
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|container| container.name == BUSYBOX)
}

#[cfg(test)]
pub(crate) mod tests;
