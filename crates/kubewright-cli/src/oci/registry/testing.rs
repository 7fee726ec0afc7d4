//! A registry for tests that follows distribution-spec, checks digests, and issues tokens. Tests of the command use
//! this file, too.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    io,
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

/// How a registry answers a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// As it should.
    None,
    /// With this status, after it stored nothing.
    Nothing(u16),
    /// With this status, after it stored half of the chunk.
    Half(u16),
    /// With this status, after it stored the chunk.
    Whole(u16),
    /// Not at all: it stores half of the chunk, and closes the connection.
    Disconnect,
    /// With the status 500, after it forgot the upload.
    Lost,
}

/// How a registry answers requests to mount blobs of the repository `me/calf`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mounts {
    /// It mounts those that it has, and begins an upload of others.
    #[default]
    Done,
    /// It begins an upload.
    Upload,
    /// It denies them.
    Refused,
    /// It gives no token for the other repository, and begins an upload.
    NoToken,
}

/// What a registry has, and how it behaves.
#[derive(Default)]
pub(crate) struct State {
    /// Whether it has the referrers API.
    pub(crate) tracks: bool,
    /// Whether it rejects all manifests.
    pub(crate) full: bool,
    /// Whether it reports a wrong digest.
    pub(crate) broken: bool,
    /// The size of the smallest chunk, which responses ask for.
    pub(crate) least: Option<usize>,
    /// How the next chunks are answered.
    pub(crate) faults: VecDeque<Fault>,
    /// How often the end of an upload is answered with the status 502.
    pub(crate) lost_ends: usize,
    /// Whether blobs are stored then.
    pub(crate) is_end_stored: bool,
    /// The received bytes of uploads.
    pub(crate) uploads: BTreeMap<String, Vec<u8>>,
    /// The ranges of chunks.
    pub(crate) ranges: Vec<String>,
    /// How blobs are mounted.
    pub(crate) mounts: Mounts,
    /// The blobs of the repository `me/calf`.
    pub(crate) calf: BTreeMap<String, Bytes>,
    /// Whether responses don't say the digests of manifests.
    pub(crate) hides_digests: bool,
    /// The address to which downloads of blobs are redirected.
    pub(crate) redirects: Option<String>,
    /// Whether blobs are sent with other content.
    pub(crate) corrupts: bool,
    /// The queries for tokens.
    pub(crate) tokens: Vec<String>,
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

fn empty(answer: http::response::Builder) -> Response<Full<Bytes>> {
    answer.body(Full::new(Bytes::new())).unwrap()
}

/// Returns the path of an upload.
fn location(id: &str) -> String {
    format!("/v2/me/cow/blobs/uploads/{id}?state=x%3D")
}

/// Returns how much of an upload was received.
fn progress(status: u16, id: &str, received: usize) -> Response<Full<Bytes>> {
    let range = format!("0-{}", received.saturating_sub(1));
    empty(plain(status).header(header::LOCATION, location(id)).header(header::RANGE, range))
}

fn refuse(status: u16, code: &str) -> Response<Full<Bytes>> {
    let errors = json!({"errors": [{"code": code, "message": "no"}]});
    plain(status).body(Full::new(errors.to_string().into())).unwrap()
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
    host: String,
) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut state = state.lock().unwrap();
    let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
    state.seen.push(format!("{} {path}", parts.method));
    let authorization = parts.headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    if path == "/token" {
        assert!(query.contains("service=cows") && query.contains("scope=repository%3Ame%2Fcow%3Apull"), "{query}");
        state.tokens.push(query.clone());
        if query.contains("calf") && state.mounts == Mounts::NoToken {
            return Ok(refuse(403, "DENIED"));
        }
        return Ok(match authorization.as_deref() {
            Some(KNOWN) => plain(200).body(Full::new(json!({"token": "all"}).to_string().into())).unwrap(),
            Some(_) => refuse(401, "UNAUTHORIZED"),
            None => plain(200).body(Full::new(json!({"access_token": "read"}).to_string().into())).unwrap(),
        });
    }
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    if let Some(digest) = path.strip_prefix("/store/") {
        assert_eq!(authorization, None, "other hosts must not receive the token");
        return Ok(plain(200).body(Full::new(state.blobs[digest].clone())).unwrap());
    }
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
    state.serve(&parts, &path, &query, body)
}

