//! Long-running faults: reconcilers that hang or always fail, floods of events, an unavailable server, a stolen lease,
//! and shutdowns at any moment.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    client::Body,
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    clock::Clock,
    context::Context,
    controller::{Controller, Reconciler},
    leader::LeaderOptions,
    manager::Manager,
    random::Random,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use tower::{BoxError, service_fn};

use crate::world::{Fleet, FleetReconciler, World, controller, pass, run, until};

/// Any write takes effect although its answer is lost.
#[tokio::test(start_paused = true)]
async fn a_write_with_a_lost_response_is_neither_repeated_nor_forgotten() {
    for before in 0..7 {
        let world = World::new().await;
        let lost = world.faults.on(Verb::WRITES, "*").skip(before).lose_response();
        let manager = run(world.manager().controller(controller(FleetReconciler::generating_names())));
        world.create_fleet("a", 5).await;
        world.wait_for_size("a", 5).await;
        until("the answer was lost", || async {
            // Writes again, in case no write was left to fail.
            world.resize("a", 6).await;
            world.wait_for_size("a", 6).await;
            world.resize("a", 5).await;
            world.wait_for_size("a", 5).await;
            lost.hits() == 1
        })
        .await;
        assert_eq!(world.ship_names().await.len(), 5, "with the answer to write {before} lost");
        manager.stop().await;
    }
}

/// A shutdown at any moment ends in time, and the next manager continues from there.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_reconciles_loses_nothing() {
    for written in 0..=7 {
        let world = World::new().await;
        let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_millis(40));
        let refused = world.faults.on(&[Verb::Create], "configmaps").skip(3).refuse(500, "InternalError");
        let start = || run(world.manager().controller(controller(FleetReconciler::generating_names()).concurrency(2)));
        let manager = start();
        for name in ["a", "b"] {
            world.create_fleet(name, 3).await;
        }
        until("so many writes", || async { world.faults.writes() >= written }).await;
        let begun = world.clock.monotonic();
        manager.stop().await;
        assert!(world.clock.monotonic() - begun < Duration::from_secs(32));
        let ended = world.faults.writes();
        pass(60).await;
        assert_eq!(world.faults.writes(), ended, "nothing goes on after the end");
        let manager = start();
        for name in ["a", "b"] {
            world.wait_for_size(name, 3).await;
        }
        assert_eq!(world.ship_names().await.len(), 6, "after a shutdown at write {written}");
        assert!(refused.hits() == 1);
        manager.stop().await;
    }
}

/// The connection between manager and server. When it is cut, open responses end, and new requests fail.
#[derive(Clone)]
struct Cable {
    pulled: watch::Sender<bool>,
    /// The number of requests that failed because the connection was cut.
    tries: Arc<AtomicUsize>,
}

impl Cable {
    fn new() -> Self {
        Self { pulled: watch::Sender::new(false), tries: Arc::default() }
    }

    fn client(&self, server: &Client) -> Client {
        let (cable, server, namespace) = (self.clone(), server.clone(), server.default_namespace().to_owned());
        let service = service_fn(move |request: Request<Body>| {
            let (cable, server) = (cable.clone(), server.clone());
            async move {
                if *cable.pulled.borrow() {
                    cable.tries.fetch_add(1, Ordering::SeqCst);
                    return Err(BoxError::from(io::Error::from(io::ErrorKind::ConnectionRefused)));
                }
                let answer = server.send(request).await?;
                Ok(answer.map(|body| {
                    let mut pulled = cable.pulled.subscribe();
                    let broken = async move { drop(pulled.wait_for(|pulled| *pulled).await) };
                    StreamBody::new(BodyStream::new(body).take_until(Box::pin(broken))).boxed_unsync()
                }))
            }
        });
        Client::new(service, namespace)
    }

    fn pull(&self) {
        self.pulled.send_replace(true);
    }

    fn plug_in(&self) {
        self.pulled.send_replace(false);
    }
}

