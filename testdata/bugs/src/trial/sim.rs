//! What a scenario sees.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use kubewright::{clock::VirtualClock, manager::Manager, object::Object, random::Random};
use kubewright_cluster::{
    Cluster, Pods,
    faults::{Fault as Injected, Faults, Verb},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    Outcome, World,
    fault::Fault,
    network,
    operator::{Operator, Register},
    rights::Rights,
};

/// How long a write takes, so that an operator that writes all the time doesn't stop the virtual time.
const LATENCY: Duration = Duration::from_millis(20);
/// With more writes than this in a run the operator is in a hot loop.
const HOT: usize = 1000;
/// The built-in kinds that scenarios look at.
const BUILT_IN: [(&str, &str); 6] = [
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "Secret"),
    ("apps", "Deployment"),
    ("batch", "Job"),
];

/// Spans of time, as in `2.hours()`.
pub trait Span {
    /// Returns a duration in minutes.
    fn minutes(self) -> Duration;
    /// Returns a duration in hours.
    fn hours(self) -> Duration;
}

impl Span for u64 {
    fn minutes(self) -> Duration {
        Duration::from_secs(60 * self)
    }

    fn hours(self) -> Duration {
        Duration::from_secs(3600 * self)
    }
}

type Holds = Box<dyn Fn(&World) -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    always: Vec<(String, Holds)>,
    finally: Vec<(String, Holds)>,
    outcome: Outcome,
    /// The version of the cluster when conditions were last checked.
    checked: String,
    has_upgraded: bool,
    /// The fault at a step that has yet to happen, with the version of the cluster before the step.
    pending: Option<(Fault, String)>,
    /// For how much longer pods fail.
    failing: Duration,
}

/// The user of a scenario. Its methods are those of the simulator.
pub struct Sim {
    cluster: Cluster,
    client: Client,
    clock: Arc<VirtualClock>,
    kinds: Vec<ApiResource>,
    faults: Faults,
    fault: Option<Fault>,
    injected: Mutex<Option<Injected>>,
    operator: Operator,
    register: Register,
    old: Option<Register>,
    rights: Rights,
    state: Mutex<State>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Sim {
    /// Starts a cluster with the operator's kinds, and the operator, or the version before it.
    pub(super) async fn start(
        register: Register,
        old: Option<Register>,
        replicas: usize,
        fault: Option<Fault>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let clock = VirtualClock::starting_at("2020-01-30T10:00:00Z".parse()?);
        let builder = Cluster::builder().pods(Pods::Simulate).clock(clock.clone()).random(Random::seeded(7));
        let cluster = builder.start().await?;
        let client = cluster.client();
        let mut kinds: Vec<_> = BUILT_IN.map(|(group, kind)| resource(group, kind)).into();
        let manager = register(Manager::new(client.clone()));
        for definition in manager.describe().kinds.into_iter().filter_map(|kind| kind.versions.into_iter().next()) {
            let names = &definition.spec.names;
            let kind = GroupVersionKind::gvk(&definition.spec.group, "v1", &names.kind);
            kinds.push(ApiResource::from_gvk_with_plural(&kind, &names.plural));
            Api::<CustomResourceDefinition>::all(client.clone()).create(&PostParams::default(), &definition).await?;
        }
        sleep(Duration::from_secs(10)).await;
        let (faults, operator) = (Faults::new(), Operator::new(clock.clone(), replicas));
        let injected = Mutex::new(fault.and_then(|fault| fault.inject(&faults)));
        for (index, kind) in kinds.iter().enumerate() {
            fault.inspect(|fault| fault.delay(&faults, &kind.plural, index < BUILT_IN.len()));
        }
        if let Some(Fault::CrashBefore(nth) | Fault::CrashAfter(nth)) = fault {
            // None of its further writes reaches the server.
            drop(faults.on(Verb::WRITES, "*").skip(nth).always().lose_request());
        }
        drop(faults.on(Verb::WRITES, "*").always().delay(LATENCY));
        operator.start(&faults.client(&client), old.unwrap_or(register));
        let (rights, state) = (Rights::of(&manager)?, Mutex::default());
        Ok(Self { cluster, client, clock, kinds, faults, fault, injected, operator, register, old, rights, state })
    }

    /// States what must hold at every moment.
    pub fn always(&self, name: &str, holds: impl Fn(&World) -> bool + Send + Sync + 'static) {
        self.state.lock().always.push((name.into(), Box::new(holds)));
    }

    /// States what must hold at the end.
    pub fn finally(&self, name: &str, holds: impl Fn(&World) -> bool + Send + Sync + 'static) {
        self.state.lock().finally.push((name.into(), Box::new(holds)));
    }

    /// Waits until a condition holds, for half an hour. An upgrade happens after the first wait.
    pub async fn until(&self, name: &str, holds: impl Fn(&World) -> bool + Send + Sync + 'static) {
        for round in 0..120_u32 {
            self.pass(Duration::from_millis(100) + round * Duration::from_millis(250)).await;
            if holds(&World::read(&self.client, &self.kinds).await) {
                self.upgrade();
                return;
            }
        }
        self.found(format!("until: {name}"));
    }

    /// Lets time pass.
    pub async fn advance(&self, time: Duration) {
        let mut passed = Duration::ZERO;
        while passed < time && self.writes() <= HOT {
            let is_failing = !self.state.lock().failing.is_zero();
            let step = match passed.as_secs() {
                0..5 => Duration::from_millis(250),
                _ if is_failing => Duration::from_secs(1),
                5..60 => Duration::from_secs(5),
                _ => Duration::from_secs(60),
            };
            let step = step.min(time - passed);
            self.pass(step).await;
            passed += step;
            if passed >= Span::minutes(5) && time >= Span::minutes(30) {
                self.fault_between_steps();
            }
        }
        if self.writes() > HOT {
            self.operator.kill();
            self.found("hot loop".into());
        }
    }

    /// Applies a manifest, as `kubectl apply --server-side` does.
    ///
    /// # Panics
    /// If the manifest is malformed.
    pub async fn apply(&self, manifest: &str) {
        let object: DynamicObject = serde_json::from_str(manifest).expect("a manifest is an object");
        let kind =
            object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok()).expect("it has a kind");
        let kind = self.kinds.iter().find(|it| it.kind == kind.kind && it.group == kind.group).cloned();
        let kind = kind.unwrap_or_else(|| resource("", &object.types.clone().unwrap_or_default().kind));
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        self.step(async {
            let how = PatchParams::apply("user").force();
            api.patch(&object.name_any(), &how, &Patch::Apply(&object)).await.map(drop)
        })
        .await;
    }

