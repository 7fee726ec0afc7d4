//! The state of a run, which the user, the network and the processes share.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::{Clock, VirtualClock};
use kubewright_apiserver::{ChangeKind, Feed};
use kubewright_cluster::faults::{ApiRequest, Verb};
use kubewright_runtime::trace::Traces;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    control::Target,
    coverage::Coverage,
    fault::{BEHIND, EventFault, Fault, OUTAGE, ProcessFault, UNAVAILABLE},
    history::{Entry, History, Request, path},
    logs,
    oracle::{Answer, Created, Finding, Oracle, Seen},
    outcome::Outcome,
    panics,
    reconciles::Reconciles,
    schedule::{Injection, Point},
    world::{World, text},
};

/// The number of requests after which a run is stopped.
const MOST_REQUESTS: u64 = 30_000;
/// The number of changes of the cluster within a second of virtual time after which a run is stopped. Virtual time
/// advances only when all tasks wait, so clients that react to each other without a delay would run forever.
const MOST_CHANGES: usize = 20_000;

type Holds = Box<dyn Fn(&World) -> bool + Send>;

/// A condition of the scenario.
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) holds: Holds,
}

/// The findings that say that a condition or step of the scenario failed.
const OF_SCENARIO: [&str; 4] = ["always", "finally", "until", "step"];

/// What a run looks for, and what is injected.
pub(crate) struct Setup {
    pub(crate) injections: Vec<Injection>,
    /// The steps of the user that are left out.
    pub(crate) skipped: BTreeSet<usize>,
    pub(crate) oracles: Vec<Box<dyn Oracle>>,
    /// Whether the conditions of the scenario have to hold.
    pub(crate) keeps_conditions: bool,
}

/// The shared state of a run.
pub(crate) struct State {
    clock: Arc<VirtualClock>,
    inner: Mutex<Inner>,
}

struct Inner {
    feed: Feed,
    world: World,
    history: History,
    injections: Vec<(Injection, bool)>,
    always: Vec<Condition>,
    finally: Vec<Condition>,
    oracles: Vec<Box<dyn Oracle>>,
    findings: Vec<Finding>,
    created: Created,
    coverage: Coverage,
    requests: u64,
    /// The number of calls of webhooks.
    reviews: u64,
    writes: usize,
    /// The number of events that the operator has received.
    events: usize,
    /// The number of the user's steps.
    steps: usize,
    /// Those that are left out.
    skipped: BTreeSet<usize>,
    reconciles: Reconciles,
    /// The number of reconciles that have ended.
    reconciled: usize,
    /// The objects of the latest step.
    targets: Vec<Target>,
    /// The faults that belong some time after their step, with the version before it.
    postponed: Vec<(Fault, u64)>,
    keeps_conditions: bool,
    /// The latest second in which the cluster has changed, and the number of its changes in it.
    changes: (u64, usize),
    /// The latest version of the cluster.
    version: u64,
    has_upgraded: bool,
    /// Until when the events of replicas are late, in virtual time since the start.
    late_until: Duration,
    /// Until when the API server answers no request, in virtual time since the start.
    outage_until: Duration,
    /// Until when a webhook is unavailable, in virtual time since the start.
    webhook_unavailable_until: Duration,
    /// When the latest fault happened, in virtual time since the start.
    latest_fault: Option<Duration>,
    /// When faults ended, in virtual time since the start.
    faults_ended: Option<Duration>,
    /// Whether the namespace of the user is being deleted, or is gone.
    has_no_namespace: bool,
    /// The number of the watch whose event has arrived last.
    last_arrival: Option<u64>,
    /// Notified when an event arrives.
    arrived: Arc<Notify>,
    /// Notified when the user can't go on, which isn't a finding.
    gave_up: Arc<Notify>,
    /// Whether the user couldn't go on.
    has_given_up: bool,
    is_stopped: bool,
    /// Notified when the run has to end.
    stopped: Arc<Notify>,
}

