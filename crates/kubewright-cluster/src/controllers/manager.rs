//! The start of the built-in controllers.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use kubewright_apimachinery::{clock::SharedClock, random::Random, watch};
use kubewright_apiserver::{ApiServer, ResourceMetrics};
use serde_json::json;

use super::{
    account_tokens::AccountTokens,
    admission_policies::PolicyStatuses,
    aggregation::Aggregation,
    autoscaler::Autoscalers,
    cron_job::CronJobs,
    daemon_set::DaemonSets,
    deployment::Deployments,
    device_taint_eviction::DeviceTaintEvictions,
    disruption::{Disruptions, stale::StaleDisruptions},
    endpoints::{Endpoints, mirroring::Mirroring},
    ephemeral_volumes::EphemeralVolumes,
    garbage,
    informer::Informer,
    job::Jobs,
    namespace_defaults::{self, Clients},
    node_lifecycle::NodeLifecycle,
    node_ttl::NodeTtl,
    pod_garbage::PodGarbage,
    protection::Protection,
    reconcile::{self, Controller},
    replicaset::{REPLICA_SET, REPLICATION_CONTROLLER, ReplicaSets},
    resource_claims::ResourceClaims,
    resource_quota::ResourceQuotas,
    selection::Controllers,
    service_cidr::ServiceCidrs,
    signing::{SigningRequests, approver::Approvals, cleaner::StaleRequests},
    stateful_set::StatefulSets,
    taint_eviction::TaintEvictions,
};
use crate::{
    component::{self, CERTIFICATE_PUBLISHER, CONTROLLER_MANAGER},
    events::Recorder,
    object_client::{ObjectClient, ObjectPath, is_conflict},
};

/// The controller of persistent volumes, which starts when it is known where they are.
pub(crate) const VOLUMES: &str = "persistentvolume-binder-controller";

/// Starts a task.
pub(crate) type Spawn<'a> = &'a dyn Fn(BoxFuture<'static, ()>);

/// What the built-in controllers are started with.
pub(crate) struct ControllerManager<'a> {
    pub(crate) api: &'a ApiServer,
    /// Shared by the controllers that the reconcile loop runs.
    pub(crate) informer: Informer,
    pub(crate) clock: &'a SharedClock,
    pub(crate) random: Random,
    pub(crate) metrics: Option<Arc<dyn ResourceMetrics>>,
    /// The certificate authority of the API server in PEM, or empty.
    pub(crate) certificate: watch::Receiver<String>,
    /// Returns the client of a component or of a controller.
    pub(crate) clients: Box<dyn Fn(&str) -> kube::Client + Send + Sync + 'a>,
}

