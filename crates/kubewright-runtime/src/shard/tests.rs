//! Many members against one API server in simulated time: requests that are late, lost or answered to nobody; clocks that
//! run at different speeds; members that crash, stand still, leave and come. Only [`Member`] is real.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kubewright_apimachinery::random::Random;

use super::{
    ShardOptions,
    member::{Grant, Member},
    view::{Place, hash},
};
use crate::leader::candidate::Action;

/// How much time passes between two looks at everything.
const STEP: u64 = 50;
/// The keys.
const PLACES: u64 = 24;
/// The longest that a request is under way, each way; and that work takes.
const LATEST: u64 = 20_000;
const LONGEST_WORK: u64 = 30_000;

fn places() -> impl Iterator<Item = Place> {
    (0..PLACES).map(|number| Place(hash(&number.to_le_bytes())))
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

/// A request on its way.
struct Flight {
    node: usize,
    number: u64,
    request: Request,
    /// When the server gets it, if it does, and how long the answer takes, if it comes.
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

/// What a node waits for: the shell's turn, step by step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Pausing { until: u64 },
    Listing { number: u64, asked: Duration, until: u64 },
    Writing { number: u64, sent: Duration, until: u64, news: bool },
}

struct Node {
    member: Member,
    options: ShardOptions,
    grant: Grant,
    offset: u64,
    rate: f64,
    phase: Phase,
    has_joined: bool,
    is_leaving: bool,
    /// Crashed, lost or left.
    is_over: bool,
    frozen_until: u64,
    /// What is worked on, and until when.
    work: BTreeMap<Place, u64>,
}

impl Node {
    fn clock(&self, time: u64) -> Duration {
        Duration::from_millis(self.offset) + Duration::from_millis(time).mul_f64(self.rate)
    }

    fn stands(&self, time: u64) -> bool {
        self.grant.fence.is_some_and(|fence| self.clock(time) < fence)
    }

    /// Whether it may yet act on what it works on. One that has just stood still looks at its fence before it does.
    fn is_working_on(&self, place: Place, time: u64) -> bool {
        !self.is_over && self.work.contains_key(&place) && (self.frozen_until + STEP < time || self.stands(time))
    }

    fn is_drained(&self) -> bool {
        self.work.keys().all(|place| self.member.target().gives(*place, &self.options.own_lease().name))
    }
}

/// What happened, to see that enough did.
#[derive(Debug, Default)]
struct Tally {
    begun: usize,
    moved: usize,
    lost: usize,
    crashed: usize,
    left: usize,
    deleted: usize,
}

struct World {
    random: Random,
    time: u64,
    server: Server,
    nodes: Vec<Node>,
    flights: Vec<Flight>,
    numbers: u64,
    badness: f64,
    /// Who works on a key now, and who did last.
    last: BTreeMap<Place, usize>,
    tally: Tally,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::seeded(seed),
            time: 0,
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
        let options = ShardOptions::new("system", "operator", format!("replica-{}", self.nodes.len()));
        let member = Member::new(&options);
        self.nodes.push(Node {
            grant: member.grant(),
            member,
            options,
            offset: self.draw(1_000_000),
            // The deadline and the duration bear a third.
            rate: 0.9 + 0.2 * self.random.fraction(),
            phase: Phase::Pausing { until: self.time },
            has_joined: false,
            is_leaving: false,
            is_over: false,
            frozen_until: 0,
            work: BTreeMap::new(),
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

    /// Lets the network and the server do what is due.
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
        // Lost ones, and those whose answers nobody awaits any more, are forgotten.
        let limit = self.numbers.saturating_sub(2_000);
        self.flights.retain(|flight| flight.number > limit);
    }

    fn answer(&mut self, node: usize, number: u64) -> Option<Answer> {
        let is_it = |flight: &Flight| {
            (flight.node, flight.number) == (node, number)
                && flight.answer.is_some()
                && flight.returns.is_some_and(|returns| returns <= self.time)
        };
        let place = self.flights.iter().position(is_it)?;
        self.flights.remove(place).answer
    }

    /// One node's part of a step.
    fn act(&mut self, index: usize) {
        let time = self.time;
        let node = &mut self.nodes[index];
        if node.frozen_until > time {
            return;
        }
        node.work.retain(|_, until| *until > time);
        if node.has_joined && !node.stands(time) {
            node.is_over = true;
            self.tally.lost += 1;
            return;
        }
        if node.is_leaving && node.work.is_empty() {
            // The release is a last write that nobody waits for.
            node.is_over = true;
            let lease = node.member.candidate().release(Timestamp::UNIX_EPOCH);
            self.tally.left += 1;
            if let Some(lease) = lease {
                self.send(index, Request::Write(Action::Update(Box::new(lease))));
            }
            return;
        }
        self.turn(index);
        self.begin_work(index);
    }

    fn turn(&mut self, index: usize) {
        let time = self.time;
        let period = 2_000 + self.draw(400);
        let clock = self.nodes[index].clock(time);
        match self.nodes[index].phase {
            Phase::Pausing { until } if until <= time => {
                let number = self.send(index, Request::List);
                self.nodes[index].phase = Phase::Listing { number, asked: clock, until: time + 3_000 };
            }
            Phase::Pausing { .. } => {}
            Phase::Listing { number, asked, until } => match self.answer(index, number) {
                Some(Answer::Leases(leases)) => {
                    let node = &mut self.nodes[index];
                    node.member.listed(leases, asked, clock);
                    node.grant = node.member.grant();
                    self.write(index);
                }
                Some(_) => unreachable!("a list is answered by a list"),
                // What is known of it is enough to renew it.
                None if until <= time && self.nodes[index].member.can_write() => self.write(index),
                None if until <= time => self.nodes[index].phase = Phase::Pausing { until: time + period },
                None => {}
            },
            Phase::Writing { number, sent, until, news } => {
                let answer = self.answer(index, number);
                let node = &mut self.nodes[index];
                node.phase = match answer {
                    Some(Answer::Written(lease)) => {
                        node.member.written(*lease, sent, clock);
                        node.has_joined = true;
                        Phase::Pausing { until: if news { time } else { time + period } }
                    }
                    None if until > time => return,
                    _ => {
                        node.member.unsure();
                        Phase::Pausing { until: time + period }
                    }
                };
                node.grant = node.member.grant();
            }
        }
    }

    fn write(&mut self, index: usize) {
        let (time, node) = (self.time, &mut self.nodes[index]);
        let clock = node.clock(time);
        if let Some((name, conditions)) = node.member.litter(clock) {
            self.tally.deleted += 1;
            self.send(index, Request::Delete(name, conditions.resource_version));
        }
        let node = &mut self.nodes[index];
        let drained = node.is_drained();
        let news = node.member.has_news() && drained;
        let action = node.member.decide(drained, clock, Timestamp::UNIX_EPOCH);
        let number = self.send(index, Request::Write(action));
        self.nodes[index].phase = Phase::Writing { number, sent: clock, until: time + 5_000, news };
    }

    fn begin_work(&mut self, index: usize) {
        let (place, until) = (Place(hash(&self.draw(PLACES).to_le_bytes())), self.time + self.draw(4_000));
        let until = if self.chance(0.01) { self.time + self.draw(LONGEST_WORK) } else { until };
        let (time, node) = (self.time, &mut self.nodes[index]);
        let may = node.grant.gives(place) && node.stands(time) && !node.is_leaving;
        if !may || node.work.contains_key(&place) {
            return;
        }
        node.work.insert(place, until);
        let others = self.alive().filter(|other| *other != index && self.nodes[*other].is_working_on(place, time));
        let others = others.collect::<Vec<_>>();
        let told = |node: &usize| (*node, self.nodes[*node].frozen_until, &self.nodes[*node].grant);
        assert!(
            others.is_empty(),
            "at {time} {place:?} is begun by {:?} while others are at it: {:?}",
            told(&index),
            others.iter().map(told).collect::<Vec<_>>()
        );
        self.tally.begun += 1;
        self.tally.moved += usize::from(self.last.insert(place, index).is_some_and(|last| last != index));
    }

    fn step(&mut self) {
        self.time += STEP;
        self.carry();
        // Not always in the same order.
        let mut order: Vec<_> = self.alive().collect();
        let nodes = order.len();
        order.rotate_left(self.draw(nodes.max(1) as u64) as usize % nodes.max(1));
        order.into_iter().for_each(|node| self.act(node));
    }

    /// Something goes wrong, or someone comes or goes.
    fn disturb(&mut self) {
        let alive = self.alive().collect::<Vec<_>>();
        let victim = alive.get(self.draw(alive.len().max(1) as u64) as usize).copied();
        match (self.draw(10), victim) {
            (0, Some(victim)) => {
                self.nodes[victim].is_over = true;
                self.tally.crashed += 1;
            }
            (1, Some(victim)) => self.nodes[victim].is_leaving = true,
            (2 | 3, Some(victim)) => self.nodes[victim].frozen_until = self.time + self.draw(30_000),
            (4 | 5, _) if alive.len() < 5 => self.join(),
            _ => self.badness = self.random.fraction().powi(2),
        }
        if self.alive().count() < 2 {
            self.join();
        }
    }
}

fn simulate(seed: u64) -> Tally {
    let mut world = World::new(seed);
    (0..3).for_each(|_| world.join());
    while world.time < 600_000 {
        world.step();
        if world.chance(0.008) {
            world.disturb();
        }
    }
    // All is well from now on. What is late comes yet, work under way ends, leases run out, and some turns pass.
    world.badness = 0.0;
    world.join();
    let patience = 2 * LATEST + LONGEST_WORK + 3 * 17_000 + 15_000;
    while world.time < 600_000 + patience {
        world.step();
    }
    for place in places() {
        let owners = world.alive().filter(|node| world.nodes[*node].grant.gives(place)).count();
        assert_eq!(owners, 1, "seed {seed}: owners of {place:?}");
    }
    assert!(world.alive().all(|node| world.nodes[node].member.is_settled()), "seed {seed}");
    world.tally
}

#[test]
fn never_two_on_a_key_and_none_without_anyone_for_long() {
    let mut sum = Tally::default();
    for seed in 0..24 {
        let Tally { begun, moved, lost, crashed, left, deleted } = simulate(seed);
        sum.begun += begun;
        sum.moved += moved;
        sum.lost += lost;
        sum.crashed += crashed;
        sum.left += left;
        sum.deleted += deleted;
    }
    let enough = sum.begun > 20_000 && sum.moved > 1_000 && sum.lost > 20 && sum.crashed > 20 && sum.left > 20;
    assert!(enough && sum.deleted > 20, "too little happened to show anything: {sum:?}");
}
