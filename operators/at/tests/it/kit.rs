//! An embedded cluster on virtual time, an operator that may meet faults and die, and the test as user.
//!
//! Nothing here knows a particular operator.

use std::{collections::BTreeSet, fmt::Debug, fs, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{events::v1::Event, rbac::v1::ClusterRole},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use kubewright::{
    clock::{Clock, VirtualClock},
    prelude::*,
    random::Random,
};
use kubewright_cluster::{
    Cluster, Pods,
    faults::{Fault, Faults, Verb},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

/// When every test begins.
pub(crate) const START: &str = "2020-01-30T10:00:00Z";
/// How one write of the operator goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The operator dies before the write has any effect, and is started again.
    DiesBefore,
    /// The operator dies after the write took effect, and is started again.
    DiesAfter,
    /// The API server never sees the write, and the operator gets no answer.
    LosesRequest,
    /// The write takes effect, and the operator gets no answer.
    LosesAnswer,
}

impl Mishap {
    const ALL: [Self; 4] = [Self::DiesBefore, Self::DiesAfter, Self::LosesRequest, Self::LosesAnswer];

    fn is_death(self) -> bool {
        matches!(self, Self::DiesBefore | Self::DiesAfter)
    }
}

/// How long anything may take, in virtual time.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Every test has this one namespace.
pub(crate) const NAMESPACE: &str = "default";

/// How an operator is added to a manager.
pub(crate) type Register = fn(Manager) -> Manager;

/// A cluster; without a node the test plays what is missing.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) clock: Arc<VirtualClock>,
    register: Register,
}

impl World {
    /// A fresh cluster without a node that knows the operator's kinds.
    pub(crate) async fn new(register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        Self::with(Pods::None, register, crds).await
    }

    /// A fresh cluster that knows the operator's kinds.
    pub(crate) async fn with(pods: Pods, register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        let clock = VirtualClock::starting_at(START.parse().unwrap());
        let builder = Cluster::builder().pods(pods).clock(clock.clone()).random(Random::seeded(7));
        let world = Self { cluster: Arc::new(builder.start().await.unwrap()), clock, register };
        for crd in crds {
            let api = Api::<CustomResourceDefinition>::all(world.client());
            let name = api.create(&PostParams::default(), &crd).await.unwrap().name_any();
            eventually("the kind is served", async || {
                let status = api.get(&name).await.unwrap().status;
                let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
                conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
            })
            .await;
        }
        world
    }

