//! The operator from outside: its manifests, and its behaviour on the embedded cluster. Tests whose names begin with
//! `row_` are the rows of the project's table of faults and bad inputs.

mod behind;
mod crash;
mod deployed;
mod every;
mod manifests;
mod pods;
mod real;
mod scene;
