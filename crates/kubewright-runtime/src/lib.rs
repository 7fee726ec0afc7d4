//! The controller runtime: manager, caches, queue, controllers, events, probes, metrics.

pub mod condition;
pub mod event;
pub mod metrics;
pub mod name;
pub mod owner;
