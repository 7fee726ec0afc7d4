//! Several clusters in one manager: each by itself, one that goes away and comes back, and clusters by Secrets.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret},
    events::v1::Event as StoredEvent,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    clock::SharedClock,
    context::Context,
    controller::{ConcurrencyLimit, Controller, Reconciler},
    manager::{Manager, ManagerError, RemoteCluster},
    metrics::Metrics,
    object::ObjectKey,
    trace::Traces,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use crate::world::{Fleet, FleetReconciler, World, controller, pass, run, until};

/// The way to a cluster, which can be interrupted: requests fail then, and watches end.
#[derive(Clone, Default)]
struct Link {
    is_down: Arc<AtomicBool>,
    cut: Arc<Mutex<CancellationToken>>,
}

impl Link {
    fn client(&self, client: &kube::Client) -> kube::Client {
        let (link, inner) = (self.clone(), client.clone());
        let send = move |request: Request<Body>| {
            let (link, client) = (link.clone(), inner.clone());
            async move {
                if link.is_down.load(Ordering::SeqCst) {
                    return Err(BoxError::from("the cluster is gone"));
                }
                let cut = link.cut.lock().clone();
                let (parts, body) = client.send(request).await?.into_parts();
                let body = BodyStream::new(body).take_until(cut.cancelled_owned());
                Ok::<_, BoxError>(Response::from_parts(parts, StreamBody::new(body).boxed_unsync()))
            }
        };
        kube::Client::new(service_fn(send), client.default_namespace())
    }

    fn down(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        self.cut.lock().cancel();
    }

    fn up(&self) {
        *self.cut.lock() = CancellationToken::new();
        self.is_down.store(false, Ordering::SeqCst);
    }
}

/// Notes the clusters in which it reconciles, then does what a [`FleetReconciler`] does.
#[derive(Clone, Default)]
struct Noting {
    inner: FleetReconciler,
    seen: Arc<Mutex<BTreeSet<String>>>,
}

impl Reconciler<Fleet> for Noting {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        self.seen.lock().insert(format!("{}:{}", ctx.cluster().unwrap_or("-"), fleet.name_any()));
        self.inner.reconcile(fleet, ctx).await
    }
}

fn noting(noting: &Noting) -> impl Fn(&str) -> Controller<Fleet> + Send + Sync + 'static {
    let reconciler = noting.clone();
    move |_| Controller::<Fleet>::new(reconciler.clone()).owns::<ConfigMap>()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

