//! `/etc/hosts` of containers, with the pod's own name, its `hostAliases`, and the names of Services.
//!
//! The form is the kubelet's. The names of Services replace the cluster's DNS
//! (<https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/>) for pods in the network of the host,
//! which find no [server](super::dns): it needs port 53. There are names for cluster IPs, for the ready endpoints of
//! headless Services, and for the host names of these endpoints, but none for external Services, and no records of
//! ports.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::{
    Key,
    dns::zone::{DOMAIN, Record, Zone},
    service_env,
};
use crate::controllers::value::text;

/// Where containers find the file.
pub(crate) const PLACE: &str = "/etc/hosts";
/// The time in which further changes of Services are awaited, before the files are written.
const COALESCE: Duration = Duration::from_millis(100);

/// The Services, and the files with their names.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    services: BTreeMap<Key, Arc<Value>>,
    slices: BTreeMap<Key, Arc<Value>>,
    /// The files by the pod's UID.
    files: BTreeMap<String, HostsFile>,
}

/// The file of a pod.
#[derive(Debug)]
struct HostsFile {
    path: PathBuf,
    namespace: String,
    /// What the pod itself adds.
    own: String,
    /// The names of Services that the file contains.
    names: String,
}

impl Hosts {
    /// Takes a Service, or with `None` its deletion.
    pub(crate) fn take_service(&self, key: Key, service: Option<Arc<Value>>) {
        replace(&mut self.state.lock().services, key, service);
        self.changed.notify_one();
    }

    /// Takes an EndpointSlice, or with `None` its deletion.
    pub(crate) fn take_slice(&self, key: Key, slice: Option<Arc<Value>>) {
        replace(&mut self.state.lock().slices, key, slice);
        self.changed.notify_one();
    }

    /// Forgets all Services and EndpointSlices, which are taken again.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock();
        state.services.clear();
        state.slices.clear();
    }

    /// Returns the variables of the Services of a namespace, without those of `kubernetes`, whose variables contain the
    /// API server's own address.
    pub(crate) fn service_variables(&self, namespace: &str) -> Vec<(String, String)> {
        let state = self.state.lock();
        let here = state.services.range(Key::first_of(namespace)..).take_while(|(key, _)| key.namespace == namespace);
        service_env::variables(here.filter(|(key, _)| key.name != "kubernetes").map(|(_, service)| &**service))
    }

    /// Writes the file of a pod in its directory, and keeps it up to date until the pod is [removed](Hosts::remove).
    /// Returns its path.
    ///
    /// # Errors
    /// If the file can't be written.
    pub(crate) fn add(&self, directory: &Path, pod: &Pod, address: &str) -> io::Result<PathBuf> {
        let host_network = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        let own = own_part(pod, address, host_network.then(|| std::fs::read_to_string(PLACE).unwrap_or_default()));
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let path = directory.join("etc-hosts");
        let mut state = self.state.lock();
        let names = names(&state.services, &state.slices, &namespace);
        write(&path, &own, &names)?;
        let file = HostsFile { path: path.clone(), namespace, own, names };
        state.files.insert(pod.metadata.uid.clone().unwrap_or_default(), file);
        Ok(path)
    }

    /// Returns the records of a name in the cluster's DNS; `None` if there is no such name.
    pub(crate) fn records(&self, name: &str) -> Option<Vec<Record>> {
        let state = self.state.lock();
        Zone { services: &state.services, slices: &state.slices }.records(name)
    }

    /// Forgets the file of a pod.
    pub(crate) fn remove(&self, uid: &str) {
        self.state.lock().files.remove(uid);
    }

    /// Writes the files when Services change, for as long as it is polled.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            tokio::time::sleep(COALESCE).await;
            let hosts = self.clone();
            // If it panics, the files are written at the next change.
            let _ended = tokio::task::spawn_blocking(move || hosts.update()).await;
        }
    }

    /// Writes the files in which names of Services have changed.
    fn update(&self) {
        let mut state = self.state.lock();
        let State { services, slices, files } = &mut *state;
        let mut by_namespace: BTreeMap<String, String> = BTreeMap::new();
        for file in files.values_mut() {
            let names =
                by_namespace.entry(file.namespace.clone()).or_insert_with(|| names(services, slices, &file.namespace));
            if file.names == *names {
                continue;
            }
            match write(&file.path, &file.own, names) {
                Ok(()) => file.names.clone_from(names),
                Err(error) => {
                    tracing::warn!(%error, path = %file.path.display(), "failed to write the hosts file of a pod");
                }
            }
        }
    }
}

fn replace(map: &mut BTreeMap<Key, Arc<Value>>, key: Key, object: Option<Arc<Value>>) {
    match object {
        Some(object) => map.insert(key, object),
        None => map.remove(&key),
    };
}

/// Writes a file in place, since a container's mount shows the file that it was made with.
fn write(path: &Path, own: &str, names: &str) -> io::Result<()> {
    let content = format!("{own}{names}");
    // Without truncation first, so that no reader finds it empty.
    let mut file: File = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.write_all(content.as_bytes())?;
    file.set_len(content.len() as u64)
}