/// The server is unavailable for ten minutes.
#[tokio::test(start_paused = true)]
async fn the_cache_catches_up_after_minutes_without_a_server() {
    let world = World::new().await;
    let cable = Cable::new();
    let manager = Manager::new(cable.client(&world.faults.client(&world.client)))
        .clock(world.clock.clone())
        .random(world.random.clone());
    let manager = run(manager.controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 3).await;
    world.wait_for_size("a", 3).await;

    cable.pull();
    // No watch reports these changes: a deletion, an edit, and a new object.
    world.ships().delete("a-1", &Default::default()).await.expect("deleted");
    world.resize("a", 4).await;
    world.create_fleet("b", 2).await;
    pass(600).await;
    assert_eq!(world.ship_names().await, ["a-0", "a-2"]);
    let tries = cable.tries.load(Ordering::SeqCst);
    assert!((20..400).contains(&tries), "{tries} tries in ten minutes");

    cable.plug_in();
    let back = world.clock.monotonic();
    world.wait_for_size("a", 4).await;
    world.wait_for_size("b", 2).await;
    // The watch of the ships may be the last one that begins again.
    let all = ["a-0", "a-1", "a-2", "a-3", "b-0", "b-1"];
    until("the deleted ship is replaced", || async { world.ship_names().await == all }).await;
    let took = world.clock.monotonic() - back;
    assert!(took < Duration::from_secs(60), "after {took:?}");
    pass(10).await;
    world.faults.forget();
    pass(600).await;
    assert_eq!(world.faults.writes(), 0);
    manager.stop().await;
}

/// Etcd is restored from a backup that is days old: the same cluster with older resource versions, and a different
/// history from there on.
#[tokio::test(start_paused = true)]
async fn the_cache_follows_a_cluster_restored_to_an_older_state() {
    let (world, restored) = (World::new().await, World::new().await);
    world.create_fleet("a", 3).await;
    for size in 0..200 {
        world.resize("a", size).await;
    }
    world.resize("a", 3).await;
    restored.create_fleet("b", 2).await;
    let version = async |world: &World| {
        let version = world.fleets().list(&Default::default()).await.expect("a list").metadata.resource_version;
        version.and_then(|version| version.parse::<u64>().ok()).expect("a version")
    };
    assert!(version(&world).await > version(&restored).await + 150);

    let (old, new) = (Cable::new(), Cable::new());
    let (before, after) = (old.client(&world.client), new.client(&restored.faults.client(&restored.client)));
    let is_restored = Arc::new(AtomicBool::new(false));
    let turned = is_restored.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = if turned.load(Ordering::SeqCst) { after.clone() } else { before.clone() };
        async move { client.send(request).await }
    });
    let manager = Manager::new(Client::new(service, "default")).clock(world.clock.clone()).random(world.random.clone());
    let manager = run(manager.controller(controller(FleetReconciler::generating_names())));
    world.wait_for_size("a", 3).await;

    is_restored.store(true, Ordering::SeqCst);
    old.pull();
    let begun = world.clock.monotonic();
    restored.wait_for_size("b", 2).await;
    for size in [3, 4] {
        restored.resize("b", size).await;
        restored.wait_for_size("b", size).await;
    }
    restored.create_fleet("c", 1).await;
    restored.wait_for_size("c", 1).await;
    let took = world.clock.monotonic() - begun;
    assert!(took < Duration::from_secs(120), "after {took:?}");
    assert_eq!(restored.ship_names().await.len(), 5, "it has never made too many");
    assert!(version(&world).await > version(&restored).await, "all that was below what had been seen");
    manager.stop().await;
}

/// Counts runs by name. `stuck` never ends, `broken` always fails; all others succeed at once.
#[derive(Clone, Default)]
struct Crew {
    runs: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Crew {
    fn runs(&self, name: &str) -> usize {
        self.runs.lock().get(name).copied().unwrap_or_default()
    }
}

impl Reconciler<Fleet> for Crew {
    type Error = io::Error;

