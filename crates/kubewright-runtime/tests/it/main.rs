//! The runtime against processes, sockets and the embedded cluster.

mod event;
mod leader;
mod signal;
