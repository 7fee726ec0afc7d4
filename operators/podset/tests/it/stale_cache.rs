//! The operator never creates or deletes too many pods, however stale the cache is and whatever else fails.

use std::{collections::BTreeSet, mem::replace, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use kubewright::simulation::{
    Span,
    env::{History, Operator, TestEnv, assert_quiet, eventually},
};
use kubewright::{clock::Clock, random::Random};
use kubewright_apiserver::{Change, ChangeKind};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::Value;
use tokio::{sync::Mutex, task::JoinHandle, time::sleep};

use crate::fixtures::{First, Flavour, Second, active, env, reaches, scale};

/// The number of random scenarios, each with its own seed.
const LIVES: u64 = 8;
/// The number of steps in each.
const STEPS: usize = 25;
/// The maximum delay of PodSet events; pods may be delayed much longer.
const LATE: Duration = Duration::from_secs(3);

/// Checks every change of the pods, and records violations.
struct Census {
    kind: String,
    /// The desired number of pods, with the time of each change.
    desired: Vec<(Timestamp, usize)>,
    active: BTreeSet<String>,
    /// The pods that the test itself removed.
    taken: Arc<Mutex<BTreeSet<String>>>,
    wrong: Vec<String>,
    created: usize,
}

impl Census {
    fn start<K: Flavour>(env: &TestEnv, taken: Arc<Mutex<BTreeSet<String>>>) -> JoinHandle<Self> {
        let (mut feed, clock) = (env.cluster.api().feed(), env.clock.clone());
        let kind = K::kind(&()).into_owned();
        let (desired, active, wrong) = Default::default();
        let mut census = Self { kind, desired, active, taken, wrong, created: 0 };
        tokio::spawn(async move {
            loop {
                let change = feed.next().await.unwrap();
                if change.object()["kind"] == "Namespace" && change.object()["metadata"]["name"] == END {
                    return census;
                }
                census.note(&change, clock.now()).await;
            }
        })
    }

    async fn note(&mut self, change: &Change, now: Timestamp) {
        let object = change.object();
        if object["kind"] == self.kind.as_str() {
            let desired = object["spec"]["replicas"].as_u64().unwrap_or_default() as usize;
            if self.desired.last().is_none_or(|(_, known)| *known != desired) {
                self.desired.push((now, desired));
            }
        } else if object["kind"] == "Pod" {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if change.kind != ChangeKind::Deleted && is_active(object) {
                if self.active.insert(name.clone()) {
                    self.created += 1;
                    self.check(now, &format!("{name} was created"), |active, _, most| active <= most);
                }
            } else if self.active.remove(&name) && !self.taken.lock().await.contains(&name) {
                self.check(now, &format!("{name} was deleted"), |active, least, _| active >= least);
            }
        }
    }

    /// Compares the number of pods with the minimum and maximum that the operator may consider desired.
    fn check(&mut self, now: Timestamp, what: &str, holds: impl Fn(usize, usize, usize) -> bool) {
        let horizon = now - SignedDuration::try_from(LATE).unwrap();
        let old = self.desired.iter().rposition(|(since, _)| *since <= horizon).unwrap_or_default();
        let known = || self.desired[old..].iter().map(|(_, desired)| *desired);
        let (least, most) = (known().min().unwrap_or_default(), known().max().unwrap_or_default());
        if !holds(self.active.len(), least, most) {
            self.wrong.push(format!("{now}: {what}, {} are active, {least} to {most} desired", self.active.len()));
        }
    }
}

/// The namespace that marks the end.
const END: &str = "the-end";

fn is_active(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    pod["metadata"]["deletionTimestamp"].is_null() && !["Succeeded", "Failed"].contains(&phase)
}

/// Returns a random number below `bound`.
fn below(random: &Random, bound: u64) -> u64 {
    random.u64() % bound
}

/// Starts a replica of the operator with delayed watches.
fn start(env: &TestEnv, random: &Random) -> (Operator, Faults) {
    let faults = Faults::new();
    // No delay, a short one, one longer than the barrier waits, or one longer than the scenario.
    let pods = [0, 900, 7_000, 30_000, 120_000][below(random, 5) as usize];
    faults.on(&[Verb::Watch], "pods").always().delay(Duration::from_millis(pods));
    let late = LATE.as_millis() as u64 - 500;
    faults.on(&[Verb::Watch], "podsets").always().delay(Duration::from_millis(below(random, late)));
    (env.start_replica(&faults, &random.suffix(5)), faults)
}

/// Runs one scenario, and returns the violations.
async fn live<K: Flavour>(seed: u64) -> Vec<String> {
    let (env, random) = (env().await, Random::seeded(seed));
    let taken = Arc::<Mutex<BTreeSet<String>>>::default();
    let census = Census::start::<K>(&env, taken.clone());
    env.create(K::web(3)).await;
    let (mut operator, mut faults) = start(&env, &random);
    sleep(LATE).await;
    // The standby may have to work with the state that it has seen until then.
    let mut standby = start(&env, &random);
    for _ in 0..STEPS {
        sleep(Duration::from_millis(below(&random, 12_000))).await;
        match below(&random, 10) {
            0..=2 => scale::<K>(&env, 1 + below(&random, 9) as i32).await,
            3 => drop(faults.on(&[Verb::Create], "pods").times(2).lose_response()),
            4 => drop(faults.on(&[Verb::Delete], "pods").times(2).lose_response()),
            5 => drop(faults.on(Verb::WRITES, "pods").times(3).refuse(503, "ServiceUnavailable")),
            6 => drop(faults.on(Verb::READS, "pods").times(2).lose_request()),
            7 => {
                let pods = active::<K>(&env).await;
                if let Some(pod) = pods.get(below(&random, 1 + pods.len() as u64) as usize) {
                    let (name, how) = (pod.name_any(), below(&random, 3));
                    if how > 0 {
                        taken.lock().await.insert(name.clone());
                    }
                    // The operator may have deleted it meanwhile.
                    let _ = match how {
                        0 => env.run_pod_if_there(&name).await,
                        1 => env.end_pod_if_there(&name, 1).await,
                        _ => env.api::<Pod>().delete(&name, &DeleteParams::default()).await.is_ok(),
                    };
                    // The number of pods that still exist: based on the state in the cache, one would be deleted.
                    scale::<K>(&env, (pods.len() as i32 - 1).max(1)).await;
                }
            }
            // The leader crashes, possibly in the middle of its work, or stops gracefully.
            8 => {
                let nth = below(&random, 4) as usize;
                faults.on(Verb::WRITES, "pods").skip(nth).lose_response();
                faults.on(Verb::WRITES, "pods").skip(nth).always().lose_request();
                scale::<K>(&env, 1 + below(&random, 9) as i32).await;
                sleep(Duration::from_millis(below(&random, 6_000))).await;
                operator.kill().await;
                (operator, faults) = replace(&mut standby, start(&env, &random));
            }
            _ => {
                operator.stop().await;
                (operator, faults) = replace(&mut standby, start(&env, &random));
            }
        }
    }
    // The delays and faults end.
    standby.0.stop().await;
    faults.clear();
    sleep(5.minutes()).await;
    scale::<K>(&env, 4).await;
    reaches::<K>(&env, 4).await;
    operator.stop().await;
    let operator = env.start(&faults);
    assert_quiet(&faults).await;
    operator.stop().await;
    let end = ObjectMeta { name: Some(END.into()), ..ObjectMeta::default() };
    let end = Namespace { metadata: end, ..Namespace::default() };
    Api::all(env.client()).create(&PostParams::default(), &end).await.unwrap();
    let census = census.await.unwrap();
    assert!(census.created > 4, "it has seen the pods");
    census.wrong
}

async fn never_too_many_nor_too_few<K: Flavour>() {
    let mut wrong = Vec::new();
    for seed in 0..LIVES {
        wrong.extend(live::<K>(seed).await.into_iter().map(|what| format!("seed {seed}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn random_faults_never_create_too_many_pods_of_the_first_flavour() {
    never_too_many_nor_too_few::<First>().await;
}

#[tokio::test(start_paused = true)]
async fn random_faults_never_create_too_many_pods_of_the_second_flavour() {
    never_too_many_nor_too_few::<Second>().await;
}

/// A leader creates the pods and crashes before it writes a status; the next one has not seen them.
async fn created_pods_without_a_status_are_counted<K: Flavour>() {
    let (env, first, second) = (env().await, Faults::new(), Faults::new());
    let mut history = History::of::<Pod>(&env);
    first.on(Verb::WRITES, "podsets/status").always().lose_request();
    second.on(&[Verb::Watch], "pods").always().delay(10.minutes());
    let leader = env.start_replica(&first, "first");
    sleep(LATE).await;
    let standby = env.start_replica(&second, "second");
    sleep(LATE).await;
    env.create(K::web(5)).await;
    eventually("they are made", async || active::<K>(&env).await.len() == 5).await;
    leader.kill().await;
    reaches::<K>(&env, 5).await;
    sleep(12.minutes()).await;
    assert_eq!(history.created(), 5);
    standby.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_counts_pods_that_the_status_does_not_have() {
    created_pods_without_a_status_are_counted::<First>().await;
    created_pods_without_a_status_are_counted::<Second>().await;
}