    async fn reconcile(&self, fleet: &Fleet, _: &Context<Fleet>) -> io::Result<Action> {
        *self.runs.lock().entry(fleet.name_any()).or_default() += 1;
        match fleet.name_any().as_str() {
            "stuck" => std::future::pending().await,
            "broken" => Err(io::Error::other("it never works")),
            _ => Ok(Action::await_change()),
        }
    }
}

/// Triggers each of ten fleets, waits until it has run again, and returns the longest delay.
async fn wake_others(world: &World, crew: &Crew, size: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for number in 0..10 {
        let name = format!("other-{number}");
        let (before, begun) = (crew.runs(&name), world.clock.monotonic());
        world.resize(&name, size).await;
        until("it is run", || async { crew.runs(&name) > before }).await;
        longest = longest.max(world.clock.monotonic() - begun);
    }
    longest
}

async fn create_others(world: &World, crew: &Crew) {
    for number in 0..10 {
        world.create_fleet(&format!("other-{number}"), 1).await;
    }
    until("all have run", || async { (0..10).all(|number| crew.runs(&format!("other-{number}")) > 0) }).await;
}

/// A reconcile that never ends occupies one worker, and blocks no other key.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_hangs_starves_no_other_key() {
    let world = World::new().await;
    let crew = Crew::default();
    let manager = run(world.manager().controller(Controller::new(crew.clone()).concurrency(2)));
    world.create_fleet("stuck", 1).await;
    create_others(&world, &crew).await;
    // Changes of the hanging key don't occupy a second worker.
    world.resize("stuck", 2).await;
    assert!(wake_others(&world, &crew, 2).await < Duration::from_secs(1));
    pass(3600).await;
    assert!(wake_others(&world, &crew, 3).await < Duration::from_secs(1));
    assert_eq!(crew.runs("stuck"), 1);
    manager.end().await.expect_err("it is aborted");
}

/// With a time limit, even a single worker becomes free between the retries, whose delays grow.
#[tokio::test(start_paused = true)]
async fn a_timeout_frees_the_worker_of_a_hanging_reconcile() {
    let world = World::new().await;
    let crew = Crew::default();
    let limited = Controller::new(crew.clone()).timeout(Duration::from_secs(5));
    let manager = run(world.manager().controller(limited));
    world.create_fleet("stuck", 1).await;
    create_others(&world, &crew).await;
    for size in 2..5 {
        let longest = wake_others(&world, &crew, size).await;
        // A run that is cancelled at its time limit has another second to end.
        assert!(longest < Duration::from_secs(7), "{longest:?} is more than one run of the stuck one");
    }
    let before = crew.runs("stuck");
    pass(3600).await;
    // 5 s for each run, and delays that grow to 1000 s.
    let tries = crew.runs("stuck") - before;
    assert!((2..20).contains(&tries), "{tries} tries in an hour");
    manager.stop().await;
}

/// One key always fails, with a single worker.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_always_fails_starves_no_other_key() {
    let world = World::new().await;
    let crew = Crew::default();
    let manager = run(world.manager().controller(Controller::new(crew.clone())));
    world.create_fleet("broken", 1).await;
    create_others(&world, &crew).await;
    for size in 2..5 {
        assert!(wake_others(&world, &crew, size).await < Duration::from_secs(1));
    }
    pass(24 * 3600).await;
    let before = crew.runs("broken");
    pass(24 * 3600).await;
    let tries = crew.runs("broken") - before;
    assert!((86..=116).contains(&tries), "every 750 to 1000 s, and not {tries} times a day");
    manager.stop().await;
}

/// Records the order of its runs, and the latest version seen of each object.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(String, String)>>>);

impl Reconciler<ConfigMap> for Log {
    type Error = Infallible;

