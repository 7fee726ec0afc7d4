//! When faults happen.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::fault::{EventFault, Fault, ProcessFault, UserFault, WorldFault};

/// The faults of a run, with the seed of its random numbers. The same schedule makes the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Schedule {
    /// The seed.
    #[serde(default)]
    pub seed: u64,
    /// The faults.
    #[serde(default)]
    pub injections: Vec<Injection>,
    /// The numbers of the user's steps that are left out, because the failure doesn't need them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<usize>,
}

/// A fault at a point of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Injection {
    /// When the fault happens.
    pub point: Point,
    /// What happens.
    pub fault: Fault,
}

/// A point of a run, counted by what happens in each run in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Point {
    /// The operator's write of this number, counted from 0. Writes of leases don't count.
    Write(usize),
    /// The event of this number that the operator receives, counted from 0 over all watches. Bookmarks don't count.
    Event(usize),
    /// The operator's request of this number, counted from 0 over reads, watches and writes: the number that stories
    /// tell.
    Request(u64),
    /// The user's step of this number, counted from 0.
    Step(usize),
}

impl Schedule {
    /// Returns a schedule without faults.
    pub fn calm(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Leaves a step of the user out, counted from 0. What waits for its effect fails.
    pub fn without_step(mut self, step: usize) -> Self {
        self.skipped.insert(step);
        self
    }

    /// Adds a fault.
    pub fn with(mut self, point: Point, fault: Fault) -> Self {
        self.injections.push(Injection { point, fault });
        self
    }
}

/// Writes the schedule as one line of JSON, which [`Schedule::from_str`] reads.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Schedule {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl Schedule {
    /// Returns whether the run can be compared with one without faults.
    pub(crate) fn is_comparable(&self, unconditional: bool) -> bool {
        self.injections.iter().all(|injection| injection.fault.is_comparable(unconditional))
    }

    /// Returns whether the end of the run can be compared with that of one without faults.
    pub(crate) fn ends_alike(&self, unconditional: bool) -> bool {
        self.injections.iter().all(|injection| injection.fault.ends_alike(unconditional))
    }

    /// Returns whether the run has to be longer, because something outside of the operator goes on for a while.
    pub(crate) fn is_longer(&self) -> bool {
        self.injections.iter().any(|injection| match injection.fault {
            Fault::World(fault) => fault != WorldFault::PodEvicted,
            Fault::User(fault) => fault.holds(),
            _ => false,
        })
    }

    /// Returns whether no fault holds up the operator's requests.
    pub(crate) fn is_prompt(&self) -> bool {
        let of_world = |fault| matches!(fault, Fault::World(fault) if !fault.is_of_clock());
        self.injections.iter().all(|injection| of_world(injection.fault))
    }

    /// Returns whether a fault is one of these.
    pub(crate) fn has(&self, is: fn(Fault) -> bool) -> bool {
        self.injections.iter().any(|injection| is(injection.fault))
    }

    /// Returns whether the operator may act again and again on an older state, which it can't know to be one: it is
    /// served an object from before its deletion after a restart with an older state, or if the user creates the object
    /// again while events are late; or one of two processes applies what its events don't show yet, and the other one
    /// what they show; or a write of one is refused for another reason than the other's, and each of them reports its
    /// own.
    pub(crate) fn is_behind(&self) -> bool {
        let is_late = self.has(|fault| match fault {
            // After a watch has ended, the operator waits for a moment before it lists or watches again.
            Fault::Event(fault) => !matches!(fault, EventFault::Died | EventFault::Doubled),
            Fault::Process(fault) => matches!(fault, ProcessFault::ServerUnavailable | ProcessFault::TakenOver),
            _ => false,
        });
        let can_conflict = self
            .has(|fault| matches!(fault, Fault::User(UserFault::Recreated) | Fault::Process(ProcessFault::Overlapped)));
        let is_older = |fault| matches!(fault, Fault::Restart(_) | Fault::Process(ProcessFault::Displaced));
        let is_refused = self.has(|fault| matches!(fault, Fault::Write(_)))
            && self.has(|fault| matches!(fault, Fault::Process(ProcessFault::Overlapped)));
        self.has(is_older) || (is_late && can_conflict) || is_refused
    }

    /// Returns whether the conditions of the scenario have to hold. `unconditional` is what the author says, and
    /// `has_webhooks` whether the operator has webhooks.
    pub(crate) fn keeps_conditions(&self, unconditional: bool, has_webhooks: bool) -> bool {
        self.injections.iter().all(|injection| match injection.fault {
            // What is left, or gone, is what the user wanted, and no condition of the scenario knows it.
            Fault::User(UserFault::ChildrenOrphaned) | Fault::World(WorldFault::NamespaceDeleted) => false,
            fault => unconditional || fault.keeps_conditions(has_webhooks),
        })
    }
}

impl Injection {
    /// Returns whether the fault is one of those that can happen at the point.
    fn is_possible(&self) -> bool {
        match self.fault {
            Fault::Write(_) => matches!(self.point, Point::Write(_)),
            Fault::Event(_) => matches!(self.point, Point::Event(_)),
            Fault::Process(_) => matches!(self.point, Point::Request(_)),
            Fault::Restart(_) | Fault::User(UserFault::OperatorDown) => matches!(self.point, Point::Step(_)),
            Fault::User(fault) if fault.is_of_deletion() => matches!(self.point, Point::Step(_)),
            Fault::World(_) | Fault::User(_) => matches!(self.point, Point::Step(_) | Point::Write(_)),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(nth) => write!(f, "write {nth} of the operator"),
            Self::Event(nth) => write!(f, "event {nth}"),
            Self::Request(nth) => write!(f, "request {nth}"),
            Self::Step(nth) => write!(f, "step {nth} of the user"),
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, fault } = self;
        match self.is_possible() {
            true => write!(f, "at {point}, {fault}"),
            false => write!(f, "at {point}, nothing: the fault is one of {}", fault.of()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::WriteFault;

    #[test]
    fn a_schedule_is_a_line() {
        let schedule = Schedule::calm(7).with(Point::Write(3), Fault::Write(WriteFault::AnswerLost));
        let line = schedule.to_string();
        assert_eq!(line, r#"{"seed":7,"injections":[{"point":{"write":3},"fault":{"write":"answer-lost"}}]}"#);
        assert_eq!(line.parse::<Schedule>().unwrap(), schedule);
    }

    #[test]
    fn late_events_and_refused_writes_excuse_a_loop_with_two_processes_or_an_object_created_again() {
        let [overlapped, late, twice] = [
            (Point::Request(3), Fault::Process(ProcessFault::Overlapped)),
            (Point::Event(5), Fault::Event(EventFault::Delayed)),
            (Point::Event(5), Fault::Event(EventFault::Doubled)),
        ];
        let expired = (Point::Event(5), Fault::Event(EventFault::Expired));
        let recreated = (Point::Step(1), Fault::User(UserFault::Recreated));
        let refused = (Point::Write(1), Fault::Write(WriteFault::AdmissionRefuses));
        let is_behind = |faults: &[(Point, Fault)]| {
            faults.iter().fold(Schedule::calm(0), |schedule, (point, fault)| schedule.with(*point, *fault)).is_behind()
        };
        for faults in [[overlapped, late], [overlapped, refused], [recreated, late], [recreated, expired]] {
            assert!(is_behind(&faults), "{faults:?}");
        }
        for faults in [&[][..], &[overlapped], &[late], &[recreated], &[overlapped, twice], &[overlapped, recreated]] {
            assert!(!is_behind(faults), "{faults:?}");
        }
    }
}
