//! The embedded cluster: API server, built-in controllers and a node that runs pods as processes.

mod access;
mod controllers;
mod events;
pub mod faults;
mod node;
