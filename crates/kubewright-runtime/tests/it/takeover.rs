//! Keys taken over from another replica: whatever that one wrote, and however late the cache is, the next owner sees
//! it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::Expression,
};
use kubewright_cluster::faults::{Faults, Verb};
use kubewright_runtime::{
    cache::{CacheOptions, KindOptions},
    clock::Clock,
    leader::LeaderOptions,
    manager::Manager,
    shard::ShardOptions,
};
use serde_json::json;

use crate::world::{FleetReconciler, Running, World, controller, pass, run, until};

const SIZE: usize = 6;

/// A replica with its own network.
struct Replica {
    faults: Faults,
    running: Running,
}

impl Replica {
    fn start(world: &World, faults: Faults, several: impl FnOnce(Manager) -> Manager) -> Self {
        let manager =
            Manager::new(faults.client(&world.client)).clock(world.clock.clone()).random(world.random.clone());
        let reconciler = FleetReconciler::generating_names();
        let running = run(several(manager).controller(controller(reconciler).concurrency(4)));
        Self { faults, running }
    }

    fn elected(world: &World, identity: &str, faults: Faults) -> Self {
        let options = LeaderOptions::new("default", "fleets", identity);
        Self::start(world, faults, |manager| manager.leader_election(options))
    }

    fn sharded(world: &World, identity: &str, faults: Faults) -> Self {
        let options = ShardOptions::new("default", "fleets", identity);
        Self::start(world, faults, |manager| manager.sharding(options))
    }

    /// Returns how often the replica has listed a resource.
    fn lists(&self, resource: &str) -> usize {
        let seen = self.faults.requests().into_iter().map(|seen| seen.request);
        seen.filter(|request| request.verb == Verb::List && request.resource == resource).count()
    }
}

/// A network that delays the watch events of ships.
fn late(by: Duration) -> Faults {
    let faults = Faults::new();
    faults.on(&[Verb::Watch], "configmaps").always().delay(by);
    faults
}

/// A standby replica, whose cache is late by any time, takes over from a leader that crashes or stops right after its
/// writes, and repeats none of them.
#[tokio::test(start_paused = true)]
async fn a_standby_sees_the_last_writes_of_the_former_leader() {
    // Whether the first replica crashes instead of stopping, the number of ships it leaves, and the number wanted from
    // the second.
    for (dies, left, wanted) in [(true, SIZE, SIZE + 1), (false, SIZE, SIZE + 1), (true, 2, 3)] {
        for seconds in [0, 3, 30, 4_000] {
            let world = World::new().await;
            let first = Replica::elected(&world, "first", Faults::new());
            until("the first leads", || async { first.lists("leases") + first.lists("configmaps") > 0 }).await;
            pass(1).await;
            let second = Replica::elected(&world, "second", late(Duration::from_secs(seconds)));
            pass(20).await;
            // Ships are deleted and created again; the cache has to receive both kinds of events.
            world.create_fleet("a", 4).await;
            world.wait_for_size("a", 4).await;
            pass(10).await;
            let size = if left > 4 { 2 } else { SIZE };
            world.resize("a", size).await;
            world.wait_for_size("a", size).await;
            if left < 4 {
                // Some time to receive the creations, so that the deletions have to be received as well.
                pass(20).await;
            }
            world.resize("a", left).await;
            until("all are made", || async { world.ship_names().await.len() == left }).await;
            let Replica { running, .. } = first;
            if dies {
                running.crash().await;
            } else {
                running.stop().await;
            }
            second.faults.forget();
            world.resize("a", wanted).await;
            world.wait_for_size("a", wanted).await;
            // The number is right at once, and still right when the cache has caught up.
            for time in [0, 60] {
                pass(time).await;
                let there = world.ship_names().await.len();
                assert_eq!(there, wanted, "{left} were left, with events late by {seconds} s");
            }
            assert!((1..=2).contains(&second.lists("fleets")), "{}", second.lists("fleets"));
            second.running.stop().await;
        }
    }
}

/// A list that fails is retried, and nothing is reconciled until it succeeds.
#[tokio::test(start_paused = true)]
async fn a_takeover_waits_until_its_lists_are_answered() {
    let world = World::new().await;
    let first = Replica::elected(&world, "first", Faults::new());
    pass(5).await;
    let second = Replica::elected(&world, "second", late(Duration::from_secs(3_600)));
    pass(5).await;
    world.create_fleet("a", SIZE).await;
    world.wait_for_size("a", SIZE).await;
    let refused = second.faults.on(&[Verb::List], "configmaps").times(4).refuse(403, "Forbidden");
    let lost = second.faults.on(&[Verb::List], "fleets").times(2).lose_request();
    first.running.stop().await;
    second.faults.forget();
    world.resize("a", SIZE + 1).await;
    until("it was refused", || async { refused.hits() >= 3 }).await;
    assert_eq!(world.ship_names().await.len(), SIZE, "it does nothing yet");
    world.wait_for_size("a", SIZE + 1).await;
    assert_eq!((refused.hits(), lost.hits(), world.ship_names().await.len()), (4, 2, SIZE + 1));
    second.running.stop().await;
}

