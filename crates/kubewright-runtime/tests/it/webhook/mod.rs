//! The runtime's webhooks, called by the embedded API server over real TLS.
//!
//! The tests run in real time, since they use sockets. The clock shared by API server and managers starts at a given
//! time, and jumps.

mod admission;
mod certificates;
mod conversion;
mod files;
mod migration;
mod role;
mod scene;
mod serving;
