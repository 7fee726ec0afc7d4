//! The probes of a container as a state machine, without I/O or a clock: it decides when each probe is due, and what
//! follows from its results.
//!
//! The rules are the kubelet's
//! (<https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/>):
//!
//! * Until the startup probe has succeeded, no other probe is executed, and the container is neither started nor ready.
//! * Until their thresholds are reached, a readiness probe counts as failed and a liveness probe as passed.
//! * A probe is executed once per period, counted from the time at which the node accepted the pod, so the first
//!   execution is up to one period after the start of the process. The exception is a readiness probe without an
//!   initial delay, which is first executed at once, so that the container serves as soon as possible, and if that is
//!   too early, again a second later: the kubelet executes it when it notices that the process has started.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

/// The longest time until the kubelet notices that a process has started.
const NOTICED: Duration = Duration::from_secs(1);

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeType {
    /// Determines whether the container has started.
    Startup,
    /// Determines whether the container has to be restarted.
    Liveness,
    /// Determines whether the container can serve.
    Readiness,
}

impl ProbeType {
    /// All probe types.
    pub(crate) const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// Returns a container's probe of this type.
    pub(crate) fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// The result of one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// The probe succeeded.
    Success,
    /// The probe succeeded, with a message for the pod's events.
    Warning(String),
    /// The probe failed, with a message.
    Failure(String),
    /// The probe could not be executed, with a message. This result is ignored.
    Unknown(String),
}

/// A decision that follows from a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No action.
    Nothing,
    /// Stop the container, with the probe's own grace period if it has one.
    Stop(Option<Duration>),
}

/// The probes of a running container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes(Vec<ProbeState>);

/// One probe.
#[derive(Clone, Debug)]
struct ProbeState {
    probe_type: ProbeType,
    schedule: ProbeSchedule,
    /// The number of consecutive equal results that count.
    success: i32,
    failure: i32,
    /// The probe's own `terminationGracePeriodSeconds`.
    grace: Option<Duration>,
    /// The start of the last execution.
    tried: Duration,
    /// The monotonic time of the next execution; `None` while one is in progress.
    due: Option<Duration>,
    /// Whether the next execution is soon if the present one fails.
    early: bool,
    /// The last result, and the number of times that it occurred in a row.
    last: Option<(bool, i32)>,
    /// Whether the probe has succeeded or failed by its thresholds; `None` until one is reached.
    met: Option<bool>,
}

/// The times at which a probe is executed: once per period, counted from the time at which the node accepted the pod.
#[derive(Clone, Copy, Debug)]
struct ProbeSchedule {
    begin: Duration,
    period: Duration,
}

impl ProbeSchedule {
    /// Returns the first tick at or after a monotonic time. The start itself is not a tick: at that time the kubelet
    /// doesn't find a container yet.
    fn at_or_after(self, time: Duration) -> Duration {
        let passed = time.saturating_sub(self.begin).as_nanos().div_ceil(self.period.as_nanos());
        self.begin + self.period * u32::try_from(passed).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the first tick after a monotonic time.
    fn after(self, time: Duration) -> Duration {
        self.at_or_after(time + Duration::from_nanos(1))
    }
}

impl Probes {
    /// Creates the probes of a container whose process started at `now`, in a pod that the node accepted at `admitted`.
    /// Both are monotonic times.
    pub(crate) fn new(container: &Container, admitted: Duration, now: Duration) -> Self {
        let begin = |probe_type: ProbeType| {
            let probe = probe_type.of(container)?;
            let seconds = |value: Option<i32>, default: u64| {
                Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
            };
            let schedule = ProbeSchedule {
                begin: admitted,
                period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
            };
            let delay = seconds(probe.initial_delay_seconds, 0);
            let at_once = probe_type == ProbeType::Readiness && delay.is_zero();
            Some(ProbeState {
                probe_type,
                schedule,
                success: probe.success_threshold.unwrap_or(1).max(1),
                failure: probe.failure_threshold.unwrap_or(3).max(1),
                grace: probe
                    .termination_grace_period_seconds
                    .map(|grace| Duration::from_secs(u64::try_from(grace).unwrap_or_default())),
                tried: now,
                due: Some(if at_once { now } else { schedule.at_or_after(now + delay) }),
                early: at_once,
                last: None,
                met: None,
            })
        };
        Self(ProbeType::ALL.into_iter().filter_map(begin).collect())
    }

    fn find(&self, probe_type: ProbeType) -> Option<&ProbeState> {
        self.0.iter().find(|state| state.probe_type == probe_type)
    }

    /// Returns whether the startup probe has succeeded, or doesn't exist.
    pub(crate) fn has_started(&self) -> bool {
        self.find(ProbeType::Startup).is_none_or(|state| state.met == Some(true))
    }

