//! Requests to a registry, with authentication.

use std::{error::Error, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy::Client as Legacy, rt::TokioExecutor};
use kubewright_connect::{Connector, Proxies};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use serde::Deserialize;

use super::{
    RegistryError,
    challenge::{Challenge, query},
    credentials::Credentials,
    reference::Reference,
};

/// The maximum size of a response in bytes. Manifests and tokens have a few kilobytes.
const LONGEST_RESPONSE: usize = 4 << 20;

/// The timeout of a request. It is extended by the same time for each [`SLOWEST`] bytes of the body or of the blob.
const TIMEOUT: Duration = Duration::from_secs(30);
const SLOWEST: usize = 1 << 20;

/// The most redirections of a download.
const REDIRECTIONS: usize = 5;

/// The media types of manifests. Without them, a registry may answer that it has no manifest.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";

/// A client for one repository.
pub(super) struct Client {
    http: Legacy<HttpsConnector<Connector>, Full<Bytes>>,
    base: Uri,
    reference: Reference,
    credentials: Option<Credentials>,
    authorization: Option<HeaderValue>,
    /// Whether manifests and blobs are written.
    is_push: bool,
    /// Another repository, whose blobs are mounted.
    source: Option<String>,
    /// The size of the blob that is downloaded.
    download: usize,
}

/// The content of a request.
#[derive(Clone)]
pub(super) struct Content<'a> {
    pub(super) media_type: &'a str,
    pub(super) bytes: Bytes,
    /// The position of a chunk in its blob.
    pub(super) offset: Option<usize>,
}

