//! The conditions and events of a PodSet. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewright::{
    condition::{self, Conditions},
    event::Event,
};

/// A problem that prevents missing pods from being created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Problem {
    /// The template is malformed; only an edit can fix it.
    Template(String),
    /// The API server refuses a pod, with its message. The creation is retried after a delay.
    Refused(Duration, String),
    /// Pods disappear as fast as they are created. They are replaced after a delay.
    Slow(Duration),
}

impl Problem {
    /// Returns the delay before the next attempt.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Template(_) => None,
            Self::Refused(wait, _) | Self::Slow(wait) => Some(*wait),
        }
    }
}

/// Returns the conditions, which contain the number of ready pods, and the reason if it is too small.
pub(crate) fn conditions(
    before: &[Condition],
    (ready, desired): (usize, usize),
    problem: Option<&Problem>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let counts = format!("{ready} of {desired} pods are ready");
    let (reason, message) = match problem {
        Some(Problem::Template(message)) => ("InvalidTemplate", message.clone()),
        Some(Problem::Refused(_, message)) => ("PodRefused", message.clone()),
        Some(Problem::Slow(_)) => {
            ("BackOff", "pods end or disappear as fast as they are created; they are replaced with back-off".into())
        }
        None if ready == desired => ("PodsReady", counts),
        None => ("PodsNotReady", counts),
    };
    let mut after = before.to_vec();
    Conditions::new(&mut after, generation, now).set("Ready", reason == "PodsReady", reason, &message);
    after
}

// ANCHOR: event
/// Returns the event for a new problem.
pub(crate) fn event(before: &[Condition], after: &[Condition]) -> Option<Event> {
    let (before, after) = (condition::get(before, "Ready"), condition::get(after, "Ready")?);
    let bad = after.status == "False" && after.reason != "PodsNotReady";
    let reported = before.is_some_and(|before| (&before.reason, &before.message) == (&after.reason, &after.message));
    (bad && !reported).then(|| Event::warning(&after.reason, &after.message))
}
// ANCHOR_END: event

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_580_378_520).unwrap()
    }

    #[test]
    fn ready_means_as_many_as_desired() {
        let check = |counts: (usize, usize), problem: Option<Problem>, expect: (&str, &str, &str)| {
            let conditions = conditions(&[], counts, problem.as_ref(), Some(1), now());
            let ready = condition::get(&conditions, "Ready").unwrap();
            assert_eq!((ready.status.as_str(), ready.reason.as_str(), ready.message.as_str()), expect);
        };
        check((3, 3), None, ("True", "PodsReady", "3 of 3 pods are ready"));
        check((0, 0), None, ("True", "PodsReady", "0 of 0 pods are ready"));
        check((2, 3), None, ("False", "PodsNotReady", "2 of 3 pods are ready"));
        check((4, 3), None, ("False", "PodsNotReady", "4 of 3 pods are ready"));
        let refused = Problem::Refused(Duration::ZERO, "exceeded quota".into());
        check((2, 3), Some(refused), ("False", "PodRefused", "exceeded quota"));
    }

    #[test]
    fn a_problem_is_an_event_once() {
        let of = |before: &[Condition], problem: Option<&Problem>| conditions(before, (2, 3), problem, Some(1), now());
        let refused = |message: &str| Problem::Refused(Duration::ZERO, message.into());
        let well = of(&[], None);
        assert_eq!(event(&[], &well), None);
        let bad = of(&well, Some(&refused("exceeded quota")));
        assert_eq!(event(&well, &bad), Some(Event::warning("PodRefused", "exceeded quota")));
        assert_eq!(event(&bad, &of(&bad, Some(&refused("exceeded quota")))), None);
        assert!(event(&bad, &of(&bad, Some(&refused("forbidden")))).is_some());
        assert_eq!(event(&bad, &of(&bad, None)), None);
    }
}
