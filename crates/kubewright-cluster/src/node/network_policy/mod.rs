//! NetworkPolicies, for pods with network namespaces.
//!
//! * [`rules`]: what the policies allow
//! * [`nftables`]: the rules of network namespaces
//!
//! Each isolated pod has rules in its own network namespace, which nothing of the host's firewall depends on. They are
//! there before the pod's containers start. A pod reaches a Service by the node, so its policies are applied to the
//! endpoints in two places: the namespace for Services accepts only packets of pods that may reach an endpoint, and
//! the node connects a client only with endpoints that it may reach ([`NetworkPolicies::allows`]).
//!
//! Connections from and to the node are always allowed, as are those of a pod with itself. Existing connections stay
//! when policies change.

mod nftables;
mod rules;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use kubewright_apimachinery::watch;
use kubewright_apiserver::{Change, ChangeKind};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    io::AsyncWriteExt,
    process::Command,
    sync::Notify,
    time::{sleep, timeout},
};

use self::rules::{Allowed, Direction, Isolation, Objects, Transport, allows};
use super::{
    has_ended,
    namespace::NetworkNamespace,
    proxy::{Protocol, Routes},
};
use crate::controllers::{
    reconcile::Key,
    value::{flag, text},
};

/// The storage of NetworkPolicies.
pub(crate) const STORAGE: &str = "networking.k8s.io/networkpolicies";

/// The number of network namespaces whose rules are replaced concurrently.
const CONCURRENCY: usize = 4;
/// The time after which a replacement of rules fails.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The delay before a failed replacement of rules is repeated.
const RETRY: Duration = Duration::from_secs(2);

impl From<Protocol> for Transport {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
        }
    }
}

/// The policies of a cluster, and the network namespaces to which they are applied.
#[derive(Debug)]
pub(crate) struct NetworkPolicies {
    /// The program `nft`.
    nft: PathBuf,
    /// The address of the node, as pods see it.
    node: Ipv4Addr,
    state: Mutex<State>,
    /// Whether the objects are complete.
    is_synced: watch::Sender<bool>,
    /// Notified when rules may have to be replaced.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    /// The objects of a snapshot that isn't complete yet. Until it is, the earlier ones count.
    snapshot: Option<Objects>,
    /// The addresses and endpoints of each Service.
    services: BTreeMap<Key, Routes>,
    /// The addresses of the pods with a network namespace, by UID.
    addresses: BTreeMap<String, Ipv4Addr>,
    /// The namespaces with rules.
    targets: BTreeMap<u64, Arc<Target>>,
    next: u64,
    /// What each pod may do, by address, once it is known.
    isolations: Option<Arc<Isolations>>,
}

/// The isolation of each pod with an address, for both directions.
type Isolations = BTreeMap<Ipv4Addr, PodIsolation>;

#[derive(Debug)]
struct PodIsolation {
    ingress: Isolation,
    egress: Isolation,
}

/// A network namespace with rules.
#[derive(Debug)]
struct Target {
    namespace: Arc<NetworkNamespace>,
    /// The address of the pod; `None` for the namespace for Services.
    pod: Option<Ipv4Addr>,
    /// The commands of the last replacement.
    applied: tokio::sync::Mutex<String>,
}

/// The rules of a network namespace follow the policies until this is dropped.
#[derive(Debug)]
pub(crate) struct Enforcement {
    policies: Arc<NetworkPolicies>,
    target: u64,
    uid: String,
}

impl Drop for Enforcement {
    fn drop(&mut self) {
        let mut state = self.policies.state.lock();
        state.targets.remove(&self.target);
        state.addresses.remove(&self.uid);
        state.isolations = None;
    }
}

impl NetworkPolicies {
    /// Creates the policies of a cluster whose objects follow. `node` is the address of the node, as pods see it.
    pub(crate) fn new(nft: PathBuf, node: Ipv4Addr) -> Self {
        let state = State { snapshot: Some(Objects::default()), ..State::default() };
        Self { nft, node, state: Mutex::new(state), is_synced: watch::Sender::new(false), changed: Notify::new() }
    }

    /// Begins with a new snapshot of all objects.
    pub(crate) fn restart(&self) {
        self.state.lock().snapshot = Some(Objects::default());
    }

    /// Ends the snapshot, if there is one.
    pub(crate) fn complete(&self) {
        let mut state = self.state.lock();
        if let Some(objects) = state.snapshot.take() {
            (state.objects, state.isolations) = (objects, None);
            drop(state);
            self.is_synced.send_replace(true);
            self.changed.notify_one();
        }
    }