impl State {
    fn serve(
        &mut self,
        parts: &http::request::Parts,
        path: &str,
        query: &str,
        body: Bytes,
    ) -> io::Result<Response<Full<Bytes>>> {
        let rest = path.strip_prefix("/v2/me/cow/").unwrap();
        if rest.starts_with("manifests/") && parts.method != Method::PUT {
            let accepted = parts.headers[header::ACCEPT].to_str().unwrap();
            assert!(accepted.contains("oci.image.manifest") && accepted.contains("oci.image.index"), "{accepted}");
        }
        Ok(match (parts.method.as_str(), rest.split_once('/').unwrap()) {
            ("HEAD", ("blobs", digest)) => empty(plain(if self.blobs.contains_key(digest) { 200 } else { 404 })),
            ("GET", ("blobs", digest)) if digest.starts_with("sha256:") => self.download(digest),
            ("POST", ("blobs", "uploads/")) => self.begin(query),
            (method, ("blobs", upload)) => {
                let id = upload.strip_prefix("uploads/").unwrap();
                return self.upload(method, id, query, parts, &body);
            }
            ("PUT", ("manifests", name)) => {
                self.keep(name, parts.headers[header::CONTENT_TYPE].to_str().unwrap(), body)
            }
            ("GET" | "HEAD", ("manifests", name)) => match self.manifests.get(name) {
                Some((form, body)) => {
                    let mut answer = plain(200).header(header::CONTENT_TYPE, form);
                    if !self.hides_digests {
                        answer = answer.header("docker-content-digest", digest(body));
                    }
                    let body = if parts.method == Method::HEAD { Bytes::new() } else { body.clone() };
                    answer.body(Full::new(body)).unwrap()
                }
                None => refuse(404, "MANIFEST_UNKNOWN"),
            },
            other => panic!("{other:?}"),
        })
    }

    fn download(&self, digest: &str) -> Response<Full<Bytes>> {
        match (&self.redirects, self.blobs.get(digest)) {
            (_, None) => refuse(404, "BLOB_UNKNOWN"),
            (Some(host), _) => empty(plain(307).header(header::LOCATION, format!("http://{host}/store/{digest}"))),
            (None, Some(_)) if self.corrupts => plain(200).body(Full::new("else".into())).unwrap(),
            (None, Some(blob)) => plain(200).body(Full::new(blob.clone())).unwrap(),
        }
    }

    fn begin(&mut self, query: &str) -> Response<Full<Bytes>> {
        if let Some(mounted) = query.strip_prefix("mount=") {
            let digest = mounted.strip_suffix("&from=me%2Fcalf").unwrap().replace("%3A", ":");
            match (self.mounts, self.calf.get(&digest)) {
                (Mounts::Done, Some(blob)) => {
                    self.blobs.insert(digest.clone(), blob.clone());
                    return empty(plain(201).header("docker-content-digest", digest));
                }
                (Mounts::Refused, _) => return refuse(403, "DENIED"),
                _ => {}
            }
        }
        let id = format!("{}", self.seen.len());
        let mut answer = plain(202).header(header::LOCATION, location(&id));
        if let Some(least) = self.least {
            answer = answer.header("oci-chunk-min-length", least);
        }
        self.uploads.insert(id, Vec::new());
        empty(answer)
    }