/// The same for the keys that a shard gains, at the cost of one list for each kind.
#[tokio::test(start_paused = true)]
async fn a_shard_sees_what_the_former_owner_of_its_keys_wrote() {
    const FLEETS: usize = 16;
    for seconds in [0, 3, 4_000] {
        let world = World::new().await;
        let first = Replica::sharded(&world, "first", Faults::new());
        let second = Replica::sharded(&world, "second", late(Duration::from_secs(seconds)));
        pass(20).await;
        for number in 0..FLEETS {
            world.create_fleet(&format!("f{number:02}"), 2).await;
        }
        pass(60).await;
        assert_eq!(world.ship_names().await.len(), 2 * FLEETS);
        second.faults.forget();
        let before = second.lists("configmaps");
        first.running.crash().await;
        for number in 0..FLEETS {
            world.resize(&format!("f{number:02}"), 3).await;
        }
        pass(120).await;
        assert_eq!(world.ship_names().await.len(), 3 * FLEETS, "with events late by {seconds} s");
        if seconds == 0 {
            let lists = (second.lists("fleets"), second.lists("configmaps") - before);
            assert!((1..=4).contains(&lists.0) && (1..=4).contains(&lists.1), "{lists:?} for {FLEETS} keys");
        }
        second.running.stop().await;
    }
}

/// Lists that hang, as on a dead connection, time out and are requested again, both those of the takeover and those of
/// the cache.
#[tokio::test(start_paused = true)]
async fn a_takeover_outlasts_lists_that_hang() {
    let world = World::new().await;
    let first = Replica::elected(&world, "first", Faults::new());
    pass(5).await;
    let second = Replica::elected(&world, "second", late(Duration::from_secs(3_600)));
    pass(5).await;
    world.create_fleet("a", SIZE).await;
    world.wait_for_size("a", SIZE).await;
    let list = &[Verb::List];
    let _gates =
        [second.faults.on(list, "configmaps").hold(), second.faults.on(list, "configmaps").skip(1).times(2).hold()];
    first.running.stop().await;
    let begun = world.clock.monotonic();
    world.resize("a", SIZE + 1).await;
    world.wait_for_size("a", SIZE + 1).await;
    let waited = world.clock.monotonic() - begun;
    assert!(waited < Duration::from_secs(90), "the keys were held for {waited:?}");
    assert_eq!(world.ship_names().await.len(), SIZE + 1);
    second.running.stop().await;
}

/// An object doesn't match the cache's selector when the takeover lists, but matches again before the cache has
/// received that change. The takeover doesn't wait for its removal.
#[tokio::test(start_paused = true)]
async fn a_takeover_does_not_wait_for_the_end_of_an_object_that_came_back() {
    let world = World::new().await;
    let paint = async |color: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"color": color}}}));
        Api::<Secret>::default_namespaced(world.client.clone())
            .patch("s", &PatchParams::default(), &patch)
            .await
            .expect("accepted");
    };
    let secret = serde_json::from_value(json!({"metadata": {"name": "s", "labels": {"color": "red"}}}));
    let secrets = Api::<Secret>::default_namespaced(world.client.clone());
    secrets.create(&PostParams::default(), &secret.expect("a secret")).await.expect("accepted");
    let first = Replica::elected(&world, "first", Faults::new());
    pass(5).await;
    let faults = Faults::new();
    let _silent = faults.on(&[Verb::Watch], "secrets").always().hold();
    let manager = Manager::new(faults.client(&world.client)).clock(world.clock.clone()).random(world.random.clone());
    let red = KindOptions::new().labels(Expression::Equal("color".into(), "red".into()).into());
    let controller = controller(FleetReconciler::generating_names()).reads::<Secret>();
    let manager = manager
        .cache(CacheOptions::new().kind::<Secret>(red))
        .leader_election(LeaderOptions::new("default", "fleets", "second"))
        .controller(controller);
    let second = Replica { faults, running: run(manager) };
    pass(5).await;
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    paint("blue").await;
    let before = second.lists("secrets");
    first.running.stop().await;
    world.resize("a", 2).await;
    until("the takeover has listed", || async { second.lists("secrets") > before }).await;
    pass(1).await;
    paint("red").await;
    let soon = tokio::time::timeout(Duration::from_secs(60), world.wait_for_size("a", 2));
    soon.await.expect("the keys are not held for ever");
    second.running.stop().await;
}

/// A replica without a predecessor sends only the lists of its cache.
#[tokio::test(start_paused = true)]
async fn a_single_replica_lists_nothing_twice() {
    let world = World::new().await;
    world.create_fleet("a", SIZE).await;
    let alone = Replica::start(&world, Faults::new(), |manager| manager);
    world.wait_for_size("a", SIZE).await;
    assert_eq!((alone.lists("fleets"), alone.lists("configmaps")), (1, 1));
    alone.running.stop().await;
}