    /// Processes a change of a policy, a namespace or a pod.
    pub(crate) fn take(&self, change: &Change) {
        let (object, is_gone) = (change.object(), change.kind == ChangeKind::Deleted);
        let mut state = self.state.lock();
        let State { objects, snapshot, .. } = &mut *state;
        let is_complete = snapshot.is_none();
        let objects = snapshot.as_mut().unwrap_or(objects);
        let had_policies = !objects.policies.is_empty();
        let differs = match &*change.resource.storage {
            STORAGE => Key::of(object).is_some_and(|key| {
                replace(&mut objects.policies, key, object, is_gone, |old| old["spec"] != object["spec"])
            }),
            "/namespaces" => {
                let name = text(object, "/metadata/name").to_owned();
                replace(&mut objects.namespaces, name, object, is_gone, |old| {
                    old["metadata"]["labels"] != object["metadata"]["labels"]
                })
            }
            "/pods" => {
                let is_gone = is_gone || has_ended(object) || flag(object, "/spec/hostNetwork");
                let uid = text(object, "/metadata/uid").to_owned();
                replace(&mut objects.pods, uid, object, is_gone, |old| {
                    ["/metadata/labels", "/status/podIP"].iter().any(|at| old.pointer(at) != object.pointer(at))
                })
            }
            _ => false,
        };
        if differs && is_complete && (had_policies || !objects.policies.is_empty()) {
            state.isolations = None;
            self.changed.notify_one();
        }
    }

    /// Sets the addresses of a Service with their endpoints.
    pub(crate) fn set_routes(&self, service: &Key, routes: &Routes) {
        let mut state = self.state.lock();
        if state.services.get(service).map_or(routes.is_empty(), |present| present == routes) {
            return;
        }
        match routes.is_empty() {
            true => state.services.remove(service),
            false => state.services.insert(service.clone(), routes.clone()),
        };
        if !state.objects.policies.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Returns whether a client may connect to an endpoint of a Service.
    pub(crate) fn allows(&self, client: IpAddr, protocol: Protocol, endpoint: SocketAddr) -> bool {
        let (IpAddr::V4(client), IpAddr::V4(to)) = (client, endpoint.ip()) else { return true };
        let isolations = {
            let mut state = self.state.lock();
            if state.objects.policies.is_empty() {
                return true;
            }
            state.isolations()
        };
        let (transport, port) = (protocol.into(), endpoint.port());
        let source = isolations.get(&client);
        let is_node = |address: Ipv4Addr| address == self.node || address.is_loopback() && source.is_none();
        is_node(client)
            || client == to
            || source.is_none_or(|source| self.is_allowed_to(&isolations, &source.egress, (to, port), transport))
                && isolations.get(&to).is_none_or(|pod| allows(&pod.ingress, client, transport, port))
    }

    /// Returns whether egress policies allow connections to an endpoint.
    fn is_allowed_to(
        &self,
        isolations: &Isolations,
        egress: &Isolation,
        (address, port): (Ipv4Addr, u16),
        transport: Transport,
    ) -> bool {
        let is_node = address == self.node || address.is_loopback() && !isolations.contains_key(&address);
        is_node || allows(egress, address, transport, port)
    }

    /// Applies the policies to the network namespace of a pod, now and later. Waits until the policies are known.
    ///
    /// # Errors
    /// Returns the reason why the rules can't be set.
    pub(crate) async fn enforce(
        self: &Arc<Self>,
        uid: &str,
        address: Ipv4Addr,
        namespace: Arc<NetworkNamespace>,
    ) -> Result<Enforcement, String> {
        self.is_synced.subscribe().wait_for(|synced| *synced).await.map_err(|closed| closed.to_string())?;
        let (enforcement, target) = {
            let mut state = self.state.lock();
            state.addresses.insert(uid.into(), address);
            state.isolations = None;
            let (target, added) = state.add(namespace, Some(address));
            (Enforcement { policies: self.clone(), target, uid: uid.into() }, added)
        };
        self.apply(&target).await?;
        // Others may allow connections with the pod.
        self.changed.notify_one();
        Ok(enforcement)
    }

    /// Applies the policies for as long as it is polled. `services` is the namespace for Services, if there is one.
    pub(crate) async fn run(self: Arc<Self>, services: Option<Arc<NetworkNamespace>>) {
        if let Some(namespace) = services {
            self.state.lock().add(namespace, None);
        }
        let mut is_failing = false;
        loop {
            self.changed.notified().await;
            let targets: Vec<_> = self.state.lock().targets.iter().map(|(id, target)| (*id, target.clone())).collect();
            let failures = stream::iter(targets)
                .map(async |(id, target)| {
                    let failure = self.apply(&target).await.err();
                    failure.filter(|_| self.state.lock().targets.contains_key(&id)).map(|why| (target.pod, why))
                })
                .buffer_unordered(CONCURRENCY)
                .filter_map(std::future::ready);
            let failures: Vec<_> = failures.collect().await;
            if let Some((pod, why)) = failures.first().filter(|_| !is_failing) {
                let count = failures.len();
                tracing::warn!(why, ?pod, count, "failed to apply NetworkPolicies, retrying every few seconds");
            }
            is_failing = !failures.is_empty();
            if is_failing {
                sleep(RETRY).await;
                self.changed.notify_one();
            }
        }
    }

    /// Replaces the rules of a namespace, if they differ.
    async fn apply(&self, target: &Target) -> Result<(), String> {
        let mut applied = target.applied.lock().await;
        if let Some(wanted) = self.commands(target.pod).filter(|wanted| *applied != *wanted) {
            timeout(TIMEOUT, self.execute(&target.namespace, &wanted))
                .await
                .map_err(|elapsed| elapsed.to_string())??;
            *applied = wanted;
        }
        Ok(())
    }

    async fn execute(&self, namespace: &NetworkNamespace, commands: &str) -> Result<(), String> {
        let mut inner = std::process::Command::new(&self.nft);
        inner.args(["-f", "-"]);
        let mut command = Command::from(namespace.enter(&inner));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(commands.as_bytes()).await.map_err(|error| error.to_string())?;
        }
        let output = child.wait_with_output().await.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
        }
    }

    /// Returns the commands that set the rules of a namespace; `None` for that of a pod whose object is gone. Its
    /// processes may not be.
    fn commands(&self, pod: Option<Ipv4Addr>) -> Option<String> {
        let mut state = self.state.lock();
        if state.objects.policies.is_empty() {
            return Some(nftables::none());
        }
        let isolations = state.isolations();
        let Some(own) = pod else {
            return Some(nftables::of_services(self.node, &restricted(&state.services, &isolations)));
        };
        let PodIsolation { ingress, egress } = isolations.get(&own)?;
        let mut reached = Vec::new();
        if egress.is_some() {
            let routes = state.services.values().flatten();
            reached.extend(routes.filter_map(|((protocol, service), route)| {
                let transport = Transport::from(*protocol);
                let is_reached = |endpoint: &SocketAddr| match endpoint.ip() {
                    IpAddr::V4(to) => {
                        to == own || self.is_allowed_to(&isolations, egress, (to, endpoint.port()), transport)
                    }
                    IpAddr::V6(_) => false,
                };
                route.endpoints.iter().any(is_reached).then_some((transport, *service))
            }));
        }
        Some(nftables::of_pod(self.node, ingress, egress, &reached))
    }
}

