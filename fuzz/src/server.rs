//! Targets that are requests to a server, and files of its data directory.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::Request;
use http_body_util::{BodyExt, Full};
use kubewright_apiserver::{ApiServer, UserInfo};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{runtime::Runtime, time::timeout};

use crate::Target;

/// The number of inputs that one server takes, so that what they store doesn't add up.
const INPUTS: usize = 256;
/// The time for which the answer of a watch is read.
const WATCHED: Duration = Duration::from_millis(20);
/// The time for which any other answer is read.
const ANSWERED: Duration = Duration::from_secs(2);
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A server in memory that is replaced now and then.
struct Server {
    runtime: Runtime,
    api: ApiServer,
    taken: usize,
}

impl Server {
    fn new() -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
        let api = ApiServer::builder().build();
        let mut server = Self { runtime, api, taken: 0 };
        server.prepare();
        Ok(server)
    }

    /// Creates what the inputs refer to.
    fn prepare(&mut self) {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "count": {"type": "integer", "minimum": 0, "default": 1}, "name": {"type": "string", "maxLength": 9}},
            "x-kubernetes-validations": [{"rule": "self.count < 5"}]}}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}});
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "its.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "its", "singular": "it", "kind": "It"}, "versions": [version]}});
        self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
        self.create("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "a"}, "data": {"a": "b"}}));
        self.create(
            "/apis/example.com/v1/namespaces/default/its",
            &json!({
            "apiVersion": "example.com/v1", "kind": "It", "metadata": {"name": "a"}, "spec": {"count": 2}}),
        );
    }

    fn create(&self, path: &str, object: &Value) {
        let text = object.to_string().into_bytes();
        let (code, answer) = self.send("POST", path, &[("content-type", "application/json")], text).expect("a request");
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    }

    /// Sends a request as the administrator. Returns the code and the body, or `None` if it is no HTTP request.
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Option<(u16, Vec<u8>)> {
        let mut request = Request::builder().method(method).uri(path).extension(Arc::new(UserInfo::admin()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).ok()?;
        Some(self.runtime.block_on(async {
            let (head, body) = self.api.handle(request).await.into_parts();
            // A watch has no end.
            let limit = if path.contains("watch") || path.contains("follow") { WATCHED } else { ANSWERED };
            let body = timeout(limit, body.collect()).await.ok().and_then(Result::ok);
            (head.status.as_u16(), body.map(|body| body.to_bytes().to_vec()).unwrap_or_default())
        }))
    }

    /// Counts an input, and replaces the server after many.
    fn count(&mut self) {
        self.taken += 1;
        if self.taken.is_multiple_of(INPUTS) {
            self.api.close();
            self.api = ApiServer::builder().build();
            self.prepare();
        }
    }
}

/// Requests as text: a line with method and path, headers, an empty line, and the body.
pub(crate) struct Routes(Server);

impl Routes {
    pub(crate) fn new() -> Result<Self> {
        Server::new().map(Self)
    }
}

impl Target for Routes {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let json = "content-type: application/json";
        let requests = [
            "GET /api/v1/namespaces/default/configmaps?labelSelector=a%3Db&fieldSelector=metadata.name%3Da&limit=1\n\n".into(),
            "GET /api/v1/pods?watch=true&resourceVersion=1&timeoutSeconds=1&allowWatchBookmarks=true\n\n".into(),
            "GET /apis/apps/v1/deployments?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=1\n\n".into(),
            "GET /openapi/v3/apis/apps/v1?hash=1\naccept: application/json;q=0.5,*/*\n\n".into(),
            "GET /api/v1/namespaces/default/configmaps/a\naccept: application/json;as=Table;v=v1;g=meta.k8s.io\n\n".into(),
            "GET /apis\naccept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\n\n".into(),
            "DELETE /api/v1/namespaces/default/configmaps/a?propagationPolicy=Foreground&dryRun=All\n\n".into(),
            "DELETE /api/v1/namespaces/default/configmaps?labelSelector=a\n\n{\"gracePeriodSeconds\":0}".into(),
            "GET /api/v1/namespaces/default/pods/a/log?container=c&tailLines=1&sinceSeconds=2&follow=true\n\n".into(),
            "GET /healthz/ping?verbose&exclude=etcd\n\n".into(),
            format!("POST /api/v1/namespaces/default/configmaps?fieldValidation=Strict\n{json}\n\n{{\"metadata\":{{\"name\":\"b\"}},\"data\":{{\"x\":\"y\"}}}}"),
            format!("PUT /api/v1/namespaces/default/configmaps/a\n{json}\n\n{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"1\"}}}}"),
            "POST /api/v1/namespaces/default/services\ncontent-type: application/yaml\n\nmetadata: {name: s}\nspec:\n  ports: [{port: 80, targetPort: http}]\n".into(),
            "PATCH /api/v1/namespaces/default/configmaps/a\ncontent-type: application/strategic-merge-patch+json\n\n{\"data\":{\"$patch\":\"replace\",\"c\":\"d\"}}".into(),
            "PATCH /api/v1/namespaces/default/configmaps/a\ncontent-type: application/json-patch+json\n\n[{\"op\":\"add\",\"path\":\"/data/c\",\"value\":\"d\"}]".into(),
            "PATCH /apis/apps/v1/namespaces/default/deployments/d?fieldManager=m&force=true\ncontent-type: application/apply-patch+yaml\n\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}]}]}\n".into(),
            "PATCH /apis/example.com/v1/namespaces/default/its/a/status\ncontent-type: application/merge-patch+json\n\n{\"spec\":{\"count\":7},\"status\":{}}".into(),
            "PATCH /apis/example.com/v1/namespaces/default/its/a?fieldManager=m\ncontent-type: application/apply-patch+yaml\n\napiVersion: example.com/v1\nkind: It\nspec: {count: 3}\n".into(),
            format!("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews\n{json}\n\n{{\"spec\":{{\"resourceAttributes\":{{\"verb\":\"get\",\"resource\":\"pods\"}}}}}}"),
            format!("POST /api/v1/namespaces/default/pods/p/eviction\n{json}\n\n{{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{{\"name\":\"p\"}}}}"),
            format!("POST /api/v1/namespaces/default/pods\n{json}\n\n{{\"metadata\":{{\"generateName\":\"p-\"}},\"spec\":{{\"containers\":[{{\"name\":\"c\",\"image\":\"i\",\"resources\":{{\"requests\":{{\"cpu\":\"1500m\"}}}}}}]}}}}"),
        ];
        requests.into_iter().map(|request: String| request.into_bytes()).collect()
    }

    fn take(&mut self, input: &[u8]) {
        let end = input.windows(2).position(|pair| pair == b"\n\n");
        let (head, body) = end.map_or((input, &[][..]), |end| (&input[..end], &input[end + 2..]));
        let Ok(head) = std::str::from_utf8(head) else { return };
        let mut lines = head.lines();
        let Some((method, path)) = lines.next().and_then(|line| line.split_once(' ')) else { return };
        let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
        self.0.send(method, path, &headers, body.to_vec());
        self.0.count();
    }
}

