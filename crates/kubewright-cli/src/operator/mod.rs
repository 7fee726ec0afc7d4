//! The operator of a project: finding its program, building it, describing it and starting it.

mod arguments;
mod build;
mod describe;
mod package;
mod target;

pub(crate) use self::{
    arguments::OperatorArguments,
    build::{build, build_static, built_program, cargo_build, up_to_date},
    describe::describe,
    package::Package,
    target::{Target, install_hint},
};