impl State {
    fn add(&mut self, namespace: Arc<NetworkNamespace>, pod: Option<Ipv4Addr>) -> (u64, Arc<Target>) {
        let target = Arc::new(Target { namespace, pod, applied: tokio::sync::Mutex::new(nftables::none()) });
        self.next += 1;
        self.targets.insert(self.next, target.clone());
        (self.next, target)
    }

    fn isolations(&mut self) -> Arc<Isolations> {
        let Self { objects, addresses, isolations, .. } = self;
        isolations
            .get_or_insert_with(|| {
                let pods = objects.pods.values();
                let isolations = pods.filter_map(|pod| {
                    let of = |direction| objects.isolation(pod, direction, addresses);
                    let isolation = PodIsolation { ingress: of(Direction::Ingress), egress: of(Direction::Egress) };
                    Some((rules::address(pod, addresses)?, isolation))
                });
                Arc::new(isolations.collect())
            })
            .clone()
    }
}

/// Returns the addresses of Services whose endpoints are all isolated, with those who may connect to one of them.
fn restricted(
    services: &BTreeMap<Key, Routes>,
    isolations: &Isolations,
) -> BTreeMap<(Transport, SocketAddr), Vec<Allowed>> {
    let mut restricted = BTreeMap::new();
    for ((protocol, service), route) in services.values().flatten() {
        let transport = Transport::from(*protocol);
        let rules = route.endpoints.iter().map(|endpoint| {
            let IpAddr::V4(address) = endpoint.ip() else { return None };
            let rules = isolations.get(&address)?.ingress.as_ref()?;
            let rules = rules.iter().filter(move |rule| rule.has_port(transport, endpoint.port())).cloned();
            Some(rules.chain([Allowed::from_pod(address)]))
        });
        // An endpoint without isolation is open for all.
        if let Some(rules) = rules.collect::<Option<Vec<_>>>().filter(|rules| !rules.is_empty()) {
            restricted.insert((transport, *service), rules.into_iter().flatten().collect());
        }
    }
    restricted
}

/// Replaces or removes an object. Returns whether that makes a difference: if there was one, as `differs` says.
fn replace<K: Ord>(
    objects: &mut BTreeMap<K, Arc<Value>>,
    key: K,
    object: &Arc<Value>,
    is_gone: bool,
    differs: impl FnOnce(&Value) -> bool,
) -> bool {
    match is_gone {
        true => objects.remove(&key).is_some(),
        false => objects.insert(key, object.clone()).is_none_or(|old| differs(&old)),
    }
}
