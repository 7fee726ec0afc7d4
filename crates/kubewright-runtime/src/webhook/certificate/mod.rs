//! The serving certificate: read, made, renewed, handed to TLS.
//!
//! [`Slot`] is what TLS asks at each handshake, so a new certificate needs no new server and cuts no connection. Who fills
//! it: [`files`] from a directory, [`keeper`] from a Secret; [`authority`] decides what that Secret should hold.

pub(crate) mod authority;
pub(super) mod bundle;
pub(crate) mod files;
pub(super) mod keeper;
mod pair;

pub(crate) use self::pair::{Pair, Slot};
