//! The controller runtime: manager, caches, queue, controllers, events, probes, metrics.

pub mod args;
pub mod condition;
pub mod event;
pub mod leader;
pub mod log;
pub mod metrics;
pub mod name;
pub mod owner;
pub mod probe;
pub mod signal;