/// Objects in protobuf, as kubectl sends them. The first byte of an input says to which path the others are sent.
pub(crate) struct Protobuf {
    server: Server,
    /// The paths, and a body for each.
    requests: Vec<(String, Vec<u8>)>,
}

impl Protobuf {
    pub(crate) fn new() -> Result<Self> {
        let captured = include_str!("../../crates/kubewright-apiserver/tests/data/kubectl.json");
        let captured: Vec<Value> = serde_json::from_str(captured).context("read the captured requests")?;
        let mut requests = Vec::with_capacity(captured.len());
        for request in &captured {
            let text = |field: &str| request[field].as_str().unwrap_or_default();
            let body =
                STANDARD.decode(text("body")).with_context(|| format!("decode the body for {}", text("path")))?;
            requests.push((format!("{}?dryRun=All", text("path")), body));
        }
        Ok(Self { server: Server::new()?, requests })
    }
}

impl Target for Protobuf {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let requests = self.requests.iter().enumerate();
        requests.map(|(place, (_, body))| [&[index(place)], &body[..]].concat()).collect()
    }

    fn take(&mut self, input: &[u8]) {
        let Some((place, body)) = input.split_first() else { return };
        let (path, _) = &self.requests[usize::from(*place) % self.requests.len()];
        self.server.send("POST", path, &[("content-type", PROTOBUF)], body.to_vec());
        self.server.count();
    }
}

/// Returns a place as the first byte of an input.
fn index(place: usize) -> u8 {
    u8::try_from(place).unwrap_or_default()
}

/// Files of a data directory. The first byte of an input says which file the others replace.
pub(crate) struct StoredFiles {
    runtime: Runtime,
    folder: TempDir,
    /// The files of an intact directory, by their paths in it.
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl StoredFiles {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("create a folder")?;
        let mut server = Server::new()?;
        let data_dir = folder.path().join("intact");
        {
            let _context = server.runtime.enter();
            server.api = ApiServer::builder().open(&data_dir).context("create a data directory")?;
        }
        server.prepare();
        server.api.close();
        drop(server);
        let mut files = Vec::new();
        for entry in fs::read_dir(&data_dir).context("list the data directory")? {
            let entry = entry.context("list the data directory")?;
            if entry.file_type().is_ok_and(|of| of.is_file()) {
                files.push((entry.file_name().into(), fs::read(entry.path()).context("read a file")?));
            }
        }
        files.sort();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
        Ok(Self { runtime, folder, files })
    }
}

impl Target for StoredFiles {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let files = self.files.iter().enumerate();
        // The end of a long file is what recovery looks at most closely.
        files
            .map(|(place, (_, bytes))| [&[index(place)], &bytes[bytes.len().saturating_sub(8 << 10)..]].concat())
            .collect()
    }

    fn take(&mut self, input: &[u8]) {
        let Some((place, replaced)) = input.split_first() else { return };
        let data_dir = self.folder.path().join("changed");
        // It may remain from an input that failed.
        let _removed = fs::remove_dir_all(&data_dir);
        fs::create_dir(&data_dir).expect("a folder");
        for (index, (name, bytes)) in self.files.iter().enumerate() {
            let kept = bytes.len().saturating_sub(8 << 10);
            let changed = [&bytes[..kept], replaced].concat();
            let content = if index == usize::from(*place) % self.files.len() { &changed } else { bytes };
            fs::write(data_dir.join(name), content).expect("written");
        }
        let _context = self.runtime.enter();
        // A damaged directory is refused in words.
        if let Ok(api) = ApiServer::builder().open(&data_dir) {
            api.close();
        }
    }
}
