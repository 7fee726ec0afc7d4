//! Many members with one API server in simulated time: delayed and lost requests, lost responses, clocks that run at
//! different speeds, members that crash, freeze, leave and join, work that hangs, and leases that are deleted manually.
//! [`Protocol`], [`Share`] and [`Fence`] are the real ones; the loop around them is simulated step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kubewright_apimachinery::{clock::Clock, random::Random};

use super::{KeyGuard, ShardOptions, Share, protocol::Protocol, view::HashPosition};
use crate::{
    leader::{candidate::Action, fence::Fence},
    object::ObjectKey,
};

/// The simulated time between two steps, in milliseconds.
const STEP: u64 = 50;
/// The number of keys.
const KEYS: u64 = 24;
/// The maximum duration of a request in each direction, and of work that doesn't hang, in milliseconds.
const LATEST: u64 = 20_000;
const LONGEST_WORK: u64 = 30_000;
/// The time in milliseconds for which work may continue after its replica was asked to leave.
const GRACE: u64 = 10_000;

fn key(number: u64) -> ObjectKey {
    ObjectKey::cluster(&format!("key-{number}"))
}

/// A deliberate defect of the protocol, which the simulation must detect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    None,
    /// A new view is announced without the keys that are still being worked on.
    SilentAboutWork,
    /// Work begins regardless of the announcements of others.
    BlindToOthers,
    /// Work begins according to a view that isn't announced yet.
    Hasty,
    /// Work continues whether or not the lease is renewed.
    Unfenced,
    /// Other members count as gone before they have stopped.
    Impatient,
    /// A renewal counts from the arrival of its response instead of from its request.
    LateFence,
}

#[derive(Clone)]
enum Request {
    List,
    Write(Action),
    Delete(String, Option<String>),
}

enum Answer {
    Leases(Vec<Lease>),
    Written(Box<Lease>),
    Deleted,
    Refused,
}

/// A request in flight.
struct Flight {
    node: usize,
    number: u64,
    request: Request,
    /// The time at which the request arrives at the server, and the travel time of the response, or its arrival time
    /// once the server has sent it. `None` if the request or the response is lost.
    arrives: Option<u64>,
    returns: Option<u64>,
    answer: Option<Answer>,
}

#[derive(Default)]
struct Server {
    leases: BTreeMap<String, Lease>,
    version: u64,
}

impl Server {
    fn handle(&mut self, request: Request) -> Answer {
        match request {
            Request::List => Answer::Leases(self.leases.values().cloned().collect()),
            Request::Write(Action::Create(lease)) => self.store(*lease, |stored, _| stored.is_none()),
            Request::Write(Action::Update(lease)) => self.store(*lease, |stored, new| {
                stored.is_some_and(|stored| stored.metadata.resource_version == new.metadata.resource_version)
            }),
            Request::Write(Action::Wait) => Answer::Refused,
            Request::Delete(name, version) => {
                if self.leases.get(&name).is_some_and(|lease| lease.metadata.resource_version == version) {
                    self.leases.remove(&name);
                }
                Answer::Deleted
            }
        }
    }

    fn store(&mut self, mut lease: Lease, may: impl Fn(Option<&Lease>, &Lease) -> bool) -> Answer {
        let name = lease.metadata.name.clone().unwrap_or_default();
        if !may(self.leases.get(&name), &lease) {
            return Answer::Refused;
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.leases.insert(name, lease.clone());
        Answer::Written(Box::new(lease))
    }
}

/// The state of a node's loop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Pausing { until: u64 },
    Listing { number: u64, asked: Duration, until: u64 },
    Writing { number: u64, sent: Duration, until: u64 },
}

/// A clock with its own starting point and speed.
#[derive(Debug)]
struct NodeClock {
    time: Arc<AtomicU64>,
    offset: u64,
    rate: f64,
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        let time = Duration::from_millis(self.time.load(Ordering::Relaxed));
        Duration::from_millis(self.offset) + time.mul_f64(self.rate)
    }
}

