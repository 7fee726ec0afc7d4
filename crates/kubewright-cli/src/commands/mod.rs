//! The commands, one module each.

pub(crate) mod alpha;
pub(crate) mod build;
pub(crate) mod bundle;
mod bundle_run;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deploy;
pub(crate) mod dev;
pub(crate) mod edit;
pub(crate) mod envtest;
pub(crate) mod explain;
pub(crate) mod generate;
pub(crate) mod image;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod installer;
mod kind_name;
pub(crate) mod manifests;
pub(crate) mod plugin;
pub(crate) mod run;
pub(crate) mod scorecard;
pub(crate) mod simulate;
pub(crate) mod version;
