//! The options of the webhook server.

use std::{path::PathBuf, sync::Arc, time::Duration};

use kubewright_apimachinery::name;
use kubewright_connect::crypto_provider;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use thiserror::Error;

use crate::{
    http::BindAddress,
    process::program_name,
    tls::{Certificates, TlsOptions},
};

/// The interval between checks of certificates, Secret and configurations.
const INTERVAL: Duration = Duration::from_secs(10);

/// A webhook server, for [`Manager::webhook_server`](crate::manager::Manager::webhook_server). [`WebhookArgs`] makes
/// one from flags.
#[derive(Clone, Debug)]
pub struct WebhookServer {
    pub(crate) address: BindAddress,
    pub(crate) certificates: Certificates,
    pub(crate) tls_options: TlsOptions,
    pub(crate) name: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) publish: Publish,
    pub(crate) interval: Duration,
    pub(crate) client_authorities: Option<PathBuf>,
}

/// Verifies the certificates of clients.
pub(crate) type ClientVerifier = Arc<dyn ClientCertVerifier>;

/// The certificate authorities of clients can't be read.
#[derive(Debug, Error)]
#[error("can't read certificate authorities from {}: {why}; pass a file of certificates in PEM with --webhook-client-ca-path", path.display())]
pub struct ClientAuthoritiesError {
    path: PathBuf,
    why: String,
}

/// The installation of the configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// By manifest; only the authority is written into them.
    No,
    /// By the server, with this URL.
    Url(String),
    /// By the server, with the address that it listens on.
    Address,
}

impl WebhookServer {
    /// Creates a server at this address with self-managed certificates, for configurations that are installed by
    /// manifest.
    pub fn new(address: BindAddress) -> Self {
        Self {
            address,
            certificates: Certificates::SelfManaged,
            tls_options: TlsOptions::new(),
            name: None,
            service: None,
            namespace: None,
            publish: Publish::No,
            interval: INTERVAL,
            client_authorities: None,
        }
    }

    /// Creates a server on a free port of loopback that installs its configurations, for tests and demos in one process
    /// with an embedded cluster. They are removed when the manager stops.
    pub fn local() -> Self {
        Self { publish: Publish::Address, ..Self::new(BindAddress::Host("127.0.0.1".into(), 0)) }
    }

    /// Sets the prefix of object names, by default the name of the program: the configurations
    /// `<name>-mutating-webhook-configuration` and `<name>-validating-webhook-configuration`, the Secret
    /// `<name>-webhook-server-cert`, the Service `<name>-webhook-service`.
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the name of the Service, if it is another.
    pub fn service(self, service: &str) -> Self {
        Self { service: Some(service.into()), ..self }
    }

    /// Sets the namespace of the Service and the Secret; by default the pod's, or the kubeconfig context's.
    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Sets the source of the certificate.
    pub fn certificates(self, certificates: Certificates) -> Self {
        Self { certificates, ..self }
    }

    /// Sets the versions and cipher suites that the server agrees to.
    pub fn tls_options(self, options: TlsOptions) -> Self {
        Self { tls_options: options, ..self }
    }

    /// Installs the configurations with this URL, such as `https://127.0.0.1:9443`, if certificates are self-managed.
    pub fn url(self, url: &str) -> Self {
        Self { publish: Publish::Url(url.into()), ..self }
    }

    /// Requires client certificates of the authorities in this PEM file, which is read once, like controller-runtime's
    /// `ClientCAName`. By default every client is answered. The API server presents a certificate if its
    /// `--admission-control-config-file` says so:
    /// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers>.
    pub fn client_authorities(self, file: impl Into<PathBuf>) -> Self {
        Self { client_authorities: Some(file.into()), ..self }
    }