struct Node {
    member: Protocol,
    name: String,
    clock: Arc<NodeClock>,
    share: Share,
    fence: Fence,
    phase: Phase,
    has_joined: bool,
    /// The time at which it was asked to leave.
    leaving: Option<u64>,
    /// The node has crashed, lost its lease or left.
    is_over: bool,
    frozen_until: u64,
    /// The keys being worked on, and the time at which the work ends.
    work: BTreeMap<u64, (KeyGuard, u64)>,
    /// All leases that it has ever seen, and whether its own was deleted while it held it.
    seen: BTreeSet<String>,
    is_robbed: bool,
}

impl Node {
    fn time(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Returns whether the node holds its lease, so that its requests are sent.
    fn holds_lease(&self) -> bool {
        self.fence.stands(self.time())
    }

    /// Returns whether the node may still act on a key that it works on.
    fn is_working_on(&self, key: u64) -> bool {
        !self.is_over && self.work.contains_key(&key) && self.holds_lease()
    }

    fn busy(&self) -> BTreeSet<HashPosition> {
        self.share.beyond(self.member.target(), &self.name)
    }

    /// Publishes the keys that the node owns, as the real loop does.
    fn publish(&self, defect: Defect) {
        let mut grant = match defect {
            Defect::BlindToOthers => self.member.grant().blind(),
            Defect::Hasty => self.member.grant().hasty(self.member.target()),
            _ => self.member.grant(),
        };
        if defect == Defect::Unfenced && grant.fence.is_some() {
            grant.fence = Some(Duration::MAX);
        }
        self.fence.set(grant.fence);
        self.share.set(grant);
    }
}

/// Counts of events, to check that the simulation covers enough.
#[derive(Debug, Default)]
struct Tally {
    begun: usize,
    moved: usize,
    lost: usize,
    crashed: usize,
    left: usize,
    aborted: usize,
    hung: usize,
    deleted: usize,
    robbed: usize,
    /// Work that began concurrently with that of a node whose lease was deleted manually, on a node that had never seen
    /// that lease. This can't be prevented.
    excused: usize,
    /// Work that began while another node worked on the same key: a violation.
    doubled: Vec<String>,
}

struct World {
    random: Random,
    defect: Defect,
    time: u64,
    clock: Arc<AtomicU64>,
    server: Server,
    nodes: Vec<Node>,
    flights: Vec<Flight>,
    numbers: u64,
    badness: f64,
    /// The last node that worked on each key.
    last: BTreeMap<u64, usize>,
    tally: Tally,
}

impl World {
    fn new(seed: u64, defect: Defect) -> Self {
        Self {
            random: Random::seeded(seed),
            defect,
            time: 0,
            clock: Arc::default(),
            server: Server::default(),
            nodes: Vec::new(),
            flights: Vec::new(),
            numbers: 0,
            badness: 0.0,
            last: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    fn draw(&self, below: u64) -> u64 {
        self.random.u64() % below
    }

    fn chance(&self, of: f64) -> bool {
        self.random.fraction() < of
    }

    fn alive(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| !self.nodes[*node].is_over)
    }

    fn join(&mut self) {
        let mut options = ShardOptions::new("system", "operator", format!("replica-{}", self.nodes.len()));
        if self.defect == Defect::Impatient {
            options.lease_duration = Duration::from_secs(3);
        }
        let (time, offset) = (self.clock.clone(), self.draw(1_000_000));
        // The renewal deadline and the lease duration tolerate clock rates that differ by a third.
        let clock = Arc::new(NodeClock { time, offset, rate: 0.9 + 0.2 * self.random.fraction() });
        self.nodes.push(Node {
            member: Protocol::new(&options),
            name: options.own_lease().name,
            share: Share::of_a_group(clock.clone()),
            clock,
            fence: Fence::default(),
            phase: Phase::Pausing { until: self.time },
            has_joined: false,
            leaving: None,
            is_over: false,
            frozen_until: 0,
            work: BTreeMap::new(),
            seen: BTreeSet::new(),
            is_robbed: false,
        });
    }

    fn send(&mut self, node: usize, request: Request) -> u64 {
        self.numbers += 1;
        let way = |world: &Self| match () {
            () if world.chance(world.badness * 0.25) => None,
            () if world.chance(world.badness * 0.3) => Some(world.draw(LATEST)),
            () => Some(world.draw(2 * STEP)),
        };
        let (arrives, returns) = (way(self).map(|way| self.time + way), way(self));
        self.flights.push(Flight { node, number: self.numbers, request, arrives, returns, answer: None });
        self.numbers
    }

    /// Delivers the requests and responses that are due.
    fn carry(&mut self) {
        let mut due: Vec<_> = (0..self.flights.len())
            .filter(|flight| self.flights[*flight].arrives.is_some_and(|arrives| arrives <= self.time))
            .collect();
        due.sort_by_key(|flight| self.flights[*flight].arrives);
        for flight in due {
            let flight = &mut self.flights[flight];
            flight.answer = Some(self.server.handle(flight.request.clone()));
            flight.returns = flight.returns.map(|way| self.time + way);
            flight.arrives = None;
        }
        // Lost requests, and responses that are no longer awaited, are dropped.
        let limit = self.numbers.saturating_sub(2_000);
        self.flights.retain(|flight| flight.number > limit);
    }

    fn answer(&mut self, node: usize, number: u64) -> Option<Answer> {
        let is_it = |flight: &Flight| {
            (flight.node, flight.number) == (node, number)
                && flight.answer.is_some()
                && flight.returns.is_some_and(|returns| returns <= self.time)
        };
        let position = self.flights.iter().position(is_it)?;
        self.flights.remove(position).answer
    }

    /// Executes a node's part of a step.
    fn act(&mut self, index: usize) {
        let time = self.time;
        let node = &mut self.nodes[index];
        if node.frozen_until > time {
            return;
        }
        node.work.retain(|_, (_, until)| *until > time);
        if let Some(since) = node.leaving.filter(|since| node.work.is_empty() || *since + GRACE < time) {
            node.is_over = true;
            self.tally.left += 1;
            if !std::mem::take(&mut node.work).is_empty() {
                // Aborted work may still take effect, so the lease is left to expire.
                self.tally.aborted += usize::from(since < time);
                return;
            }
            // The release is a last write, whose response isn't awaited.
            let lease = node.member.candidate().release(Timestamp::UNIX_EPOCH);
            if let Some(lease) = lease {
                self.send(index, Request::Write(Action::Update(Box::new(lease))));
            }
            return;
        }
        self.turn(index);
        let node = &mut self.nodes[index];
        if node.has_joined && !node.holds_lease() {
            node.is_over = true;
            self.tally.lost += 1;
            return;
        }
        self.begin_work(index);
    }

    fn turn(&mut self, index: usize) {
        let (time, defect) = (self.time, self.defect);
        let period = 2_000 + self.draw(400);
        let clock = self.nodes[index].time();
        match self.nodes[index].phase {
            Phase::Pausing { until } if until <= time => {
                let number = self.send(index, Request::List);
                self.nodes[index].phase = Phase::Listing { number, asked: clock, until: time + 3_000 };
            }
            Phase::Pausing { .. } => {}
            Phase::Listing { number, asked, until } => match self.answer(index, number) {
                Some(Answer::Leases(leases)) => {
                    let node = &mut self.nodes[index];
                    node.seen.extend(leases.iter().filter_map(|lease| lease.metadata.name.clone()));
                    node.member.listed(leases, asked, clock);
                    node.publish(defect);
                    // A node that finds its own lease gone writes nothing more: another node may have begun work.
                    match node.has_joined && !node.holds_lease() {
                        true => {}
                        false => self.write(index),
                    }
                }
                Some(_) => unreachable!("the response to a list is a list"),
                // The known state of the lease suffices to renew it.
                None if until <= time && self.nodes[index].member.can_write() => self.write(index),
                None if until <= time => self.nodes[index].phase = Phase::Pausing { until: time + period },
                None => {}
            },
            Phase::Writing { number, sent, until } => {
                let answer = self.answer(index, number);
                let node = &mut self.nodes[index];
                node.phase = match answer {
                    Some(Answer::Written(lease)) => {
                        let sent = if defect == Defect::LateFence { clock } else { sent };
                        let has_news = node.member.written(*lease, sent, clock);
                        node.has_joined = true;
                        Phase::Pausing { until: if has_news { time } else { time + period } }
                    }
                    None if until > time => return,
                    _ => {
                        node.member.unsure();
                        Phase::Pausing { until: time + period }
                    }
                };
                node.publish(defect);
            }
        }
    }

    fn write(&mut self, index: usize) {
        let (time, defect, node) = (self.time, self.defect, &mut self.nodes[index]);
        let clock = node.time();
        if let Some((name, conditions)) = node.member.litter(clock) {
            self.tally.deleted += 1;
            self.send(index, Request::Delete(name, conditions.resource_version));
        }
        let node = &mut self.nodes[index];
        let busy = if defect == Defect::SilentAboutWork { BTreeSet::new() } else { node.busy() };
        let action = node.member.decide(busy, clock, Timestamp::UNIX_EPOCH);
        let number = self.send(index, Request::Write(action));
        self.nodes[index].phase = Phase::Writing { number, sent: clock, until: time + 5_000 };
    }

    fn begin_work(&mut self, index: usize) {
        let (number, until) = (self.draw(KEYS), self.time + self.draw(4_000));
        let kind = self.draw(2_000);
        let until = match kind {
            0 => u64::MAX,
            1..20 => self.time + self.draw(LONGEST_WORK),
            _ => until,
        };
        let node = &mut self.nodes[index];
        if node.leaving.is_some() || node.work.contains_key(&number) {
            return;
        }
        let Some(guard) = node.share.begin(&key(number)) else { return };
        node.work.insert(number, (guard, until));
        self.tally.hung += usize::from(kind == 0);
        for other in self.alive().filter(|other| *other != index).collect::<Vec<_>>() {
            let (node, other) = (&self.nodes[index], &self.nodes[other]);
            if !other.is_working_on(number) {
                continue;
            }
            if other.is_robbed && !node.seen.contains(&other.name) || node.is_robbed {
                self.tally.excused += 1;
            } else {
                let (time, grants) = (self.time, [node.member.grant(), other.member.grant()]);
                self.tally
                    .doubled
                    .push(format!("at {time} key {number} by {}, and {}: {grants:?}", node.name, other.name));
            }
        }
        self.tally.begun += 1;
        self.tally.moved += usize::from(self.last.insert(number, index).is_some_and(|last| last != index));
    }

    fn step(&mut self) {
        self.time += STEP;
        self.clock.store(self.time, Ordering::Relaxed);
        self.carry();
        // The order varies from step to step.
        let mut order: Vec<_> = self.alive().collect();
        let nodes = order.len();
        order.rotate_left(self.draw(nodes.max(1) as u64) as usize % nodes.max(1));
        order.into_iter().for_each(|node| self.act(node));
    }

    /// Injects a random disturbance: a fault, or a node that joins or leaves.
    fn disturb(&mut self) {
        let alive = self.alive().collect::<Vec<_>>();
        let victim = alive.get(self.draw(alive.len().max(1) as u64) as usize).copied();
        match (self.draw(12), victim) {
            (0, Some(victim)) => {
                self.nodes[victim].is_over = true;
                self.tally.crashed += 1;
            }
            (1, Some(victim)) => drop(self.nodes[victim].leaving.get_or_insert(self.time)),
            (2 | 3, Some(victim)) => self.nodes[victim].frozen_until = self.time + self.draw(30_000),
            (4 | 5, _) if alive.len() < 5 => self.join(),
            (6, Some(victim)) if self.chance(0.5) => {
                let node = &mut self.nodes[victim];
                if self.server.leases.remove(&node.name).is_some() {
                    node.is_robbed = true;
                    self.tally.robbed += 1;
                }
            }
            _ => self.badness = self.random.fraction().powi(2),
        }
        if self.alive().count() < 2 {
            self.join();
        }
    }
}

fn simulate(seed: u64, defect: Defect) -> Tally {
    let mut world = World::new(seed, defect);
    (0..3).for_each(|_| world.join());
    while world.time < 600_000 {
        world.step();
        if world.chance(0.008) {
            world.disturb();
        }
    }
    if defect != Defect::None {
        return world.tally;
    }
    // No more faults from here on. Delayed messages arrive, work in progress ends, leases expire, and some turns pass.
    world.badness = 0.0;
    world.join();
    let patience = 2 * LATEST + LONGEST_WORK + 3 * 17_000 + 15_000;
    while world.time < 600_000 + patience {
        world.step();
    }
    let alive = world.alive().collect::<Vec<_>>();
    let hangs =
        |number: u64| alive.iter().any(|node| world.nodes[*node].work.get(&number).is_some_and(|it| it.1 == u64::MAX));
    for number in 0..KEYS {
        let owners = alive.iter().filter(|node| world.nodes[**node].share.begin(&key(number)).is_some()).count();
        // Work that never ends blocks only its own key.
        assert!(owners == 1 || owners == 0 && hangs(number), "seed {seed}: {owners} owners of key {number}");
    }
    let is_busy = alive.iter().any(|node| !world.nodes[*node].busy().is_empty());
    assert!(is_busy || alive.iter().all(|node| world.nodes[*node].member.is_settled()), "seed {seed}");
    world.tally
}

#[test]
fn each_key_has_at_most_one_owner_and_soon_has_one() {
    let mut sum = Tally::default();
    for seed in 0..32 {
        let tally = simulate(seed, Defect::None);
        assert!(tally.doubled.is_empty(), "seed {seed}: {:#?}", tally.doubled);
        let add = |sum: &mut usize, more: usize| *sum += more;
        add(&mut sum.begun, tally.begun);
        add(&mut sum.moved, tally.moved);
        add(&mut sum.lost, tally.lost);
        add(&mut sum.crashed, tally.crashed);
        add(&mut sum.left, tally.left);
        add(&mut sum.aborted, tally.aborted);
        add(&mut sum.hung, tally.hung);
        add(&mut sum.deleted, tally.deleted);
        add(&mut sum.robbed, tally.robbed);
        add(&mut sum.excused, tally.excused);
    }
    let Tally { begun, moved, lost, crashed, left, aborted, hung, deleted, robbed, .. } = sum;
    assert!(begun > 40_000 && moved > 2_000, "the simulation covers too little: {sum:?}");
    let enough = [lost, crashed, left, deleted, robbed].iter().all(|count| *count > 20) && hung.min(aborted) > 5;
    assert!(enough, "the simulation has too few faults: {sum:?}");
}

/// Checks that the simulation is sensitive enough: it must detect each of these defects.
#[test]
fn defects_of_the_protocol_are_detected() {
    use Defect::{BlindToOthers, Hasty, Impatient, LateFence, SilentAboutWork, Unfenced};
    for defect in [SilentAboutWork, BlindToOthers, Hasty, Unfenced, Impatient, LateFence] {
        let found = (0..200).find(|seed| !simulate(*seed, defect).doubled.is_empty());
        assert!(found.is_some(), "{defect:?} is not detected");
    }
}
