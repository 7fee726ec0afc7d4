//! The service account token of a container.
//!
//! On a real node a container finds its token, certificate and namespace at
//! `/var/run/secrets/kubernetes.io/serviceaccount`. Processes of this host share one file system, so each container has
//! a directory with that layout, and a kubeconfig that refers to it: kubectl, client-go and kube all read `KUBECONFIG`
//! first.

use std::{
    convert::Infallible,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubewright_apimachinery::clock::SharedClock;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::NodeContext;
use crate::object_client::{ObjectClient, ObjectPath};

/// The directory of the containers' own files in a pod's directory. No container can have this name.
const ROOT: &str = ".root";
/// The path of the token volume below a container's root.
const PLACE: [&str; 5] = ["var", "run", "secrets", "kubernetes.io", "serviceaccount"];
/// The lifetime of a token in seconds.
const LIFE: i64 = 60 * 60;
/// The delay before a failed renewal is retried.
const RETRY: Duration = Duration::from_secs(10);
/// The number of lookups of a missing account, and the delay between them. The default account of a namespace is
/// created shortly after the namespace.
const PATIENCE: (usize, Duration) = (40, Duration::from_millis(50));

/// A container's token volume.
pub(crate) struct TokenVolume {
    /// The first variables of the container's environment.
    pub(crate) variables: Vec<(String, String)>,
    ticket: TokenSource,
    renew_in: Duration,
}

impl TokenVolume {
    /// Renews the token for as long as it is polled. Each renewal is after four fifths of the token's lifetime.
    pub(crate) async fn keep_renewing(self) -> Infallible {
        let Self { ticket, mut renew_in, .. } = self;
        loop {
            sleep(renew_in).await;
            renew_in = ticket.renew().await.unwrap_or_else(|why| {
                tracing::warn!(why, pod = ticket.pod.0, "failed to renew the token of a service account");
                RETRY
            });
        }
    }
}

/// Creates the token volume of a container, unless its pod or its service account opts out.
///
/// # Errors
/// If the account doesn't exist, or if the API server can't listen for other processes.
pub(crate) async fn mount_token(host: &NodeContext, pod: &Pod, container: &str) -> Result<Option<TokenVolume>, String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.automount_service_account_token);
    let namespace = text(&pod.metadata.namespace);
    let account = spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| "default".into());
    if wanted == Some(false) {
        return Ok(None);
    }
    let address = ObjectPath::core("serviceaccounts", Some(&namespace), &account);
    let found = find(&host.client, &address).await?;
    if wanted.is_none() && found["automountServiceAccountToken"] == false {
        return Ok(None);
    }
    let (server, authority) =
        host.endpoints.any().await.map_err(|error| format!("failed to listen for pods: {error}"))?;
    let pod = (text(&pod.metadata.name), text(&pod.metadata.uid));
    let root = root(&host.pod_directory(&pod.1), container).map_err(not_written)?;
    let place = folder(&root, &PLACE).map_err(not_written)?;
    write(&place.join("ca.crt"), &authority).map_err(not_written)?;
    write(&place.join("namespace"), &namespace).map_err(not_written)?;
    let kubeconfig = root.join("kubeconfig");
    write(&kubeconfig, &self::kubeconfig(server, &place, &namespace, &account)).map_err(not_written)?;
    let ticket = TokenSource { client: host.client.clone(), clock: host.clock.clone(), account: address, pod, place };
    let renew_in = ticket.renew().await?;
    let (ip, port) = (server.ip().to_string(), server.port().to_string());
    let variables = [
        ("KUBERNETES_SERVICE_HOST", ip),
        ("KUBERNETES_SERVICE_PORT", port.clone()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port),
        ("KUBECONFIG", kubeconfig.to_string_lossy().into_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(Some(TokenVolume { variables, ticket, renew_in }))
}

/// Creates the directory that contains a container's own files, at the paths of a real node.
pub(crate) fn root(pod_directory: &Path, container: &str) -> io::Result<PathBuf> {
    folder(pod_directory, &[ROOT, container])
}

async fn find(client: &ObjectClient, account: &ObjectPath) -> Result<Value, String> {
    let (tries, pause) = PATIENCE;
    for _ in 0..tries {
        match client.get(account).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => sleep(pause).await,
            Err(error) => return Err(error.to_string()),
        }
    }
    let (namespace, name) = (account.namespace.as_deref().unwrap_or_default(), &account.name);
    Err(format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"))
}

fn not_written(error: io::Error) -> String {
    format!("failed to write the service account's volume: {error}")
}

/// Requests and writes tokens.
struct TokenSource {
    client: ObjectClient,
    clock: SharedClock,
    account: ObjectPath,
    /// The pod's name and UID.
    pod: (String, String),
    place: PathBuf,
}

impl TokenSource {
    /// Writes a new token, and returns the delay until the next renewal.
    async fn renew(&self) -> Result<Duration, String> {
        let (name, uid) = &self.pod;
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid});
        let request = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "spec": {"audiences": [], "expirationSeconds": LIFE, "boundObjectRef": bound},
        });
        let made = self.client.create(&self.account, "/token", &request).await.map_err(|error| error.to_string())?;
        let status = &made["status"];
        write(&self.place.join("token"), status["token"].as_str().unwrap_or_default()).map_err(not_written)?;
        let end = status["expirationTimestamp"].as_str().and_then(|end| end.parse().ok());
        Ok(end.map_or(RETRY, |end| due(self.clock.now(), end)))
    }
}