impl<'a> Content<'a> {
    /// Creates content that is not a chunk.
    pub(super) fn new(media_type: &'a str, bytes: impl Into<Bytes>) -> Self {
        Self { media_type, bytes: bytes.into(), offset: None }
    }
}

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Client {
    pub(super) fn new(
        reference: &Reference,
        credentials: Option<Credentials>,
        plain: bool,
    ) -> Result<Self, RegistryError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| RegistryError::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = Connector::new(Proxies::from_env(), config.clone());
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        let connector = https.wrap_connector(connector);
        let scheme = if plain || reference.is_local() { "http" } else { "https" };
        let base = format!("{scheme}://{}/", reference.host());
        let base = base.parse().map_err(|_| RegistryError::Address(base))?;
        let http = Legacy::builder(TokioExecutor::new()).build(connector);
        let reference = reference.clone();
        Ok(Self { http, base, reference, credentials, authorization: None, is_push: true, source: None, download: 0 })
    }

    /// Also requests access to another repository, whose blobs are mounted.
    pub(super) fn with_source(self, source: Option<&str>) -> Self {
        Self { source: source.map(ToOwned::to_owned), ..self }
    }

    /// Requests access for reading only.
    pub(super) fn for_reading(self) -> Self {
        Self { is_push: false, ..self }
    }

    /// Returns the URL of a path in the repository.
    pub(super) fn address(&self, path: &str) -> String {
        format!("{}v2/{}/{path}", self.base, self.reference.repository)
    }

    /// Resolves a `Location`: a URL, or a path of the registry.
    pub(super) fn follow(&self, location: &str) -> String {
        if location.contains("://") {
            return location.to_owned();
        }
        format!("{}{}", self.base, location.trim_start_matches('/'))
    }

    /// Sends a request, and repeats it with authentication after a response with status 401.
    pub(super) async fn send(
        &mut self,
        method: &Method,
        address: &str,
        content: Option<Content<'_>>,
    ) -> Result<Response, RegistryError> {
        let response = self.once(method, address, content.clone()).await?;
        if response.status != StatusCode::UNAUTHORIZED || !self.is_ours(address) {
            return Ok(response);
        }
        let asked = response.headers.get_all(header::WWW_AUTHENTICATE).iter();
        let challenge = asked.filter_map(|header| Challenge::parse(header.to_str().ok()?)).next();
        let challenge = challenge.ok_or_else(|| RegistryError::Challenge(self.reference.registry.clone()))?;
        self.authorization = Some(self.authenticate(&challenge).await?);
        self.once(method, address, content).await
    }

    /// Downloads a blob of a known size. A registry may redirect to other hosts, which don't receive the token.
    pub(super) async fn download(&mut self, address: &str, size: usize) -> Result<Response, RegistryError> {
        self.download = size;
        let mut address = address.to_owned();
        for _ in 0..=REDIRECTIONS {
            let response = self.send(&Method::GET, &address, None).await?;
            let location = response.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
            let Some(location) = location.filter(|_| response.status.is_redirection()) else { return Ok(response) };
            let next = self.follow(location);
            if address.starts_with("https://") && !next.starts_with("https://") {
                return Err(RegistryError::Unreachable { address, why: format!("it redirects to {next} without TLS") });
            }
            address = next;
        }
        Err(RegistryError::Unreachable { address, why: format!("it redirects more than {REDIRECTIONS} times") })
    }

    async fn authenticate(&self, challenge: &Challenge) -> Result<HeaderValue, RegistryError> {
        let registry = || self.reference.registry.clone();
        let text = match (challenge, &self.credentials) {
            (Challenge::Basic, Some(Credentials::Password { user, password })) => basic(user, password),
            (Challenge::Basic, _) => return Err(RegistryError::Login { registry: registry() }),
            (Challenge::Bearer { realm, service, scope }, credentials) => {
                let token = self.token(realm, service.as_deref(), scope.as_deref(), credentials.as_ref()).await?;
                format!("Bearer {token}")
            }
        };
        let mut value =
            HeaderValue::try_from(text).map_err(|_| RegistryError::Token { registry: registry(), status: None })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Requests a token for the repository, and for that of mounts. A registry may refuse a token for both because of
    /// the other repository; then blobs are not mounted.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
        credentials: Option<&Credentials>,
    ) -> Result<String, RegistryError> {
        let actions = if self.is_push { "pull,push" } else { "pull" };
        let own = format!("repository:{}:{actions}", self.reference.repository);
        if let Some(source) = &self.source {
            let both = [own.as_str(), &format!("repository:{source}:pull")];
            match self.token_for(realm, service, &both, credentials).await {
                Err(RegistryError::Login { .. }) => {}
                result => return result,
            }
        }
        // The scope in the challenge is for a single request, usually a read. The next request would need another
        // token.
        let scope =
            scope.filter(|scope| scope.contains("push") && self.is_push && self.source.is_none()).unwrap_or(&own);
        self.token_for(realm, service, &[scope], credentials).await
    }

    /// Requests a token by the distribution token protocol: with `GET` for a password or anonymous access, and with
    /// `POST` for an identity token (OAuth 2).
    async fn token_for(
        &self,
        realm: &str,
        service: Option<&str>,
        scopes: &[&str],
        credentials: Option<&Credentials>,
    ) -> Result<String, RegistryError> {
        let mut pairs: Vec<_> = service.map(|service| ("service", service)).into_iter().collect();
        // Secrets are only sent over TLS, unless the registry itself is used without TLS.
        if credentials.is_some() && self.base.scheme_str() == Some("https") && !realm.starts_with("https://") {
            return Err(RegistryError::Clear { registry: self.reference.registry.clone(), realm: realm.to_owned() });
        }
        let response = match credentials {
            Some(Credentials::Identity(identity)) => {
                let scope = scopes.join(" ");
                pairs.extend([
                    ("scope", scope.as_str()),
                    ("grant_type", "refresh_token"),
                    ("refresh_token", identity),
                    ("client_id", "kubewright"),
                ]);
                let form = Content::new("application/x-www-form-urlencoded", query(&pairs));
                self.exchange(&Method::POST, realm, Some(form), None).await?
            }
            other => {
                pairs.extend(scopes.iter().map(|scope| ("scope", *scope)));
                let joint = if realm.contains('?') { '&' } else { '?' };
                let address = format!("{realm}{joint}{}", query(&pairs));
                let password = match other {
                    Some(Credentials::Password { user, password }) => Some(basic(user, password)),
                    _ => None,
                };
                let password = password.and_then(|text| HeaderValue::try_from(text).ok());
                self.exchange(&Method::GET, &address, None, password.as_ref()).await?
            }
        };
        let registry = || self.reference.registry.clone();
        if matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(RegistryError::Login { registry: registry() });
        }
        let token = serde_json::from_slice::<Token>(&response.body).ok().filter(|_| response.status.is_success());
        let token = token.and_then(|token| token.token.or(token.access_token));
        token.ok_or_else(|| RegistryError::Token { registry: registry(), status: Some(response.status) })
    }

    async fn once(
        &self,
        method: &Method,
        address: &str,
        content: Option<Content<'_>>,
    ) -> Result<Response, RegistryError> {
        // An upload may be redirected to another host, which must not receive the token.
        let authorization = self.authorization.as_ref().filter(|_| self.is_ours(address));
        self.exchange(method, address, content, authorization).await
    }

    fn is_ours(&self, address: &str) -> bool {
        let address = address.parse::<Uri>();
        address.is_ok_and(|uri| uri.authority() == self.base.authority() && uri.scheme() == self.base.scheme())
    }

    async fn exchange(
        &self,
        method: &Method,
        address: &str,
        content: Option<Content<'_>>,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, RegistryError> {
        let failed = |why: String| RegistryError::Unreachable { address: address.to_owned(), why };
        let mut request = Request::builder().method(method).uri(address);
        request = request.header(header::USER_AGENT, concat!("kubewright/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if method != Method::PUT && address.contains("/manifests/") {
            request = request.header(header::ACCEPT, MANIFESTS);
        }
        let body = match content {
            Some(Content { media_type, bytes, offset }) => {
                request = request.header(header::CONTENT_TYPE, media_type);
                if let Some(offset) = offset {
                    let range = format!("{offset}-{}", (offset + bytes.len()).saturating_sub(1));
                    request = request.header(header::CONTENT_RANGE, range);
                }
                bytes
            }
            None => Bytes::new(),
        };
        let longest = LONGEST_RESPONSE.max(self.download);
        let limit = TIMEOUT * u32::try_from(1 + body.len().max(self.download) / SLOWEST).unwrap_or(u32::MAX);
        let request = request.body(Full::new(body)).map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let (parts, body) = self.http.request(request).await.map_err(|error| failed(words(&error)))?.into_parts();
            let body =
                Limited::new(body, longest).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
                    true => failed(format!("the response is longer than {longest} bytes")),
                    false => failed(words(&*error)),
                })?;
            Ok(Response { status: parts.status, headers: parts.headers, body: body.to_bytes() })
        };
        let in_time = tokio::time::timeout(limit, exchange).await;
        in_time.unwrap_or_else(|_| Err(failed(format!("no response within {}s", limit.as_secs()))))
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Joins the messages of an error and its sources, without repetitions.
fn words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