    /// Merges a patch into an object of the namespace `default`.
    pub async fn edit<K: Object>(&self, name: &str, patch: Value) {
        let api = self.api::<K>();
        self.step(async { api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop) }).await;
    }

    /// Deletes an object of the namespace `default`, as `kubectl delete` does.
    pub async fn delete<K: Object>(&self, name: &str) {
        let api = self.api::<K>();
        self.step(async { api.delete(name, &DeleteParams::default()).await.map(drop) }).await;
    }

    /// Waits until nothing should happen any more, and returns what was wrong.
    pub(super) async fn end(self) -> Outcome {
        let writes = self.all_writes();
        self.advance(Span::minutes(20)).await;
        if self.writes() <= HOT {
            let world = World::read(&self.client, &self.kinds).await;
            let finally = std::mem::take(&mut self.state.lock().finally);
            for (name, _) in finally.iter().filter(|(_, holds)| !holds(&world)) {
                self.found(format!("finally: {name}"));
            }
            let before = self.writes();
            self.advance(Span::hours(1)).await;
            if self.writes() > before {
                self.found("writes at rest".into());
            }
        }
        for right in self.faults.requests().iter().filter_map(|seen| self.rights.lacks(&seen.request)) {
            self.found(format!("a right that isn't declared: {right}"));
        }
        self.operator.kill();
        let outcome = std::mem::take(&mut self.state.lock().outcome);
        Outcome { writes, ..outcome }
    }

    fn api<K: Object>(&self) -> Api<DynamicObject> {
        let kind = self.kinds.iter().find(|it| it.kind == K::kind(&())).cloned();
        let kind = kind.unwrap_or_else(|| resource(&K::group(&()), &K::kind(&())));
        Api::namespaced_with(self.client.clone(), "default", &kind)
    }

    /// Takes a step of the user, with the fault at this step.
    async fn step(&self, step: impl Future<Output = kube::Result<()>>) {
        let number = self.state.lock().outcome.steps;
        self.state.lock().outcome.steps += 1;
        let version = self.version().await;
        if self.fault == Some(Fault::DownAt(number)) {
            self.operator.kill();
        }
        // A later state than planned, with an object that is gone already, is the operator's doing.
        if let Err(error) = step.await {
            self.found(format!("step {number}: {error}"));
        }
        match self.fault {
            Some(Fault::DownAt(at)) if at == number => {
                self.pass(Span::minutes(1)).await;
                self.restart(self.client.clone());
            }
            Some(Fault::PodsFail(at)) if at == number => self.state.lock().failing = Span::minutes(10),
            Some(fault @ (Fault::ParentsBehind(at) | Fault::ChildrenBehind(at) | Fault::ClockBack(at)))
                if at == number =>
            {
                self.state.lock().pending = Some((fault, version))
            }
            _ => {}
        }
    }

    /// Makes the fault that belongs some time after its step.
    fn fault_between_steps(&self) {
        let Some((fault, version)) = self.state.lock().pending.take() else {
            return;
        };
        match fault {
            Fault::ClockBack(_) => self.clock.jump(SignedDuration::from_hours(-1)),
            _ => {
                self.operator.kill();
                let of_parents = matches!(fault, Fault::ParentsBehind(_));
                self.restart(network::behind(self.client.clone(), version, of_parents));
            }
        }
    }

    /// Restarts the operator with this client, in the version that it has now.
    fn restart(&self, client: Client) {
        let is_old = !self.state.lock().has_upgraded;
        let register = self.old.filter(|_| is_old).unwrap_or(self.register);
        self.operator.start(&self.faults.client(&client), register);
    }

    fn upgrade(&self) {
        let is_first = !std::mem::replace(&mut self.state.lock().has_upgraded, true);
        if is_first && self.old.is_some() {
            self.operator.kill();
            self.restart(self.client.clone());
        }
    }

    /// Lets time pass, restarts an operator that has died, and checks what must always hold.
    async fn pass(&self, time: Duration) {
        sleep(time).await;
        let is_dead = self.fault.is_some_and(Fault::is_crash)
            && self.injected.lock().as_ref().is_some_and(|fault| fault.hits() > 0);
        if is_dead {
            *self.injected.lock() = None;
            self.operator.kill();
            self.faults.clear();
            drop(self.faults.on(Verb::WRITES, "*").always().delay(LATENCY));
            self.restart(self.client.clone());
        }
        self.fail_pods(time).await;
        let version = self.version().await;
        if std::mem::replace(&mut self.state.lock().checked, version.clone()) == version {
            return;
        }
        let world = World::read(&self.client, &self.kinds).await;
        let state = &mut *self.state.lock();
        for (name, _) in state.always.iter().filter(|(_, holds)| !holds(&world)) {
            add(&mut state.outcome, format!("always: {name}"));
        }
    }

    async fn fail_pods(&self, passed: Duration) {
        let left = self.state.lock().failing;
        if left.is_zero() {
            return;
        }
        self.state.lock().failing = left.saturating_sub(passed);
        let world = World::read(&self.client, &self.kinds).await;
        for pod in world.list::<k8s_openapi::api::core::v1::Pod>() {
            // A pod that isn't running yet is met the next time.
            let _ = self.cluster.finish_pod(&pod.namespace().unwrap_or_default(), &pod.name_any(), 1).await;
        }
    }

    /// The version of the cluster's state.
    async fn version(&self) -> String {
        let maps = Api::<ConfigMap>::all(self.client.clone()).list(&ListParams::default().limit(1)).await;
        maps.ok().and_then(|maps| maps.metadata.resource_version).unwrap_or_default()
    }

    /// The number of the operator's writes, without those for leases.
    fn writes(&self) -> usize {
        let counts = |verb: Verb, resource: &str| verb.is_write() && resource != "leases";
        self.faults.requests().iter().filter(|seen| counts(seen.request.verb, &seen.request.resource)).count()
    }

    /// The number of the operator's writes, as faults count them.
    fn all_writes(&self) -> usize {
        self.faults.requests().iter().filter(|seen| seen.request.verb.is_write()).count()
    }

    fn found(&self, what: String) {
        add(&mut self.state.lock().outcome, what);
    }
}

fn add(outcome: &mut Outcome, what: String) {
    if !outcome.findings.contains(&what) {
        outcome.findings.push(what);
    }
}

fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}