#[tokio::test(start_paused = true)]
async fn three_clusters_are_separate_and_one_goes_away_and_comes_back() {
    let (hub, east, west, north) = (World::new().await, World::new().await, World::new().await, World::new().await);
    let (link, reconciler, traces) = (Link::default(), Noting::default(), Traces::default());
    let clock: SharedClock = hub.clock.clone();
    let metrics = Metrics::new(clock);
    let manager = hub.manager().metrics(metrics.clone()).traces(traces.clone());
    let manager = manager
        .cluster("east", RemoteCluster::new(link.client(&east.client)))
        .cluster("west", RemoteCluster::new(west.client.clone()))
        .cluster("north", RemoteCluster::new(north.client.clone()))
        .controller_by_cluster(noting(&reconciler))
        .controller(controller(FleetReconciler::default()));
    let clusters = manager.clusters();
    let running = run(manager);
    // Objects of the same name have nothing to do with each other.
    for (world, size) in [(&hub, 1), (&east, 2), (&west, 3), (&north, 4)] {
        world.create_fleet("a", size).await;
        world.wait_for_size("a", size).await;
        assert_eq!(world.ship_names().await.len(), size);
    }
    assert_eq!(*reconciler.seen.lock(), BTreeSet::from(["east:a", "north:a", "west:a"].map(String::from)));
    let names = |traces: &Traces| traces.controllers().iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&traces), ["fleet", "fleet@east", "fleet@north", "fleet@west"]);
    assert!(!traces.of("fleet@west", &key("a")).is_empty());
    let text = metrics.encode().expect("metrics");
    assert!(
        text.contains("controller_runtime_reconcile_total{controller=\"fleet@east\",result=\"success\"}"),
        "{text}"
    );
    assert!(text.contains("kind=\"configmaps@east\"") && text.contains("kind=\"configmaps\""), "{text}");
    // The field manager is the controller's, and not the cluster's.
    let ships = west.ships().list(&Default::default()).await.expect("a list").items;
    let managers = ships.iter().flat_map(|ship| ship.managed_fields()).filter_map(|entry| entry.manager.clone());
    assert!(managers.clone().count() > 0 && managers.into_iter().all(|manager| manager == "fleet-controller"));

    link.down();
    pass(20).await;
    east.resize("a", 5).await;
    west.resize("a", 1).await;
    west.wait_for_size("a", 1).await;
    hub.resize("a", 2).await;
    hub.wait_for_size("a", 2).await;
    pass(60).await;
    assert_eq!(east.ship_names().await.len(), 2, "nobody can reach it");
    link.up();
    east.wait_for_size("a", 5).await;

    // One is taken out, and brought in again.
    assert!(clusters.remove("north").await && !clusters.remove("north").await);
    north.resize("a", 1).await;
    pass(600).await;
    assert_eq!((north.ship_names().await.len(), clusters.names()), (4, vec!["east".to_owned(), "west".to_owned()]));
    assert!(!metrics.encode().expect("metrics").contains("@north") && !names(&traces).contains(&"fleet@north".into()));
    clusters.add("north", RemoteCluster::new(north.client.clone())).await.expect("added");
    north.wait_for_size("a", 1).await;
    assert!(clusters.client("north").is_some() && clusters.client("south").is_none());
    let again = clusters.add("north", RemoteCluster::new(north.client.clone())).await;
    assert!(matches!(again, Err(ManagerError::SameCluster(name)) if name == "north"));
    let bad = clusters.add("a/b", RemoteCluster::new(north.client.clone())).await;
    assert!(matches!(bad, Err(ManagerError::BadClusterName(name)) if name == "a/b"));
    running.stop().await;
    let late = clusters.add("south", RemoteCluster::new(north.client.clone())).await;
    assert!(matches!(late, Err(ManagerError::ClusterEnded(name)) if name == "south"));
}

/// A namespace can be treated as a cluster.
#[tokio::test(start_paused = true)]
async fn a_namespace_can_be_a_cluster() {
    let (hub, shared) = (World::new().await, World::new().await);
    let reconciler = Noting::default();
    let manager = hub.manager().controller_by_cluster(noting(&reconciler));
    let manager = manager.cluster("team", RemoteCluster::new(shared.client.clone()).namespaces(["default"]));
    let running = run(manager);
    let elsewhere: Api<Fleet> = Api::namespaced(shared.client.clone(), "kube-public");
    elsewhere.create(&PostParams::default(), &crate::world::fleet("b", 1)).await.expect("accepted");
    shared.create_fleet("a", 1).await;
    shared.wait_for_size("a", 1).await;
    pass(60).await;
    assert_eq!(*reconciler.seen.lock(), BTreeSet::from(["team:a".to_owned()]));
    running.stop().await;
}

/// Reconciles for a second, and notes how many run at the same time.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<(BTreeSet<String>, usize, usize)>>);