impl State {
    /// Begins to record the changes of a feed. What exists already isn't recorded.
    pub(crate) fn new(clock: Arc<VirtualClock>, mut feed: Feed, setup: Setup) -> Arc<Self> {
        let (mut world, mut version) = (World::default(), 0);
        while let Ok(Some(change)) = feed.try_next() {
            version = version.max(change.revision);
            world.apply(&change);
        }
        let inner = Inner {
            feed,
            world,
            history: History::default(),
            injections: setup.injections.into_iter().map(|injection| (injection, false)).collect(),
            always: Vec::new(),
            finally: Vec::new(),
            oracles: setup.oracles,
            findings: Vec::new(),
            created: Created::default(),
            coverage: Coverage::default(),
            requests: 0,
            reviews: 0,
            writes: 0,
            events: 0,
            steps: 0,
            skipped: setup.skipped,
            reconciles: Reconciles::default(),
            reconciled: 0,
            targets: Vec::new(),
            postponed: Vec::new(),
            keeps_conditions: setup.keeps_conditions,
            changes: (0, 0),
            version,
            has_upgraded: false,
            late_until: Duration::ZERO,
            outage_until: Duration::ZERO,
            webhook_unavailable_until: Duration::ZERO,
            latest_fault: None,
            faults_ended: None,
            has_no_namespace: false,
            last_arrival: None,
            arrived: Arc::default(),
            gave_up: Arc::default(),
            has_given_up: false,
            is_stopped: false,
            stopped: Arc::default(),
        };
        Arc::new(Self { clock, inner: Mutex::new(inner) })
    }