    /// Returns whether the container is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.has_started() && self.find(ProbeType::Readiness).is_none_or(|state| state.met == Some(true))
    }

    /// Returns whether a probe is currently executed. While a container is being stopped, only its readiness probe is.
    fn is_wanted(&self, probe_type: ProbeType, stopping: bool) -> bool {
        match probe_type {
            ProbeType::Startup => !stopping && !self.has_started(),
            ProbeType::Liveness => !stopping && self.has_started(),
            ProbeType::Readiness => self.has_started(),
        }
    }

    /// Returns the probes to execute at `now`. Each probe is only due again after [`Probes::take`] was called with its
    /// result.
    pub(crate) fn due(&mut self, now: Duration, stopping: bool) -> Vec<ProbeType> {
        let wanted: Vec<_> = self.0.iter().map(|state| self.is_wanted(state.probe_type, stopping)).collect();
        let probes = self.0.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted).map(|(state, _)| state);
        let due = probes.filter_map(|state| state.due.take_if(|at| *at <= now).map(|_| state));
        due.map(|state| {
            state.tried = now;
            state.probe_type
        })
        .collect()
    }

    /// Returns the monotonic time at which the next probe is due.
    pub(crate) fn wake(&self, stopping: bool) -> Option<Duration> {
        self.0.iter().filter(|state| self.is_wanted(state.probe_type, stopping)).filter_map(|state| state.due).min()
    }

    /// Processes the result of an execution that ended at `now`.
    pub(crate) fn take(&mut self, probe_type: ProbeType, result: &ProbeResult, now: Duration) -> Decision {
        let Some(state) = self.0.iter_mut().find(|state| state.probe_type == probe_type) else {
            return Decision::Nothing;
        };
        let good = matches!(result, ProbeResult::Success | ProbeResult::Warning(_));
        let next = state.schedule.after(state.tried);
        let early = std::mem::take(&mut state.early) && !good;
        state.due = Some(now.max(if early { next.min(state.tried + NOTICED) } else { next }));
        if matches!(result, ProbeResult::Unknown(_)) {
            return Decision::Nothing;
        }
        let row = match state.last {
            Some((last, row)) if last == good => row.saturating_add(1),
            _ => 1,
        };
        state.last = Some((good, row));
        if row < if good { state.success } else { state.failure } {
            return Decision::Nothing;
        }
        state.met = Some(good);
        if !good && probe_type != ProbeType::Readiness {
            return Decision::Stop(state.grace);
        }
        if probe_type == ProbeType::Startup {
            self.hold_liveness(now);
        }
        Decision::Nothing
    }

    /// Postpones the liveness probe to its next tick, which is repeated until the startup probe has succeeded.
    fn hold_liveness(&mut self, now: Duration) {
        for state in self.0.iter_mut().filter(|state| state.probe_type == ProbeType::Liveness) {
            state.due = state.due.map(|due| due.max(state.schedule.after(now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn probes(container: Value) -> Probes {
        let mut container = container;
        container["name"] = json!("main");
        Probes::new(&serde_json::from_value(container).expect("a container"), Duration::ZERO, Duration::ZERO)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Executes all due probes with the same result, and returns them and whether the container is stopped.
    fn turn(probes: &mut Probes, seconds: u64, good: bool) -> (Vec<ProbeType>, bool) {
        let outcome = if good { ProbeResult::Success } else { ProbeResult::Failure("no".into()) };
        let due = probes.due(at(seconds), false);
        let verdicts: Vec<_> = due.iter().map(|probe_type| probes.take(*probe_type, &outcome, at(seconds))).collect();
        (due, verdicts.iter().any(|verdict| *verdict != Decision::Nothing))
    }

    #[test]
    fn without_probes_a_container_is_ready_at_once() {
        let mut probes = probes(json!({}));
        assert!(probes.has_started() && probes.is_ready());
        assert_eq!((probes.wake(false), probes.due(at(100), false)), (None, vec![]));
    }

    #[test]
    fn a_readiness_probe_is_tried_at_once_and_after_a_second_then_each_period() {
        let check = |readiness: Value, good: bool, expect: &[u64]| {
            let mut probes = probes(json!({"readinessProbe": readiness}));
            for second in expect {
                assert_eq!(probes.wake(false), Some(at(*second)), "{readiness}");
                assert_eq!(turn(&mut probes, *second, good), (vec![ProbeType::Readiness], false));
            }
        };
        check(json!({"exec": {}, "periodSeconds": 2}), false, &[0, 1, 2, 4]);
        check(json!({"exec": {}}), false, &[0, 1, 10, 20]);
        check(json!({"exec": {}}), true, &[0, 10, 20]);
        check(json!({"exec": {}, "periodSeconds": 1}), false, &[0, 1, 2, 3]);
        check(json!({"exec": {}, "initialDelaySeconds": 4}), false, &[10, 20]);
    }

    #[test]
    fn a_liveness_probe_is_not_tried_before_its_first_period_has_passed() {
        let container = |probe: Value| -> Container {
            serde_json::from_value(json!({"name": "main", "livenessProbe": probe})).expect("a container")
        };
        let check = |probe: Value, started: u64, first: u64| {
            let probes = Probes::new(&container(probe.clone()), at(100), at(started));
            assert_eq!(probes.wake(false), Some(at(first)), "{probe} of a container that started at {started}");
        };
        // The node accepted the pod at 100.
        check(json!({"httpGet": {}}), 100, 110);
        check(json!({"httpGet": {}}), 103, 110);
        check(json!({"httpGet": {}}), 111, 120);
        check(json!({"httpGet": {}, "periodSeconds": 1}), 100, 101);
        check(json!({"httpGet": {}, "initialDelaySeconds": 10}), 103, 120);
        check(json!({"httpGet": {}, "initialDelaySeconds": 7}), 103, 110);
    }

    #[test]
    fn readiness_comes_and_goes_by_thresholds() {
        let mut probes = probes(json!({"readinessProbe": {
            "exec": {}, "initialDelaySeconds": 3, "periodSeconds": 2, "successThreshold": 2, "failureThreshold": 2,
        }}));
        assert!(!probes.is_ready());
        assert_eq!(probes.wake(false), Some(at(4)), "the first period's end after the delay");
        assert_eq!(turn(&mut probes, 2, true), (vec![], false));
        let ready: Vec<_> =
            [(4, true), (6, true), (8, false), (10, true), (12, false), (14, false), (16, true), (18, true)]
                .into_iter()
                .map(|(second, good)| {
                    assert_eq!(turn(&mut probes, second, good), (vec![ProbeType::Readiness], false));
                    probes.is_ready()
                })
                .collect();
        assert_eq!(ready, [false, true, true, true, true, false, false, true]);
    }

    #[test]
    fn liveness_stops_the_container_after_its_threshold() {
        let mut probes = probes(json!({"livenessProbe": {"tcpSocket": {}, "terminationGracePeriodSeconds": 7}}));
        assert!(probes.is_ready());
        let stops: Vec<_> = [(10, false), (20, false), (30, true), (40, false), (50, false), (60, false)]
            .into_iter()
            .map(|(second, good)| turn(&mut probes, second, good).1)
            .collect();
        assert_eq!(stops, [false, false, false, false, false, true]);
        let mut slow = probes;
        slow.due(at(70), false);
        let failure = ProbeResult::Failure(String::new());
        assert_eq!(slow.take(ProbeType::Liveness, &failure, at(71)), Decision::Stop(Some(at(7))));
        assert_eq!(slow.wake(false), Some(at(80)), "ten seconds after the last try began");
        assert_eq!((slow.wake(true), slow.due(at(100), true)), (None, vec![]), "not while it is stopped");
    }

    #[test]
    fn the_startup_probe_comes_first() {
        let spec = json!({
            "startupProbe": {"httpGet": {}, "periodSeconds": 5, "failureThreshold": 3},
            "livenessProbe": {"httpGet": {}}, "readinessProbe": {"httpGet": {}, "initialDelaySeconds": 30},
        });
        let mut probes = probes(spec.clone());
        assert_eq!(turn(&mut probes, 5, false), (vec![ProbeType::Startup], false));
        assert!(!probes.has_started() && !probes.is_ready());
        assert_eq!(turn(&mut probes, 10, true), (vec![ProbeType::Startup], false));
        assert!(probes.has_started() && !probes.is_ready());
        assert_eq!(probes.wake(false), Some(at(20)), "the liveness probe waits for its next period");
        assert_eq!(turn(&mut probes, 30, true), (vec![ProbeType::Liveness, ProbeType::Readiness], false));
        assert!(probes.is_ready());

        let mut never = self::probes(spec);
        let stops: Vec<_> = [5, 10, 15].map(|second| turn(&mut never, second, false).1).into();
        assert_eq!(stops, [false, false, true]);
    }

    #[test]
    fn an_unknown_result_does_not_count() {
        let mut probes = probes(json!({"livenessProbe": {"exec": {}, "failureThreshold": 1}}));
        probes.due(at(10), false);
        assert_eq!(probes.take(ProbeType::Liveness, &ProbeResult::Unknown(String::new()), at(10)), Decision::Nothing);
        assert_eq!(probes.wake(false), Some(at(20)));
    }
}
