//! Tests of the operator, each on an embedded cluster of its own.

mod busybox;
mod busybox_simulation;
mod memcached;
mod memcached_simulation;
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
    let operator = ::project_with_plugins::register(manager).run_until(pending());
    tokio::spawn(async { operator.await.expect("the operator runs") });
    Ok(cluster)
}
