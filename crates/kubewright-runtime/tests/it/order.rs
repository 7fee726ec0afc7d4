//! The start order of a manager: servers, webhooks, caches, runnables that need no leader, and then those that wait for
//! the lease.

use std::{sync::Arc, time::Duration};

use clap::Parser;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    args::ManagerArgs,
    leader::LeaderOptions,
    manager::{Manager, ManagerError, Runnable},
    probe::BindAddress,
    webhook::{Denied, Request, ValidationErrors, Validator, Webhook, WebhookServer},
};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::{
    faults::page,
    world::{FleetReconciler, World, controller, own_address, run, until},
};

fn address() -> BindAddress {
    own_address().to_string().parse().expect("an address")
}

async fn answers(address: &BindAddress) -> bool {
    TcpStream::connect(address.to_string()).await.is_ok()
}

#[tokio::test]
async fn servers_start_before_the_caches_are_synced_and_controllers_after() {
    let world = World::new().await;
    let (probes, metrics) = (address(), address());
    let started = Arc::new(Mutex::new(Vec::new()));
    let telling = |name: &'static str| {
        let started = started.clone();
        Runnable::new(name, async move |_| {
            started.lock().push(name);
            Ok(())
        })
    };
    let lists = world.faults.on(Verb::READS, "fleets").always().hold();
    let elections = world.faults.on(&[Verb::Get, Verb::Create], "leases").always().hold();
    let reconciler = FleetReconciler::default();
    let runs = reconciler.runs.clone();
    let manager = world
        .manager()
        .probe_address(probes.clone())
        .metrics_address(metrics.clone())
        .leader_election(LeaderOptions::new("default", "fleets", "a"))
        .runnable(telling("elected"))
        .runnable(telling("everywhere").needs_leader(false))
        .controller(controller(reconciler));
    world.create_fleet("a", 1).await;
    let running = run(manager);
    until("the caches are asked for", || async {
        world.faults.requests().iter().any(|seen| seen.request.resource == "fleets")
    })
    .await;
    // The caches start after the servers, so that the readiness checks can report what is missing.
    assert!(answers(&probes).await && answers(&metrics).await);
    until("what runs everywhere runs", || async { !started.lock().is_empty() }).await;
    assert_eq!(*started.lock(), ["everywhere"]);
    elections.open();
    until("it is elected", || async { started.lock().len() == 2 }).await;
    assert_eq!(*started.lock(), ["everywhere", "elected"]);
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 0, "no reconcile without a filled cache");
    lists.open();
    world.wait_for_size("a", 1).await;
    running.stop().await;
    assert!(!answers(&probes).await && !answers(&metrics).await, "they end with it");
}

struct Anything;

impl Validator<ConfigMap> for Anything {
    async fn validate_create(&self, _: &ConfigMap, _: &Request) -> Result<ValidationErrors, Denied> {
        Ok(ValidationErrors::default())
    }
}

/// The API server may need the webhooks to answer the requests of the caches, for example for conversion.
#[tokio::test]
async fn webhooks_are_served_after_the_servers_and_before_the_caches_begin() {
    let world = World::new().await;
    // The certificate is issued for the time of the test's clock, and is valid from before then.
    world.clock.jump(SignedDuration::from_hours(24 * 365 * 56));
    let (probes, webhooks) = (address(), address());
    let certificate = world.faults.on(&[Verb::Get], "secrets").always().hold();
    let manager = world
        .manager()
        .probe_address(probes.clone())
        .webhook(Webhook::<ConfigMap>::new().validating(Anything))
        .webhook_server(WebhookServer::new(webhooks.clone()))
        .controller(controller(FleetReconciler::default()));
    let checks = manager.probes().clone();
    let running = run(manager);
    let is_asked_for = |resource: &str| world.faults.requests().iter().any(|seen| seen.request.resource == resource);
    until("the certificate is looked for", || async { is_asked_for("secrets") }).await;
    assert!(answers(&probes).await && answers(&webhooks).await);
    // If the caches had started before, they would have sent requests by now.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!is_asked_for("fleets") && page(&checks, "/readyz/webhook").await.contains("no certificate yet"));
    certificate.open();
    until("the caches are asked for", || async { is_asked_for("fleets") }).await;
    assert_eq!(page(&checks, "/readyz/webhook").await, "ok");
    running.stop().await;
    assert!(!answers(&webhooks).await, "they end with it");
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    manager: ManagerArgs,
}

/// One active replica, or all of them.
#[test]
fn electing_a_leader_and_dividing_the_keys_exclude_each_other() {
    let start = |flags: &[&str]| {
        let program = Program::try_parse_from([&["operator", "--log-level=off"], flags].concat()).expect("flags");
        Manager::with_args(program.manager)
    };
    let error = start(&["--leader-elect", "--shard"]).expect_err("it is refused");
    assert!(matches!(error, ManagerError::LeaderAndShards), "{error}");
    assert!(error.to_string().contains("--leader-elect and --shard exclude each other"), "{error}");
    for one in [&["--leader-elect"][..], &["--shard"], &["--leader-elect=false", "--shard"], &[]] {
        assert!(start(one).is_ok(), "{one:?}");
    }
}
