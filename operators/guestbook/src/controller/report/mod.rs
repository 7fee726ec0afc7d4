//! What to say of a Guestbook: values in, values out.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kubewright::{
    condition::{self, Conditions},
    event::Event,
};

use super::{
    config::{Config, LONGEST},
    plan::{Plan, is_ready},
};
use crate::api::v1::{Guestbook, GuestbookStatus};

/// What is in the way of a child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Problem {
    /// Its name is another's, in these words.
    Taken(String),
    /// The API server refuses it in these words. It is tried again after a while.
    Refused(Duration, String),
    /// It vanishes, or is changed, as fast as it is written. It is written again after a while.
    Slow(Duration),
}

impl Problem {
    /// When to look again; unless an event tells.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Taken(_) => None,
            Self::Refused(wait, _) | Self::Slow(wait) => Some(*wait),
        }
    }
}

/// What is in the way of the children.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Problems {
    /// Of the Service.
    pub(crate) service: Option<Problem>,
    /// Of the pods that are missing.
    pub(crate) pods: Option<Problem>,
}

impl Problems {
    /// When to look again.
    pub(crate) fn wait(&self) -> Option<Duration> {
        [&self.service, &self.pods].into_iter().flatten().filter_map(Problem::wait).min()
    }
}

/// The status that tells how it stands. Without a change in what it tells, it is the same as before.
pub(crate) fn status(
    guestbook: &Guestbook,
    config: &Config,
    plan: &Plan,
    problems: &Problems,
    now: Timestamp,
) -> GuestbookStatus {
    let ready = plan.alive.iter().filter(|pod| is_ready(pod)).count();
    let active = plan.active().filter(|_| plan.present == plan.chosen).map(|pod| pod.name_any()).unwrap_or_default();
    let generation = guestbook.metadata.generation;
    let mut conditions = guestbook.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let mut told = Conditions::new(&mut conditions, generation, now);
    let facts = [
        ("Configured", configured(guestbook, config)),
        ("Serving", serving(&active, problems.service.as_ref())),
        ("Updated", updated(plan)),
        ("Ready", whole(guestbook, config, plan, problems, (ready, !active.is_empty()))),
    ];
    for (type_, Fact(holds, reason, message)) in facts {
        told.set(type_, holds, reason, &message);
    }
    GuestbookStatus {
        standby: plan.alive.iter().map(|pod| pod.name_any()).filter(|name| *name != active).collect(),
        active,
        ready_replicas: i32::try_from(ready).unwrap_or(i32::MAX),
        observed_generation: generation,
        conditions,
    }
}

/// Whether something holds, why, and in words.
struct Fact(bool, &'static str, String);

fn configured(guestbook: &Guestbook, config: &Config) -> Fact {
    let name = &guestbook.spec.config_map_name;
    match config {
        Config::Found(_) => Fact(true, "Found", format!("the texts are those of ConfigMap {name:?}")),
        Config::Missing => {
            let message = format!("there is no ConfigMap {name:?}: no pods are created until there is");
            Fact(false, "ConfigMapMissing", message)
        }
        Config::Invalid(key) => {
            let message = format!(
                "{key:?} in ConfigMap {name:?} has more than {LONGEST} bytes: no pods are created until it is shorter"
            );
            Fact(false, "InvalidConfigMap", message)
        }
    }
}

fn serving(active: &str, problem: Option<&Problem>) -> Fact {
    match problem {
        Some(Problem::Taken(message)) => Fact(false, "NameConflict", message.clone()),
        Some(Problem::Refused(_, message)) => Fact(!active.is_empty(), "ServiceRefused", message.clone()),
        Some(Problem::Slow(_)) => {
            let message = "the Service is changed as fast as it is written; it is written more slowly".to_owned();
            Fact(!active.is_empty(), "ServiceContended", message)
        }
        None if active.is_empty() => Fact(false, "NoReadyPod", "no pod is ready to serve".into()),
        None => Fact(true, "Active", format!("pod {active:?} serves")),
    }
}

fn updated(plan: &Plan) -> Fact {
    match (&plan.revision, plan.outdated.len()) {
        (None, _) => Fact(false, "NotConfigured", "without the texts pods are left as they are".into()),
        (_, 0) => Fact(true, "UpToDate", "all pods have the present texts".into()),
        (_, left) => {
            let pods = plan.alive.len();
            Fact(false, "Rolling", format!("{left} of {pods} pods are yet to be replaced, the active one last"))
        }
    }
}

fn whole(
    guestbook: &Guestbook,
    config: &Config,
    plan: &Plan,
    problems: &Problems,
    (ready, serves): (usize, bool),
) -> Fact {
    let size = usize::try_from(guestbook.spec.size).unwrap_or(0);
    let counts = format!("{ready} of {size} pods are ready");
    // A pod more is ready while a single one is being replaced.
    if plan.alive.len() >= size && ready >= size && serves && plan.revision.is_some() {
        return Fact(true, "PodsReady", format!("{size} of {size} pods are ready"));
    }
    let configured = configured(guestbook, config);
    match &problems.pods {
        _ if !configured.0 => configured,
        Some(Problem::Refused(_, message) | Problem::Taken(message)) => Fact(false, "PodRefused", message.clone()),
        Some(Problem::Slow(_)) => {
            let message = "pods end or vanish as fast as they are created; they are replaced more slowly";
            Fact(false, "BackOff", message.into())
        }
        None => match serving(if serves { "it" } else { "" }, problems.service.as_ref()) {
            Fact(false, reason, message) if reason != "NoReadyPod" => Fact(false, reason, message),
            _ => Fact(false, "PodsNotReady", counts),
        },
    }
}

/// The warnings that tell of new troubles, and of nothing that is told by another condition as well.
pub(crate) fn warnings(before: Option<&GuestbookStatus>, after: &GuestbookStatus) -> Vec<Event> {
    let before = before.map_or(&[][..], |before| &before.conditions);
    let is_new = |after: &&Condition| {
        let same = |before: &Condition| (&before.reason, &before.message) == (&after.reason, &after.message);
        is_trouble(after) && !condition::get(before, &after.type_).is_some_and(same)
    };
    let new = after.conditions.iter().filter(is_new);
    let mut warnings: Vec<Event> = new.map(|it| Event::warning(&it.reason, &it.message)).collect();
    warnings.dedup_by(|a, b| a == b);
    // Without a ready pod it can't serve from the beginning; only that it no longer does is worth a word.
    let served = condition::is_true(before, "Serving");
    warnings.retain(|warning| warning.reason != "NoReadyPod" || served);
    warnings
}

fn is_trouble(condition: &Condition) -> bool {
    match (condition.type_.as_str(), condition.reason.as_str()) {
        (_, "ServiceRefused" | "ServiceContended") => condition.type_ == "Serving",
        ("Ready", "PodRefused" | "BackOff") => true,
        ("Configured" | "Serving", _) => condition.status == "False",
        _ => false,
    }
}

#[cfg(test)]
mod tests;
