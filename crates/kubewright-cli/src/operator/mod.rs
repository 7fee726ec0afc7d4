//! The operator of a project: locating, building, describing and starting its program.

mod arguments;
mod build;
mod describe;
mod package;
mod placement;
mod target;

pub(crate) use self::{
    arguments::OperatorArguments,
    build::{build, build_static, built_program, cargo_build, up_to_date},
    describe::describe,
    package::{Package, cargo},
    target::{Target, install_hint},
};