/// Returns the host name of a pod.
pub(crate) fn host_name(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    let given = spec.and_then(|spec| spec.hostname_override.as_deref().or(spec.hostname.as_deref()));
    let name = given.filter(|name| !name.is_empty()).or(pod.metadata.name.as_deref()).unwrap_or_default();
    // The longest host name that Linux takes.
    name.get(..63).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// Returns what the kubelet writes: the pod's own name and the aliases. `host` is the host's own file, for a pod in its
/// network.
fn own_part(pod: &Pod, address: &str, host: Option<String>) -> String {
    let spec = pod.spec.as_ref();
    let mut text = match host {
        Some(host) => format!("# Kubernetes-managed hosts file (host network).\n{host}"),
        None => {
            let name = host_name(pod);
            let subdomain =
                spec.filter(|spec| spec.hostname_override.is_none()).and_then(|spec| spec.subdomain.as_deref());
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let names = match subdomain.filter(|subdomain| !subdomain.is_empty()) {
                Some(subdomain) => format!("{name}.{subdomain}.{namespace}.svc.{DOMAIN}\t{name}"),
                None => name.to_owned(),
            };
            format!(
                "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                 fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
                 {address}\t{names}\n"
            )
        }
    };
    let aliases = spec.and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        // Writing to a string doesn't fail.
        let _ = writeln!(text, "{}\t{names}", alias.ip);
    }
    text
}

/// Returns the lines with the names of all Services, as pods of a namespace know them.
fn names(services: &BTreeMap<Key, Arc<Value>>, slices: &BTreeMap<Key, Arc<Value>>, namespace: &str) -> String {
    let mut lines = String::new();
    let mut line = |address: &str, name: &str, space: &str| {
        let short = if space == namespace { format!("\t{name}") } else { String::new() };
        let _ = writeln!(lines, "{address}\t{name}.{space}.svc.{DOMAIN}\t{name}.{space}.svc\t{name}.{space}{short}");
    };
    for (Key { namespace: space, name }, service) in services {
        match text(service, "/spec/clusterIP") {
            // One of an external name.
            "" => {}
            "None" => {
                for endpoint in (Zone { services, slices }).endpoints(space, name) {
                    line(endpoint.address, name, space);
                    if !endpoint.host.is_empty() {
                        line(endpoint.address, &format!("{}.{name}", endpoint.host), space);
                    }
                }
            }
            address => line(address, name, space),
        }
    }
    if lines.is_empty() { lines } else { format!("\n# Services of the cluster.\n{lines}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }

    fn pod(spec: &Value) -> Pod {
        let metadata = json!({"name": "web-0", "namespace": "shop", "uid": "1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn the_pods_own_part_is_that_of_the_kubelet() {
        let own = own_part(&pod(&json!({"containers": []})), "127.1.0.7", None);
        assert!(own.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{own}");
        assert!(own.ends_with("fe00::2\tip6-allrouters\n127.1.0.7\tweb-0\n"), "{own}");
        let spec = json!({"containers": [], "hostname": "w", "subdomain": "web", "hostAliases": [
            {"ip": "10.0.0.1", "hostnames": ["a.example", "b.example"]},
        ]});
        let own = own_part(&pod(&spec), "127.1.0.7", None);
        let expect = "127.1.0.7\tw.web.shop.svc.cluster.local\tw\n\n# Entries added by HostAliases.\n10.0.0.1\ta.example\tb.example\n";
        assert!(own.ends_with(expect), "{own}");
        let own = own_part(&pod(&spec), "127.1.0.7", Some("127.0.0.1 localhost\n".into()));
        assert!(own.starts_with("# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n#"), "{own}");
    }

    #[test]
    fn services_have_the_names_of_the_cluster_dns() {
        let hosts = Hosts::default();
        let service = |address: &str| Some(Arc::new(json!({"spec": {"clusterIP": address}})));
        hosts.take_service(key("shop", "web"), service("127.96.0.1"));
        hosts.take_service(key("other", "db"), service("None"));
        hosts.take_service(key("other", "outside"), Some(Arc::new(json!({"spec": {"externalName": "example.com"}}))));
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "db"}}, "endpoints": [
            {"addresses": ["127.1.0.8"], "hostname": "db-0", "conditions": {"ready": true}},
            {"addresses": ["127.1.0.9"], "hostname": "db-1", "conditions": {"ready": false}},
        ]});
        hosts.take_slice(key("other", "db-x"), Some(Arc::new(slice)));
        let state = hosts.state.lock();
        let lines = names(&state.services, &state.slices, "shop");
        let expect = [
            "",
            "# Services of the cluster.",
            "127.1.0.8\tdb.other.svc.cluster.local\tdb.other.svc\tdb.other",
            "127.1.0.8\tdb-0.db.other.svc.cluster.local\tdb-0.db.other.svc\tdb-0.db.other",
            "127.96.0.1\tweb.shop.svc.cluster.local\tweb.shop.svc\tweb.shop\tweb",
        ];
        assert_eq!(lines.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn files_follow_the_services_until_the_pod_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = Hosts::default();
        let path = hosts.add(folder.path(), &pod(&json!({"containers": []})), "127.1.0.7").unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        assert!(read().ends_with("127.1.0.7\tweb-0\n"));
        let service = Arc::new(json!({"spec": {"clusterIP": "127.96.0.1"}}));
        hosts.take_service(key("shop", "web"), Some(service.clone()));
        hosts.update();
        assert!(read().ends_with("\tweb\n"));
        hosts.take_service(key("shop", "web"), None);
        hosts.update();
        assert!(read().ends_with("127.1.0.7\tweb-0\n"), "the rest of the longer content is gone");
        hosts.remove("1");
        hosts.take_service(key("shop", "web"), Some(service));
        hosts.update();
        assert!(read().ends_with("127.1.0.7\tweb-0\n"));
    }
}