    /// Sets how often files, Secret and configurations are checked and corrected. Default: 10 s. Self-managed
    /// certificates cost three requests of single objects each time, files none.
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Returns the verifier of client certificates; `None` if none are required.
    pub(crate) fn callers(&self) -> Result<Option<ClientVerifier>, ClientAuthoritiesError> {
        let Some(path) = &self.client_authorities else { return Ok(None) };
        let error = |why: String| ClientAuthoritiesError { path: path.clone(), why };
        let text = std::fs::read(path).map_err(|why| error(why.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|why| error(why.to_string()))?;
            roots.add(certificate).map_err(|why| error(why.to_string()))?;
        }
        let provider = Arc::new(crypto_provider());
        let callers = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        callers.map(Some).map_err(|why| error(why.to_string()))
    }

    pub(crate) fn names(&self) -> Names {
        let names = Names::of(self.name.as_deref().unwrap_or(&program_name()));
        Names { service: self.service.clone(), ..names }
    }
}

/// The names of the objects for webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    base: String,
    service: Option<String>,
}

impl Names {
    pub(crate) fn of(base: &str) -> Self {
        Self { base: base.into(), service: None }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn mutating(&self) -> String {
        self.prefixed("mutating-webhook-configuration")
    }

    pub(crate) fn validating(&self) -> String {
        self.prefixed("validating-webhook-configuration")
    }

    pub(crate) fn secret(&self) -> String {
        self.prefixed("webhook-server-cert")
    }

    pub(crate) fn service(&self) -> String {
        self.service.clone().unwrap_or_else(|| self.prefixed("webhook-service"))
    }

    fn prefixed(&self, name: &str) -> String {
        if self.base.is_empty() { name.into() } else { format!("{}-{name}", self.base) }
    }
}

/// The flags of the webhook server. They have no effect in an operator without webhooks.
#[derive(Clone, Debug, clap::Args)]
#[command(about = None, long_about = None)]
pub struct WebhookArgs {
    /// Address of the webhooks: host:port, :port for all interfaces, or 0 for no server
    #[arg(long, value_name = "ADDRESS", default_value = ":9443")]
    pub webhook_bind_address: BindAddress,

    /// Directory with the serving certificate [default: a self-managed certificate in a Secret]
    #[arg(long, value_name = "DIRECTORY")]
    pub webhook_cert_path: Option<PathBuf>,

    /// File name of the certificate in --webhook-cert-path
    #[arg(long, value_name = "FILE", default_value = "tls.crt")]
    pub webhook_cert_name: String,

    /// File name of the key in --webhook-cert-path
    #[arg(long, value_name = "FILE", default_value = "tls.key")]
    pub webhook_cert_key: String,

    /// File with certificate authorities of clients [default: no client certificates are required]
    #[arg(long, value_name = "FILE")]
    pub webhook_client_ca_path: Option<PathBuf>,

    /// Prefix of the webhooks' objects: NAME-webhook-server-cert, NAME-webhook-service,
    /// NAME-mutating-webhook-configuration, NAME-validating-webhook-configuration [default: the program's name]
    #[arg(long, value_name = "NAME", env = "WEBHOOK_NAME", value_parser = label)]
    pub webhook_name: Option<String>,

    /// Service through which the API server calls the webhooks [default: NAME-webhook-service]
    #[arg(long, value_name = "NAME", env = "WEBHOOK_SERVICE_NAME", value_parser = label)]
    pub webhook_service_name: Option<String>,

    /// Namespace of that Service and of the Secret [default: the pod's, or the kubeconfig context's]
    #[arg(long, value_name = "NAMESPACE", env = "WEBHOOK_SERVICE_NAMESPACE", value_parser = label)]
    pub webhook_service_namespace: Option<String>,

