//! The faults of a search: what can happen at each point of a run, in the order in which it is tried.

use std::collections::BTreeMap;

use kubewright_apimachinery::random::Random;

use crate::{
    fault::{EventFault, Fault, ProcessFault, RestartFault, UserFault, WorldFault, WriteFault},
    history::Entry,
    outcome::Outcome,
    scenario::Options,
    schedule::{Point, Schedule},
};

/// The most faults of a random schedule.
const MOST_FAULTS: usize = 4;
/// The faults of pairs, which leave the operator with a part of its work done, or with an older view.
const FIRST: [Fault; 4] = [
    Fault::Write(WriteFault::DiedAfter),
    Fault::Write(WriteFault::AnswerLost),
    Fault::Write(WriteFault::ConflictByAnother),
    Fault::Event(EventFault::Delayed),
];
const SECOND: [Fault; 5] = [
    Fault::Write(WriteFault::DiedAfter),
    Fault::Write(WriteFault::DiedBefore),
    Fault::Write(WriteFault::Lost),
    Fault::Event(EventFault::Delayed),
    Fault::Event(EventFault::Died),
];

/// A point of the run without faults.
#[derive(Debug)]
struct Place {
    point: Point,
    faults: Vec<Fault>,
    /// The namespace and name of the object that is written or has changed.
    object: String,
}

/// The points of a run without faults, and what can happen at each.
#[derive(Debug)]
pub(super) struct Plan(Vec<Place>);

impl Plan {
    /// Returns the plan of a search, from its run without faults.
    pub(super) fn of(calm: &Outcome, options: &Options) -> Self {
        let has_pods =
            calm.history.records().iter().any(|it| matches!(&it.entry, Entry::Change { kind, .. } if kind == "Pod"));
        let (mut places, mut events, mut deletions) = (Vec::new(), 0, Vec::new());
        let mut add =
            |point, faults: Vec<Fault>, object: &str| places.push(Place { point, faults, object: object.into() });
        let is_disturbed = |at: u64| calm.faults_ended.is_none_or(|end| u128::from(at) < end.as_millis());
        for record in calm.history.records().iter().take_while(|record| is_disturbed(record.at)) {
            match &record.entry {
                Entry::Request(request) if request.resource != "leases" => {
                    if let Some(nth) = request.write {
                        add(Point::Write(nth), at_write(has_pods), &request.object);
                    }
                    add(Point::Request(request.number), at_request(request.write.is_some(), options), "");
                }
                Entry::Step(what) => deletions.push(what.starts_with("deletes ")),
                Entry::Event { object, .. } => {
                    add(Point::Event(events), EventFault::ALL.map(Fault::Event).to_vec(), object);
                    events += 1;
                }
                _ => {}
            }
        }
        // No step is left out in this run.
        for (nth, is_deletion) in deletions.into_iter().enumerate() {
            add(Point::Step(nth), at_step(has_pods, is_deletion), "");
        }
        Self(places)
    }

    /// Returns the number of requests at which faults of the process are tried.
    pub(super) fn requests(&self) -> usize {
        self.0.iter().filter(|place| matches!(place.point, Point::Request(_))).count()
    }

    /// Returns each fault at each point: first one point for each kind of fault, other ones for each; then the others,
    /// by kinds. Those kinds are first that find most.
    pub(super) fn singles(&self) -> Vec<(Point, Fault)> {
        let mut kinds: BTreeMap<(u8, Fault), Vec<Point>> = BTreeMap::new();
        for place in &self.0 {
            for fault in &place.faults {
                kinds.entry((rank(*fault), *fault)).or_default().push(place.point);
            }
        }
        let mut singles = Vec::new();
        for (nth, ((_, fault), points)) in kinds.iter_mut().enumerate() {
            points.sort();
            singles.push((points.remove(spread(nth, points.len())), *fault));
        }
        for ((_, fault), points) in kinds {
            singles.extend(points.into_iter().map(|point| (point, fault)));
        }
        singles
    }

    /// Returns pairs of faults that touch the same object.
    pub(super) fn pairs(&self) -> Vec<[(Point, Fault); 2]> {
        let mut pairs = Vec::new();
        for (at, first) in self.0.iter().enumerate().filter(|(_, place)| !place.object.is_empty()) {
            for second in self.0[at + 1..].iter().filter(|place| place.object == first.object) {
                for one in FIRST.iter().filter(|fault| first.faults.contains(fault)) {
                    let others = SECOND.iter().filter(|fault| second.faults.contains(fault));
                    pairs.extend(others.map(|other| [(first.point, *one), (second.point, *other)]));
                }
            }
        }
        pairs
    }