impl Reconciler<Fleet> for Slow {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        {
            let (_, running, most) = &mut *self.0.lock();
            *running += 1;
            *most = (*most).max(*running);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (seen, running, _) = &mut *self.0.lock();
        *running -= 1;
        seen.insert(format!("{}:{}", ctx.cluster().unwrap_or("-"), fleet.name_any()));
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn clusters_share_a_limit_of_concurrent_reconciles() {
    let (hub, east, west) = (World::new().await, World::new().await, World::new().await);
    // The first cluster has more to do than the other one, and doesn't displace it.
    for (world, count) in [(&east, 12), (&west, 3)] {
        for number in 0..count {
            world.create_fleet(&format!("f{number}"), 1).await;
        }
    }
    let (slow, limit) = (Slow::default(), ConcurrencyLimit::new(2));
    let working = slow.clone();
    let manager = hub.manager().controller_by_cluster(move |_| {
        Controller::<Fleet>::new(working.clone()).concurrency(4).concurrency_limit(&limit)
    });
    let manager = manager.cluster("east", RemoteCluster::new(east.client.clone()));
    let running = run(manager.cluster("west", RemoteCluster::new(west.client.clone())));
    let seen_in = |cluster: &str| slow.0.lock().0.iter().filter(|seen| seen.starts_with(cluster)).count();
    until("the one with little to do is done", || async { seen_in("west") == 3 }).await;
    assert!(seen_in("east") < 12, "they take turns: {:?}", slow.0.lock());
    until("all are done", || async { seen_in("east") == 12 }).await;
    let (_, running_now, most) = slow.0.lock().clone();
    assert_eq!((running_now, most), (0, 2), "as many as the limit says at the same time");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn labelled_namespaces_are_clusters_until_they_are_gone() {
    let (hub, reconciler) = (World::new().await, Noting::default());
    let manager = hub.manager().controller_by_cluster(noting(&reconciler));
    let clusters = manager.clusters();
    let running = run(manager.controller(clusters.labelled_namespaces("tenant", hub.client.clone())));
    let namespaces: Api<Namespace> = Api::all(hub.client.clone());
    for (name, label) in [("one", "tenant"), ("two", "tenant"), ("other", "no-tenant")] {
        let namespace = json!({"metadata": {"name": name, "labels": {label: "yes"}}});
        let namespace = serde_json::from_value(namespace).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("accepted");
        let fleets: Api<Fleet> = Api::namespaced(hub.client.clone(), name);
        fleets.create(&PostParams::default(), &crate::world::fleet("a", 1)).await.expect("accepted");
    }
    until("both tenants are clusters", || async { clusters.names() == ["one", "two"] }).await;
    until("they are reconciled", || async { reconciler.seen.lock().len() == 2 }).await;
    let unlabelled = json!({"metadata": {"labels": {"tenant": null}}});
    namespaces.patch("one", &PatchParams::default(), &Patch::Merge(unlabelled)).await.expect("patched");
    until("it is no tenant any more", || async { clusters.names() == ["two"] }).await;
    // It is needed until then, to remove the finalizers of what is in it.
    namespaces.delete("two", &DeleteParams::default()).await.expect("accepted");
    pass(60).await;
    assert_eq!(clusters.names(), ["two"]);
    // No controller of namespaces works here.
    let mut namespace = namespaces.get("two").await.expect("it is being deleted");
    namespace.spec = None;
    namespaces.replace_subresource("finalize", "two", &PostParams::default(), &namespace).await.expect("accepted");
    until("the namespace is gone", || async { clusters.names().is_empty() }).await;
    assert_eq!(*reconciler.seen.lock(), BTreeSet::from(["one:a", "two:a"].map(String::from)));
    running.stop().await;
}

async fn create_secret(hub: &World, name: &str, data: serde_json::Value) {
    let secret = json!({"metadata": {"name": name, "labels": {"cluster": "yes"}}, "stringData": data});
    let secret: Secret = serde_json::from_value(secret).expect("a secret");
    let secrets: Api<Secret> = Api::default_namespaced(hub.client.clone());
    secrets.create(&PostParams::default(), &secret).await.expect("accepted");
}

fn kubeconfig(user: &serde_json::Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "it", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    })
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn secrets_add_clusters_and_invalid_ones_are_named() {
    let (hub, traces, reconciler) = (World::new().await, Traces::default(), Noting::default());
    let west = World::new().await;
    let manager: Manager = hub.manager().traces(traces.clone()).controller_by_cluster(noting(&reconciler));
    let manager = manager.cluster("west", RemoteCluster::new(west.client.clone()));
    let clusters = manager.clusters();
    let running = run(manager.controller(clusters.kubeconfig_secrets("cluster")));
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "reboot", "interactiveMode": "Never"}});
    create_secret(&hub, "invalid", json!({"kubeconfig": "clusters: [no"})).await;
    create_secret(&hub, "empty", json!({"other": "x"})).await;
    create_secret(&hub, "shell", json!({"value": kubeconfig(&exec)})).await;
    create_secret(&hub, "south", json!({"value": kubeconfig(&json!({"token": "t"}))})).await;
    until("the good one is a cluster", || async { clusters.names() == ["south", "west"] }).await;
    let events: Api<StoredEvent> = Api::default_namespaced(hub.client.clone());
    for (name, message) in [
        ("invalid", "the secret default/invalid: "),
        ("empty", "the secret default/empty has no entry `kubeconfig` or `value`"),
        ("shell", "the kubeconfig of the secret default/shell has exec, which is not allowed"),
    ] {
        until(&format!("an event about {name}"), || async {
            let events = events.list(&Default::default()).await.expect("a list").items;
            events.iter().any(|event| event.note.as_deref().is_some_and(|note| note.starts_with(message)))
        })
        .await;
    }
    // Neither the invalid Secret nor a cluster that can't be reached affects another one.
    west.create_fleet("a", 1).await;
    west.wait_for_size("a", 1).await;
    let secrets: Api<Secret> = Api::default_namespaced(hub.client.clone());
    secrets.delete("south", &DeleteParams::default()).await.expect("deleted");
    until("it is no longer a cluster", || async { clusters.names() == ["west"] }).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_folder_adds_clusters_and_invalid_files_are_left_out() {
    let (hub, west, folder) = (World::new().await, World::new().await, tempfile::tempdir().expect("a folder"));
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    let manager = hub.manager().controller_by_cluster(noting(&Noting::default()));
    let manager = manager.cluster("west", RemoteCluster::new(west.client.clone()));
    let clusters = manager.clusters();
    write("south.yaml", &kubeconfig(&json!({"token": "t"})));
    write("invalid.yaml", "clusters: [no");
    write(".hidden.yaml", &kubeconfig(&json!({"token": "t"})));
    let running = run(manager.runnable(clusters.kubeconfig_folder(folder.path())));
    until("there is a cluster", || async { clusters.names() == ["south", "west"] }).await;
    write("invalid.yaml", &kubeconfig(&json!({"token": "t"})));
    until("a fixed file is a cluster", || async { clusters.names() == ["invalid", "south", "west"] }).await;
    std::fs::remove_file(folder.path().join("south.yaml")).expect("removed");
    until("a removed file is no cluster", || async { clusters.names() == ["invalid", "west"] }).await;
    west.create_fleet("a", 1).await;
    west.wait_for_size("a", 1).await;
    running.stop().await;
}

/// A file that can't be used now may be usable later, though it doesn't change.
#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_used_is_tried_again_and_affects_no_other() {
    let (hub, folder) = (World::new().await, tempfile::tempdir().expect("a folder"));
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    let manager = hub.manager().controller_by_cluster(noting(&Noting::default()));
    let manager = manager.cluster("west", RemoteCluster::new(hub.client.clone()));
    let clusters = manager.clusters();
    write("south.yaml", &kubeconfig(&json!({"token": "t"})));
    write("west.yaml", &kubeconfig(&json!({"token": "t"})));
    // A file that nobody can read.
    #[cfg(target_os = "linux")]
    std::os::unix::fs::symlink("/proc/self/mem", folder.path().join("east.yaml")).expect("a link");
    let running = run(manager.runnable(clusters.kubeconfig_folder(folder.path())));
    until("the other one is a cluster", || async { clusters.names() == ["south", "west"] }).await;
    pass(60).await;
    assert!(clusters.remove("west").await, "that of the manager");
    until("the name is free", || async { clusters.names() == ["south", "west"] }).await;
    running.stop().await;
}
