//! The operator from outside: its manifests, and its behaviour on the embedded cluster. Tests whose names begin with
//! `row_` are the rows of the project's table of faults and bad inputs. The tests themselves end the Jobs.

mod crash;
mod every;
#[path = "../../../at/tests/it/kit.rs"]
mod kit;
mod manifests;
mod rows;
mod scene;
