//! The controller runtime: manager, caches, queue, controllers, events, probes, metrics.
//!
//! An event becomes a write on this way:
//!
//! ```text
//! watch (kube's watcher) → cache: store + indexes → predicate → mapper → queue (keys only) → worker
//!   → reconcile(ctx) → client (apply, status, events) → API server → watch …
//!                         └── read-your-writes barrier: the key's next run waits for its own writes to arrive
//! ```
//!
//! What an operator's author uses:
//! * [`manager`]: runs controllers against one cluster
//! * [`controller`]: wires what is watched to a [`Reconciler`](controller::Reconciler), which holds the logic
//! * [`context`]: what a reconcile reads, writes and knows
//! * [`action`]: when a key runs next
//! * [`webhook`]: defaults and validation, before an object is stored
//! * [`predicate`]: which changes count
//! * [`rbac`]: rules of the operator's role
//! * [`view`]: which fields are kept of what is watched
//! * [`condition`], [`owner`], [`finalizer`], [`name`], [`create_backoff`]: helpers for statuses, children, what keeps objects, names,
//!   and how fast children are replaced
//!
//! What those stand on:
//! * [`cache`]: the objects, watched once for all controllers
//! * [`queue`]: the keys that wait
//! * [`client`]: requests and their errors
//! * [`event`]: events about objects
//! * [`metrics`], [`probe`]: what Prometheus and the kubelet see
//! * [`trace`]: why a key was reconciled, what the run did, and why nothing happens
//! * [`args`], [`log`], [`signal`]: the process; with the cargo feature `opentelemetry`, `telemetry` sends spans to a collector
//! * [`leader`]: one active replica of several; [`shard`]: all of them active, each for a part of the keys

pub use kubewright_apimachinery::{clock, random};

pub mod action;
pub mod args;
pub mod cache;
pub mod client;
pub mod condition;
pub mod context;
pub mod controller;
pub mod conversion;
pub mod create_backoff;
pub mod event;
pub mod finalizer;
pub mod leader;
pub mod log;
pub mod manager;
pub mod metrics;
pub mod name;
pub mod object;
pub mod owner;
mod panic;
pub mod predicate;
pub mod probe;
pub mod queue;
pub mod rbac;
pub mod schema;
pub mod shard;
pub mod signal;
#[cfg(feature = "opentelemetry")]
pub mod telemetry;
pub mod trace;
pub mod view;
pub mod webhook;
