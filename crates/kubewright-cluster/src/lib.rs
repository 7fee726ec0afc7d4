//! The embedded cluster: API server, built-in controllers and a node, in this process.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use kubewright_cluster::{Cluster, Pods};
//!
//! let cluster = Cluster::builder().pods(Pods::Run).start().await?;
//! let client: kube::Client = cluster.client();
//! let listener = cluster.listen("127.0.0.1:0".parse()?).await?;
//! std::fs::write("kubeconfig", listener.kubeconfig())?;
//! cluster.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The controllers are those that an operator leans on: garbage collection, the deletion of namespaces and of custom kinds,
//! default service accounts, and a scheduler for the one node. The node runs pods as processes of the host or simulates
//! them ([`Pods`]).

mod access;
mod cluster;
mod controllers;
mod events;
pub mod faults;
mod node;
pub mod testing;

pub use kubewright_apiserver::{ListenError, ListenOptions, Listener};

pub use self::{
    cluster::{Cluster, ClusterBuilder, Pods, StartError},
    node::{ImageTable, Program, simulation::FinishError},
};
