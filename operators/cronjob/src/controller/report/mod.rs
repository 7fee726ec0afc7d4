//! The status and events of a CronJob. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewright::{
    condition::{self, Conditions},
    event::Event,
};

use super::{
    children::Children,
    plan::{self, Plan, Situation, SpecError},
};
use crate::{
    api::v1::{CronJob, CronJobStatus},
    schedule::ScheduleError,
};

/// Returns the status. If nothing has changed, it equals the present status.
pub(crate) fn status(
    cronjob: &CronJob,
    children: &Children,
    last: Option<Timestamp>,
    plan: &Plan,
    now: Timestamp,
) -> CronJobStatus {
    let before = cronjob.status.clone().unwrap_or_default();
    let succeeded = [before.last_successful_time, children.last_success()];
    let mut status = CronJobStatus {
        active: children.references(),
        last_schedule_time: last.map(Time),
        // The Job may already have been deleted by the history limit.
        last_successful_time: succeeded.into_iter().flatten().max_by_key(|time| time.0),
        next_schedule_time: plan.next.map(Time),
        observed_generation: cronjob.metadata.generation,
        conditions: before.conditions,
    };
    let mut conditions = Conditions::new(&mut status.conditions, cronjob.metadata.generation, now);
    let (ready, reason, message) = ready(&plan.situation);
    conditions.set("Ready", ready, reason, &message);
    match missed(&plan.situation) {
        Some((reason, message)) => conditions.set("Missed", true, reason, &message),
        // The Job could not be launched; the next attempt decides.
        None if matches!(plan.situation, Situation::Due { .. }) => false,
        None if last.is_some() && ready && plan.situation != Situation::Suspended => {
            conditions.set("Missed", false, "Started", "the latest scheduled time has its job")
        }
        None => conditions.remove("Missed"),
    };
    if plan::has_short_deadline(cronjob) {
        let message = "with a startingDeadlineSeconds of less than 10, runs may be missed";
        conditions.set("ShortDeadline", true, "MayBeMissed", message);
    } else {
        conditions.remove("ShortDeadline");
    }
    status
}

/// Returns whether the CronJob follows its schedule, the reason, and the message.
fn ready(situation: &Situation) -> (bool, &'static str, String) {
    match situation {
        Situation::Invalid(error) => (false, reason(error), error.to_string()),
        Situation::Suspended => (true, "Suspended", "no jobs are started until spec.suspend is false".into()),
        Situation::Taken { job } => {
            let message =
                format!("job {job:?} is not controlled by this CronJob; delete it to let the CronJob create its own");
            (false, "NameConflict", message)
        }
        Situation::Refused { message } => (false, "JobRefused", message.clone()),
        _ => (true, "Scheduled", "the schedule is followed".into()),
    }
}

fn reason(error: &SpecError) -> &'static str {
    match error {
        SpecError::Schedule(ScheduleError::Zone(_)) => "UnknownTimeZone",
        SpecError::Schedule(_) => "InvalidSchedule",
        SpecError::NeverMatches(_) => "NeverMatches",
        SpecError::Template(_) => "InvalidTemplate",
        SpecError::Name => "NameTooLong",
    }
}

/// Returns the reason why the latest scheduled time has no Job.
fn missed(situation: &Situation) -> Option<(&'static str, String)> {
    match situation {
        Situation::TooLate { time, deadline } => {
            Some(("TooLate", format!("no job is started for {time}, which is more than {deadline} seconds ago")))
        }
        Situation::Forbidden { time, active } => {
            Some(("Skipped", format!("no job is started for {time} while there are active jobs: {}", some(active))))
        }
        Situation::Replacing { time, active } => {
            Some(("Replacing", format!("the job for {time} is started once these are gone: {}", some(active))))
        }
        _ => None,
    }
}

/// Returns as many names as fit into a message.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| format!("job {name:?}")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the warnings for conditions that have changed.
pub(crate) fn warnings(before: Option<&CronJobStatus>, after: &CronJobStatus) -> Vec<Event> {
    let before = before.map_or(&[][..], |before| &before.conditions);
    let new = after.conditions.iter().filter(|after| {
        is_trouble(after)
            && !condition::get(before, &after.type_).is_some_and(|before| {
                (&before.status, &before.reason, &before.message) == (&after.status, &after.reason, &after.message)
            })
    });
    new.map(|it| {
        let reason = if it.type_ == "ShortDeadline" { &it.type_ } else { &it.reason };
        Event::warning(reason, &it.message)
    })
    .collect()
}

fn is_trouble(condition: &Condition) -> bool {
    match condition.type_.as_str() {
        "Ready" => condition.status == "False",
        // Each replaced Job has its own event.
        "Missed" => condition.status == "True" && condition.reason != "Replacing",
        _ => condition.status == "True",
    }
}

#[cfg(test)]
mod tests;
