//! One module a command.

pub(crate) mod cluster;
pub(crate) mod create;
pub(crate) mod edit;
pub(crate) mod init;
pub(crate) mod manifests;