/// Returns the delay until a token that ends at `end` is renewed.
fn due(now: Timestamp, end: Timestamp) -> Duration {
    let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
    (left * 4 / 5).max(RETRY)
}

/// Creates the directory `below` and the nested directories `parts` in it, with mode 0700. The parents of `below` are
/// not created, so that the directory of a removed node doesn't reappear.
fn folder(below: &Path, parts: &[&str]) -> io::Result<PathBuf> {
    let mut path = below.to_owned();
    for part in std::iter::once("").chain(parts.iter().copied()) {
        path.push(part);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(path)
}

/// Writes a file atomically.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    std::fs::rename(draft, path)
}

/// Returns a kubeconfig as JSON, which is valid YAML and needs no quoting rules.
fn kubeconfig(server: SocketAddr, place: &Path, namespace: &str, account: &str) -> String {
    let path = |file: &str| place.join(file).to_string_lossy().into_owned();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{
            "name": "kubewright",
            "cluster": {"server": format!("https://{server}"), "certificate-authority": path("ca.crt")},
        }],
        "users": [{"name": account, "user": {"tokenFile": path("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "kubewright", "user": account, "namespace": namespace}}],
    });
    config.to_string()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kubewright_apimachinery::clock::VirtualClock;
    use kubewright_apiserver::ApiServer;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_before_it_expires() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let api = ApiServer::builder().clock(clock.clone()).build();
        let client = ObjectClient::new(api.client());
        let account = ObjectPath::core("serviceaccounts", Some("default"), "robot");
        let create = async |plural: &str, object: Value| {
            client.create(&ObjectPath::core(plural, Some("default"), ""), "", &object).await.unwrap()
        };
        create("serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
        let spec = json!({"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]});
        let pod = create("pods", json!({"metadata": {"name": "p"}, "spec": spec})).await;
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        let ticket =
            TokenSource { client: client.clone(), clock, account, pod: ("p".into(), uid), place: place.clone() };
        let token = || std::fs::read_to_string(place.join("token")).unwrap();
        let renew_in = ticket.renew().await.unwrap();
        assert_eq!(renew_in, Duration::from_secs(48 * 60));
        let first = token();
        let keeper = tokio::spawn(TokenVolume { variables: Vec::new(), ticket, renew_in }.keep_renewing());
        sleep(Duration::from_secs(47 * 60)).await;
        assert_eq!(token(), first);
        sleep(Duration::from_secs(2 * 60)).await;
        assert_ne!(token(), first);
        keeper.abort();
    }

    #[test]
    fn the_kubeconfig_leads_to_the_files() {
        let server = "127.0.0.1:6443".parse().unwrap();
        let config: Value = serde_json::from_str(&kubeconfig(server, Path::new("/p"), "shop", "robot")).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
        assert_eq!(config["users"][0]["user"]["tokenFile"], "/p/token");
        assert_eq!(config["contexts"][0]["context"]["namespace"], "shop");
    }
}
