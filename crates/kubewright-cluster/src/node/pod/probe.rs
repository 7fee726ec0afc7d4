//! The probes of a container as a state machine: when each is due, and what its outcomes come to. It does no I/O and reads
//! no clock.
//!
//! The rules are the kubelet's (<https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/>): until
//! the startup probe has succeeded no other is tried, and a container is neither started nor ready; a readiness probe counts
//! as failed and a liveness probe as passed until their thresholds are met.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Whether the container has started.
    Startup,
    /// Whether it is to be restarted.
    Liveness,
    /// Whether it can serve.
    Readiness,
}

impl Aim {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The container's probe for this.
    pub(crate) fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// How one try of a probe came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is well.
    Success,
    /// It is not, and why.
    Failure(String),
    /// It could not be found out, and why. This counts as no try.
    Unknown(String),
}

/// What follows from an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing, or the container's readiness has changed.
    Nothing,
    /// The container is to be stopped, with a grace of its own perhaps.
    Stop(Option<Duration>),
}

/// The probes of a container that runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes(Vec<Probing>);

/// One probe.
#[derive(Clone, Debug)]
struct Probing {
    aim: Aim,
    period: Duration,
    /// How many outcomes of a sort in a row count.
    success: i32,
    failure: i32,
    grace: Option<Duration>,
    /// When it was tried last.
    tried: Duration,
    /// The monotonic time of the next try; none while one is made.
    due: Option<Duration>,
    /// The last outcome, and how often it came in a row.
    last: Option<(bool, i32)>,
    /// What counts: whether the probe has been met. Unknown until a threshold has been reached.
    met: Option<bool>,
}

impl Probes {
    /// Those of a container whose process has started at `now`, a monotonic time. gRPC probes are left out.
    pub(crate) fn new(container: &Container, now: Duration) -> Self {
        let begin = |aim: Aim| {
            let probe = aim.of(container).filter(|probe| !is_unsupported(probe))?;
            let seconds = |value: Option<i32>, default: u64| {
                Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
            };
            Some(Probing {
                aim,
                period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
                success: probe.success_threshold.unwrap_or(1).max(1),
                failure: probe.failure_threshold.unwrap_or(3).max(1),
                grace: probe
                    .termination_grace_period_seconds
                    .map(|grace| Duration::from_secs(u64::try_from(grace).unwrap_or_default())),
                tried: now,
                due: Some(now + seconds(probe.initial_delay_seconds, 0)),
                last: None,
                met: None,
            })
        };
        Self(Aim::ALL.into_iter().filter_map(begin).collect())
    }

    fn find(&self, aim: Aim) -> Option<&Probing> {
        self.0.iter().find(|probing| probing.aim == aim)
    }

    /// The startup probe has succeeded, or there is none.
    pub(crate) fn has_started(&self) -> bool {
        self.find(Aim::Startup).is_none_or(|probing| probing.met == Some(true))
    }

    /// The container can serve.
    pub(crate) fn is_ready(&self) -> bool {
        self.has_started() && self.find(Aim::Readiness).is_none_or(|probing| probing.met == Some(true))
    }

    /// Whether a probe is tried now and then. Of a container that is being stopped only the readiness is of interest.
    fn is_wanted(&self, aim: Aim, stopping: bool) -> bool {
        match aim {
            Aim::Startup => !stopping && !self.has_started(),
            Aim::Liveness => !stopping && self.has_started(),
            Aim::Readiness => self.has_started(),
        }
    }

    /// The probes to try at `now`. Of each, [`Probes::take`] wants to hear before it is due again.
    pub(crate) fn due(&mut self, now: Duration, stopping: bool) -> Vec<Aim> {
        let wanted: Vec<_> = self.0.iter().map(|probing| self.is_wanted(probing.aim, stopping)).collect();
        let probes = self.0.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted).map(|(probing, _)| probing);
        let due = probes.filter_map(|probing| probing.due.take_if(|at| *at <= now).map(|_| probing));
        due.map(|probing| {
            probing.tried = now;
            probing.aim
        })
        .collect()
    }

    /// When the next one is due.
    pub(crate) fn wake(&self, stopping: bool) -> Option<Duration> {
        self.0.iter().filter(|probing| self.is_wanted(probing.aim, stopping)).filter_map(|probing| probing.due).min()
    }

    /// Takes in the outcome of a try that ended at `now`.
    pub(crate) fn take(&mut self, aim: Aim, outcome: &Outcome, now: Duration) -> Verdict {
        let Some(probing) = self.0.iter_mut().find(|probing| probing.aim == aim) else { return Verdict::Nothing };
        probing.due = Some(now.max(probing.tried + probing.period));
        let good = match outcome {
            Outcome::Success => true,
            Outcome::Failure(_) => false,
            Outcome::Unknown(_) => return Verdict::Nothing,
        };
        let row = match probing.last {
            Some((last, row)) if last == good => row.saturating_add(1),
            _ => 1,
        };
        probing.last = Some((good, row));
        if row < if good { probing.success } else { probing.failure } {
            return Verdict::Nothing;
        }
        probing.met = Some(good);
        if good || aim == Aim::Readiness { Verdict::Nothing } else { Verdict::Stop(probing.grace) }
    }
}

