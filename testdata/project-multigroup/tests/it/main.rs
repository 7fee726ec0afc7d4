//! Tests of the operator, each on an embedded cluster of its own.

mod app_podset;
mod app_podset_v1alpha1_validation;
mod apps_deployment;
mod crew_captain;
mod crew_captain_simulation;
mod crew_captain_v1_defaulting;
mod crew_captain_v1_validation;
mod foo_policy_healthcheckpolicy;
mod foo_policy_healthcheckpolicy_simulation;
mod lakers;
mod lakers_simulation;
mod sea_creatures_kraken;
mod sea_creatures_kraken_simulation;
mod ship_destroyer;
mod ship_destroyer_simulation;
mod ship_destroyer_v1_defaulting;
mod ship_frigate;
mod ship_frigate_simulation;
// +kubebuilder:scaffold:modules

use std::future::pending;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::{prelude::*, webhook::WebhookServer};
use kubewright_cluster::{Cluster, Pods};

/// Starts a cluster with some kinds, and the operator, which stops with the test.
async fn start(kinds: Vec<CustomResourceDefinition>) -> anyhow::Result<Cluster> {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await?;
    cluster.install(kinds).await?;
    let manager = Manager::new(cluster.client()).webhook_server(WebhookServer::local());
    let operator = ::project_multigroup::register(manager).run_until(pending());
    tokio::spawn(async { operator.await.expect("the operator runs") });
    Ok(cluster)
}
