//! What to say of an At: values in, values out.

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
        Situation::Ran(_, Progress::Running | Progress::Hindered { .. }) => Phase::Running,
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
        Situation::Ran(run, Progress::Hindered { reason, message }) => {
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
mod tests;
