//! The time and the resources that an operator needs until ten thousand PodSets have converged: `operators/podset`, and
//! the same operator on plain kube-rs and on controller-runtime.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    pin::pin,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta, PostParams},
};
use kube_runtime::{
    WatchStreamExt,
    watcher::{self, watcher},
};
use kubewright_apimachinery::clock::SharedClock;
use podset_operator::api::app::v1alpha1::{PodSet, PodSetSpec};
use tokio::task::JoinSet;

use crate::{
    creates,
    go::{self, each, median},
    kubernetes::ControlPlane,
    process::{self, Process},
    report::{Limit, Outcome},
    sizes::Sizes,
};

/// The number of pods of each PodSet.
const PODS: usize = 3;
/// The number of concurrent callers that create the PodSets.
const CALLERS: usize = 16;
/// The timeout for the operators to converge.
const PATIENCE: Duration = Duration::from_secs(400);

/// The programs to compare, and the number of PodSets.
pub(crate) struct Contest<'a> {
    pub(crate) clock: SharedClock,
    pub(crate) sizes: &'a Sizes,
    pub(crate) programs: ServerPrograms<'a>,
    /// The programs of the operators.
    pub(crate) ours: &'a Path,
    pub(crate) kube_rs: &'a Path,
    /// The one in Go, where it is built.
    pub(crate) go: Option<&'a Path>,
    pub(crate) podsets: usize,
    pub(crate) namespaces: usize,
}

/// What the cluster is made of.
pub(crate) enum ServerPrograms<'a> {
    /// The command line, as an embedded cluster with simulated pods.
    Embedded(&'a Path),
    /// kube-apiserver and etcd, without a node: pods are created, and don't start.
    Kubernetes(&'a Path, &'a Path),
}

impl ServerPrograms<'_> {
    async fn start(&self) -> Result<Server> {
        Ok(match self {
            Self::Embedded(kubewright) => {
                let (process, kubeconfig) = process::cluster(kubewright, &["--pods", "simulate"])?;
                Server::Embedded(process, kubeconfig)
            }
            Self::Kubernetes(kube_apiserver, etcd) => {
                Server::Kubernetes(ControlPlane::start(kube_apiserver, etcd).await?)
            }
        })
    }

    /// Returns the rows of the comparisons with kube-rs and controller-runtime.
    fn rows(&self) -> [Rows; 2] {
        match self {
            Self::Embedded(_) => [KUBE_RS, GO],
            Self::Kubernetes(..) => [KUBE_RS_ON_KUBERNETES, GO_ON_KUBERNETES],
        }
    }
}

/// A running cluster.
enum Server {
    /// The process, and the path of the kubeconfig.
    Embedded(Process, String),
    Kubernetes(ControlPlane),
}

impl Server {
    fn kubeconfig(&self) -> String {
        match self {
            Self::Embedded(_, kubeconfig) => kubeconfig.clone(),
            Self::Kubernetes(control_plane) => control_plane.kubeconfig(),
        }
    }

    fn cpu_seconds(&self) -> Result<f64> {
        match self {
            Self::Embedded(process, _) => process.cpu_seconds(),
            Self::Kubernetes(control_plane) => control_plane.cpu_seconds(),
        }
    }

    /// Whether pods become ready.
    fn starts_pods(&self) -> bool {
        matches!(self, Self::Embedded(..))
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Embedded(process, _) => process.end(),
            Self::Kubernetes(control_plane) => control_plane.end(),
        }
    }
}

/// The measurements of one operator in one round.
struct Run {
    seconds: f64,
    cpu: f64,
    peak: f64,
    /// The cluster's CPU time, which isn't attributed to the operator.
    server: f64,
    end: EndState,
}

/// By PodSet: the status, and the number of pods that it controls.
type EndState = BTreeMap<String, (String, usize)>;

/// An operator, and its measurements.
struct Contestant<'a> {
    name: &'static str,
    program: &'a Path,
    flags: &'static [&'static str],
    rounds: Vec<Run>,
}

