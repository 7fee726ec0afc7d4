//! A registry for tests that follows distribution-spec, checks digests, and issues tokens. Tests of the command use this file, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// The header value for `me:secret`.
const KNOWN: &str = "Basic bWU6c2VjcmV0";

/// What a registry has, and how it behaves.
#[derive(Default)]
pub(crate) struct State {
    /// Whether it has the referrers API.
    pub(crate) tracks: bool,
    /// Whether it rejects all manifests.
    pub(crate) full: bool,
    /// Whether it reports a wrong digest.
    pub(crate) broken: bool,
    /// The blobs, by digest.
    pub(crate) blobs: BTreeMap<String, Bytes>,
    /// The manifests and their media types, by tag and by digest.
    pub(crate) manifests: BTreeMap<String, (String, Bytes)>,
    /// The digests that referrers refer to.
    pub(crate) referred: BTreeSet<String>,
    /// The methods and paths of requests.
    pub(crate) seen: Vec<String>,
}

/// A registry on this machine.
pub(crate) struct Registry {
    /// The host and the port.
    pub(crate) address: String,
    pub(crate) state: Arc<Mutex<State>>,
    server: JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Registry {
    /// Starts a registry.
    pub(crate) async fn start(state: State) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (state, host) = (Arc::new(Mutex::new(state)), address.clone());
        let shared = state.clone();
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, host) = (shared.clone(), host.clone());
                let service = service_fn(move |request| answer(request, state.clone(), host.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, state, server }
    }
}

fn plain(status: u16) -> http::response::Builder {
    Response::builder().status(status)
}

fn refuse(status: u16, code: &str) -> Response<Full<Bytes>> {
    let errors = json!({"errors": [{"code": code, "message": "no"}]});
    plain(status).body(Full::new(errors.to_string().into())).unwrap()
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
    host: String,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut state = state.lock().unwrap();
    let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
    state.seen.push(format!("{} {path}", parts.method));
    let authorization = parts.headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    if path == "/token" {
        assert!(
            query.contains("service=cows") && query.contains("scope=repository%3Ame%2Fcow%3Apull%2Cpush"),
            "{query}"
        );
        return Ok(match authorization.as_deref() {
            Some(KNOWN) => plain(200).body(Full::new(json!({"token": "all"}).to_string().into())).unwrap(),
            Some(_) => refuse(401, "UNAUTHORIZED"),
            None => plain(200).body(Full::new(json!({"access_token": "read"}).to_string().into())).unwrap(),
        });
    }
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    match authorization.as_deref() {
        Some("Bearer all") => {}
        Some("Bearer read") if reads => {}
        Some("Bearer read") => return Ok(refuse(403, "DENIED")),
        _ => {
            let challenge =
                format!(r#"Bearer realm="http://{host}/token",service="cows",scope="repository:me/cow:pull""#);
            let mut refused = refuse(401, "UNAUTHORIZED");
            refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
            return Ok(refused);
        }
    }
    Ok(state.serve(&parts, &path, &query, body))
}

impl State {
    fn serve(&mut self, parts: &http::request::Parts, path: &str, query: &str, body: Bytes) -> Response<Full<Bytes>> {
        let rest = path.strip_prefix("/v2/me/cow/").unwrap();
        let empty = |answer: http::response::Builder| answer.body(Full::new(Bytes::new())).unwrap();
        if rest.starts_with("manifests/") && parts.method != Method::PUT {
            let accepted = parts.headers[header::ACCEPT].to_str().unwrap();
            assert!(accepted.contains("oci.image.manifest") && accepted.contains("oci.image.index"), "{accepted}");
        }
        match (parts.method.as_str(), rest.split_once('/').unwrap()) {
            ("HEAD", ("blobs", digest)) => empty(plain(if self.blobs.contains_key(digest) { 200 } else { 404 })),
            ("POST", ("blobs", "uploads/")) => {
                empty(plain(202).header(header::LOCATION, "/v2/me/cow/blobs/uploads/7?state=x%3D"))
            }
            ("PUT", ("blobs", "uploads/7")) => {
                let sent = query.strip_prefix("state=x%3D&digest=").unwrap().replace("%3A", ":");
                if digest(&body) != sent {
                    return refuse(400, "DIGEST_INVALID");
                }
                let kept = if self.broken { digest(b"else") } else { sent.clone() };
                self.blobs.insert(sent, body);
                empty(plain(201).header("docker-content-digest", kept))
            }
            ("PUT", ("manifests", name)) => {
                self.keep(name, parts.headers[header::CONTENT_TYPE].to_str().unwrap(), body)
            }
            ("GET", ("manifests", name)) => match self.manifests.get(name) {
                Some((form, body)) => {
                    plain(200).header(header::CONTENT_TYPE, form).body(Full::new(body.clone())).unwrap()
                }
                None => refuse(404, "MANIFEST_UNKNOWN"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn keep(&mut self, name: &str, form: &str, body: Bytes) -> Response<Full<Bytes>> {
        let manifest: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(manifest["mediaType"], form);
        if self.full {
            return refuse(507, "TOOMANYREQUESTS");
        }
        let layers = manifest["layers"].as_array().into_iter().flatten();
        let named = layers.chain(manifest.get("config")).map(|blob| blob["digest"].as_str().unwrap());
        if !named.into_iter().all(|digest| self.blobs.contains_key(digest)) {
            return refuse(400, "MANIFEST_BLOB_UNKNOWN");
        }
        let own = digest(&body);
        if name.starts_with("sha256:") && name != own {
            return refuse(400, "DIGEST_INVALID");
        }
        let mut answer = plain(201).header("docker-content-digest", &own);
        if let Some(subject) = manifest["subject"]["digest"].as_str().filter(|_| self.tracks) {
            self.referred.insert(subject.to_owned());
            answer = answer.header("oci-subject", subject);
        }
        self.manifests.insert(name.to_owned(), (form.to_owned(), body.clone()));
        self.manifests.insert(own, (form.to_owned(), body));
        answer.body(Full::new(Bytes::new())).unwrap()
    }
}

/// Returns the digest of bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in ring::digest::digest(&ring::digest::SHA256, bytes).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