    /// For development outside of the cluster: install the webhook configurations with this URL, such as
    /// https://127.0.0.1:9443, and remove them at the end
    #[arg(long, value_name = "URL", value_parser = url, conflicts_with = "webhook_cert_path")]
    pub webhook_url: Option<String>,
}

impl WebhookArgs {
    /// Returns the server that the flags describe.
    pub fn server(&self) -> WebhookServer {
        let certificates = match &self.webhook_cert_path {
            Some(path) => Certificates::Directory {
                path: path.clone(),
                certificate: self.webhook_cert_name.clone(),
                key: self.webhook_cert_key.clone(),
            },
            None => Certificates::SelfManaged,
        };
        WebhookServer {
            name: self.webhook_name.clone(),
            service: self.webhook_service_name.clone(),
            namespace: self.webhook_service_namespace.clone(),
            client_authorities: self.webhook_client_ca_path.clone(),
            publish: self.webhook_url.clone().map_or(Publish::No, Publish::Url),
            ..WebhookServer::new(self.webhook_bind_address.clone()).certificates(certificates)
        }
    }
}

fn label(text: &str) -> Result<String, String> {
    let wrong = name::dns1123_label(text);
    if wrong.is_empty() { Ok(text.into()) } else { Err(format!("invalid name {text:?}: {}", wrong.join("; "))) }
}

fn url(text: &str) -> Result<String, String> {
    host(text).map(|_| text.trim_end_matches('/').into())
}

/// Returns the host of a webhook server's URL, which has the scheme https and no path.
pub(crate) fn host(url: &str) -> Result<String, String> {
    let uri: http::Uri = url.parse().map_err(|error| format!("invalid URL {url:?}: {error}"))?;
    let host = uri.host().map(|host| host.trim_matches(['[', ']']).to_owned());
    match host {
        Some(host) if uri.scheme_str() == Some("https") && matches!(uri.path(), "" | "/") && uri.query().is_none() => {
            Ok(host)
        }
        _ => Err(format!("invalid URL {url:?} of a webhook server: use https://host:port")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        webhook: WebhookArgs,
    }

    fn parse(arguments: &[&str]) -> Result<WebhookServer, clap::Error> {
        let program = Program::try_parse_from([&["operator"], arguments].concat())?;
        Ok(program.webhook.server())
    }

    #[test]
    fn defaults_are_controller_runtimes() {
        let server = parse(&[]).unwrap();
        assert_eq!(server.address, BindAddress::AllInterfaces(9443));
        assert_eq!((server.certificates, server.publish), (Certificates::SelfManaged, Publish::No));
        let server = parse(&["--webhook-cert-path=/certs", "--webhook-cert-key=my.key"]).unwrap();
        let (certificate, key) = ("tls.crt".into(), "my.key".into());
        assert_eq!(server.certificates, Certificates::Directory { path: "/certs".into(), certificate, key });
    }

    #[test]
    fn names_follow_one_name() {
        let names = parse(&["--webhook-name=cronjob"]).unwrap().names();
        assert_eq!(
            [names.secret(), names.service(), names.mutating(), names.validating()],
            [
                "cronjob-webhook-server-cert",
                "cronjob-webhook-service",
                "cronjob-mutating-webhook-configuration",
                "cronjob-validating-webhook-configuration"
            ]
        );
        let names = parse(&["--webhook-name=cronjob", "--webhook-service-name=hooks"]).unwrap().names();
        assert_eq!((names.service(), names.secret()), ("hooks".into(), "cronjob-webhook-server-cert".into()));
    }

    #[test]
    fn a_url_is_checked() {
        assert_eq!(host("https://127.0.0.1:9443"), Ok("127.0.0.1".into()));
        assert_eq!(host("https://[::1]:9443/"), Ok("::1".into()));
        for bad in ["http://127.0.0.1:9443", "https://a/b", "https://a?b", "127.0.0.1:9443", "", "https://"] {
            let error = parse(&["--webhook-url", bad]).unwrap_err().to_string();
            assert!(error.contains("--webhook-url"), "{error}");
        }
        assert!(parse(&["--webhook-url=https://a", "--webhook-cert-path=/b"]).is_err());
    }
}
