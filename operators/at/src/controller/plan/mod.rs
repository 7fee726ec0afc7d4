//! How it stands with an At, and the pod that it is to have: values in, values out.

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

/// The image, unless the spec names one, and the name of the container.
const BUSYBOX: &str = "busybox";

/// The name of the pod that runs an At of this name. Where the usual one would be too long, it is shortened.
pub(crate) fn pod_name(at: &str) -> String {
    format!("{}-pod", shorten(at, 253 - "-pod".len()))
}

/// The name of the At whose pod would have this name; none for a shortened one.
pub(crate) fn at_name(pod: &str) -> Option<&str> {
    pod.strip_suffix("-pod").filter(|at| !at.is_empty())
}

/// What is wrong with a spec. Only an edit mends it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SpecError {
    /// The schedule isn't a time.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// There is nothing to run.
    #[error("the command is empty")]
    EmptyCommand,
    /// The command can't be split into words.
    #[error("the command has a quote that is not closed")]
    OpenQuote,
}

/// How it stands with an At: everything that its status tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Situation {
    /// The spec is wrong.
    Invalid(SpecError),
    /// The time hasn't come.
    Waiting {
        /// When it comes.
        due: Timestamp,
    },
    /// The time has come and is past by more than the deadline.
    TooLate {
        /// When it came.
        due: Timestamp,
        /// How many seconds it could have been late.
        deadline: i64,
    },
    /// The time has come, and the pod is to be created.
    Due {
        /// The command's words.
        command: Vec<String>,
    },
    /// The pod's name is taken by a pod that isn't this At's.
    Taken {
        /// The pod's name.
        pod: String,
        /// Whether that pod is of an earlier At of this name, so that the garbage collector will delete it.
        earlier: bool,
    },
    /// The API server refuses the pod.
    Refused {
        /// In these words.
        message: String,
    },
    /// The command was started.
    Ran(Run, Progress),
}

/// How far a run has come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Progress {
    /// The pod is there and hasn't ended.
    Running,
    /// The pod hasn't ended, and the command doesn't get on.
    Hindered {
        /// What hinders it, in one word.
        reason: &'static str,
        /// What hinders it. It stays the same for as long as that does.
        message: String,
    },
    /// The pod has ended.
    Ended {
        /// Whether it says that it succeeded.
        succeeded: bool,
        /// The command's exit code.
        exit_code: Option<i32>,
        /// When the command ended.
        at: Option<Time>,
        /// What the pod says about it.
        message: Option<String>,
    },
    /// The pod is gone; the status may remember how it ended.
    Gone,
}

/// How it stands with an At that hasn't run, as far as its spec tells.
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
    // A first word that is empty, as in `''`, names no program either.
    if command.first().is_none_or(String::is_empty) {
        return Err(SpecError::EmptyCommand);
    }
    Ok((due, command))
}

/// The pod that runs the command; who controls it is for the caller to add.
///
/// It can't vanish until its run is recorded, because of its finalizer.
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

/// Whose the pod is that has the name of this At's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This At's: its uid decides.
    Ours,
    /// That of an earlier At of the same name.
    Earlier,
    /// Someone else's.
    Foreign,
}

/// Whose the pod is.
pub(crate) fn whose(at: &At, pod: &Pod) -> Whose {
    match at_of(pod) {
        Some((_, uid)) if Some(uid) == at.metadata.uid.as_deref() => Whose::Ours,
        Some((name, _)) if Some(name) == at.metadata.name.as_deref() => Whose::Earlier,
        _ => Whose::Foreign,
    }
}

/// The name and uid of the At that controls the pod.
pub(crate) fn at_of(pod: &Pod) -> Option<(&str, &str)> {
    let controller = owner::controller_of(pod)?;
    let ours = controller.kind == At::kind(&()) && controller.api_version == At::api_version(&());
    ours.then_some((controller.name.as_str(), controller.uid.as_str()))
}

/// Whether the pod waits for its run to be recorded.
pub(crate) fn is_unrecorded(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == UNRECORDED)
}

/// How far the run has come, as its pod shows.
pub(crate) fn progress(pod: Option<&Pod>) -> Progress {
    let Some(pod) = pod else { return Progress::Gone };
    let status = pod.status.clone().unwrap_or_default();
    let succeeded = match status.phase.as_deref() {
        Some("Succeeded") => true,
        Some("Failed") => false,
        _ => return hindrance(pod).unwrap_or(Progress::Running),
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

/// What keeps a pod from ending, if it is more than time. The kubelet tries again and again, and with each try says now
/// this, now that: what is told here doesn't change with it.
fn hindrance(pod: &Pod) -> Option<Progress> {
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
    Some(Progress::Hindered { reason, message })
}

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    container(pod)?.state.as_ref()?.terminated.as_ref()
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|container| container.name == BUSYBOX)
}

#[cfg(test)]
pub(crate) mod tests;
