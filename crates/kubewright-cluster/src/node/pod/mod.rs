//! One pod on the node: what has to happen ([`machine`], [`probe`]), how it looks ([`status`]), and who does it ([`worker`],
//! [`run`], [`check`]).

pub(crate) mod check;
pub(crate) mod container;
pub(crate) mod machine;
pub(crate) mod probe;
pub(crate) mod run;
pub(crate) mod status;

pub(crate) mod worker;

#[cfg(test)]
mod tests;
