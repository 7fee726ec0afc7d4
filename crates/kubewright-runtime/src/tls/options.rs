//! What TLS servers agree to: versions and cipher suites.

use std::{fmt, str::FromStr, sync::Arc};

use kubewright_connect::crypto_provider;
use rustls::{
    ConfigBuilder, ServerConfig, SupportedCipherSuite, WantsVerifier,
    version::{TLS12, TLS13},
};
use thiserror::Error;

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// An unknown version of TLS.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown TLS version {0:?}: use VersionTLS12 or VersionTLS13")]
pub struct UnknownTlsVersion(String);

/// The names of Kubernetes' own flags, such as `VersionTLS13`.
impl FromStr for TlsVersion {
    type Err = UnknownTlsVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            text => Err(UnknownTlsVersion(text.into())),
        }
    }
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "VersionTLS12",
            Self::Tls13 => "VersionTLS13",
        })
    }
}

/// A cipher suite of TLS that the program knows.
#[derive(Clone, Copy, PartialEq)]
pub struct CipherSuite(SupportedCipherSuite);

impl Eq for CipherSuite {}

/// The cipher suite isn't known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown cipher suite {name:?}: known are {}", CipherSuite::names().join(", "))]
pub struct UnknownCipherSuite {
    name: String,
}

impl CipherSuite {
    fn all() -> impl Iterator<Item = Self> {
        crypto_provider().cipher_suites.into_iter().map(Self)
    }

    fn names() -> Vec<String> {
        Self::all().map(|suite| suite.to_string()).collect()
    }

    fn is_tls13(self) -> bool {
        self.0.tls13().is_some()
    }
}

/// The names of IANA and Go, such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`.
impl FromStr for CipherSuite {
    type Err = UnknownCipherSuite;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::all().find(|suite| suite.to_string() == text);
        found.ok_or_else(|| UnknownCipherSuite { name: text.into() })
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.suite().as_str().unwrap_or("unknown").replacen("TLS13_", "TLS_", 1);
        f.write_str(&name)
    }
}

impl fmt::Debug for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the TLS servers of a program agree to (controller-runtime: `TLSOpts`), for
/// [`WebhookServer::tls_options`](crate::webhook::WebhookServer::tls_options) and
/// [`MetricsServer::tls_options`](crate::metrics_server::MetricsServer::tls_options). The flags are `--tls-min-version`
/// and `--tls-cipher-suites`.
///
/// ```
/// # use kubewright_runtime::webhook::{TlsOptions, TlsVersion, WebhookServer};
/// # fn example(server: WebhookServer) -> WebhookServer {
/// server.tls_options(TlsOptions::new().min_version(TlsVersion::Tls13))
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    min_version: TlsVersion,
    cipher_suites: Vec<CipherSuite>,
}

impl TlsOptions {
    /// Returns the defaults: TLS 1.2 and 1.3 with all suites, of which each has forward secrecy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the oldest version.
    pub fn min_version(self, version: TlsVersion) -> Self {
        Self { min_version: version, ..self }
    }

    /// Restricts the suites of each version of which one is named; the suites of the other version remain.
    pub fn cipher_suites(self, suites: impl IntoIterator<Item = CipherSuite>) -> Self {
        Self { cipher_suites: suites.into_iter().collect(), ..self }
    }

    /// Returns the beginning of a server's configuration.
    pub(super) fn builder(&self) -> ConfigBuilder<ServerConfig, WantsVerifier> {
        let named = &self.cipher_suites;
        let restricted = |is_tls13: bool| named.iter().any(|suite| suite.is_tls13() == is_tls13);
        let mut provider = crypto_provider();
        provider.cipher_suites.retain(|suite| {
            let suite = CipherSuite(*suite);
            named.contains(&suite) || !restricted(suite.is_tls13())
        });
        let versions = match self.min_version {
            TlsVersion::Tls12 => vec![&TLS13, &TLS12],
            TlsVersion::Tls13 => vec![&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(provider));
        builder.with_protocol_versions(&versions).expect("each version keeps a suite")
    }
}

/// The flags of the TLS servers: webhooks and metrics.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(about = None, long_about = None)]
pub struct TlsArgs {
    /// Oldest TLS version of the webhooks and metrics: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value_t = TlsVersion::Tls12)]
    pub tls_min_version: TlsVersion,

    /// Cipher suites of the webhooks and metrics, separated by commas [default: all]
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<CipherSuite>,
}

impl TlsArgs {
    /// Returns the options that the flags describe.
    pub fn options(&self) -> TlsOptions {
        TlsOptions::new().min_version(self.tls_min_version).cipher_suites(self.tls_cipher_suites.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        tls: TlsArgs,
    }

    fn offered(arguments: &[&str]) -> Result<Vec<String>, String> {
        let program =
            Program::try_parse_from([&["operator"], arguments].concat()).map_err(|error| error.to_string())?;
        let config = program.tls.options().builder().with_no_client_auth();
        let config = config.with_cert_resolver(Arc::new(crate::tls::CertResolver::new("test")));
        let suites = config.crypto_provider().cipher_suites.iter().copied();
        Ok(suites.map(|suite| CipherSuite(suite).to_string()).collect())
    }

    #[test]
    fn suites_are_restricted_by_version() {
        assert_eq!(offered(&[]).unwrap().len(), CipherSuite::names().len());
        let old = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let restricted = offered(&["--tls-cipher-suites", old]).unwrap();
        assert!(restricted.iter().any(|name| name == "TLS_AES_128_GCM_SHA256"), "TLS 1.3 keeps its suites");
        assert_eq!(restricted.iter().filter(|name| name.contains("_WITH_")).collect::<Vec<_>>(), [old]);
        let both = offered(&["--tls-cipher-suites", &format!("{old},TLS_AES_256_GCM_SHA384")]).unwrap();
        assert_eq!(both, ["TLS_AES_256_GCM_SHA384", old]);
    }

    #[test]
    fn mistakes_are_named() {
        let error = offered(&["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"]).unwrap_err();
        assert!(error.contains("unknown cipher suite") && error.contains("TLS_AES_128_GCM_SHA256"), "{error}");
        let error = offered(&["--tls-min-version=1.3"]).unwrap_err();
        assert!(error.contains("use VersionTLS12 or VersionTLS13"), "{error}");
        assert!(offered(&["--tls-min-version=VersionTLS13"]).is_ok());
    }
}
