//! The implementation of cryptography.

use rustls::crypto::CryptoProvider;

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("enable one of the features `ring`, `aws-lc-rs` and `fips`");

/// Returns the implementation of cryptography for TLS, as the features choose it: with `fips` the module of `aws-lc-rs`
/// that is validated for FIPS 140-3, with `aws-lc-rs` the usual one, otherwise `ring`.
///
/// A program with `ring` alone contains no other. Features add up in a build, so one that also has a dependency with
/// `ring`, such as the embedded cluster of its tests, contains both, and uses this one.
pub fn crypto_provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc-rs")]
    return rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    return rustls::crypto::ring::default_provider();
}

/// Makes [`crypto_provider`] that of the process, unless the program has installed one: rustls can't choose if it is
/// built with both.
pub(crate) fn install() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed one meanwhile.
        let _ = crypto_provider().install_default();
    }
}
