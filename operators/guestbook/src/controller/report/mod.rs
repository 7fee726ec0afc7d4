//! The status and events of a Guestbook. Pure.

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

/// A problem with a child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Problem {
    /// Its name is taken, with a message.
    Taken(String),
    /// The API server refuses it, with the server's message. It is retried after a delay.
    Refused(Duration, String),
    /// It disappears or changes as fast as it is written. It is written again after a delay.
    Slow(Duration),
}

impl Problem {
    /// Returns the delay before the next attempt; `None` if an event will trigger it.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Taken(_) => None,
            Self::Refused(wait, _) | Self::Slow(wait) => Some(*wait),
        }
    }
}

/// The problems with the children.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Problems {
    /// The problem with the Service.
    pub(crate) service: Option<Problem>,
    /// The problem with missing pods.
    pub(crate) pods: Option<Problem>,
}

impl Problems {
    /// Returns the delay before the next attempt.
    pub(crate) fn wait(&self) -> Option<Duration> {
        [&self.service, &self.pods].into_iter().flatten().filter_map(Problem::wait).min()
    }
}

/// Returns the status. If nothing has changed, it equals the present status.
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
    let mut reported = Conditions::new(&mut conditions, generation, now);
    let facts = [
        ("Configured", configured(guestbook, config)),
        ("Serving", serving(&active, problems.service.as_ref())),
        ("Updated", updated(plan)),
        ("Ready", whole(guestbook, config, plan, problems, (ready, !active.is_empty()))),
    ];
    for (type_, Fact(holds, reason, message)) in facts {
        reported.set(type_, holds, reason, &message);
    }
    GuestbookStatus {
        standby: plan.alive.iter().map(|pod| pod.name_any()).filter(|name| *name != active).collect(),
        active,
        ready_replicas: i32::try_from(ready).unwrap_or(i32::MAX),
        observed_generation: generation,
        conditions,
    }
}

/// The status, reason and message of a condition.
struct Fact(bool, &'static str, String);

fn configured(guestbook: &Guestbook, config: &Config) -> Fact {
    let name = &guestbook.spec.config_map_name;
    match config {
        Config::Found(_) => Fact(true, "Found", format!("the texts are from ConfigMap {name:?}")),
        Config::Missing => {
            let message = format!("ConfigMap {name:?} not found; create it to let pods be created");
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
            let message = "another writer keeps changing the Service; it is restored with back-off".to_owned();
            Fact(!active.is_empty(), "ServiceContended", message)
        }
        None if active.is_empty() => Fact(false, "NoReadyPod", "no pod is ready to serve".into()),
        None => Fact(true, "Active", format!("pod {active:?} serves")),
    }
}

fn updated(plan: &Plan) -> Fact {
    match (&plan.revision, plan.outdated.len()) {
        (None, _) => Fact(false, "NotConfigured", "without the ConfigMap pods are not updated".into()),
        (_, 0) => Fact(true, "UpToDate", "all pods have the present texts".into()),
        (_, left) => {
            let pods = plan.alive.len();
            Fact(false, "Rolling", format!("{left} of {pods} pods have to be replaced, the active one last"))
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
    // While a single pod is being replaced, there is one more ready pod.
    if plan.alive.len() >= size && ready >= size && serves && plan.revision.is_some() {
        return Fact(true, "PodsReady", format!("{size} of {size} pods are ready"));
    }
    let configured = configured(guestbook, config);
    match &problems.pods {
        _ if !configured.0 => configured,
        Some(Problem::Refused(_, message) | Problem::Taken(message)) => Fact(false, "PodRefused", message.clone()),
        Some(Problem::Slow(_)) => {
            let message = "pods end or disappear as fast as they are created; they are replaced with back-off";
            Fact(false, "BackOff", message.into())
        }
        None => match serving(if serves { "it" } else { "" }, problems.service.as_ref()) {
            Fact(false, reason, message) if reason != "NoReadyPod" => Fact(false, reason, message),
            _ => Fact(false, "PodsNotReady", counts),
        },
    }
}

/// Returns the warnings for new problems. Each problem is reported once.
pub(crate) fn warnings(before: Option<&GuestbookStatus>, after: &GuestbookStatus) -> Vec<Event> {
    let before = before.map_or(&[][..], |before| &before.conditions);
    let is_new = |after: &&Condition| {
        let same = |before: &Condition| (&before.reason, &before.message) == (&after.reason, &after.message);
        is_trouble(after) && !condition::get(before, &after.type_).is_some_and(same)
    };
    let new = after.conditions.iter().filter(is_new);
    let mut warnings: Vec<Event> = new.map(|it| Event::warning(&it.reason, &it.message)).collect();
    warnings.dedup_by(|a, b| a == b);
    // A new Guestbook can't serve before a pod is ready; only the loss of the active pod is worth a warning.
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
