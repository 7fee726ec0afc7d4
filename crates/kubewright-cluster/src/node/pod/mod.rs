//! The lifecycle of a pod: decisions ([`machine`], [`probe`]), status ([`status`]), and execution ([`worker`], [`run`],
//! [`prober`]).

pub(crate) mod container;
pub(crate) mod machine;
pub(crate) mod probe;
pub(crate) mod prober;
pub(crate) mod run;
pub(crate) mod status;

pub(crate) mod worker;

#[cfg(test)]
mod tests;
