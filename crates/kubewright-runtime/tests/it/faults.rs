//! The faults that the runtime handles for every operator.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt, client::Body};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::{Action, Retry},
    client::ClientError,
    clock::Clock,
    context::Context,
    controller::{Controller, Reconciler},
    manager::Manager,
    predicate::Predicate,
};
use parking_lot::Mutex;
use tower::BoxError;

use crate::world::{Fleet, FleetReconciler, World, controller, pass, run, until};

/// A crash right after any write, and a start with an empty cache.
#[tokio::test(start_paused = true)]
async fn crashes_after_writes_neither_repeat_nor_lose_them() {
    for survived in 1..=6 {
        let world = World::new().await;
        let start = || run(world.manager().controller(controller(FleetReconciler::generating_names())));
        let manager = start();
        world.create_fleet("a", 5).await;
        until("some writes", || async { world.faults.writes() >= survived }).await;
        manager.crash().await;
        let manager = start();
        world.wait_for_size("a", 5).await;
        assert_eq!(world.ship_names().await.len(), 5, "after a crash at write {survived}");
        manager.stop().await;
    }
}

/// Conflicts on the status are retried, and nothing is counted twice.
#[tokio::test(start_paused = true)]
async fn conflicts_on_the_status_are_retried() {
    let world = World::new().await;
    let conflict = world.faults.on(&[Verb::Patch], "fleets/status").times(4).refuse(409, "Conflict");
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;
    assert_eq!((conflict.hits(), world.ship_names().await.len()), (4, 2));
    manager.stop().await;
}

/// The server's `Retry-After` is honoured, and a failing server gets fewer and fewer requests.
#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_and_failures_back_off() {
    let world = World::new().await;
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    let busy = world.faults.on(&[Verb::Create], "configmaps").retry_after(30).refuse(429, "TooManyRequests");
    world.create_fleet("a", 1).await;
    until("the refusal", || async { busy.hits() == 1 }).await;
    pass(29).await;
    assert!(world.ship_names().await.is_empty(), "it doesn't ask again before thirty seconds");
    world.wait_for_size("a", 1).await;

    let broken = world.faults.on(&[Verb::Create], "configmaps").always().refuse(500, "InternalError");
    world.resize("a", 2).await;
    pass(100).await;
    let tries = broken.hits();
    assert!((5..25).contains(&tries), "{tries} tries in a hundred seconds");
    world.faults.clear();
    world.wait_for_size("a", 2).await;
    manager.stop().await;
}

/// A deletion that no watch reports is noticed through the next list.
#[tokio::test(start_paused = true)]
async fn deletions_during_a_broken_watch_are_noticed() {
    let world = World::new().await;
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 3).await;
    world.wait_for_size("a", 3).await;

    let refused = world.faults.on(&[Verb::Watch], "configmaps").times(2).refuse(410, "Expired");
    let gate = world.faults.on(&[Verb::Watch], "configmaps").hold();
    let expired = world.faults.on(&[Verb::Watch], "configmaps").expire();
    world.ships().delete("a-1", &Default::default()).await.expect("deleted");
    world.ships().delete("a-0", &Default::default()).await.expect("deleted");
    drop(gate);
    until("the ships are back", || async { world.ship_names().await == ["a-0", "a-1", "a-2"] }).await;
    until("the watch has met its faults", || async { refused.hits() == 2 && expired.hits() == 1 }).await;
    world.ships().delete("a-2", &Default::default()).await.expect("deleted");
    until("the ship is back", || async { world.ship_names().await == ["a-0", "a-1", "a-2"] }).await;
    manager.stop().await;
}

/// The version of a watch has expired before the watch begins: only a new list helps, not a retry.
#[tokio::test(start_paused = true)]
async fn a_watch_refused_as_too_old_begins_with_a_list() {
    let world = World::new().await;
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    let refused = world.faults.on(&[Verb::Watch], "configmaps").always().refuse(410, "Expired");
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;
    // Reconciles read live until the cache has caught up by its lists.
    pass(120).await;
    world.ships().delete("a-1", &Default::default()).await.expect("deleted");
    until("the ship is back", || async { world.ship_names().await == ["a-0", "a-1"] }).await;
    assert!(refused.hits() > 2);
    manager.stop().await;
}

