//! Serving certificates: read from files or made here, renewed, and handed to TLS.
//!
//! TLS asks a [`CertResolver`] for the certificate at each handshake, so a new certificate needs no new server and closes no
//! connection. [`files`] and the webhooks' rotator set it; [`authority`] decides what a Secret of self-managed certificates
//! should hold.

pub(crate) mod authority;
mod certified_key;
pub(crate) mod files;

use std::path::PathBuf;

pub(crate) use self::certified_key::{CertResolver, CertifiedKey};

/// The source of a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Two files in PEM that something else writes, such as cert-manager. They are read again when they change.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The file with the certificate, followed by its intermediate certificates.
        certificate: String,
        /// The file with the key.
        key: String,
    },
    /// A certificate that the program makes and renews itself. For webhooks, it and its authority are kept in a Secret, and
    /// the authority is written into the webhook configurations.
    SelfManaged,
}