/// Whether a probe is of a sort that this node can't try.
pub(crate) fn is_unsupported(probe: &Probe) -> bool {
    probe.exec.is_none() && probe.http_get.is_none() && probe.tcp_socket.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn probes(container: Value) -> Probes {
        let mut container = container;
        container["name"] = json!("main");
        Probes::new(&serde_json::from_value(container).expect("a container"), Duration::ZERO)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Tries all that is due with one outcome, and tells what was tried and whether that stops the container.
    fn turn(probes: &mut Probes, seconds: u64, good: bool) -> (Vec<Aim>, bool) {
        let outcome = if good { Outcome::Success } else { Outcome::Failure("no".into()) };
        let due = probes.due(at(seconds), false);
        let verdicts: Vec<_> = due.iter().map(|aim| probes.take(*aim, &outcome, at(seconds))).collect();
        (due, verdicts.iter().any(|verdict| *verdict != Verdict::Nothing))
    }

    #[test]
    fn without_probes_a_container_is_ready_at_once() {
        let mut probes = probes(json!({"readinessProbe": {"grpc": {"port": 1}}}));
        assert!(probes.has_started() && probes.is_ready());
        assert_eq!((probes.wake(false), probes.due(at(100), false)), (None, vec![]));
    }

    #[test]
    fn readiness_comes_and_goes_by_thresholds() {
        let mut probes = probes(json!({"readinessProbe": {
            "exec": {}, "initialDelaySeconds": 3, "periodSeconds": 2, "successThreshold": 2, "failureThreshold": 2,
        }}));
        assert!(!probes.is_ready());
        assert_eq!(probes.wake(false), Some(at(3)));
        assert_eq!(turn(&mut probes, 2, true), (vec![], false));
        let ready: Vec<_> =
            [(3, true), (5, true), (7, false), (9, true), (11, false), (13, false), (15, true), (17, true)]
                .into_iter()
                .map(|(second, good)| {
                    assert_eq!(turn(&mut probes, second, good), (vec![Aim::Readiness], false));
                    probes.is_ready()
                })
                .collect();
        assert_eq!(ready, [false, true, true, true, true, false, false, true]);
    }

    #[test]
    fn liveness_stops_the_container_after_its_threshold() {
        let mut probes = probes(json!({"livenessProbe": {"tcpSocket": {}, "terminationGracePeriodSeconds": 7}}));
        assert!(probes.is_ready());
        let stops: Vec<_> = [(0, false), (10, false), (20, true), (30, false), (40, false), (50, false)]
            .into_iter()
            .map(|(second, good)| turn(&mut probes, second, good).1)
            .collect();
        assert_eq!(stops, [false, false, false, false, false, true]);
        let mut slow = probes;
        slow.due(at(60), false);
        assert_eq!(slow.take(Aim::Liveness, &Outcome::Failure(String::new()), at(61)), Verdict::Stop(Some(at(7))));
        assert_eq!(slow.wake(false), Some(at(70)), "ten seconds after the last try began");
        assert_eq!((slow.wake(true), slow.due(at(100), true)), (None, vec![]), "not while it is stopped");
    }

    #[test]
    fn the_startup_probe_comes_first() {
        let spec = json!({
            "startupProbe": {"httpGet": {}, "periodSeconds": 5, "failureThreshold": 3},
            "livenessProbe": {"httpGet": {}}, "readinessProbe": {"httpGet": {}, "initialDelaySeconds": 30},
        });
        let mut probes = probes(spec.clone());
        assert_eq!(turn(&mut probes, 0, false), (vec![Aim::Startup], false));
        assert!(!probes.has_started() && !probes.is_ready());
        assert_eq!(turn(&mut probes, 5, true), (vec![Aim::Startup], false));
        assert!(probes.has_started() && !probes.is_ready());
        assert_eq!(turn(&mut probes, 5, true), (vec![Aim::Liveness], false), "at once");
        assert_eq!(probes.wake(false), Some(at(15)));
        assert_eq!(turn(&mut probes, 30, true), (vec![Aim::Liveness, Aim::Readiness], false));
        assert!(probes.is_ready());

        let mut never = self::probes(spec);
        let stops: Vec<_> = [0, 5, 10].map(|second| turn(&mut never, second, false).1).into();
        assert_eq!(stops, [false, false, true]);
    }

    #[test]
    fn what_is_not_known_does_not_count() {
        let mut probes = probes(json!({"livenessProbe": {"exec": {}, "failureThreshold": 1}}));
        probes.due(at(0), false);
        assert_eq!(probes.take(Aim::Liveness, &Outcome::Unknown(String::new()), at(0)), Verdict::Nothing);
        assert_eq!(probes.wake(false), Some(at(10)));
    }
}