/// Repeated and delayed events, and watches that end after each event.
#[tokio::test(start_paused = true)]
async fn events_may_be_repeated_late_and_cut_off() {
    let world = World::new().await;
    let watch = &[Verb::Watch];
    let _rules = [
        world.faults.on(watch, "configmaps").times(3).double(),
        world.faults.on(watch, "configmaps").times(3).delay(Duration::from_secs(1)),
        world.faults.on(watch, "configmaps").always().cut_after(1),
        world.faults.on(watch, "fleets").always().double(),
    ];
    let manager = run(world.manager().controller(controller(FleetReconciler::generating_names())));
    for (name, size) in [("a", 4), ("b", 3)] {
        world.create_fleet(name, size).await;
        world.wait_for_size(name, size).await;
    }
    assert_eq!(world.ship_names().await.len(), 7);
    world.resize("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert_eq!(world.ship_names().await.len(), 4);
    manager.stop().await;
}

/// An owner that was recreated under the same name doesn't get the children of the old one.
#[tokio::test(start_paused = true)]
async fn children_of_an_earlier_owner_are_not_children_of_the_new_one() {
    let world = World::new().await;
    let manager = run(world.manager().controller(controller(FleetReconciler::generating_names())));
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;
    let old = world.ship_names().await;
    world.fleets().delete("a", &Default::default()).await.expect("deleted");
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    // No garbage collector runs here, so the old children remain, unchanged.
    let ships = world.ship_names().await;
    assert_eq!(ships.len(), 3);
    assert!(old.iter().all(|name| ships.contains(name)));
    manager.stop().await;
}

/// Fails permanently for the size 13, and panics for 99.
#[derive(Clone, Default)]
struct Moody {
    tries: Arc<AtomicUsize>,
}

#[derive(Debug, thiserror::Error)]
enum Mood {
    #[error("thirteen ships sink")]
    Unlucky,
    #[error("can't say so")]
    Client(#[from] ClientError),
}

impl Reconciler<Fleet> for Moody {
    type Error = Mood;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, Mood> {
        let size = fleet.spec.size;
        if size == 13 || size == 99 {
            self.tries.fetch_add(1, Ordering::SeqCst);
        }
        assert_ne!(size, 99, "too many ships");
        if size == 13 {
            return Err(Mood::Unlucky);
        }
        ctx.set_status(crate::world::FleetStatus { size, note: None }).await?;
        Ok(Action::await_change())
    }

    fn error_policy(&self, error: &Mood) -> Retry {
        match error {
            Mood::Unlucky => Retry::Terminal,
            Mood::Client(_) => Retry::Backoff,
        }
    }
}

/// A terminal error is not retried; an edit triggers the next run.
#[tokio::test(start_paused = true)]
async fn a_terminal_error_waits_for_an_edit() {
    let world = World::new().await;
    let moody = Moody::default();
    let manager = run(world.manager().controller(Controller::new(moody.clone())));
    world.create_fleet("a", 13).await;
    pass(3600).await;
    assert_eq!(moody.tries.load(Ordering::SeqCst), 1);
    world.resize("a", 12).await;
    world.wait_for_size("a", 12).await;
    manager.stop().await;
}

/// A panic is caught, retried with back-off and survived.
#[tokio::test(start_paused = true)]
async fn a_panic_affects_only_its_own_key() {
    let world = World::new().await;
    let moody = Moody::default();
    let manager = run(world.manager().controller(Controller::new(moody.clone())));
    world.create_fleet("bad", 99).await;
    world.create_fleet("good", 5).await;
    world.wait_for_size("good", 5).await;
    pass(100).await;
    let tries = moody.tries.load(Ordering::SeqCst);
    assert!((5..25).contains(&tries), "{tries} tries in a hundred seconds");
    world.resize("bad", 4).await;
    world.wait_for_size("bad", 4).await;
    manager.stop().await;
}

/// A predicate, a mapper or an index function that panics doesn't end the watch.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_predicate_does_not_end_the_watch() {
    let world = World::new().await;
    let is_bad = |name: Option<String>| name.is_some_and(|name| name == "bad");
    let indexed = Arc::new(AtomicUsize::new(0));
    let found = indexed.clone();
    let controller = controller(FleetReconciler::default())
        .predicate(Predicate::<Fleet>::new(move |change| {
            assert!(!is_bad(change.object().metadata.name.clone()), "a bad fleet");
            true
        }))
        .index("name", move |fleet: &Fleet| {
            assert!(!is_bad(fleet.metadata.name.clone()), "a bad fleet");
            vec![fleet.name_any()]
        })
        .watches(move |_: &Secret, fleets| {
            found.store(fleets.indexed("name", "good").len(), Ordering::SeqCst);
            panic!("no secrets")
        });
    let manager = run(world.manager().controller(controller));
    for name in ["bad", "good"] {
        world.create_fleet(name, 1).await;
    }
    world.wait_for_size("good", 1).await;
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    let secret = serde_json::from_value(serde_json::json!({"metadata": {"name": "s"}})).expect("a secret");
    secrets.create(&Default::default(), &secret).await.expect("accepted");
    until("the secret is mapped", || async { indexed.load(Ordering::SeqCst) == 1 }).await;
    world.resize("good", 2).await;
    world.wait_for_size("good", 2).await;
    manager.stop().await;
}

/// After the faults stop, the operator converges within bounded time and writes nothing more.
#[tokio::test(start_paused = true)]
async fn the_operator_recovers_soon_after_the_faults_stop() {
    let world = World::new().await;
    let manager = run(world.manager().controller(controller(FleetReconciler::generating_names())));
    for verbs in [Verb::WRITES, Verb::READS] {
        world.faults.on(verbs, "*").always().refuse(503, "ServiceUnavailable");
    }
    world.create_fleet("a", 6).await;
    pass(600).await;
    world.faults.clear();
    world.wait_for_size("a", 6).await;
    pass(10).await;
    world.faults.forget();
    pass(600).await;
    assert_eq!((world.faults.writes(), world.ship_names().await.len()), (0, 6));
    manager.stop().await;
}

/// A kind that may not be watched delays only the controllers that need it, and what is missing is reported.
#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_stops_only_controllers_that_need_it() {
    let world = World::new().await;
    let words = "secrets is forbidden: User \"operator\" cannot list resource \"secrets\"";
    world.faults.on(Verb::READS, "secrets").always().refuse_with(403, "Forbidden", words);
    let needy = Controller::<ConfigMap>::new(Idle::default()).name("needy").owns::<Secret>();
    let manager = world.manager().controller(controller(FleetReconciler::default())).controller(needy);
    let ready = manager.probes().clone();
    let manager = run(manager);
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;
    let page = page(&ready, "/readyz/caches").await;
    assert!(page.contains(words) && page.contains("secrets: "), "{page}");
    assert!(!page.contains("fleets"), "{page}");
    world.faults.clear();
    until("it is ready", || async { self::page(&ready, "/readyz/caches").await == "ok" }).await;
    manager.stop().await;
}

