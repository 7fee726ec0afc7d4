//! The API of the operator: the group `webapp.my.domain`, one module for each version.

pub mod v1;
