//! The built-in controllers.
//!
//! * [`garbage`]: the garbage collector
//! * [`deletion`]: the deletion of namespaces and of custom kinds
//! * [`namespace_defaults`]: the objects that every namespace has
//! * [`account_tokens`]: the tokens of service accounts in Secrets
//! * [`admission_policies`]: the status of admission policies
//! * [`aggregation`]: aggregated cluster roles
//! * [`api_services`]: the availability of aggregated API servers, and the APIServices of custom kinds
//! * [`signing`]: the certificates of signing requests, and the removal of old requests
//! * [`event_ttl`]: the expiry of events
//! * [`scheduler`]: the binding of pods to nodes
//! * [`deployment`], [`replicaset`], [`stateful_set`], [`daemon_set`], [`job`],
//!   [`cron_job`]: the workloads
//! * [`autoscaler`]: horizontal pod autoscalers
//! * [`node_lifecycle`]: the conditions and taints of nodes
//! * [`node_ttl`]: for how long a kubelet may use what it has read, by the number of nodes
//! * [`pod_garbage`]: the pods of nodes that are gone
//! * [`taint_eviction`]: the eviction of pods by taints
//! * [`device_taint_eviction`]: the eviction of pods by taints of their devices
//! * [`disruption`]: the status of pod disruption budgets
//! * [`resource_quota`]: the status of resource quotas
//! * [`volume_binder`]: the binding of persistent volumes and claims, and folders of the node as volumes
//! * [`ephemeral_volumes`]: the claims of ephemeral volumes
//! * [`resource_claims`]: the claims of devices
//! * [`protection`]: the finalizers of persistent volumes and claims
//! * [`endpoints`]: EndpointSlices and Endpoints of services
//! * [`kubernetes_service`]: the service `kubernetes`
//! * [`service_addresses`]: the addresses of services as objects
//! * [`service_cidr`]: the ranges of addresses of services
//!
//! [`manager`] starts them, and [`selection`] names those that can be left out.
//!
//! The workload controllers only make decisions, which one shared loop executes ([`reconcile`]); [`controller_refs`]
//! finds the children of each parent, and [`history`] keeps the revisions of their templates. These controllers share
//! one reader of the feed ([`informer`]) and one map of all pods ([`objects`]). The others read the feed themselves,
//! some of them in batches ([`batch`]). All of them retry failed requests ([`retry`]).

mod account_tokens;
pub(crate) mod admission_policies;
pub(crate) mod aggregation;
pub(crate) mod api_services;
pub(crate) mod autoscaler;
pub(crate) mod batch;
mod controller_refs;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deletion;
pub(crate) mod deployment;
mod device_taint_eviction;
pub(crate) mod disruption;
pub(crate) mod endpoints;
pub(crate) mod ephemeral_volumes;
pub(crate) mod event_ttl;
pub(crate) mod garbage;
mod hash;
mod history;
pub(crate) mod informer;
pub(crate) mod job;
pub(crate) mod kind;
pub(crate) mod kubernetes_service;
pub(crate) mod manager;
pub(crate) mod namespace_defaults;
mod node_lifecycle;
mod node_ttl;
pub(crate) mod objects;
pub(crate) mod pod;
mod pod_garbage;
pub(crate) mod protection;
pub(crate) mod reconcile;
pub(crate) mod replicaset;
mod resource_claims;
pub(crate) mod resource_quota;
mod retry;
pub(crate) mod scheduler;
pub(crate) mod selection;
mod service_addresses;
pub(crate) mod service_cidr;
pub(crate) mod signing;
pub(crate) mod stateful_set;
pub(crate) mod taint_eviction;
pub(crate) mod value;
pub(crate) mod volume_binder;
