//! The operator of a project: its program is found, built if need be, and asked what it would do.

mod ask;
mod build;
mod package;

pub(crate) use self::{ask::ask, build::build, package::Package};
