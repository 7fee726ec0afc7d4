//! The runtime's webhooks, asked by the embedded API server over real TLS.
//!
//! Time is real, since sockets are; the clock that API server and managers share begins where it is told, and jumps.

mod certificates;
mod conversion;
mod files;
mod migration;
mod role;
mod scene;
mod serving;
