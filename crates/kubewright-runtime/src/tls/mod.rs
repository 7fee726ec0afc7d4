//! Serving certificates: read from files or self-managed, renewed, and resolved for TLS.
//!
//! A [`CertResolver`] resolves the certificate at each handshake, so a new certificate needs no restart of the server
//! and closes no connection. [`files`] and the webhooks' rotator set it; [`authority`] computes the content of a Secret
//! with self-managed certificates.

pub(crate) mod authority;
mod certificate;
mod certified_key;
pub(crate) mod files;
mod options;

use std::path::PathBuf;

pub use self::authority::KeySource;
pub(crate) use self::certified_key::{CertResolver, CertifiedKey};
pub use self::options::{CipherSuite, TlsArgs, TlsOptions, TlsVersion, UnknownCipherSuite, UnknownTlsVersion};

/// The source of a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Two PEM files written by another program, such as cert-manager. They are read again when they change.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The file with the certificate, followed by its intermediate certificates.
        certificate: String,
        /// The file with the key.
        key: String,
    },
    /// A certificate that the program issues and renews itself. For webhooks, the certificate and its authority are
    /// stored in a Secret, and the authority is written into the webhook configurations.
    SelfManaged,
}
