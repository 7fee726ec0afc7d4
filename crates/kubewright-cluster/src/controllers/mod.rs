//! The built-in controllers.
pub(crate) mod accounts;
pub(crate) mod deletion;
pub(crate) mod garbage;
pub(crate) mod retry;
pub(crate) mod scheduler;
