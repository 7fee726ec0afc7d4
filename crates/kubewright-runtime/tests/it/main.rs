//! Tests of the runtime with processes, sockets and the embedded cluster.

mod cache;
mod client;
mod clusters;
mod connect;
mod controller;
mod dynamic;
mod endurance;
mod event;
mod faults;
mod handles;
mod helpers;
mod keyed;
mod leader;
mod lifecycle;
mod manager;
mod metrics;
mod order;
#[cfg(feature = "profiling")]
mod profile;
mod read_your_writes;
mod requests;
mod schema;
mod shard;
mod signal;
mod takeover;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod threads;
mod trace;
mod views;
mod watching;
mod webhook;
mod workspace;
mod world;