    async fn reconcile(&self, map: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action, Infallible> {
        self.0.lock().push((map.name_any(), map.resource_version().unwrap_or_default()));
        // More events arrive during a run.
        tokio::task::yield_now().await;
        Ok(Action::await_change())
    }
}

fn map(name: &str, version: usize) -> Value {
    let metadata = json!({
        "name": name, "namespace": "default", "uid": name, "resourceVersion": version.to_string(),
    });
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

/// A client for a scripted server: its list is empty, and its first watch sends `events`.
///
/// The channel is tokio's, so that a reader of many events yields to other tasks now and then, as with a socket.
fn scripted(events: mpsc::UnboundedReceiver<Bytes>) -> Client {
    type Answered = UnsyncBoxBody<Bytes, Infallible>;
    let events = Arc::new(Mutex::new(Some(events)));
    let service = service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let list = json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": [],
        });
        let body: Answered = match if is_watch { events.lock().take() } else { None } {
            Some(mut events) => {
                let events = futures::stream::poll_fn(move |context| events.poll_recv(context));
                StreamBody::new(events.map(|event| Ok(Frame::data(event)))).boxed_unsync()
            }
            None if is_watch => StreamBody::new(futures::stream::pending()).boxed_unsync(),
            None => Full::from(list.to_string()).boxed_unsync(),
        };
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    Client::new(service, "default")
}

/// A hundred thousand events for one key: it runs less often, its last state is seen, and no other key waits for it.
#[tokio::test(start_paused = true)]
async fn a_flood_of_events_for_one_key_does_not_starve_other_keys() {
    const FLOOD: usize = 100_000;
    let log = Log::default();
    let (watch, events) = mpsc::unbounded_channel();
    let manager = run(Manager::new(scripted(events)).controller(Controller::new(log.clone())));
    let mut version = 1;
    let mut tell = |kind: &str, name: &str| {
        version += 1;
        let event = format!("{}\n", json!({"type": kind, "object": map(name, version)}));
        watch.send(event.into()).expect("it is watched");
    };
    tell("ADDED", "flooded");
    for number in 0..FLOOD {
        tell("MODIFIED", "flooded");
        if number == FLOOD / 2 {
            (0..20).for_each(|other| tell("ADDED", &format!("other-{other}")));
        }
    }
    let last = ("flooded".to_owned(), version.to_string());
    until("the last state is seen", || async { log.0.lock().last() == Some(&last) }).await;
    let runs = log.0.lock().clone();
    let others: Vec<_> = runs.iter().enumerate().filter(|(_, run)| run.0 != "flooded").map(|(at, _)| at).collect();
    assert_eq!(others.len(), 20, "each other once");
    let between = others[19] - others[0] - 19;
    assert!(between <= 40, "{between} runs of the flooded key between those of the others");
    assert!(runs.len() - 20 <= FLOOD / 2, "{} runs for {FLOOD} events", runs.len() - 20);
    manager.stop().await;
}

/// Another identity overwrites the holder of the lease. Runs in progress are cancelled, and the work continues
/// elsewhere.
#[tokio::test(start_paused = true)]
async fn a_stolen_lease_ends_all_runs_at_once() {
    let world = World::new().await;
    let crew = Crew::default();
    let options = |identity: &str| LeaderOptions::new("default", "fleets", identity);
    let first = world.manager().leader_election(options("first")).controller(Controller::new(crew.clone()));
    let first = tokio::spawn(first.run_until(std::future::pending::<()>()));
    world.create_fleet("stuck", 2).await;
    until("the first works", || async { crew.runs("stuck") == 1 }).await;
    let second = world.manager().leader_election(options("second")).controller(controller(FleetReconciler::default()));
    let second = run(second);
    pass(60).await;
    assert!(world.ship_names().await.is_empty(), "the second stands by");

    let leases: Api<Lease> = Api::default_namespaced(world.client.clone());
    let stolen = json!({"spec": {"holderIdentity": "thief"}});
    leases.patch("fleets", &PatchParams::default(), &Patch::Merge(stolen)).await.expect("it is stolen");
    let ended = timeout(Duration::from_secs(10), first).await.expect("it hears of it within its renewal deadline");
    let error = ended.expect("it doesn't panic").expect_err("it ends in an error");
    assert!(error.to_string().contains("leadership lost"), "{error}");
    assert!(world.ship_names().await.is_empty(), "the thief's time is not over");
    let begun = world.clock.monotonic();
    world.wait_for_size("stuck", 2).await;
    let took = world.clock.monotonic() - begun;
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(25), "the thief doesn't renew: {took:?}");
    second.stop().await;
}

