//! The controller runtime: manager, caches, queue, controllers, webhooks, events, probes, metrics.
//!
//! An event becomes a write in these steps:
//!
//! ```text
//! list and watch → cache: store + indexes → predicate → mapper → queue (keys only) → worker
//!   → reconcile(ctx) → client (apply, status, events) → API server → watch …
//!                         └── read-your-writes barrier: the key's next run waits for its own writes to arrive
//! ```
//!
//! Modules that operators use:
//! * [`manager`]: runs controllers, webhooks and other tasks against one cluster
//! * [`controller`]: wires watches to a [`Reconciler`](controller::Reconciler), which has the logic
//! * [`context`]: reads, writes, time and events in a reconcile
//! * [`action`]: the result of a reconcile, and the retry after an error
//! * [`predicate`]: filters for changes
//! * [`view`]: types with the fields that the cache keeps
//! * [`webhook`], [`conversion`]: admission webhooks, versions of a kind
//! * [`schema`]: properties of CRD schemas
//! * [`apply_configuration`]: types for server-side apply
//! * [`rbac`]: rules of the operator's role
//! * [`condition`], [`owner`], [`finalizer`], [`name`], [`create_backoff`], [`wait`]: helpers for statuses, children,
//!   deletion, names and waiting
//!
//! Modules below them:
//! * [`cache`]: the watched objects, shared by all controllers
//! * [`queue`]: the keys that wait for a run
//! * [`client`]: requests and their errors
//! * [`event`]: events about objects
//! * [`metrics`], [`metrics_server`], [`probe`]: endpoints for Prometheus and the kubelet
//! * [`trace`]: the recent runs of each key, with trigger, requests and result
//! * [`args`], [`exit`], [`log`], [`signal`]: flags, exit, logs and signals of the process; with the cargo feature
//!   `opentelemetry`, `telemetry` exports spans, and with `profiling`, `profile` serves CPU profiles
//! * [`leader`]: leader election; [`shard`]: keys divided among active replicas

pub use kubewright_apimachinery::{clock, random};

pub mod action;
pub mod apply_configuration;
pub mod args;
pub mod cache;
pub mod client;
pub mod condition;
pub mod context;
pub mod controller;
pub mod conversion;
pub mod create_backoff;
pub mod event;
pub mod exit;
pub mod finalizer;
mod http;
pub mod leader;
mod limit;
pub mod log;
pub mod manager;
pub mod metrics;
pub mod metrics_server;
pub mod name;
pub mod object;
pub mod owner;
mod panic;
pub mod predicate;
pub mod probe;
mod process;
#[cfg(feature = "profiling")]
pub mod profile;
pub mod queue;
pub mod rbac;
mod runnable;
pub mod schema;
pub mod shard;
pub mod signal;
#[cfg(feature = "opentelemetry")]
pub mod telemetry;
mod tls;
pub mod trace;
pub mod view;
pub mod wait;
pub mod webhook;
