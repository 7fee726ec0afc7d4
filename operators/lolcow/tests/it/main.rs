//! The operator from outside: its manifests, and its behaviour on the embedded cluster. Tests whose names begin with
//! `row_` are the rows of the project's table of faults and bad inputs. But for `browser`, `deployed` and `real`, pods are simulated.

mod browser;
mod deployed;
mod every;
mod manifests;
mod page;
mod real;
mod rows;
mod scene;