impl Contest<'_> {
    /// Runs the operators in turns, each on a separate cluster.
    pub(crate) async fn hold(&self) -> Result<Vec<Outcome>> {
        let contestant = |name, program, flags| Contestant { name, program, flags, rounds: Vec::new() };
        let mut all: Vec<Contestant<'_>> = vec![
            contestant("Kubewright", self.ours, &["--health-probe-bind-address", "0"]),
            contestant("kube-rs", self.kube_rs, &[]),
        ];
        if let Some(program) = self.go {
            all.push(contestant("controller-runtime", program, &[]));
            if !self.sizes.smoke {
                all.push(contestant("controller-runtime that reads its writes", program, &["--read-your-writes"]));
            }
        }
        for round in 0..self.sizes.rounds {
            for turn in go::turns(all.len(), round) {
                let Contestant { name, program, flags, .. } = all[turn];
                let run = self.run(program, flags).await.with_context(|| format!("the operator on {name}"))?;
                // The end states need not be kept: each is compared with the first one.
                if let Some(first) = all.iter().flat_map(|contestant| &contestant.rounds).next() {
                    ensure!(run.end == first.end, "the operator on {name} differs in its end state");
                }
                all[turn].rounds.push(run);
            }
        }
        let pods = (self.podsets * PODS) as f64;
        let [ours, peers @ ..] = &all[..] else { bail!("there is no operator to compare") };
        let rows = self.programs.rows();
        let rows = rows.iter().zip(peers);
        let mut outcomes: Vec<_> = rows.flat_map(|(rows, peer)| rows.compare(&ours.rounds, peer, pods)).collect();
        if let (Some(row), [_, _, consistent]) = (outcomes.get_mut(3), peers) {
            row.details += &format!(
                "; on {} {:.1} s, {:.2} CPU-seconds, {:.1} MiB",
                consistent.name,
                median(&consistent.rounds, |run| run.seconds),
                median(&consistent.rounds, |run| run.cpu),
                median(&consistent.rounds, |run| run.peak),
            );
        }
        Ok(outcomes)
    }

    async fn run(&self, operator: &Path, flags: &[&str]) -> Result<Run> {
        let cluster = self.programs.start().await?;
        let kubeconfig = cluster.kubeconfig();
        let client = process::client(&kubeconfig).await?;
        install(&client).await?;
        create(&client, self.podsets, self.namespaces).await?;
        if !cluster.starts_pods() {
            try_pods(&client, self.namespaces).await?;
        }
        let before = cluster.cpu_seconds()?;

        let begun = self.clock.monotonic();
        let mut operator = Command::new(operator);
        let log = [("KUBEWRIGHT_LOG", "warn"), ("KUBECONFIG", &kubeconfig)];
        let mut operator = Process::start(operator.args(flags).envs(log))?;
        let all = tokio::time::timeout(PATIENCE, converged(&client, self.podsets, cluster.starts_pods()));
        tokio::select! {
            all = all => all.context("the PodSets took too long")??,
            ended = ended(&mut operator) => ended?,
        }
        let seconds = self.clock.monotonic().saturating_sub(begun).as_secs_f64();
        process::rest(&mut operator, Duration::from_secs(2)).await?;
        let (cpu, peak) = (operator.cpu_seconds()?, operator.peak_mebibytes()?);
        let server = cluster.cpu_seconds()? - before;
        operator.end()?;
        let end = end_state(&client).await?;
        cluster.end()?;
        Ok(Run { seconds, cpu, peak, server, end })
    }
}

/// The rows of the comparison with one peer: names, limits and methods.
struct Rows {
    time: (&'static str, Limit, &'static str),
    cpu: (&'static str, Limit, &'static str),
    memory: (&'static str, Limit, &'static str),
}

const KUBE_RS: Rows = Rows {
    time: ("convergence", Limit::AtLeast(1.0), SPEED),
    cpu: ("convergence-cpu", Limit::AtMost(0.33), CPU),
    memory: ("convergence-memory", Limit::AtMost(1.0 / 3.0), MEMORY),
};

const GO: Rows = Rows {
    time: ("convergence-go", Limit::AtLeast(1.0 / 0.45), SPEED),
    cpu: ("convergence-go-cpu", Limit::AtMost(0.20), CPU),
    memory: ("convergence-go-memory", Limit::AtMost(0.15), MEMORY),
};

