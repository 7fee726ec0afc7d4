//! What a manager starts: the connection to its cluster, its tasks and its servers.

use std::{
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures::{FutureExt, TryFutureExt};
use kube::Client;
use tracing::warn;

use super::{
    Connection, Manager, ManagerError, Replicas,
    lifecycle::{Task, Tasks, runnable_task},
};
use crate::{
    cache::{Cache, CacheFamilies, NotSynced},
    context::UndeclaredReads,
    controller::{BarrierFamilies, Environment, Prepared},
    event::Broadcaster,
    http::{BindAddress, BindError, Server},
    leader::fence::Fence,
    metrics::Metrics,
    metrics_server,
    probe::{self, Probes},
    process::hostname,
    shard::Share,
    trace::Traces,
    webhook::{self, Dependencies},
};

/// The servers of a manager.
pub(super) struct Servers {
    probes: Vec<Server>,
    metrics: Option<metrics_server::Running>,
    webhooks: Option<webhook::Running>,
}

impl Servers {
    /// Stops them in the reverse order of their start.
    pub(super) async fn shutdown(self) {
        if let Some(webhooks) = self.webhooks {
            webhooks.shutdown().await;
        }
        if let Some(metrics) = self.metrics {
            metrics.shutdown().await;
        }
        for probes in self.probes {
            probes.shutdown().await;
        }
    }
}

impl Connection {
    /// Returns the client, whose requests are counted if it is made by flags.
    pub(super) async fn client(&self, metrics: &Metrics) -> Result<Client, ManagerError> {
        match self {
            Self::Client(client) => Ok(client.clone()),
            Self::Args(args) => Ok(args.client(metrics).await?),
        }
    }
}

impl Manager {
    /// Creates what all controllers share, and starts to write events.
    pub(super) async fn connect(&mut self) -> Result<(Environment, Broadcaster), ManagerError> {
        let in_registry = || Metrics::with_registry(self.clock.clone(), self.registry.clone());
        let metrics = self.metrics.clone().unwrap_or_else(in_registry);
        let client = self.requests.client(&self.connection.client(&metrics).await?, &self.clock);
        let (queue, clock) = (self.handles.events.clone(), self.clock.clone());
        let events = Broadcaster::start_for(queue.clone(), client.clone(), &hostname(), clock, metrics.clone());
        self.handles.client.set(crate::client::Client::new(client.clone()).user_agent(&self.requests.user_agent()));
        let environment = Environment {
            fenced: client.clone(),
            client,
            cache: Cache::new(self.namespaces.clone(), self.cache.clone()),
            clock: self.clock.clone(),
            random: self.random.clone(),
            barrier_metrics: BarrierFamilies::new(metrics.registry()),
            cache_metrics: CacheFamilies::new(metrics.registry()),
            metrics,
            events: queue,
            traces: self.traces.clone(),
            share: Share::default(),
            is_elected: false,
            is_fenced: false,
            cluster: None,
            concurrency: self.concurrency.clone(),
            fence: Fence::default(),
            agent: self.requests.user_agent(),
            undeclared: UndeclaredReads::default(),
        };
        Ok((environment, events))
    }

    /// Takes the controllers and runnables out, as tasks.
    pub(super) fn take_tasks(&mut self, environment: &Environment) -> Tasks {
        let declared = self.indexes().collect();
        let (begun, grace) = (&self.elected, self.grace);
        let (additions, fleet) = (mem::take(&mut self.additions), mem::take(&mut self.fleet));
        let mut tasks = Tasks::default();
        if let Some(supervisor) = additions.supervisor(environment, declared, begun.clone(), grace) {
            tasks.add(false, Box::new(|stop, abort| supervisor.run(stop, abort).boxed()));
        }
        if let Some(supervisor) = fleet.supervisor(environment, self.cache.clone(), begun.clone(), grace) {
            tasks.add(false, Box::new(|stop, abort| supervisor.run(stop, abort).boxed()));
        }
        for controller in mem::take(&mut self.controllers) {
            tasks.add(controller.needs_leader(), controller_task(controller.prepare(environment, false)));
        }
        for runnable in mem::take(&mut self.runnables) {
            tasks.add(runnable.needs_leader, runnable_task(runnable, environment));
        }
        tasks
    }

    /// Starts the servers of probes, metrics and webhooks.
    pub(super) async fn start_servers(&mut self, environment: &Environment) -> Result<Servers, ManagerError> {
        let Environment { client, clock, metrics, .. } = environment;
        add_checks(&self.probes, environment);
        let probes = start_probes(&self.probe_address, &self.probes, &self.traces).await?;
        let (server, handlers) = (self.metrics_server.clone(), mem::take(&mut self.metrics_handlers));
        let traces = probe::traces_router(self.traces.clone());
        let metrics_server = server.start(metrics, handlers, traces, client, clock).await?;
        let dependencies = Dependencies { client, clock, metrics, readyz: &self.probes.readyz };
        let webhooks = match self.webhook_server.take().filter(|_| !self.webhooks.is_empty()) {
            Some(server) => {
                let callers = server.callers()?;
                webhook::Running::start(mem::take(&mut self.webhooks), server, callers, dependencies).await?
            }
            None => None,
        };
        Ok(Servers { probes, metrics: metrics_server, webhooks })
    }
}

impl Environment {
    /// Sets how the controllers are coordinated with other replicas.
    pub(super) fn coordinate(&mut self, replicas: &Replicas) {
        match replicas {
            Replicas::Alone | Replicas::Args { .. } => {}
            Replicas::Lead(_) => {
                self.raise_fence();
                self.is_elected = true;
            }
            Replicas::Shard(_) => {
                self.raise_fence();
                self.share = Share::of_a_group(self.clock.clone());
            }
        }
    }
}

/// Starts the server of checks and traces. Traces are shown only on loopback. If the address is not a loopback address,
/// a second server listens on loopback at the same port.
async fn start_probes(address: &BindAddress, probes: &Probes, traces: &Traces) -> Result<Vec<Server>, BindError> {
    const FLAG: &str = "--health-probe-bind-address";
    let router = || probes.router().merge(probe::local_traces_router(traces.clone()));
    let Some(server) = Server::start("probes", FLAG, address, router()).await? else { return Ok(Vec::new()) };
    let bound = server.address();
    // A server on all interfaces listens on loopback too.
    if bound.ip().to_canonical().is_loopback() || bound.ip().is_unspecified() {
        return Ok(vec![server]);
    }
    let loopback: IpAddr = if bound.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let local = BindAddress::Host(loopback.to_string(), bound.port());
    match Server::start("traces", FLAG, &local, router()).await {
        Ok(local) => Ok([server].into_iter().chain(local).collect()),
        Err(error) => {
            // In a pod the port is free. Elsewhere another program may use it; the probes still work without traces.
            warn!(%error, "traces are not served");
            Ok(vec![server])
        }
    }
}

/// Returns the task of a controller.
fn controller_task(controller: Prepared) -> Task {
    Box::new(|stop, abort| controller.run(stop, abort).map_err(ManagerError::from).boxed())
}

/// Adds the manager's own checks: it responds, its caches are filled, its controllers declare what they read, and it
/// has its share of the keys.
fn add_checks(probes: &Probes, environment: &Environment) {
    let Environment { cache, share, undeclared, .. } = environment;
    if share.is_of_a_group() {
        let share = share.clone();
        probes.readyz.add("shards", move || std::future::ready(share.check()));
    }
    probes.healthz.add("ping", || async { Ok(()) });
    let undeclared = undeclared.clone();
    probes.readyz.add("declarations", move || std::future::ready(undeclared.check()));
    let cache = cache.clone();
    probes.readyz.add("caches", move || {
        let unsynced = cache.unsynced();
        async move { if unsynced.is_empty() { Ok(()) } else { Err(NotSynced(unsynced).to_string()) } }
    });
}
