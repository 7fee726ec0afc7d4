//! Tests of a push to a local registry that follows distribution-spec, checks digests, and issues tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::*;
use crate::oci::{Contents, elf, layout::digest, make};

/// The header value for `me:secret`.
const KNOWN: &str = "Basic bWU6c2VjcmV0";

#[derive(Default)]
struct State {
    /// Whether it has the referrers API.
    tracks: bool,
    /// Whether it rejects all manifests.
    full: bool,
    /// Whether it reports a wrong digest.
    broken: bool,
    blobs: BTreeMap<String, Bytes>,
    manifests: BTreeMap<String, (String, Bytes)>,
    referred: BTreeSet<String>,
    seen: Vec<String>,
}

struct Registry {
    address: String,
    state: Arc<Mutex<State>>,
    server: JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Registry {
    async fn start(state: State) -> Self {
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

    async fn push(&self, layout: &Layout, password: Option<&str>) -> Result<Vec<String>, String> {
        let reference = Reference::parse(&format!("{}/me/cow:v1", self.address)).unwrap();
        let credentials =
            password.map(|password| Credentials::Password { user: "me".into(), password: password.into() });
        let mut steps = Vec::new();
        let observe = |step: Step<'_>| {
            steps.push(match step {
                Step::Blob(_) => "blob".to_owned(),
                Step::Exists(_) => "there".to_owned(),
                Step::Manifest(_) => "manifest".to_owned(),
            });
        };
        push(layout, &reference, credentials, false, observe).await.map_err(|error| error.to_string())?;
        Ok(steps)
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

fn layout() -> Layout {
    let program = elf::tests::program(None);
    let sbom = Some(json!({"bomFormat": "CycloneDX"}));
    make(&Contents { program: &program, architecture: "amd64", labels: BTreeMap::new(), sbom }).unwrap()
}

#[tokio::test]
async fn the_images_of_an_index_are_pushed_by_digest_before_it() {
    let program = elf::tests::program(None);
    let image = |architecture: &'static str| {
        let sbom = Some(json!({"bomFormat": "CycloneDX", "serialNumber": architecture}));
        make(&Contents { program: &program, architecture, labels: BTreeMap::new(), sbom }).unwrap()
    };
    let (registry, layout) =
        (Registry::start(State::default()).await, Layout::join(vec![image("amd64"), image("arm64")]).unwrap());
    registry.push(&layout, Some("secret")).await.unwrap();
    let state = registry.state.lock().unwrap();
    let (form, index) = &state.manifests["v1"];
    assert_eq!(form, INDEX);
    let index: Index = serde_json::from_slice(index).unwrap();
    assert_eq!(index.manifests.len(), 2);
    for image in &index.manifests {
        assert!(state.manifests.contains_key(&image.digest));
        // Without the referrers API, a tag for each image lists its bill of materials.
        let (_, referrers) = &state.manifests[&image.digest.replace(':', "-")];
        assert_eq!(serde_json::from_slice::<Index>(referrers).unwrap().manifests.len(), 1);
    }
}

#[tokio::test]
async fn existing_blobs_are_not_sent_again() {
    let (registry, layout) = (Registry::start(State { tracks: true, ..State::default() }).await, layout());
    let steps = registry.push(&layout, Some("secret")).await.unwrap();
    assert_eq!(steps, ["blob", "blob", "manifest", "blob", "blob", "manifest"]);
    {
        let state = registry.state.lock().unwrap();
        let (form, image) = &state.manifests["v1"];
        assert_eq!((form.as_str(), digest(image).as_str()), (super::super::layout::MANIFEST, layout.digest()));
        assert_eq!(state.blobs.len(), 4);
        assert!(state.referred.contains(layout.digest()));
        assert_eq!(state.manifests.len(), 3, "no list for a registry that has its own");
        assert_eq!(state.seen.iter().filter(|line| line.contains("/token")).count(), 1);
    }
    let steps = registry.push(&layout, Some("secret")).await.unwrap();
    assert_eq!(steps, ["there", "there", "manifest", "there", "there", "manifest"]);
}

#[tokio::test]
async fn referrers_are_listed_under_a_tag_without_the_referrers_api() {
    let (registry, layout) = (Registry::start(State::default()).await, layout());
    for _ in 0..2 {
        registry.push(&layout, Some("secret")).await.unwrap();
        let state = registry.state.lock().unwrap();
        let (form, list) = &state.manifests[&layout.digest().replace(':', "-")];
        let list: Index = serde_json::from_slice(list).unwrap();
        assert_eq!((form.as_str(), list.manifests.len()), (INDEX, 1));
        assert_eq!(list.manifests[0], layout.referrers[0].manifest.descriptor);
    }
}

#[tokio::test]
async fn missing_permissions_are_errors_with_a_hint() {
    let (registry, layout) = (Registry::start(State::default()).await, layout());
    let unknown = registry.push(&layout, Some("wrong")).await.unwrap_err();
    assert!(unknown.contains(&format!("run docker login {}", registry.address)), "{unknown}");
    let nobody = registry.push(&layout, None).await.unwrap_err();
    assert!(nobody.contains("push to me/cow denied") && nobody.ends_with("; DENIED: no"), "{nobody}");
    assert!(registry.state.lock().unwrap().blobs.is_empty());
}

#[tokio::test]
async fn rejections_and_changed_content_are_errors() {
    let full = Registry::start(State { full: true, ..State::default() }).await;
    let refused = full.push(&layout(), Some("secret")).await.unwrap_err();
    assert!(refused.contains("rejected the manifest v1 (507") && refused.contains("TOOMANYREQUESTS"), "{refused}");
    let broken = Registry::start(State { broken: true, ..State::default() }).await;
    let changed = broken.push(&layout(), Some("secret")).await.unwrap_err();
    assert!(changed.contains("a proxy may change the content"), "{changed}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    let reference = Reference::parse(&format!("{free}/me/cow")).unwrap();
    let silent = push(&layout(), &reference, None, false, |_| {}).await.unwrap_err().to_string();
    assert!(silent.contains("cannot reach") && silent.contains("refused"), "{silent}");
}
