//! What the runs of a scenario begin with: the description of the operator, and a cluster with its kinds. It is made
//! once, since it is the same in each run.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ObjectMeta, PostParams},
    core::GroupVersionKind,
};
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_cluster::{Checkpoint, Cluster, ClusterBuilder, Controllers};
use tokio::runtime::Runtime;

use crate::{
    certificates::SERVICE_NAMESPACE,
    described::{self, DescribeError, Described},
    error::SimulationError,
    scenario::{Options, Scenario},
    webhooks::Webhooks,
};

/// The virtual time at which the cluster is made, some time before the [start](crate::run::START) of the runs.
const BEFORE: &str = "2020-01-30T09:59:00Z";
/// The interval of bookmarks: shorter than the time after which a client takes a silent watch for dead.
const BOOKMARKS: Duration = Duration::from_secs(290);

/// What the runs of a scenario begin with.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) described: Described,
    /// A cluster with the kinds and webhooks of the operator.
    pub(crate) checkpoint: Checkpoint,
}

impl Prepared {
    /// Returns what the runs of a scenario begin with, and makes it if it wasn't made before.
    pub(crate) fn of(scenario: &Scenario) -> Result<&Self, SimulationError> {
        if let Some(prepared) = scenario.prepared.get() {
            return Ok(prepared);
        }
        let prepared = runtime()?.block_on(Self::make(scenario))?;
        Ok(scenario.prepared.get_or_init(|| prepared))
    }

    async fn make(scenario: &Scenario) -> Result<Self, SimulationError> {
        let clock = VirtualClock::starting_at(time(BEFORE)?);
        let builder = builder(&scenario.options, &clock, &Arc::default());
        let cluster = builder.random(Random::seeded(0)).start().await.map_err(SimulationError::Cluster)?;
        let client = cluster.client();
        let described = Described::of(scenario.register, client.clone(), scenario.options.webhooks);
        let mut described = described.map_err(|error| match error {
            DescribeError::Document(error) => SimulationError::Describe(error),
            DescribeError::Rights(error) => SimulationError::Rights(error),
            DescribeError::Versions(error) => SimulationError::Versions(error),
            DescribeError::Conversions(error) => SimulationError::Conversions(error),
        })?;
        if scenario.options.controllers {
            described.own = Arc::new(described::of_controllers());
        }
        cluster.install(described.kinds.clone()).await.map_err(SimulationError::Install)?;
        install(&described.webhooks, &client).await.map_err(SimulationError::Webhooks)?;
        if scenario.options.certificates {
            create_namespace(&client).await.map_err(SimulationError::Webhooks)?;
        }
        // Until the controllers have created what each namespace has.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let checkpoint = cluster.checkpoint();
        cluster.shutdown().await;
        Ok(Self { described, checkpoint })
    }
}

/// Returns the builder of a cluster, without its random source.
pub(crate) fn builder(options: &Options, clock: &Arc<VirtualClock>, webhooks: &Arc<Webhooks>) -> ClusterBuilder {
    let mut builder = Cluster::builder().pods(options.pods).clock(clock.clone());
    if options.controllers {
        builder = builder.controllers(Controllers::none()).service_account_admission(true);
    }
    builder.webhook_transport(webhooks.clone()).bookmark_interval(BOOKMARKS)
}

/// Returns a runtime with one thread and paused time.
pub(crate) fn runtime() -> Result<Runtime, SimulationError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.map_err(SimulationError::Runtime)
}

/// Parses a virtual time.
pub(crate) fn time(text: &str) -> Result<Timestamp, SimulationError> {
    text.parse().map_err(SimulationError::Clock)
}

/// Creates the namespace of the service of the webhooks, for the Secret with their certificate.
async fn create_namespace(client: &Client) -> Result<(), kube::Error> {
    let metadata = ObjectMeta { name: Some(SERVICE_NAMESPACE.into()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.map(drop)
}

/// Creates the configurations of webhooks.
async fn install(configurations: &[DynamicObject], client: &Client) -> Result<(), kube::Error> {
    for configuration in configurations {
        let types = configuration.types.clone().unwrap_or_default();
        let kind = GroupVersionKind::try_from(types).map_err(|error| kube::Error::Service(error.into()))?;
        let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), configuration).await?;
    }
    Ok(())
}