const KUBE_RS_ON_KUBERNETES: Rows = Rows {
    time: ("on-kubernetes", Limit::AtLeast(1.0), ON_KUBERNETES),
    cpu: ("on-kubernetes-cpu", Limit::AtMost(0.33), CPU),
    memory: ("on-kubernetes-memory", Limit::AtMost(1.0), MEMORY),
};

const GO_ON_KUBERNETES: Rows = Rows {
    time: ("on-kubernetes-go", Limit::AtLeast(1.0), ON_KUBERNETES),
    cpu: ("on-kubernetes-go-cpu", Limit::AtMost(0.25), CPU),
    memory: ("on-kubernetes-go-memory", Limit::AtMost(1.0), MEMORY),
};

impl Rows {
    fn compare(&self, ours: &[Run], peer: &Contestant<'_>, pods: f64) -> [Outcome; 3] {
        let (name, theirs) = (peer.name, &peer.rounds[..]);
        let both = |figure: fn(&Run) -> f64| [median(ours, figure), median(theirs, figure)];
        let all = |figure: fn(&Run) -> f64| format!("rounds {} and {}", each(ours, figure), each(theirs, figure));
        let outcome =
            |(name, limit, method), figure, details| Outcome { name, figure, unit: "times", limit, details, method };
        let ([our_time, their_time], [our_server, their_server]) = (both(|run| run.seconds), both(|run| run.server));
        let time = format!(
            "{our_time:.1} s, {:.0} pods/s; on {name} {their_time:.1} s, {:.0} pods/s; the cluster took {our_server:.1} CPU-seconds, \
             {their_server:.1} with {name}; {}",
            pods / our_time,
            pods / their_time,
            all(|run| run.seconds),
        );
        let [our_cpu, their_cpu] = both(|run| run.cpu);
        let cpu = format!("{our_cpu:.2} CPU-seconds; on {name} {their_cpu:.2}; {}", all(|run| run.cpu));
        let [our_peak, their_peak] = both(|run| run.peak);
        let memory = format!("{our_peak:.1} MiB at the peak; on {name} {their_peak:.1} MiB; {}", all(|run| run.peak));
        [
            outcome(self.time, their_time / our_time, time),
            outcome(self.cpu, our_cpu / their_cpu, cpu),
            outcome(self.memory, our_peak / their_peak, memory),
        ]
    }
}

const SPEED: &str = "`kubewright cluster --pods simulate` in a process of its own has 10,000 PodSets (app.example.com) of three pods, 100 in \
    each of 100 namespaces. The time is measured from the start of the operator until a watch has shown every PodSet with three names \
    and `Ready`. The operators are `podset-operator`, `bench/peers/podset-kube-rs` (the same operator on \
    `kube::runtime::Controller`, with one watch for each kind, reflector stores without managed fields, and the same concurrency, 4) and, \
    for `convergence-go`, `bench/peers/controller-runtime/podset-go` (on controller-runtime 0.25 with four workers, cached reads by an \
    index on the owner, and a transform that drops managed fields). The peers \
    read the PodSet and list its pods from the API server before they create pods, since their caches may not contain their own \
    last writes; with Kubewright that is needed only before pods are deleted or replaced. Both programs in Rust are built like a project of \
    `kubewright init`, with link-time optimization in one codegen unit. Each run has a new cluster, and all must reach \
    the same end state. They take turns, three rounds, every other one in reverse order. The figure is the median time of the peer \
    divided by that of Kubewright.";
const ON_KUBERNETES: &str = "As `convergence`, with 500 PodSets in ten namespaces on kube-apiserver 1.36.3 and etcd 3.6.8, without a node and a \
    controller manager: the time is measured until a watch has shown every PodSet with three names. Each namespace has had the dry run of \
    a pod before: kube-apiserver looks for the quotas of a namespace at its first pod, and does so for ten namespaces a second.";
const CPU: &str = "The user and system time of the operator's process in these runs, from its start until it has been idle for two seconds: \
    the median of Kubewright divided by that of the peer.";
