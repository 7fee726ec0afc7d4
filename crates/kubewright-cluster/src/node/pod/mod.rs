//! One pod on the node: what has to happen ([`machine`]), how it looks ([`status`]), and who does it ([`worker`]).

pub(crate) mod container;
pub(crate) mod machine;
pub(crate) mod status;

#[cfg(test)]
mod tests;
