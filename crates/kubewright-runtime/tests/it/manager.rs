//! Runnables other than controllers, their start order, and the manager's end.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::Api;
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    cache::Reader,
    clock::Clock,
    context::Context,
    controller::{Controller, Reconciler},
    leader::LeaderOptions,
    manager::{ManagerError, Runnable},
    shard::ShardOptions,
};
use parking_lot::Mutex;

use crate::world::{Fleet, FleetReconciler, World, controller, pass, run, until};

fn leads(identity: &str) -> LeaderOptions {
    LeaderOptions::new("default", "fleets", identity)
}

/// Returns an error with its cause, as a program prints it.
fn told_by(error: &ManagerError) -> String {
    format!("{error}: {}", error.source().expect("a cause"))
}

/// Returns a runnable that records its start and its cancellation.
fn recording(name: &'static str, events: &Arc<Mutex<Vec<String>>>) -> Runnable {
    let events = events.clone();
    Runnable::new(name, async move |context| {
        events.lock().push(format!("{name} begins"));
        context.cancelled.cancelled().await;
        events.lock().push(format!("{name} ends"));
        Ok(())
    })
}

#[tokio::test(start_paused = true)]
async fn runnables_wait_for_the_leader_unless_they_need_none() {
    let world = World::new().await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let first = run(world.manager().leader_election(leads("first")).runnable(recording("first", &events)));
    until("it leads", || async { !events.lock().is_empty() }).await;

    let second = world
        .manager()
        .leader_election(leads("second"))
        .runnable(recording("elected", &events))
        .runnable(recording("anywhere", &events).needs_leader(false));
    let elected = second.elected();
    let second = run(second);
    pass(60).await;
    assert_eq!(*events.lock(), ["first begins", "anywhere begins"]);
    assert!(!elected.is_cancelled());
    first.stop().await;
    until("the second leads", || async { elected.is_cancelled() && events.lock().len() == 4 }).await;
    assert_eq!(events.lock()[2..], ["first ends", "elected begins"]);
    second.stop().await;
    assert_eq!(events.lock().len(), 6);
}

/// The handlers of the cache have queues, whose controllers have the cache: they end with the manager, however it ends.
#[tokio::test(start_paused = true)]
async fn handlers_and_caches_are_dropped_with_the_manager() {
    for (crashes, is_sharded) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::new().await;
        let held = Arc::new(());
        let (handler, kept) = (Arc::downgrade(&held), held.clone());
        let index = move |_: &Fleet| {
            let _ = &kept;
            Vec::new()
        };
        let mapper = move |_: &ConfigMap, _: &Reader<Fleet>| {
            let _ = &held;
            Vec::new()
        };
        let mut manager = world.manager();
        if is_sharded {
            manager = manager.sharding(ShardOptions::new("default", "fleets", "one"));
        }
        let controller = controller(FleetReconciler::default()).watches(mapper).index("held", index);
        let manager = run(manager.controller(controller));
        world.create_fleet("a", 1).await;
        world.wait_for_size("a", 1).await;
        assert_eq!(handler.strong_count(), 2);
        if crashes {
            manager.crash().await;
        } else {
            manager.stop().await;
        }
        until("handler and index are dropped", || async { handler.strong_count() == 0 }).await;
    }
}

/// A controller that needs no leader works on every replica, and the caches of replicas that don't lead are filled.
#[tokio::test(start_paused = true)]
async fn a_controller_may_work_without_leading() {
    let world = World::new().await;
    let (leader, standby) = (FleetReconciler::default(), FleetReconciler::default());
    let manager = |identity: &str| world.manager().leader_election(leads(identity));
    let first = run(manager("first").controller(controller(leader.clone())));
    until("it leads", || async { leader.runs.load(Ordering::SeqCst) == 0 && world.faults.requests().len() > 4 }).await;
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    let counted = Counting::default();
    let everywhere = Controller::<Fleet>::new(counted.clone()).name("counting").needs_leader(false);
    let second = run(manager("second").controller(controller(standby.clone())).controller(everywhere));
    until("it has seen the fleet", || async { counted.0.load(Ordering::SeqCst) > 0 }).await;
    assert_eq!(standby.runs.load(Ordering::SeqCst), 0);
    first.stop().await;
    until("it takes over", || async { standby.runs.load(Ordering::SeqCst) > 0 }).await;
    second.stop().await;
}

