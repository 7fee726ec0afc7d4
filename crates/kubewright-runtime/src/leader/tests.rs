//! Several candidates for one lease on a paused clock, with a network that delays, loses and refuses requests.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use kubewright_apimachinery::{
    clock::{Clock, SharedClock, VirtualClock},
    random::Random,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tower::service_fn;

use super::{LeaderElection, LeaderOptions};
use crate::metrics::Metrics;

/// The API server: at most one lease, and its version.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<(Option<Value>, u64)>>);

impl Store {
    fn handle(&self, method: &Method, mut body: Value) -> (u16, Value) {
        let (lease, version) = &mut *self.0.lock();
        let refused = |code: u16, reason: &str| {
            (code, json!({ "kind": "Status", "status": "Failure", "message": reason, "reason": reason, "code": code }))
        };
        let stored = lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        match (method.as_str(), stored) {
            ("GET", Some(_)) => return (200, lease.clone().unwrap_or_default()),
            ("POST", Some(_)) => return refused(409, "AlreadyExists"),
            ("GET" | "PUT", None) => return refused(404, "NotFound"),
            ("PUT", Some(stored)) if stored != body["metadata"]["resourceVersion"] => return refused(409, "Conflict"),
            _ => {}
        }
        *version += 1;
        body["metadata"]["resourceVersion"] = json!(version.to_string());
        *lease = Some(body.clone());
        (200, body)
    }

    fn spec(&self) -> Value {
        self.0.lock().0.as_ref().map(|lease| lease["spec"].clone()).unwrap_or_default()
    }
}

/// A network with a fault level from 0 (perfect) to 1.
#[derive(Clone)]
struct Network {
    store: Store,
    random: Random,
    fault_level: Arc<Mutex<f64>>,
}

impl Network {
    fn new(seed: u64) -> Self {
        Self { store: Store::default(), random: Random::seeded(seed), fault_level: Arc::new(Mutex::new(0.0)) }
    }

    fn set_fault_level(&self, fault_level: f64) {
        *self.fault_level.lock() = fault_level;
    }

    async fn fault(&self) -> io::Result<()> {
        let fault_level = *self.fault_level.lock();
        let draw = self.random.fraction();
        if draw < fault_level * 0.3 {
            sleep(Duration::from_secs(25).mul_f64(self.random.fraction())).await;
        }
        match draw {
            _ if draw > 1.0 - fault_level * 0.3 => Err(io::Error::other("connection reset")),
            _ => Ok(()),
        }
    }

    /// As on a real network, the server still processes requests that the client has given up on.
    fn client(&self) -> Client {
        let network = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let network = network.clone();
            let handled = tokio::spawn(async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
                network.fault().await?;
                let (code, answer) = network.store.handle(&method, serde_json::from_slice(&body).unwrap_or_default());
                network.fault().await?;
                let answer = Body::from(answer.to_string().into_bytes());
                Response::builder().status(code).body(answer).map_err(io::Error::other)
            });
            async move { handled.await.map_err(io::Error::other)? }
        });
        Client::new(service, "default")
    }

    fn candidate(&self, identity: &str, clock: SharedClock) -> LeaderElection {
        let options = LeaderOptions::new("system", "operator", identity);
        let metrics = Metrics::new(clock.clone());
        LeaderElection::start(self.client(), options, clock, self.random.clone(), metrics).expect("durations are sound")
    }
}

fn clock(offset: SignedDuration) -> Arc<VirtualClock> {
    VirtualClock::starting_at(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24) + offset)
}

/// Returns the candidate that believes it leads. Panics if there is more than one.
fn leader(candidates: &BTreeMap<String, LeaderElection>) -> Option<&str> {
    let leaders: Vec<_> = candidates.iter().filter(|(_, it)| it.is_leader()).map(|(name, _)| name.as_str()).collect();
    assert!(leaders.len() <= 1, "several leaders: {leaders:?}");
    leaders.first().copied()
}

/// Simulates two replicas, restarted whenever they lose the lease, with wall clocks an hour apart, for half an hour of
/// network faults and clock jumps.
async fn simulate(seed: u64) -> usize {
    let network = Network::new(seed);
    let clocks = [clock(SignedDuration::ZERO), clock(SignedDuration::from_hours(-1))];
    let (mut candidates, mut started, mut terms) = (BTreeMap::new(), 0, 0);
    let mut current: Option<String> = None;
    for step in 0..36_000 {
        while candidates.len() < 2 {
            started += 1;
            let name = format!("replica-{started}");
            candidates.insert(name.clone(), network.candidate(&name, clocks[started % 2].clone()));
        }
        if step % 200 == 0 {
            network.set_fault_level(network.random.fraction());
            clocks[0].jump(SignedDuration::from_secs(step % 77 - 38));
        }
        sleep(Duration::from_millis(50)).await;
        let now_leading = leader(&candidates).map(str::to_owned);
        if now_leading.is_some() && now_leading != current {
            terms += 1;
        }
        current = now_leading.or(current);
        candidates.retain(|_, candidate| !candidate.lost().is_cancelled());
    }
    network.set_fault_level(0.0);
    // Faults that began earlier may last another 50 s; then the lease expires, and the next attempt acquires it.
    sleep(Duration::from_secs(50 + 15 + 3)).await;
    candidates.retain(|_, candidate| !candidate.lost().is_cancelled());
    candidates.insert("last".into(), network.candidate("last", clocks[0].clone()));
    sleep(Duration::from_secs(20)).await;
    assert!(leader(&candidates).is_some(), "seed {seed}: no leader on a good network");
    terms
}