impl ControllerManager<'_> {
    /// Starts the selected controllers, but not those of namespaces and persistent volumes.
    pub(crate) fn start(&self, selected: &Controllers, spawn: Spawn<'_>) {
        let (api, clock) = (self.api, self.clock);
        if selected.contains("garbage-collector-controller") {
            let client = self.client("garbage-collector-controller");
            let events = self.recorder("garbage-collector-controller", "", spawn);
            spawn(garbage::run(api.clone(), client, clock.clone(), events).boxed());
        }
        if selected.contains("serviceaccount-controller") {
            let clients = Clients {
                accounts: self.client("serviceaccount-controller"),
                certificates: self.client(CERTIFICATE_PUBLISHER),
            };
            let certificate = self.certificate.clone();
            spawn(namespace_defaults::run(api.clone(), clients, clock.clone(), certificate).boxed());
        }
        let signing = SigningRequests::new(api.certificate_authority(), self.random.clone());
        self.control(selected, "certificatesigningrequest-approving-controller", Approvals::default(), spawn);
        self.control(selected, "certificatesigningrequest-cleaner-controller", StaleRequests::default(), spawn);
        self.control(selected, "certificatesigningrequest-signing-controller", signing, spawn);
        let pods = || self.informer.pods();
        self.control(selected, "clusterrole-aggregation-controller", Aggregation::default(), spawn);
        self.control(selected, "cronjob-controller", CronJobs::default(), spawn);
        self.control(selected, "daemonset-controller", DaemonSets::new(pods()), spawn);
        self.control(selected, "deployment-controller", Deployments::new(pods()), spawn);
        let evictions = DeviceTaintEvictions::new(pods());
        self.control(selected, "device-taint-eviction-controller", evictions, spawn);
        self.control(selected, "disruption-controller", Disruptions::new(api.clone(), pods()), spawn);
        self.control(selected, "disruption-controller", StaleDisruptions::default(), spawn);
        self.control(selected, "endpointslice-controller", Endpoints::new(pods()), spawn);
        self.control(selected, "endpointslicemirroring-controller", Mirroring::default(), spawn);
        self.control(selected, "ephemeral-volume-controller", EphemeralVolumes::default(), spawn);
        let autoscalers = Autoscalers::new(api.clone(), pods(), self.metrics.clone());
        self.control(selected, "horizontal-pod-autoscaler-controller", autoscalers, spawn);
        self.control(selected, "job-controller", Jobs::new(pods()), spawn);
        self.control(selected, "node-lifecycle-controller", NodeLifecycle::new(clock.clone(), pods()), spawn);
        self.control(selected, "persistentvolume-protection-controller", Protection::default(), spawn);
        self.control(selected, "pod-garbage-collector-controller", PodGarbage::new(clock.clone(), pods()), spawn);
        self.control(selected, "replicaset-controller", ReplicaSets::new(REPLICA_SET, pods()), spawn);
        self.control(
            selected,
            "replicationcontroller-controller",
            ReplicaSets::new(REPLICATION_CONTROLLER, pods()),
            spawn,
        );
        self.control(selected, "resourceclaim-controller", ResourceClaims::new(pods()), spawn);
        self.control(selected, "resourcequota-controller", ResourceQuotas::new(api.clone(), clock.clone()), spawn);
        self.control(selected, "serviceaccount-token-controller", AccountTokens::new(api.clone()), spawn);
        self.control(selected, "service-cidr-controller", ServiceCidrs::default(), spawn);
        self.control(selected, "statefulset-controller", StatefulSets::new(pods()), spawn);
        self.control(selected, "taint-eviction-controller", TaintEvictions::new(clock.clone()), spawn);
        self.control(selected, "ttl-controller", NodeTtl::default(), spawn);
        self.control(selected, "validatingadmissionpolicy-status-controller", PolicyStatuses::new(api.clone()), spawn);
    }

    /// Runs a controller in the shared reconcile loop, if it is selected.
    pub(crate) fn control(
        &self,
        selected: &Controllers,
        name: &'static str,
        controller: impl Controller + 'static,
        spawn: Spawn<'_>,
    ) {
        debug_assert!(Controllers::NAMES.contains(&name), "{name} can't be selected");
        if !selected.contains(name) {
            return;
        }
        let events = self.recorder_of(event_source(name), "", name, spawn);
        if self.informer.is_empty() {
            spawn(self.informer.clone().run().boxed());
        }
        let backoff = controller.backoff();
        let subscription = self.informer.subscribe(controller);
        spawn(reconcile::run(subscription, backoff, self.client(name), self.clock.clone(), events).boxed());
    }

    /// Returns a recorder of events, whose task is started.
    pub(crate) fn recorder(&self, component: &'static str, host: &'static str, spawn: Spawn<'_>) -> Recorder {
        self.recorder_of(component, host, component, spawn)
    }

    /// Returns a recorder of events of a component, which another one writes.
    fn recorder_of(&self, component: &'static str, host: &'static str, writer: &str, spawn: Spawn<'_>) -> Recorder {
        let (recorder, task) = Recorder::new(component, host, self.client(writer), self.clock.clone());
        spawn(task.boxed());
        recorder
    }

    /// Creates the service accounts of the selected controllers, as kube-controller-manager does when each of them
    /// starts.
    pub(crate) fn create_accounts(&self, selected: &Controllers) -> impl Future<Output = ()> + use<> {
        let (client, accounts) = (self.client(CONTROLLER_MANAGER), component::accounts(selected));
        async move {
            let path = ObjectPath::core("serviceaccounts", Some(component::NAMESPACE), "");
            for name in accounts {
                let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
                match client.create(&path, "", &account).await {
                    Err(error) if !is_conflict(&error) => {
                        tracing::warn!(%error, name, "failed to create the service account of a controller");
                    }
                    _ => {}
                }
            }
        }
    }

    fn client(&self, component: &str) -> ObjectClient {
        ObjectClient::new((self.clients)(component))
    }
}

/// Returns the name of a controller in its events, as Kubernetes has it.
fn event_source(controller: &'static str) -> &'static str {
    match controller {
        "disruption-controller" => "controllermanager",
        "endpointslice-controller" => "endpoint-slice-controller",
        "endpointslicemirroring-controller" => "endpoint-slice-mirroring-controller",
        "ephemeral-volume-controller" => "ephemeral_volume",
        "horizontal-pod-autoscaler-controller" => "horizontal-pod-autoscaler",
        "node-lifecycle-controller" => "node-controller",
        "persistentvolume-binder-controller" => "persistentvolume-controller",
        "replicationcontroller-controller" => "replication-controller",
        "resourceclaim-controller" => "resource_claim",
        other => other,
    }
}
