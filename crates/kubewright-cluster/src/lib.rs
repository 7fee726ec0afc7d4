//! The embedded cluster: API server, built-in controllers and a node that runs pods as processes.

pub mod faults;