const MEMORY: &str = "The greatest resident memory of the operator's process in these runs (VmHWM): the median of Kubewright divided by that \
    of the peer.";

async fn ended(operator: &mut Process) -> Result<()> {
    loop {
        operator.check()?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn install(client: &Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in podset_operator::crds() {
        crds.create(&PostParams::default(), &crd).await.context("create the CRDs")?;
    }
    let sets = Api::<PodSet>::all(client.clone());
    let served = async { while sets.list(&ListParams::default()).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), served).await.context("PodSets are not served")
}

fn namespace(number: usize, namespaces: usize) -> String {
    format!("team-{}", number % namespaces)
}

async fn create(client: &Client, count: usize, namespaces: usize) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    for number in 0..namespaces {
        let metadata = ObjectMeta { name: Some(namespace(number, namespaces)), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        api.create(&PostParams::default(), &namespace).await.context("create a namespace")?;
    }
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let client = client.clone();
        callers.spawn(async move {
            for number in (caller..count).step_by(CALLERS) {
                let sets: Api<PodSet> = Api::namespaced(client.clone(), &namespace(number, namespaces));
                let set = PodSet::new(&format!("set-{number}"), PodSetSpec { replicas: PODS as i32, template: None });
                sets.create(&PostParams::default(), &set).await?;
            }
            Ok::<_, kube::Error>(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.context("a caller panicked")?.context("create a PodSet")?;
    }
    Ok(())
}

/// Tries to create a pod in each namespace, because kube-apiserver looks for the quotas of a namespace at its first
/// pod, and does so ten times a second for all namespaces.
async fn try_pods(client: &Client, namespaces: usize) -> Result<()> {
    let trial = PostParams { dry_run: true, ..PostParams::default() };
    let metadata = ObjectMeta { name: Some("trial".into()), ..ObjectMeta::default() };
    let pod = Pod { metadata, ..creates::pod() };
    for number in 0..namespaces {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(number, namespaces));
        pods.create(&trial, &pod).await.context("try to create a pod")?;
    }
    Ok(())
}

/// Waits until every PodSet has its pods, and these are ready if they start.
async fn converged(client: &Client, count: usize, pods_start: bool) -> Result<()> {
    let sets = watcher(Api::<PodSet>::all(client.clone()), watcher::Config::default());
    let mut sets = pin!(sets.default_backoff().applied_objects());
    let mut done = BTreeSet::new();
    while done.len() < count {
        // A watch that breaks off or falls behind restarts by itself.
        if let Ok(set) = sets.next().await.context("the watch has ended")?
            && has_converged(&set, pods_start)
        {
            done.insert((set.namespace(), set.name_any()));
        }
    }
    Ok(())
}

fn has_converged(set: &PodSet, pods_start: bool) -> bool {
    set.status.as_ref().is_some_and(|status| {
        let ready = !pods_start
            || status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        ready && status.pod_names.len() == PODS && status.observed_generation == set.metadata.generation
    })
}

/// Returns the final state without the names of pods. Fails if a status names pods that don't exist.
async fn end_state(client: &Client) -> Result<EndState> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await.context("list the pods")?;
    let mut children: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in &pods {
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
        let owner = owner.with_context(|| format!("the pod {} has no controller", pod.name_any()))?;
        children.entry(owner.uid.clone()).or_default().insert(pod.name_any());
    }
    let sets = Api::<PodSet>::all(client.clone()).list(&ListParams::default()).await.context("list the PodSets")?;
    let mut end = EndState::new();
    for set in sets {
        let name = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
        let names = children.remove(&set.uid().unwrap_or_default()).unwrap_or_default();
        let mut status = set.status.clone().unwrap_or_default();
        if !status.pod_names.iter().eq(&names) {
            bail!("{name} tells of {:?} and has {names:?}", status.pod_names);
        }
        status.pod_names.clear();
        let mut status = serde_json::to_value(status).context("write a status")?;
        // Transition times are not compared.
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        end.insert(name, (status.to_string(), names.len()));
    }
    ensure!(children.is_empty(), "{} PodSets that aren't there have pods", children.len());
    Ok(end)
}