    fn upload(
        &mut self,
        method: &str,
        id: &str,
        query: &str,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> io::Result<Response<Full<Bytes>>> {
        let Some(bytes) = self.uploads.get_mut(id) else { return Ok(refuse(404, "BLOB_UPLOAD_UNKNOWN")) };
        match method {
            "PATCH" => {
                let range = parts.headers[header::CONTENT_RANGE].to_str().unwrap();
                assert_eq!(parts.headers[header::CONTENT_TYPE], "application/octet-stream");
                let (first, last) = range.split_once('-').unwrap();
                assert_eq!(last.parse::<usize>().unwrap() + 1, first.parse::<usize>().unwrap() + body.len());
                self.ranges.push(range.to_owned());
                if first.parse() != Ok(bytes.len()) {
                    return Ok(progress(416, id, bytes.len()));
                }
                let half = &body[..body.len() / 2];
                let status = match self.faults.pop_front().unwrap_or(Fault::None) {
                    Fault::None => {
                        bytes.extend(body);
                        202
                    }
                    Fault::Nothing(status) => return Ok(refuse(status, "DENIED")),
                    Fault::Half(status) => {
                        bytes.extend(half);
                        status
                    }
                    Fault::Whole(status) => {
                        bytes.extend(body);
                        status
                    }
                    Fault::Disconnect => {
                        bytes.extend(half);
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                    Fault::Lost => {
                        self.uploads.remove(id);
                        return Ok(refuse(500, "UNKNOWN"));
                    }
                };
                Ok(progress(status, id, bytes.len()))
            }
            "GET" => Ok(progress(204, id, bytes.len())),
            "PUT" => Ok(self.end(id, query, body)),
            other => panic!("{other}"),
        }
    }

    fn end(&mut self, id: &str, query: &str, body: &Bytes) -> Response<Full<Bytes>> {
        let bytes: Bytes = [&self.uploads[id], body.as_ref()].concat().into();
        let sent = query.strip_prefix("state=x%3D&digest=").unwrap().replace("%3A", ":");
        if digest(&bytes) != sent {
            return refuse(400, "DIGEST_INVALID");
        }
        let is_lost = self.lost_ends > 0 && body.is_empty();
        if !is_lost || self.is_end_stored {
            self.uploads.remove(id);
            self.blobs.insert(sent.clone(), bytes);
        }
        if is_lost {
            self.lost_ends -= 1;
            return refuse(502, "UNKNOWN");
        }
        let kept = if self.broken { digest(b"else") } else { sent };
        empty(plain(201).header("docker-content-digest", kept))
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

impl State {
    /// Adds an image with labels and one layer, a compressed archive of files, under a tag. Returns its digest.
    pub(crate) fn add_image(&mut self, tag: &str, labels: &Value, files: &[(String, String)]) -> String {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (path, text) in files {
            let mut file = tar::Header::new_ustar();
            file.set_mode(0o644);
            file.set_size(text.len() as u64);
            archive.append_data(&mut file, path, text.as_bytes()).unwrap();
        }
        let layer = archive.into_inner().unwrap().finish().unwrap();
        let config = json!({"os": "linux", "architecture": "amd64", "config": {"Labels": labels}}).to_string();
        let mut keep = |form: &str, bytes: Bytes| {
            let descriptor = json!({"mediaType": form, "digest": digest(&bytes), "size": bytes.len()});
            self.blobs.insert(digest(&bytes), bytes);
            descriptor
        };
        let config = keep("application/vnd.oci.image.config.v1+json", config.into());
        let layer = keep("application/vnd.oci.image.layer.v1.tar+gzip", layer.into());
        let form = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": form, "config": config, "layers": [layer]}).to_string();
        let manifest = Bytes::from(manifest);
        let own = digest(&manifest);
        for name in [tag, &own] {
            self.manifests.insert(name.to_owned(), (form.to_owned(), manifest.clone()));
        }
        own
    }
}

/// Returns a manifest, which differs for each text, with its media type.
pub(crate) fn manifest(text: &str) -> (String, Bytes) {
    let form = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": form, "annotations": {"text": text}});
    (form.to_owned(), manifest.to_string().into())
}

/// Returns the digest of bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in ring::digest::digest(&ring::digest::SHA256, bytes).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
