//! The operator from outside: its manifests, and its behaviour on the embedded cluster. Tests whose names begin with
//! `row_` are the rows of the project's table of faults and bad inputs.

mod crash;
mod every;
#[path = "../../../at/tests/it/kit.rs"]
mod kit;
#[path = "../../../at/tests/it/kubelet.rs"]
mod kubelet;
mod manifests;
mod pods;
mod real;
mod scene;
