//! The status and events of an At. Pure.

use jiff::Timestamp;
use kubewright::{
    condition::{self, Conditions},
    event::Event,
};

use super::{
    plan::{Progress, Situation, SpecError},
    run::Run,
};
use crate::api::v1alpha1::{At, AtStatus, Phase};

/// Returns whether the status contains the result of this run, so that the pod doesn't have to be looked up.
pub(crate) fn is_over(at: &At, run: &Run) -> bool {
    at.status.as_ref().is_some_and(|status| {
        status.phase == Some(Phase::Done)
            && status.pod_uid.as_ref() == Some(&run.pod_uid)
            && condition::is_true(&status.conditions, "Complete")
    })
}

/// Returns the status. If nothing has changed, it equals the present status.
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
    let Description { ready, reason, message } = describe(situation);
    let mut conditions = Conditions::new(&mut status.conditions, at.metadata.generation, now);
    conditions.set("Ready", ready, reason, &message);
    conditions.set("Complete", status.phase == Some(Phase::Done), reason, &message);
    report_late_edit(at, situation, &mut conditions);
    status
}

/// Returns the status of an At whose pod is gone, with the result from the present status.
fn remembered(at: &At, run: &Run, before: AtStatus, now: Timestamp) -> AtStatus {
    let mut status = AtStatus { observed_generation: at.metadata.generation, ..before };
    let reported = status.conditions.clone();
    let mut conditions = Conditions::new(&mut status.conditions, at.metadata.generation, now);
    for condition in reported.iter().filter(|condition| condition.type_ != "EditIgnored") {
        conditions.set(&condition.type_, condition.status == "True", &condition.reason, &condition.message);
    }
    report_late_edit(at, &Situation::Ran(run.clone(), Progress::Gone), &mut conditions);
    status
}

fn phase(situation: &Situation) -> Phase {
    match situation {
        Situation::Ran(_, Progress::Running | Progress::Stuck { .. }) => Phase::Running,
        Situation::Ran(..) | Situation::TooLate { .. } => Phase::Done,
        _ => Phase::Pending,
    }
}

struct Description {
    ready: bool,
    reason: &'static str,
    message: String,
}

/// Returns the description of a situation.
fn describe(situation: &Situation) -> Description {
    let (ready, reason, message) = match situation {
        Situation::Invalid(SpecError::Schedule(error)) => (false, "InvalidSchedule", error.to_string()),
        Situation::Invalid(error) => (false, "InvalidCommand", error.to_string()),
        Situation::Waiting { due } => (true, "Waiting", format!("the command runs at {due}")),
        Situation::TooLate { due, deadline } => {
            let message = format!("the command does not run: {due} is more than {deadline} seconds ago");
            (false, "DeadlineExceeded", message)
        }
        Situation::Due { .. } => (true, "Starting", "the pod is being created".into()),
        Situation::Taken { pod, former: true } => {
            let message = format!("waiting until pod {pod:?} of a former At of this name is gone");
            (false, "NameConflict", message)
        }
        Situation::Taken { pod, former: false } => {
            let message =
                format!("pod {pod:?} is not controlled by this At; the command runs once that pod is deleted");
            (false, "NameConflict", message)
        }
        Situation::Refused { message } => (false, "PodRefused", message.clone()),
        Situation::Ran(run, Progress::Running) => (true, "Running", format!("pod {:?} runs the command", run.pod)),
        Situation::Ran(run, Progress::Stuck { reason, message }) => {
            (false, *reason, format!("pod {:?}: {message}", run.pod))
        }
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
            (
                false,
                "PodLost",
                format!("pod {pod:?} is gone, and its exit code is unknown; the command does not run again"),
            )
        }
    };
    Description { ready, reason, message }
}

/// Sets the condition for an edit that came too late.
fn report_late_edit(at: &At, situation: &Situation, conditions: &mut Conditions<'_>) {
    let edited = match situation {
        Situation::Ran(Run { generation: Some(ran), .. }, _) => at.metadata.generation.is_some_and(|now| now > *ran),
        _ => false,
    };
    if edited {
        let message = "the spec was edited after the command had started; the command does not run again";
        conditions.set("EditIgnored", true, "AlreadyStarted", message);
    } else {
        conditions.remove("EditIgnored");
    }
}

/// Returns the events for changes of the status.
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
        let reported = condition::get(before, &after.type_).is_some_and(|before| {
            (&before.status, &before.reason, &before.message) == (&after.status, &after.reason, &after.message)
        });
        if bad && !reported {
            let reason = if after.type_ == "Ready" { &after.reason } else { &after.type_ };
            events.push(Event::warning(reason, &after.message));
        }
    }
    events
}

/// Returns the phases that were entered between two observations.
fn transitions(before: Option<Phase>, after: Option<Phase>, ran: bool) -> &'static [Phase] {
    match (before, after) {
        (before, after) if before == after => &[],
        // PENDING is always written before the command runs, so this status was wiped and is only rebuilt.
        (None, Some(Phase::Running | Phase::Done)) if ran => &[],
        (Some(Phase::Pending), Some(Phase::Done)) if ran => &[Phase::Running, Phase::Done],
        (_, Some(Phase::Pending)) => &[Phase::Pending],
        (_, Some(Phase::Running)) => &[Phase::Running],
        (_, Some(Phase::Done)) => &[Phase::Done],
        (_, None) => &[],
    }
}

#[cfg(test)]
mod tests;
