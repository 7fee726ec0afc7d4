//! The operator of a project: its program is found, built if need be, and asked what it would do.

mod ask;
mod build;
mod package;
mod target;

pub(crate) use self::{
    ask::ask,
    build::{build, build_static, cargo_build, fresh, program_of},
    package::Package,
    target::{Target, remedy},
};
