//! Tests of the operator, each on an embedded cluster of its own.
//!
//! The manifests, and the behaviour of the operator on the embedded cluster. `conformance` has the tests that every
//! operator has to pass.

mod app_podset;
mod app_podset_simulation;
mod conformance;
mod crash;
mod deployed;
mod fixtures;
mod k8stest_podset;
mod k8stest_podset_simulation;
mod manifests;
mod pods;
mod processes;
mod program;
mod stale_cache;
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
    let operator = ::podset_operator::register(manager).run_until(pending());
    tokio::spawn(async { operator.await.expect("the operator runs") });
    Ok(cluster)
}
