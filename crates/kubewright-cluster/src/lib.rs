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
//! The parts of the crate:
//!
//! * [`Cluster`] starts the other parts, owns every task, and leaves nothing behind.
//! * `controllers` has the built-in controllers that operators rely on: those that [`Controllers::NAMES`] lists, the
//!   deletion of custom kinds, and a scheduler.
//! * `node` runs pods as processes of the host, by the [`ImageTable`], or simulates them ([`Pods`]).
//! * [`testing`] applies manifests and waits for conditions. [`faults`] injects faults between a client and the server.
//!
//! The controllers and the node behave like their Kubernetes counterparts, act only through the API, and use the
//! counterparts' names. Each has a pure core that makes decisions, and a thin loop that feeds the core from
//! [`ApiServer::feed`](kubewright_apiserver::ApiServer::feed) and executes the decisions. Nothing is polled but what
//! processes use of the host.
//!
//! Services answer at their node ports on 127.0.0.1, and on Linux also at their cluster IPs, which are addresses of the
//! loopback network. Only TCP is supported. A service without a ready endpoint refuses connections. There is no DNS:
//! containers find services by the environment variables `<NAME>_SERVICE_HOST` and `<NAME>_SERVICE_PORT`, and, in a
//! mount namespace, by the names in their `/etc/hosts`. The name of the host is the pod's there.
//!
//! Volumes are at their mount paths, in a mount namespace of each process, where `unshare` and `mount` of util-linux
//! can make one: as root with `CAP_SYS_ADMIN`, or in a user namespace. The annotation `kubewright.dev/mount-namespaces`
//! of the node says whether they can, once a pod has volumes. In any case they are also below a root directory of each
//! container, whose path is in the environment variable `KUBEWRIGHT_ROOT`: a volume mounted at `/etc/config` is at
//! `$KUBEWRIGHT_ROOT/etc/config`. The types emptyDir, configMap, secret, downwardAPI, projected, hostPath and
//! persistentVolumeClaim are supported. Files follow changes of what they are made of, except below a `subPath`. An
//! emptyDir of the medium `Memory` is in `/dev/shm`, with its limits.
//!
//! Where a mount path doesn't exist on the host, its nearest existing parent is replaced by a directory of the pod with
//! links to what the host's contains. So nothing is created on the host, and what a program creates in such a
//! directory, such as `/tmp`, ends with the pod.
//!
//! A container authenticates as its pod's service account, by its token as in Kubernetes, or with the kubeconfig at the
//! path in `KUBECONFIG` where volumes can't be at their mount paths. If [`Cluster::listen`] wasn't called before, the
//! cluster then listens on a free loopback port.
//!
//! A process that leaves its process group (`setsid`) outlives its pod, but on Linux not the cluster.

mod api_endpoints;
mod cluster;
mod component;
mod controllers;
mod events;
pub mod faults;
mod node;
mod object_client;
mod panics;
mod quantity;
pub mod testing;

pub use kubewright_apimachinery::cidr::Cidr;
pub use kubewright_apiserver::{
    AbacPolicies, AbacPolicyError, AccessReview, AccessReviewer, AdmissionPlugin, Attributes, AuditLog, AuditPolicy,
    AuditPolicyError, AuditSink, AuthorizationMode, Checkpoint, DataDirError, Durability, ListenError, ListenOptions,
    PodSecurityConfig, PodSecurityConfigError, ResourceUsage, ServerCertificate, ServiceRange, ServiceRangeError,
    TlsError, TokenReviewer, UserInfo,
};

pub use self::{
    api_endpoints::Endpoint,
    cluster::{Cluster, ClusterBuilder, Pods, StartError},
    controllers::selection::{Controllers, UnknownController},
    node::{ImageTable, PodNetwork, Program, simulation::FinishError},
};