#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Reconciler<Fleet> for Counting {
    type Error = std::convert::Infallible;

    async fn reconcile(&self, _: &Fleet, _: &Context<Fleet>) -> Result<Action, Self::Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_fails_or_panics_ends_the_manager_and_one_that_is_done_does_not() {
    let world = World::new().await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let done = Runnable::new("chore", async |_| Ok(()));
    let failing = Runnable::new("poller", async |context| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(context);
        Err("the source is dry".into())
    });
    let manager = world.manager().runnable(done).runnable(failing).runnable(recording("other", &events));
    let error = manager.run_until(std::future::pending::<()>()).await.expect_err("it fails");
    assert_eq!(told_by(&error), "the runnable poller failed: the source is dry");
    assert_eq!(*events.lock(), ["other begins", "other ends"], "the others end in good order");

    let panicking = Runnable::new("poller", async |_| panic!("on purpose"));
    let error = world.manager().runnable(panicking).run_until(std::future::pending::<()>()).await;
    assert_eq!(told_by(&error.expect_err("it fails")), "the runnable poller failed: panic: on purpose");
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_is_for_all_and_can_be_set() {
    let world = World::new().await;
    for (grace, took) in [(Some(0), 0), (Some(7), 7), (None, 30)] {
        let deaf = Runnable::new("deaf", async |_| {
            std::future::pending::<()>().await;
            Ok(())
        });
        let manager = world.manager().runnable(deaf);
        let manager = match grace {
            Some(grace) => manager.graceful_shutdown(Duration::from_secs(grace)),
            None => manager,
        };
        let manager = run(manager);
        pass(10).await;
        let start = world.clock.monotonic();
        let ended = manager.end().await.map_err(|error| error.to_string());
        assert_eq!((world.clock.monotonic() - start).as_secs(), took);
        // Without a grace period, nothing was to be waited for.
        let error = format!("not all tasks ended within the grace period of {took}s: they were aborted");
        assert_eq!(ended, if took == 0 { Ok(()) } else { Err(error) });
    }
}

/// Its lease expires instead, since aborted writes may still take effect.
#[tokio::test(start_paused = true)]
async fn a_controller_that_was_added_counts_for_the_grace_period() {
    let world = World::new().await;
    let manager = world.manager().leader_election(leads("first"));
    let (controllers, elected) = (manager.controllers(), manager.elected());
    let manager = run(manager.graceful_shutdown(Duration::from_secs(7)));
    elected.cancelled().await;
    let begun = Arc::new(AtomicUsize::new(0));
    controllers.add(Controller::<Fleet>::new(Deaf(begun.clone()))).await.expect("it is added");
    world.create_fleet("a", 1).await;
    until("it works", || async { begun.load(Ordering::SeqCst) == 1 }).await;
    let error = manager.end().await.expect_err("it was aborted");
    assert!(matches!(error, ManagerError::GraceExceeded(_)), "{error}");
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "default");
    let holder = leases.get("fleets").await.expect("the lease").spec.expect("a spec").holder_identity;
    assert_eq!(holder.as_deref(), Some("first"));
}

/// Never ends.
#[derive(Clone)]
struct Deaf(Arc<AtomicUsize>);

impl Reconciler<Fleet> for Deaf {
    type Error = std::convert::Infallible;

    async fn reconcile(&self, _: &Fleet, _: &Context<Fleet>) -> Result<Action, Self::Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

/// When a lease is lost, work that depends on it is cancelled at once, and so is all other work of the process.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_runnables_without_a_grace_period() {
    let world = World::new().await;
    let deaf = Runnable::new("deaf", async |_| {
        std::future::pending::<()>().await;
        Ok(())
    });
    let manager = world.manager().leader_election(leads("first")).runnable(deaf);
    let elected = manager.elected();
    let manager = tokio::spawn(manager.run_until(std::future::pending::<()>()));
    elected.cancelled().await;
    let start = world.clock.monotonic();
    world.faults.on(Verb::WRITES, "leases").always().lose_request();
    let error = manager.await.expect("it doesn't panic").expect_err("it ends in an error");
    assert!(
        matches!(&error, ManagerError::LeadershipLost { why, .. } if why.contains("write the lease") || why.contains("no answer")),
        "{error}"
    );
    assert!((world.clock.monotonic() - start).as_secs() <= 13);
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_are_refused() {
    let world = World::new().await;
    let refused = async |manager: kubewright_runtime::manager::Manager| {
        let error = manager.run_until(std::future::pending::<()>()).await.expect_err("it is refused");
        error.to_string()
    };
    let handler = || axum::routing::get(async || "x");
    let text = refused(world.manager().metrics_handler("/metrics", handler())).await;
    assert!(text.contains("have the path \"/metrics\""), "{text}");
    for path in ["version", "/a b", "/{name}", "/a/:b", "/*c"] {
        let text = refused(world.manager().metrics_handler(path, handler())).await;
        assert!(
            text.starts_with(&format!("invalid path {path:?} of a metrics handler: begin it with a slash")),
            "{text}"
        );
    }
    let sharded = world.manager().sharding(ShardOptions::new("default", "fleets", "a"));
    let text = refused(sharded.runnable(Runnable::new("chore", async |_| Ok(())))).await;
    assert!(text.starts_with("the runnable chore needs a leader, and with sharding there is none"), "{text}");
}