/// The active one of two replicas crashes repeatedly.
#[tokio::test(start_paused = true)]
async fn two_replicas_alternate_and_repeat_nothing() {
    let world = World::new().await;
    let start = |identity: String| {
        let options = LeaderOptions::new("default", "fleets", identity);
        run(world.manager().leader_election(options).controller(controller(FleetReconciler::generating_names())))
    };
    let mut leader = start("replica-0".into());
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    for round in 1..6 {
        let next = start(format!("replica-{round}"));
        pass(5).await;
        world.resize("a", 1 + 2 * round).await;
        let written = world.faults.writes();
        until("it is at work", || async { world.faults.writes() > written }).await;
        leader.crash().await;
        let begun = world.clock.monotonic();
        world.wait_for_size("a", 1 + 2 * round).await;
        // The lease duration of 15 s, an attempt every 2 s, and some time for the work.
        assert!(world.clock.monotonic() - begun < Duration::from_secs(20));
        assert_eq!(world.ship_names().await.len(), 1 + 2 * round);
        leader = next;
    }
    leader.stop().await;
}

/// Ends in a random way, and checks that no key runs twice at once.
#[derive(Clone)]
struct Chance {
    random: Random,
    busy: Arc<Mutex<BTreeMap<String, usize>>>,
    seen: Arc<Mutex<BTreeMap<String, usize>>>,
    at_work: Arc<AtomicUsize>,
    calm: Arc<AtomicBool>,
    /// Violations. A panic would be caught by the controller.
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Reconciler<Fleet> for Chance {
    type Error = io::Error;

    async fn reconcile(&self, fleet: &Fleet, _: &Context<Fleet>) -> io::Result<Action> {
        let name = fleet.name_any();
        if self.busy.lock().insert(name.clone(), fleet.spec.size).is_some() {
            self.wrong.lock().push(format!("two workers on {name}"));
        }
        if self.at_work.fetch_add(1, Ordering::SeqCst) >= 3 {
            self.wrong.lock().push("more workers than there may be".into());
        }
        let millis = |most: f64| Duration::from_millis((self.random.fraction() * most) as u64);
        tokio::time::sleep(millis(30.0)).await;
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        self.busy.lock().remove(&name);
        self.seen.lock().insert(name, fleet.spec.size);
        match self.random.u64() % 5 {
            _ if self.calm.load(Ordering::SeqCst) => Ok(Action::await_change()),
            0 => Err(io::Error::other("chance")),
            1 => Ok(Action::requeue_after(Duration::ZERO)),
            2 => Ok(Action::requeue_after(millis(200.0))),
            _ => Ok(Action::await_change()),
        }
    }
}

/// The controller's loop under random load: a key never has two workers, the number of workers stays within its limit,
/// the last state of each key is seen, and no run continues after the stop.
#[tokio::test(start_paused = true)]
async fn no_wakeup_is_lost_and_no_key_has_two_workers() {
    for seed in 0..8 {
        let world = World::new().await;
        let random = Random::seeded(seed);
        let chance = Chance {
            random: random.clone(),
            busy: Arc::default(),
            seen: Arc::default(),
            at_work: Arc::default(),
            calm: Arc::default(),
            wrong: Arc::default(),
        };
        let manager = run(world.manager().controller(Controller::new(chance.clone()).concurrency(3)));
        let names: Vec<_> = (0..6).map(|number| format!("f{number}")).collect();
        let mut wanted = BTreeMap::new();
        for name in &names {
            world.create_fleet(name, 0).await;
            wanted.insert(name.clone(), 0);
        }
        for size in 1..60 {
            let name = &names[(random.u64() % 6) as usize];
            world.resize(name, size).await;
            wanted.insert(name.clone(), size);
            tokio::time::sleep(Duration::from_millis(random.u64() % 15)).await;
        }
        chance.calm.store(true, Ordering::SeqCst);
        until("the last states are seen", || async { *chance.seen.lock() == wanted }).await;
        for name in &names {
            world.resize(name, 100).await;
        }
        manager.stop().await;
        assert!(chance.busy.lock().is_empty(), "what was at work has ended");
        assert_eq!(*chance.wrong.lock(), Vec::<String>::new());
    }
}