/// Only counts its runs.
#[derive(Clone, Default)]
pub(crate) struct Idle(pub(crate) Arc<AtomicUsize>);

impl Reconciler<ConfigMap> for Idle {
    type Error = std::convert::Infallible;

    async fn reconcile(&self, map: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        assert!(!map.name_any().is_empty());
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Action::await_change())
    }
}

/// Returns the result of a readiness check: `ok`, or the error.
pub(crate) async fn page(probes: &kubewright_runtime::probe::Probes, path: &str) -> String {
    let name = path.strip_prefix("/readyz/").expect("the path of a check");
    let Some(result) = probes.readyz.run(name).await else { return format!("no check {name} yet") };
    result.err().unwrap_or_else(|| "ok".into())
}

/// Returns a client whose watches of config maps fail after this time, and the times at which they were requested.
fn cutting(world: &World, after: Duration) -> (Client, Arc<Mutex<Vec<Duration>>>) {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (server, clock, sent) = (world.client.clone(), world.clock.clone(), times.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (server, clock, sent) = (server.clone(), clock.clone(), sent.clone());
        async move {
            let of = |part: Option<&str>, what: &str| part.is_some_and(|part| part.contains(what));
            let is_cut = of(Some(request.uri().path()), "/configmaps") && of(request.uri().query(), "watch=true");
            let answer = server.send(request).await?;
            if !is_cut {
                return Ok::<_, BoxError>(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()));
            }
            sent.lock().push(clock.monotonic());
            let reset = async { Err(BoxError::from(io::Error::from(io::ErrorKind::ConnectionReset))) };
            Ok(answer.map(|body| {
                let events = body.into_data_stream().map_err(BoxError::from).take_until(tokio::time::sleep(after));
                let frames = events.chain(stream::once(reset)).map_ok(http_body::Frame::data);
                StreamBody::new(frames).boxed_unsync()
            }))
        }
    });
    (Client::new(service, "default"), times)
}

/// A load balancer may close idle connections: the watch of a kind without changes is resumed at once, each time.
#[tokio::test(start_paused = true)]
async fn a_quiet_watch_that_is_cut_off_again_and_again_is_resumed_at_once() {
    const IDLE: Duration = Duration::from_secs(60);
    let world = World::new().await;
    let (client, sent) = cutting(&world, IDLE);
    let manager = Manager::new(client).clock(world.clock.clone()).random(world.random.clone());
    let manager = run(manager.controller(controller(FleetReconciler::default())));
    pass(1200).await;
    let sent = sent.lock().clone();
    let pauses = sent.windows(2).map(|pair| pair[1].saturating_sub(pair[0] + IDLE)).collect::<Vec<_>>();
    assert!(pauses.len() > 15 && pauses.iter().all(|pause| *pause < Duration::from_secs(1)), "{pauses:?}");
    manager.stop().await;
}

/// A list that hangs, as on a dead connection, times out and is requested again.
#[tokio::test(start_paused = true)]
async fn the_first_list_of_a_kind_may_hang() {
    let world = World::new().await;
    let _gate = world.faults.on(&[Verb::List], "configmaps").hold();
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 2).await;
    let soon = tokio::time::timeout(Duration::from_secs(90), world.wait_for_size("a", 2));
    soon.await.expect("the list is asked for again");
    manager.stop().await;
}