    /// Returns the virtual time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(crate) fn record(&self, entry: Entry) {
        self.inner.lock().history.push(self.clock.monotonic(), entry);
    }

    /// Reads all changes, and checks after each what must always hold.
    pub(crate) fn follow(&self) {
        self.inner.lock().follow(self.clock.monotonic());
    }

    /// Calls a function with the world as it is.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        let mut inner = self.inner.lock();
        inner.follow(self.clock.monotonic());
        read(&inner.world)
    }

    pub(crate) fn always(&self, condition: Condition) {
        let mut inner = self.inner.lock();
        inner.always.push(condition);
        inner.check_always(self.clock.monotonic());
    }

    pub(crate) fn finally(&self, condition: Condition) {
        self.inner.lock().finally.push(condition);
    }

    /// Checks what must hold once faults have stopped.
    pub(crate) fn check_finally(&self) {
        let mut inner = self.inner.lock();
        let at = self.clock.monotonic();
        inner.follow(at);
        let failed: Vec<_> =
            inner.finally.iter().filter(|it| !(it.holds)(&inner.world)).map(|it| it.name.clone()).collect();
        for name in failed {
            inner.found(at, Finding::new("finally", name));
        }
    }

    pub(crate) fn found(&self, finding: Finding) {
        self.inner.lock().found(self.clock.monotonic(), finding);
    }

    /// Lets each oracle look.
    pub(crate) fn ask(&self, ask: impl Fn(&mut dyn Oracle, &Seen<'_>) -> Vec<String>) {
        let mut inner = self.inner.lock();
        let at = self.clock.monotonic();
        inner.follow(at);
        inner.ask(at, ask);
    }

    /// Ends the run: nothing of the operator or the user continues.
    pub(crate) fn stop(&self) {
        self.inner.lock().stop();
    }

    /// Completes when the run has to end.
    pub(crate) async fn stopped(&self) {
        let stopped = self.inner.lock().stopped.clone().notified_owned();
        if !self.inner.lock().is_stopped {
            stopped.await;
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.lock().is_stopped
    }

    /// Records a step of the user, and returns the fault that happens at it, and the version of the cluster before it;
    /// nothing if the step is left out.
    pub(crate) fn step(&self, what: String) -> Option<(Option<Fault>, u64)> {
        let mut inner = self.inner.lock();
        let at = self.clock.monotonic();
        inner.follow(at);
        let nth = inner.steps;
        inner.steps += 1;
        if inner.skipped.contains(&nth) {
            return None;
        }
        inner.history.push(at, Entry::Step(what));
        inner.created.step(at);
        Some((inner.take(at, &Point::Step(nth)), inner.version))
    }

    /// Remembers the objects of the latest step.
    pub(crate) fn touch(&self, targets: Vec<Target>) {
        self.inner.lock().targets = targets;
    }

    /// Returns the objects of the latest step.
    pub(crate) fn targets(&self) -> Vec<Target> {
        self.inner.lock().targets.clone()
    }

    /// Returns the latest version of the cluster.
    pub(crate) fn version(&self) -> u64 {
        self.inner.lock().version
    }

    /// Keeps a fault for some time after its step.
    pub(crate) fn postpone(&self, fault: Fault, version: u64) {
        self.inner.lock().postponed.push((fault, version));
    }

    /// Returns whether there are faults that were kept.
    pub(crate) fn has_postponed(&self) -> bool {
        !self.inner.lock().postponed.is_empty()
    }

    /// Returns the faults that were kept, once.
    pub(crate) fn postponed(&self) -> Vec<(Fault, u64)> {
        std::mem::take(&mut self.inner.lock().postponed)
    }

    /// Makes the processes that start from now on those of the new version. Returns whether they weren't before.
    pub(crate) fn upgrade(&self) -> bool {
        !std::mem::replace(&mut self.inner.lock().has_upgraded, true)
    }

    pub(crate) fn has_upgraded(&self) -> bool {
        self.inner.lock().has_upgraded
    }

    /// Delays the events of the replicas that take over.
    pub(crate) fn delay_takeover(&self) {
        self.inner.lock().late_until = self.clock.monotonic() + BEHIND;
    }

    /// Returns how much longer events are late.
    pub(crate) fn late(&self) -> Option<Duration> {
        self.inner.lock().late_until.checked_sub(self.clock.monotonic()).filter(|left| !left.is_zero())
    }

    /// Lets the API server answer no request for five minutes.
    pub(crate) fn begin_outage(&self) {
        self.inner.lock().outage_until = self.clock.monotonic() + OUTAGE;
    }

    pub(crate) fn is_in_outage(&self) -> bool {
        self.clock.monotonic() < self.inner.lock().outage_until
    }

    /// Makes a webhook unavailable for ten minutes.
    pub(crate) fn begin_webhook_outage(&self) {
        self.inner.lock().webhook_unavailable_until = self.clock.monotonic() + UNAVAILABLE;
    }

    pub(crate) fn is_webhook_unavailable(&self) -> bool {
        self.clock.monotonic() < self.inner.lock().webhook_unavailable_until
    }

    /// Lets no further fault happen. Returns how long ago the latest one was.
    pub(crate) fn end_faults(&self) -> Option<Duration> {
        let mut inner = self.inner.lock();
        let now = self.clock.monotonic();
        inner.faults_ended = Some(now);
        inner.latest_fault.map(|at| now.saturating_sub(at))
    }

    /// Ends the namespace of the user.
    pub(crate) fn end_namespace(&self) {
        self.inner.lock().has_no_namespace = true;
    }

    pub(crate) fn has_no_namespace(&self) -> bool {
        self.inner.lock().has_no_namespace
    }

    /// Completes when an event of another watch has arrived.
    pub(crate) async fn overtaken(&self, watch: u64) {
        let arrived = self.inner.lock().arrived.clone();
        loop {
            arrived.notified().await;
            if self.inner.lock().last_arrival.is_some_and(|last| last != watch) {
                return;
            }
        }
    }

    /// Records that an event has reached the operator, after the changes until now: no cache sees one before it
    /// happens.
    pub(crate) fn has_arrived(&self, watch: u64) {
        self.follow_reconciles();
        let mut inner = self.inner.lock();
        inner.follow(self.clock.monotonic());
        inner.last_arrival = Some(watch);
        inner.arrived.notify_waiters();
    }

    /// Returns whether a finding of this name counts in the run.
    pub(crate) fn counts(&self, oracle: &str) -> bool {
        self.inner.lock().counts(oracle)
    }

    /// Ends the steps of the user, but not the run.
    pub(crate) fn give_up(&self) {
        let mut inner = self.inner.lock();
        inner.has_given_up = true;
        inner.gave_up.notify_one();
    }

    /// Completes when the user can't go on.
    pub(crate) async fn gave_up(&self) {
        let gave_up = self.inner.lock().gave_up.clone();
        gave_up.notified().await;
    }

    /// Records a request, and returns its number and the fault that happens to it or before it.
    pub(crate) fn admit(&self, process: u64, request: &ApiRequest, body: &[u8]) -> (u64, Option<Fault>) {
        self.follow_reconciles();
        let mut inner = self.inner.lock();
        let at = self.clock.monotonic();
        inner.follow(at);
        let number = inner.requests;
        inner.requests += 1;
        let is_counted = request.verb.is_write() && request.resource != "leases";
        let write = is_counted.then_some(inner.writes);
        inner.writes += usize::from(is_counted);
        let record = Request {
            number,
            process,
            write,
            verb: format!("{:?}", request.verb).to_lowercase(),
            resource: request.resource.clone(),
            object: path(request.namespace.as_deref(), request.name.as_deref()),
            body: serde_json::from_slice(body).ok().filter(|_| request.verb.is_write()),
        };
        inner.history.push(at, Entry::Request(record.clone()));
        inner.ask(at, |oracle, seen| oracle.request(&record, seen));
        if number == MOST_REQUESTS {
            inner.found(at, Finding::new("bounds", format!("the operator has sent {MOST_REQUESTS} requests")));
            inner.stop();
        }
        let fault = write.and_then(|nth| inner.take(at, &Point::Write(nth)));
        (number, fault)
    }

    /// Returns the fault that happens to the process at a request.
    pub(crate) fn process_fault(&self, request: u64) -> Option<ProcessFault> {
        match self.inner.lock().take(self.clock.monotonic(), &Point::Request(request)) {
            Some(Fault::Process(fault)) => Some(fault),
            _ => None,
        }
    }

    /// Counts an event that the operator is about to receive, and returns the fault that happens to it.
    pub(crate) fn arrives(&self) -> Option<EventFault> {
        let mut inner = self.inner.lock();
        let nth = inner.events;
        inner.events += 1;
        match inner.take(self.clock.monotonic(), &Point::Event(nth)) {
            Some(Fault::Event(fault)) => Some(fault),
            _ => None,
        }
    }

    /// Records what the API server has made of a write, whether or not the operator receives it.
    /// `before` is the version of the cluster before the write.
    pub(crate) fn executed(&self, request: &ApiRequest, code: u16, body: &[u8], before: u64) {
        let mut inner = self.inner.lock();
        let at = self.clock.monotonic();
        let object = if request.verb.is_write() { serde_json::from_slice::<Value>(body).ok() } else { None };
        if code == 201
            && matches!(request.verb, Verb::Create | Verb::Patch)
            && let Some(object) = &object
        {
            inner.created.add(at, &request.resource, object);
        }
        let version = object.and_then(|object| text(&object, "resourceVersion").parse().ok());
        // A write that changes nothing is answered with the version that was there.
        let answer = Answer { code, version: version.filter(|version| *version > before) };
        inner.follow(at);
        inner.ask(at, |oracle, seen| oracle.executed(request, answer, seen));
    }

    /// Reads all changes, and returns the latest version of the cluster.
    pub(crate) fn latest_version(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.follow(self.clock.monotonic());
        inner.version
    }

    pub(crate) fn answered(&self, number: u64, code: Option<u16>) {
        self.follow_reconciles();
        let mut inner = self.inner.lock();
        inner.history.push(self.clock.monotonic(), Entry::Response { request: number, code });
        inner.follow(self.clock.monotonic());
    }

    /// Counts a call of a webhook, and returns its number.
    pub(crate) fn review(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.reviews += 1;
        inner.reviews - 1
    }

    /// Begins to follow the reconciles of a process.
    pub(crate) fn trace(&self, process: u64, traces: Traces) {
        self.inner.lock().reconciles.add(process, traces);
    }

    /// Records the reconciles that have ended since the last call.
    pub(crate) fn follow_reconciles(&self) {
        let mut reconciles = {
            let mut inner = self.inner.lock();
            if !inner.reconciles.have_ended() {
                return;
            }
            std::mem::take(&mut inner.reconciles)
        };
        // Traces take the locks of queues, under which nobody waits for that of the state.
        let ended = reconciles.ended();
        let mut inner = self.inner.lock();
        let at = self.clock.monotonic();
        for (process, trace) in ended {
            inner.history.push(at, Entry::Reconcile { process, trace: trace.clone() });
            inner.reconciled += 1;
            inner.ask(at, |oracle, seen| oracle.reconciled(process, &trace, seen));
        }
        reconciles.join(std::mem::take(&mut inner.reconciles));
        inner.reconciles = reconciles;
    }

    /// Ends the recording.
    pub(crate) fn finish(&self) -> Outcome {
        self.follow_reconciles();
        let mut inner = self.inner.lock();
        let at = self.clock.monotonic();
        inner.follow(at);
        Outcome {
            calm: inner.created.calm(at),
            findings: std::mem::take(&mut inner.findings),
            history: std::mem::take(&mut inner.history),
            writes: inner.writes,
            events: inner.events,
            steps: inner.steps,
            reconciles: inner.reconciled,
            unreached: inner.injections.iter().filter(|(_, has)| !has).map(|(it, _)| it.clone()).collect(),
            states: std::mem::take(&mut inner.coverage).reached(),
            faults_ended: inner.faults_ended,
        }
    }
}

impl Inner {
    /// Returns the fault at a point, which happens once, and not after faults have ended.
    fn take(&mut self, at: Duration, point: &Point) -> Option<Fault> {
        if self.faults_ended.is_some() {
            return None;
        }
        let due = self.injections.iter_mut().find(|(it, has_happened)| !has_happened && it.point == *point);
        let (injection, has_happened) = due?;
        *has_happened = true;
        self.latest_fault = Some(at);
        let (text, fault) = (injection.to_string(), injection.fault);
        self.history.push(at, Entry::Fault(text));
        Some(fault)
    }

    fn follow(&mut self, at: Duration) {
        self.collect_panics(at);
        for log in logs::take() {
            self.history.push(at, Entry::Log(log));
        }
        loop {
            let change = match self.feed.try_next() {
                Ok(Some(change)) => change,
                Ok(None) => return,
                // The feed begins again with all objects.
                Err(_) => {
                    self.world.clear();
                    continue;
                }
            };
            self.version = self.version.max(change.revision);
            self.world.apply(&change);
            self.created.follow(&change);
            self.coverage.follow(&change);
            // Nobody reacts to the heartbeat of a node or the holder of a lease.
            if &*change.resource.kind == "Lease" {
                continue;
            }
            let name = path(Some(text(change.object(), "namespace")), Some(text(change.object(), "name")));
            let (kind, object) = (change.resource.kind.to_string(), change.object().clone());
            let what = match change.kind {
                ChangeKind::Added => "Added",
                ChangeKind::Modified => "Modified",
                ChangeKind::Deleted => "Deleted",
            };
            self.count_change(at, &kind, &name);
            self.history.push(at, Entry::Change { change: what.into(), kind, name, object });
            self.check_always(at);
            self.ask(at, |oracle, seen| oracle.change(&change, seen));
        }
    }

    /// Counts a change, and stops the run if there are too many.
    fn count_change(&mut self, at: Duration, kind: &str, name: &str) {
        let (second, count) = self.changes;
        self.changes = (at.as_secs(), if second == at.as_secs() { count + 1 } else { 1 });
        if self.changes.1 == MOST_CHANGES {
            let latest = format!("the latest is one of {kind} {name}");
            self.found(at, Finding::new("bounds", format!("{MOST_CHANGES} changes within a second; {latest}")));
            self.stop();
        }
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        self.stopped.notify_waiters();
    }

    fn check_always(&mut self, at: Duration) {
        let failed: Vec<_> =
            self.always.iter().filter(|it| !(it.holds)(&self.world)).map(|it| it.name.clone()).collect();
        for name in failed {
            self.found(at, Finding::new("always", name));
        }
    }

    fn collect_panics(&mut self, at: Duration) {
        for panic in panics::take() {
            self.found(at, Finding::new("panic", panic));
        }
    }

    fn ask(&mut self, at: Duration, ask: impl Fn(&mut dyn Oracle, &Seen<'_>) -> Vec<String>) {
        let mut oracles = std::mem::take(&mut self.oracles);
        for oracle in &mut oracles {
            let is_unavailable = at < self.outage_until;
            let seen = Seen { at, created: &self.created, world: &self.world, is_unavailable };
            for message in ask(oracle.as_mut(), &seen) {
                self.found(at, Finding::new(oracle.name(), message));
                if oracle.ends_run() {
                    self.stop();
                }
            }
        }
        self.oracles = oracles;
    }

    fn counts(&self, oracle: &str) -> bool {
        // What the user didn't end may go on, such as a schedule that wasn't suspended.
        let is_at_rest = oracle != "quiet" || !self.has_given_up;
        is_at_rest && (self.keeps_conditions || !OF_SCENARIO.contains(&oracle))
    }

    fn found(&mut self, at: Duration, finding: Finding) {
        if self.counts(&finding.oracle) && !self.findings.contains(&finding) {
            self.history.push(at, Entry::Finding(finding.to_string()));
            self.findings.push(finding);
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}
