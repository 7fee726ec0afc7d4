//! A pod's service account: what a container needs to be it.
//!
//! A container of a real node finds token, certificate and namespace at `/var/run/secrets/kubernetes.io/serviceaccount`.
//! Processes of this host share one file system, so each container has a folder that is laid out so, and a kubeconfig
//! beside it that leads there: kubectl, client-go and kube all look at `KUBECONFIG` first.

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

use super::Host;
use crate::access::{Access, Address};

/// The folder of the containers' own files within a pod's directory. No container can be named so.
const ROOT: &str = ".root";
/// Where a container finds its account, below its root.
const PLACE: [&str; 5] = ["var", "run", "secrets", "kubernetes.io", "serviceaccount"];
/// How long a token is good for, in seconds.
const LIFE: i64 = 60 * 60;
/// How long to wait before a token that could not be renewed is asked for again.
const RETRY: Duration = Duration::from_secs(10);
/// How often, and after how long, it is looked again for an account that isn't there. A namespace gets its own an instant
/// after it is made.
const PATIENCE: (usize, Duration) = (40, Duration::from_millis(50));

/// What a container has of its service account.
pub(crate) struct Equipment {
    /// What its environment begins with.
    pub(crate) variables: Vec<(String, String)>,
    ticket: Ticket,
    renew_in: Duration,
}

impl Equipment {
    /// Renews the token for as long as it is polled, each time when four fifths of its life are over.
    pub(crate) async fn keep_fresh(self) -> Infallible {
        let Self { ticket, mut renew_in, .. } = self;
        loop {
            sleep(renew_in).await;
            renew_in = ticket.renew().await.unwrap_or_else(|why| {
                tracing::warn!(why, pod = ticket.pod.0, "a service account's token can't be renewed now");
                RETRY
            });
        }
    }
}

/// Equips a container, unless its pod or its service account doesn't want that.
///
/// # Errors
/// When there is no such account, or the API server can't be reached from outside this process.
pub(crate) async fn equip(host: &Host, pod: &Pod, container: &str) -> Result<Option<Equipment>, String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.automount_service_account_token);
    let namespace = text(&pod.metadata.namespace);
    let account = spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| "default".into());
    if wanted == Some(false) {
        return Ok(None);
    }
    let address = Address::core("serviceaccounts", Some(&namespace), &account);
    let found = find(&host.access, &address).await?;
    if wanted.is_none() && found["automountServiceAccountToken"] == false {
        return Ok(None);
    }
    let (server, authority) =
        host.doors.any().await.map_err(|error| format!("the API server can't listen for pods: {error}"))?;
    let pod = (text(&pod.metadata.name), text(&pod.metadata.uid));
    let root = root(&host.pod_directory(&pod.1), container).map_err(no_folder)?;
    let place = folder(&root, &PLACE).map_err(no_folder)?;
    write(&place.join("ca.crt"), &authority).map_err(no_folder)?;
    write(&place.join("namespace"), &namespace).map_err(no_folder)?;
    let kubeconfig = root.join("kubeconfig");
    write(&kubeconfig, &self::kubeconfig(server, &place, &namespace, &account)).map_err(no_folder)?;
    let ticket = Ticket { access: host.access.clone(), clock: host.clock.clone(), account: address, pod, place };
    let renew_in = ticket.renew().await?;
    let (ip, port) = (server.ip().to_string(), server.port().to_string());
    let variables = [
        ("KUBERNETES_SERVICE_HOST", ip),
        ("KUBERNETES_SERVICE_PORT", port.clone()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port),
        ("KUBECONFIG", kubeconfig.to_string_lossy().into_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(Some(Equipment { variables, ticket, renew_in }))
}

/// The folder below which a container has files of its own, at the paths where a real node would show them.
pub(crate) fn root(pod_directory: &Path, container: &str) -> io::Result<PathBuf> {
    folder(pod_directory, &[ROOT, container])
}

async fn find(access: &Access, account: &Address) -> Result<Value, String> {
    let (tries, pause) = PATIENCE;
    for _ in 0..tries {
        match access.get(account).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => sleep(pause).await,
            Err(error) => return Err(error.to_string()),
        }
    }
    let (namespace, name) = (account.namespace.as_deref().unwrap_or_default(), &account.name);
    Err(format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"))
}

fn no_folder(error: io::Error) -> String {
    format!("the service account's folder can't be written: {error}")
}

/// What it takes to ask for a token again.
struct Ticket {
    access: Access,
    clock: SharedClock,
    account: Address,
    /// The pod's name and UID.
    pod: (String, String),
    place: PathBuf,
}

impl Ticket {
    /// Writes a new token, and says when the next is due.
    async fn renew(&self) -> Result<Duration, String> {
        let (name, uid) = &self.pod;
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid});
        let request = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "spec": {"audiences": [], "expirationSeconds": LIFE, "boundObjectRef": bound},
        });
        let made = self.access.create(&self.account, "/token", &request).await.map_err(|error| error.to_string())?;
        let status = &made["status"];
        write(&self.place.join("token"), status["token"].as_str().unwrap_or_default()).map_err(no_folder)?;
        let end = status["expirationTimestamp"].as_str().and_then(|end| end.parse().ok());
        Ok(end.map_or(RETRY, |end| due(self.clock.now(), end)))
    }
}

/// How long to wait with the next token when this one ends at `end`.
fn due(now: Timestamp, end: Timestamp) -> Duration {
    let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
    (left * 4 / 5).max(RETRY)
}

/// A folder below one that exists, for this user alone. Those above aren't made: when the node is gone, nothing may come back.
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

/// Writes a file in one step, so that nobody reads half of it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    std::fs::rename(draft, path)
}

/// JSON is YAML, and needs no care with quotes.
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
        let access = Access::new(api.client());
        let account = Address::core("serviceaccounts", Some("default"), "robot");
        let create = async |plural: &str, object: Value| {
            access.create(&Address::core(plural, Some("default"), ""), "", &object).await.unwrap()
        };
        create("serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
        let spec = json!({"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]});
        let pod = create("pods", json!({"metadata": {"name": "p"}, "spec": spec})).await;
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        let ticket = Ticket { access: access.clone(), clock, account, pod: ("p".into(), uid), place: place.clone() };
        let token = || std::fs::read_to_string(place.join("token")).unwrap();
        let renew_in = ticket.renew().await.unwrap();
        assert_eq!(renew_in, Duration::from_secs(48 * 60));
        let first = token();
        let keeper = tokio::spawn(Equipment { variables: Vec::new(), ticket, renew_in }.keep_fresh());
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