    /// The user's own client, which meets no faults.
    pub(crate) fn client(&self) -> Client {
        self.cluster.client()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Starts the operator, whose requests meet these faults.
    pub(crate) fn start(&self, faults: &Faults) -> Operator {
        let manager = Manager::new(faults.client(&self.client())).clock(self.clock.clone()).random(Random::seeded(1));
        let manager = (self.register)(manager);
        let (stop, stopped) = oneshot::channel::<()>();
        let run = async move {
            manager.run_until(async { stopped.await.unwrap_or_default() }).await.unwrap();
        };
        Operator { stop, task: tokio::spawn(run) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn create<K>(&self, object: K) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn get<K>(&self, name: &str) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned,
    {
        self.api().get(name).await.unwrap()
    }

    /// Merges a patch into an object.
    pub(crate) async fn edit<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned,
    {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Merges a patch into the status of an object.
    pub(crate) async fn edit_status<K>(&self, name: &str, status: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(json!({"status": status}));
        self.api().patch_status(name, &PatchParams::default(), &patch).await.unwrap()
    }

    /// Deletes an object, as `kubectl delete` does.
    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned,
    {
        self.api().list(&ListParams::default()).await.unwrap().items
    }

    /// What the events about an object say, in their order: `type reason note`.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let mut events = self.list::<Event>().await;
        events.retain(|event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(name));
        events.sort_by_key(|event| event.event_time.clone());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        events.iter().map(|it| format!("{} {} {}", text(&it.type_), text(&it.reason), text(&it.note))).collect()
    }
}

/// A running operator.
pub(crate) struct Operator {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Operator {
    /// As SIGTERM: what is under way ends first.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }

    /// As SIGKILL.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "the operator ended by itself");
    }
}

/// Waits until it is so.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let attempts = DEADLINE.as_millis() / 100;
    for _ in 0..attempts {
        if so().await {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("in an hour it did not come about that {what}");
}

pub(crate) fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// That nothing is written for an hour, although the operator runs.
pub(crate) async fn assert_quiet(faults: &Faults) {
    sleep(minutes(5)).await;
    assert_quiet_for(faults, minutes(60)).await;
}

async fn assert_quiet_for(faults: &Faults, time: Duration) {
    faults.forget();
    sleep(time).await;
    let seen: Vec<_> = faults.seen().into_iter().filter(|seen| seen.request.verb.is_write()).collect();
    assert!(seen.is_empty(), "written without need: {seen:#?}");
}

/// An operator with which one mishap will happen.
pub(crate) struct Unlucky {
    /// What its requests meet. After a death: nothing.
    pub(crate) faults: Faults,
    mishap: Fault,
    life: JoinHandle<Operator>,
    stop: oneshot::Sender<()>,
}

impl World {
    /// Starts an operator whose `nth` write, counted from 0, goes wrong. From one that dies nothing arrives after that.
    pub(crate) fn start_unlucky(&self, nth: usize, mishap: Mishap) -> Unlucky {
        let faults = Faults::new();
        let rule = faults.on(Verb::WRITES, "*").skip(nth);
        let fault = match mishap {
            Mishap::DiesBefore | Mishap::LosesRequest => rule.lose_request(),
            Mishap::DiesAfter | Mishap::LosesAnswer => rule.lose_answer(),
        };
        if mishap.is_death() {
            faults.on(Verb::WRITES, "*").skip(nth).always().lose_request();
        }
        let (stop, mut stopped) = oneshot::channel();
        let (world, requests, death) = (self.clone(), faults.clone(), fault.clone());
        let life = tokio::spawn(async move {
            let first = world.start(&requests);
            while !(mishap.is_death() && death.hits() > 0) {
                if stopped.try_recv().is_ok() {
                    return first;
                }
                sleep(Duration::from_millis(100)).await;
            }
            first.kill().await;
            requests.clear();
            let second = world.start(&requests);
            let _ = stopped.await;
            second
        });
        Unlucky { faults, mishap: fault, life, stop }
    }
}

impl Unlucky {
    /// Stops it, and tells whether the mishap had happened.
    async fn stop(self) -> bool {
        let _ = self.stop.send(());
        self.life.await.unwrap().stop().await;
        self.mishap.hits() > 0
    }
}

/// Plays a scenario in fresh worlds, again and again: in one play the mishap happens with the operator's first write, in
/// the next with its second, and so on, until there is no such write; and all that for each mishap. At the end of each
/// play the operator must have nothing more to write.
///
/// Gives the number of mishaps.
pub(crate) async fn go_wrong_everywhere(new: impl AsyncFn() -> World, play: impl AsyncFn(&World)) -> usize {
    let mut mishaps = 0;
    for mishap in Mishap::ALL {
        for nth in 0.. {
            let world = new().await;
            let operator = world.start_unlucky(nth, mishap);
            play(&world).await;
            sleep(minutes(1)).await;
            assert_quiet_for(&operator.faults, minutes(10)).await;
            if !operator.stop().await {
                break;
            }
            mishaps += 1;
        }
    }
    mishaps
}

/// What the requests so far would need to be allowed: `group resource verb`, with `-` for the core group.
pub(crate) fn needed(faults: &Faults) -> BTreeSet<String> {
    let seen = faults.seen().into_iter().map(|seen| seen.request);
    seen.map(|it| {
        let group = if it.group.is_empty() { "-" } else { &it.group };
        format!("{group} {} {}", it.resource, format!("{:?}", it.verb).to_lowercase())
    })
    .collect()
}

/// What a role allows, in the same form.
pub(crate) fn allowed(role: &str) -> BTreeSet<String> {
    let role: ClusterRole = serde_saphyr::from_str(role).unwrap();
    let mut allowed = BTreeSet::new();
    for rule in role.rules.unwrap_or_default() {
        for group in rule.api_groups.iter().flatten() {
            let group = if group.is_empty() { "-" } else { group };
            for resource in rule.resources.iter().flatten() {
                allowed.extend(rule.verbs.iter().map(|verb| format!("{group} {resource} {verb}")));
            }
        }
    }
    allowed
}

/// A file of the operator's `config` folder.
pub(crate) fn config(file: &str) -> String {
    let path = config_path(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn config_path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config").join(file)
}

/// The committed CRDs must be those of the types. `cargo xtask generate` sets `KUBEWRIGHT_GENERATE`, and they are written anew.
pub(crate) fn check_crds(crds: Vec<CustomResourceDefinition>) {
    for crd in crds {
        let file = format!("crd/bases/{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let generated = serde_saphyr::to_string(&crd).unwrap();
        if std::env::var_os("KUBEWRIGHT_GENERATE").is_some() {
            fs::write(config_path(&file), &generated).unwrap();
        }
        assert!(config(&file) == generated, "{file} differs from the types: run cargo xtask generate");
    }
}
