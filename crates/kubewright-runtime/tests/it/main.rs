//! The runtime against processes, sockets and the embedded cluster.

mod signal;
