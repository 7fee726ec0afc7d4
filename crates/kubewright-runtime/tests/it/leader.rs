//! Leader election with the embedded API server, including network faults.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use kubewright_apiserver::ApiServer;
use kubewright_cluster::faults::{Faults, Verb};
use kubewright_runtime::{
    clock::{SharedClock, VirtualClock},
    leader::{LeaderElection, LeaderOptions, LeaderOptionsError},
    metrics::Metrics,
    random::Random,
};
use tokio::time::timeout;

struct Bench {
    api: ApiServer,
    clock: SharedClock,
    metrics: Metrics,
}

impl Bench {
    fn new() -> Self {
        let clock: SharedClock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let api = ApiServer::builder().clock(clock.clone()).random(Random::seeded(1)).build();
        Self { api, metrics: Metrics::new(clock.clone()), clock }
    }

    fn candidate(&self, client: Client, identity: &str) -> Result<LeaderElection, LeaderOptionsError> {
        let options = LeaderOptions::new("kube-system", "operator", identity);
        LeaderElection::start(client, options, self.clock.clone(), Random::seeded(2), self.metrics.clone())
    }

    async fn lease(&self) -> anyhow::Result<(Option<String>, Option<i32>)> {
        let leases = Api::<Lease>::namespaced(self.api.client(), "kube-system");
        let spec = leases.get("operator").await?.spec.unwrap_or_default();
        Ok((spec.holder_identity, spec.lease_transitions))
    }

    fn is_leader_metric(&self) -> anyhow::Result<bool> {
        Ok(self.metrics.encode()?.contains("leader_election_master_status{name=\"operator\"} 1"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_passes_from_holder_to_holder() -> anyhow::Result<()> {
    let bench = Bench::new();
    let first = bench.candidate(bench.api.client(), "first")?;
    timeout(Duration::from_secs(1), first.elected().cancelled()).await?;
    assert!(bench.is_leader_metric()?);
    assert_eq!(bench.lease().await?, (Some("first".into()), Some(0)));
    first.release().await;
    assert_eq!(bench.lease().await?, (Some(String::new()), Some(0)));
    assert!(!bench.is_leader_metric()?);
    let second = bench.candidate(bench.api.client(), "second")?;
    timeout(Duration::from_secs(1), second.elected().cancelled()).await?;
    assert_eq!(bench.lease().await?, (Some("second".into()), Some(1)));
    Ok(())
}

/// A disconnected leader stops before the next one begins.
#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_stops_before_the_next_one_starts() -> anyhow::Result<()> {
    let bench = Bench::new();
    let network = Faults::new();
    let first = bench.candidate(network.client(&bench.api.client()), "first")?;
    first.elected().cancelled().await;
    let second = bench.candidate(bench.api.client(), "second")?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(first.is_leader() && !second.is_leader());
    network.on(Verb::WRITES, "leases").always().lose_request();
    tokio::select! {
        () = first.lost().cancelled_owned() => assert!(!second.is_leader()),
        () = second.elected().cancelled_owned() => anyhow::bail!("the second began before the first had stopped"),
    }
    timeout(Duration::from_secs(10), second.elected().cancelled()).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn occasional_lost_responses_do_not_end_leadership() -> anyhow::Result<()> {
    let bench = Bench::new();
    let network = Faults::new();
    let leader = bench.candidate(network.client(&bench.api.client()), "first")?;
    network.on(Verb::WRITES, "leases").lose_response();
    leader.elected().cancelled().await;
    for _ in 0..20 {
        let fault = network.on(Verb::WRITES, "leases").times(2).lose_response();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(fault.hits(), 2);
    }
    assert!(leader.is_leader());
    assert_eq!(bench.lease().await?, (Some("first".into()), Some(0)));
    Ok(())
}