#[tokio::test(start_paused = true)]
async fn there_is_at_most_one_leader() {
    let mut terms = 0;
    for seed in 0..8 {
        terms += simulate(seed).await;
    }
    assert!(terms > 16, "the simulation has too few faults: {terms} terms");
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_acquired_at_the_next_attempt_and_counted() {
    let network = Network::new(1);
    let clock = clock(SignedDuration::ZERO);
    let first = network.candidate("first", clock.clone());
    first.elected().cancelled().await;
    let second = network.candidate("second", clock.clone());
    sleep(Duration::from_secs(60)).await;
    assert!(first.is_leader() && !second.is_leader());
    assert_eq!(network.store.spec()["leaseTransitions"], 0);
    first.release().await;
    assert_eq!(network.store.spec()["holderIdentity"], "");
    timeout(Duration::from_secs(3), second.elected().cancelled()).await.expect("the lease is free");
    assert_eq!(network.store.spec()["leaseTransitions"], 1);
    assert_eq!(network.store.spec()["holderIdentity"], "second");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_network_gives_up_before_another_takes_over() {
    let network = Network::new(1);
    let clock = clock(SignedDuration::ZERO);
    let first = network.candidate("first", clock.clone());
    first.elected().cancelled().await;
    let elected_at = clock.monotonic();
    network.set_fault_level(10.0);
    first.lost().cancelled().await;
    let held = clock.monotonic() - elected_at;
    assert!(held <= Duration::from_secs(10), "{held:?}");
    assert!(!first.is_leader());
}

/// The clock of a machine on which a process is suspended: time passes, but none of the process's tasks run.
#[derive(Debug)]
struct SuspendableClock(Arc<VirtualClock>, AtomicU64);

impl Clock for SuspendableClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() + Duration::from_secs(self.1.load(Ordering::SeqCst))
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_leader_stops_leading_when_its_lease_expires() {
    let network = Network::new(1);
    let clock = Arc::new(SuspendableClock(clock(SignedDuration::ZERO), AtomicU64::new(0)));
    let first = network.candidate("first", clock.clone());
    first.elected().cancelled().await;
    clock.1.store(9, Ordering::SeqCst);
    assert!(first.is_leader(), "the lease has not expired");
    clock.1.store(10, Ordering::SeqCst);
    assert!(!first.is_leader() && !first.lost().is_cancelled(), "none of its tasks has run since");
    timeout(Duration::from_secs(3), first.lost().cancelled()).await.expect("it notices at its next renewal");
}

#[tokio::test(start_paused = true)]
async fn a_successor_waits_for_the_lease_duration_of_a_dead_leader() {
    let network = Network::new(1);
    let clock = clock(SignedDuration::ZERO);
    let first = network.candidate("first", clock.clone());
    first.elected().cancelled().await;
    drop(first);
    let second = network.candidate("second", clock.clone());
    let began = clock.monotonic();
    second.elected().cancelled().await;
    let waited = (clock.monotonic() - began).as_secs();
    assert!((15..18).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn release_without_the_lease_leaves_it_alone() {
    let network = Network::new(1);
    let clock = clock(SignedDuration::ZERO);
    let first = network.candidate("first", clock.clone());
    first.elected().cancelled().await;
    let second = network.candidate("second", clock.clone());
    sleep(Duration::from_secs(5)).await;
    second.release().await;
    assert_eq!(network.store.spec()["holderIdentity"], "first");
    assert!(first.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_lease_in_another_name_ends_leadership() {
    let network = Network::new(1);
    let first = network.candidate("first", clock(SignedDuration::ZERO));
    first.elected().cancelled().await;
    let mut stolen = network.store.0.lock().0.clone().unwrap_or_default();
    stolen["spec"]["holderIdentity"] = json!("thief");
    assert_eq!(network.store.handle(&Method::PUT, stolen).0, 200);
    timeout(Duration::from_secs(6), first.lost().cancelled()).await.expect("it notices at its next renewals");
}

#[tokio::test(start_paused = true)]
async fn durations_that_cannot_work_are_refused() {
    let network = Network::new(1);
    let clock = clock(SignedDuration::ZERO);
    let mut options = LeaderOptions::new("system", "operator", "first");
    options.renew_deadline = options.lease_duration;
    let metrics = Metrics::new(clock.clone());
    let error = LeaderElection::start(network.client(), options, clock, Random::seeded(1), metrics).unwrap_err();
    assert!(error.to_string().contains("longer than the renew deadline (15s)"), "{error}");
}

/// As in controller-runtime, a request has half of the renew deadline at most.
#[tokio::test(start_paused = true)]
async fn a_single_request_without_an_answer_does_not_end_the_leadership() {
    let (store, renewals) = (Store::default(), Arc::new(AtomicU64::new(0)));
    let (served, counted) = (store.clone(), renewals.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (store, renewals) = (served.clone(), counted.clone());
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
            if method == Method::PUT && renewals.fetch_add(1, Ordering::SeqCst) == 3 {
                // A connection whose peer is gone.
                std::future::pending::<()>().await;
            }
            let (code, answer) = store.handle(&method, serde_json::from_slice(&body).unwrap_or_default());
            let answer = Body::from(answer.to_string().into_bytes());
            Response::builder().status(code).body(answer).map_err(io::Error::other)
        }
    });
    let clock = clock(SignedDuration::ZERO);
    let (options, metrics) = (LeaderOptions::new("system", "operator", "a"), Metrics::new(clock.clone()));
    let random = Random::seeded(1);
    let a = LeaderElection::start(Client::new(service, "default"), options, clock, random, metrics).expect("sound");
    a.elected().cancelled().await;
    sleep(Duration::from_secs(60)).await;
    assert!(!a.lost().is_cancelled() && a.is_leader(), "lost: {:?}", a.last_error());
}
