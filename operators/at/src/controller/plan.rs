//! What to do about an At, and what to say of it: values in, values out.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Container, ContainerStateTerminated, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, ResourceExt};
use kubewright::{
    condition::{self, Conditions},
    event::Event,
    name::shorten,
    owner,
};
use thiserror::Error;

use super::{
    run::{GENERATION, Run, UNRECORDED},
    schedule::{self, ScheduleError},
};
use crate::api::v1alpha1::{At, AtStatus, Phase};

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
        _ => return Progress::Running,
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

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.iter().find(|container| container.name == BUSYBOX)?.state.as_ref()?.terminated.as_ref()
}

/// Whether the status tells how this run ended, so that its pod needn't be looked for.
pub(crate) fn is_over(at: &At, run: &Run) -> bool {
    at.status.as_ref().is_some_and(|status| {
        status.phase == Some(Phase::Done)
            && status.pod_uid.as_ref() == Some(&run.pod_uid)
            && condition::is_true(&status.conditions, "Complete")
    })
}

/// The status that tells the situation. Without a change in what it tells, it is the same as before.
pub(crate) fn status(at: &At, situation: &Situation, now: Timestamp) -> AtStatus {
    let before = at.status.clone().unwrap_or_default();
    if let Situation::Ran(run, Progress::Gone) = situation
        && is_over(at, run)
    {
        return remembered(at, run, before, now);
    }
    let mut status = AtStatus {
        phase: Some(phase(situation)),
        observed_generation: at.metadata.generation,
        conditions: before.conditions,
        ..AtStatus::default()
    };
    if let Situation::Ran(run, progress) = situation {
        status.pod_name = Some(run.pod.clone());
        status.pod_uid = Some(run.pod_uid.clone());
        status.start_time = run.start_time.clone();
        if let Progress::Ended { exit_code, at, .. } = progress {
            status.exit_code = *exit_code;
            status.completion_time = at.clone();
        }
    }
    let Said { ready, reason, message } = say(situation);
    let mut conditions = Conditions::new(&mut status.conditions, at.metadata.generation, now);
    conditions.set("Ready", ready, reason, &message);
    conditions.set("Complete", status.phase == Some(Phase::Done), reason, &message);
    say_edited(at, situation, &mut conditions);
    status
}

/// The status of an At whose pod is gone, and which tells already how that ended.
fn remembered(at: &At, run: &Run, before: AtStatus, now: Timestamp) -> AtStatus {
    let mut status = AtStatus { observed_generation: at.metadata.generation, ..before };
    let told = status.conditions.clone();
    let mut conditions = Conditions::new(&mut status.conditions, at.metadata.generation, now);
    for condition in told.iter().filter(|condition| condition.type_ != "EditIgnored") {
        conditions.set(&condition.type_, condition.status == "True", &condition.reason, &condition.message);
    }
    say_edited(at, &Situation::Ran(run.clone(), Progress::Gone), &mut conditions);
    status
}

fn phase(situation: &Situation) -> Phase {
    match situation {
        Situation::Ran(_, Progress::Running) => Phase::Running,
        Situation::Ran(..) | Situation::TooLate { .. } => Phase::Done,
        _ => Phase::Pending,
    }
}

struct Said {
    ready: bool,
    reason: &'static str,
    message: String,
}

/// The situation in words.
fn say(situation: &Situation) -> Said {
    let (ready, reason, message) = match situation {
        Situation::Invalid(SpecError::Schedule(error)) => (false, "InvalidSchedule", error.to_string()),
        Situation::Invalid(error) => (false, "InvalidCommand", error.to_string()),
        Situation::Waiting { due } => (true, "Waiting", format!("the command runs at {due}")),
        Situation::TooLate { due, deadline } => {
            let message = format!("the command is not run: {due} is more than {deadline} seconds ago");
            (false, "DeadlineExceeded", message)
        }
        Situation::Due { .. } => (true, "Starting", "the time has come; the pod is being created".into()),
        Situation::Taken { pod, earlier: true } => {
            let message = format!("the command runs when pod {pod:?} of an earlier At of this name is gone");
            (false, "NameConflict", message)
        }
        Situation::Taken { pod, earlier: false } => {
            let message = format!("pod {pod:?} is not controlled by this At; the command runs when that pod is gone");
            (false, "NameConflict", message)
        }
        Situation::Refused { message } => (false, "PodRefused", message.clone()),
        Situation::Ran(run, Progress::Running) => (true, "Running", format!("pod {:?} runs the command", run.pod)),
        Situation::Ran(_, Progress::Ended { succeeded: true, .. }) => {
            (true, "Succeeded", "the command has ended with exit code 0".into())
        }
        Situation::Ran(run, Progress::Ended { exit_code, message, .. }) => {
            let code = exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
            let message = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            (false, "Failed", format!("pod {:?} has failed{code}{message}", run.pod))
        }
        Situation::Ran(run, Progress::Gone) => {
            let pod = &run.pod;
            (false, "PodLost", format!("pod {pod:?} is gone and left no exit code; the command is not run again"))
        }
    };
    Said { ready, reason, message }
}

/// Tells of an edit that came too late.
fn say_edited(at: &At, situation: &Situation, conditions: &mut Conditions<'_>) {
    let edited = match situation {
        Situation::Ran(Run { generation: Some(ran), .. }, _) => at.metadata.generation.is_some_and(|now| now > *ran),
        _ => false,
    };
    if edited {
        let message = "the spec was edited after the command had started; it is not run again";
        conditions.set("EditIgnored", true, "AlreadyStarted", message);
    } else {
        conditions.remove("EditIgnored");
    }
}

/// The events that tell how the status has changed.
pub(crate) fn events(before: Option<&AtStatus>, after: &AtStatus) -> Vec<Event> {
    let ran = after.pod_uid.is_some();
    let phases = transitions(before.and_then(|before| before.phase), after.phase, ran);
    let mut events: Vec<Event> = phases.iter().map(|phase| Event::normal("PhaseChange", phase.as_str())).collect();
    let before = before.map_or(&[][..], |before| &before.conditions);
    for after in &after.conditions {
        let bad = match after.type_.as_str() {
            "Ready" => after.status == "False",
            "EditIgnored" => after.status == "True",
            _ => false,
        };
        let told = condition::get(before, &after.type_).is_some_and(|before| {
            (&before.status, &before.reason, &before.message) == (&after.status, &after.reason, &after.message)
        });
        if bad && !told {
            let reason = if after.type_ == "Ready" { &after.reason } else { &after.type_ };
            events.push(Event::warning(reason, &after.message));
        }
    }
    events
}

/// The phases that were entered between two observations.
fn transitions(before: Option<Phase>, after: Option<Phase>, ran: bool) -> &'static [Phase] {
    match (before, after) {
        (before, after) if before == after => &[],
        // Nothing is run before PENDING was written; hence this status was wiped, and is only told again.
        (None, Some(Phase::Running | Phase::Done)) if ran => &[],
        (Some(Phase::Pending), Some(Phase::Done)) if ran => &[Phase::Running, Phase::Done],
        (_, Some(Phase::Pending)) => &[Phase::Pending],
        (_, Some(Phase::Running)) => &[Phase::Running],
        (_, Some(Phase::Done)) => &[Phase::Done],
        (_, None) => &[],
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
