//! The embedded cluster: API server, built-in controllers and a node, in this process.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use kubewright_cluster::{Cluster, Pods};
//!
//! let cluster = Cluster::builder().pods(Pods::Run).start().await?;
//! let client: kube::Client = cluster.client();
//! let endpoint = cluster.listen("127.0.0.1:0".parse()?).await?;
//! std::fs::write("kubeconfig", endpoint.kubeconfig())?;
//! cluster.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Of the crate's parts,
//! * [`Cluster`] starts the others, owns every task, and leaves nothing behind;
//! * `controllers` are those that an operator leans on: garbage collection, the deletion of namespaces and of custom kinds,
//!   default service accounts, Jobs, ReplicaSets and Deployments, the endpoints of Services, and a scheduler for the one node;
//! * `node` runs pods as processes of the host, from the [`ImageTable`], or simulates them ([`Pods`]);
//! * [`testing`] applies manifests and waits for conditions, and [`faults`] come between a client and the server.
//!
//! The controllers and the node do what their Kubernetes counterparts do, through the API alone, each under its
//! counterpart's name. Each is a pure core, which decides, and a thin loop, which feeds it with
//! [`ApiServer::feed`](kubewright_apiserver::ApiServer::feed) and carries out what it has decided. Nothing is polled.
//!
//! Services answer: at their node ports on 127.0.0.1, and on Linux at their cluster IPs, which are addresses of the loopback
//! network. Only TCP is carried, to an endpoint that is ready; without one, connections are refused. There is no DNS: a container
//! finds services by the variables `<NAME>_SERVICE_HOST` and `<NAME>_SERVICE_PORT`.
//!
//! Volumes are directories below a root of the container's own, which the variable `KUBEWRIGHT_ROOT` names:
//! `$KUBEWRIGHT_ROOT/etc/config` is what is mounted at `/etc/config`. There are those of the types emptyDir, configMap, secret,
//! downwardAPI, projected and hostPath.
//!
//! A container finds the API server as its pod's service account, by `KUBECONFIG`. Unless
//! [`Cluster::listen`] was called before, the cluster then listens on a free port of loopback.
//!
//! Not there yet: gRPC probes and persistent volumes, `exec`, `attach` and `port-forward`. A process that leaves its process group (`setsid`) outlives its pod,
//! though on Linux not the cluster.

mod access;
mod cluster;
mod controllers;
mod doors;
mod events;
pub mod faults;
mod node;
pub mod testing;

pub use kubewright_apiserver::{ListenError, ListenOptions};

pub use self::{
    cluster::{Cluster, ClusterBuilder, Pods, StartError},
    doors::Endpoint,
    node::{ImageTable, Program, simulation::FinishError},
};
