//! The lifecycle of a pod: decisions ([`machine`], [`probe`]), status ([`status`]), execution ([`worker`],
//! [`mod@prepare`], [`run`], [`prober`]), and limits of local storage ([`storage`]).

pub(crate) mod container;
mod directory;
mod grpc;
mod http_target;
pub(crate) mod machine;
pub(crate) mod prepare;
pub(crate) mod probe;
pub(crate) mod prober;
mod resize;
mod restart;
mod resume;
pub(crate) mod run;
mod spec;
pub(crate) mod status;
mod storage;
mod termination;
mod view;
mod volumes;
pub(crate) mod worker;

#[cfg(test)]
mod tests;