    /// Returns a schedule of two to four faults at different points: new ones, or those of a schedule that has reached
    /// a new state, with one more.
    pub(super) fn several(&self, random: &Random, seed: u64, basis: Option<&Schedule>) -> Schedule {
        let count = 2 + below(random, MOST_FAULTS - 1);
        let basis = basis.into_iter().flat_map(|schedule| &schedule.injections).take(MOST_FAULTS - 1);
        let mut chosen: BTreeMap<_, _> = basis.map(|injection| (injection.point, injection.fault)).collect();
        let more = count.saturating_sub(chosen.len()).max(1);
        for _ in 0..more {
            let Some(place) = self.0.get(below(random, self.0.len())) else { break };
            if let Some(fault) = place.faults.get(below(random, place.faults.len())) {
                chosen.insert(place.point, *fault);
            }
        }
        chosen.into_iter().fold(Schedule::calm(seed), |schedule, (point, fault)| schedule.with(point, fault))
    }
}

/// Returns a number below a limit for each number, so that the first ones are far from each other: 0, 1/2, 1/4, 3/4,
/// 1/8 of the limit (the sequence of van der Corput).
fn spread(nth: usize, limit: usize) -> usize {
    let (fraction, limit) = (nth.reverse_bits() as u128, limit as u128);
    usize::try_from((fraction * limit) >> usize::BITS).unwrap_or_default()
}

/// Returns a random number below a limit.
pub(super) fn below(random: &Random, limit: usize) -> usize {
    usize::try_from(random.u64() % limit.max(1) as u64).unwrap_or_default()
}

fn at_write(has_pods: bool) -> Vec<Fault> {
    let mut faults = WriteFault::ALL.map(Fault::Write).to_vec();
    faults.extend(
        [UserFault::Recreated, UserFault::Edited, UserFault::StatusWiped, UserFault::StatusWrong].map(Fault::User),
    );
    faults.extend([WorldFault::QuotaFull, WorldFault::WebhookUnavailable].map(Fault::World));
    faults.extend(has_pods.then_some(Fault::World(WorldFault::PodEvicted)));
    faults
}

fn at_request(is_write: bool, options: &Options) -> Vec<Fault> {
    let may_be_two = options.replicas == 1 && !options.sharded && !options.controllers;
    let is_possible = |fault: &ProcessFault| match fault {
        // The process is killed before each write anyway, by a fault of writes.
        ProcessFault::Killed => !is_write,
        ProcessFault::Paused => true,
        // Two at each write are enough: what is only read, the other process reads too.
        ProcessFault::Overlapped => is_write && may_be_two,
        ProcessFault::Displaced => !is_write && options.unconditional && may_be_two,
        ProcessFault::ServerUnavailable => is_write,
        ProcessFault::TakenOver => options.replicas > 1 && !options.sharded,
        ProcessFault::MemberLeft | ProcessFault::MemberJoined => is_write && options.sharded,
        ProcessFault::Upgraded => options.old.is_some(),
    };
    ProcessFault::ALL.into_iter().filter(is_possible).map(Fault::Process).collect()
}

fn at_step(has_pods: bool, is_deletion: bool) -> Vec<Fault> {
    let mut faults = RestartFault::ALL.map(Fault::Restart).to_vec();
    // Nothing is done to an object that is gone, and only a deletion has a policy.
    let is_possible = |fault: &UserFault| match fault {
        UserFault::OperatorDown => true,
        fault => fault.is_of_deletion() == is_deletion,
    };
    faults.extend(UserFault::ALL.into_iter().filter(is_possible).map(Fault::User));
    faults.extend(WorldFault::ALL.into_iter().filter(|fault| has_pods || !fault.is_of_pods()).map(Fault::World));
    faults
}

/// Returns the position of a fault in the order of a search.
fn rank(fault: Fault) -> u8 {
    match fault {
        Fault::Write(WriteFault::DiedAfter) => 0,
        Fault::Write(WriteFault::DiedBefore) => 1,
        Fault::Restart(_) | Fault::User(UserFault::OperatorDown) => 2,
        Fault::Process(ProcessFault::Paused | ProcessFault::Killed | ProcessFault::ServerUnavailable) => 9,
        Fault::Process(_) => 3,
        Fault::World(WorldFault::ClockBack | WorldFault::PodsFail) => 4,
        Fault::Write(WriteFault::Lost | WriteFault::AnswerLost) => 5,
        Fault::Event(_) => 6,
        Fault::Write(_) => 7,
        Fault::World(fault) if fault.is_of_namespace() => 10,
        Fault::World(_) | Fault::User(_) => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_fault_comes_first_once_at_points_that_differ() {
        let place = |nth| Place { point: Point::Write(nth), faults: at_write(true), object: String::new() };
        let (plan, kinds) = (Plan((0..8).map(place).collect()), at_write(true).len());
        let singles = plan.singles();
        assert_eq!(singles.len(), 8 * kinds);
        let mut first: Vec<_> = singles[..kinds].iter().map(|(_, fault)| *fault).collect();
        first.sort();
        let mut all = at_write(true);
        all.sort();
        assert_eq!(first, all);
        let points: Vec<_> = singles[..4].iter().map(|(point, _)| *point).collect();
        assert_eq!(points, [0, 4, 2, 6].map(Point::Write));
        let mut each = singles.clone();
        each.sort();
        each.dedup();
        assert_eq!(each.len(), singles.len());
    }
}
