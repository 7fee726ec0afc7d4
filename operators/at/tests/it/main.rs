//! The operator from outside: its manifests, and its behaviour on the embedded cluster.

mod manifests;
