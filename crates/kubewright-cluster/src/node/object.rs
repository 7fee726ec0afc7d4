//! The Node object, and the lease that shows that the node is alive.

use std::{net::Ipv4Addr, time::Duration};

use jiff::Timestamp;
use kubewright_apimachinery::{cidr::Cidr, clock::SharedClock};
use serde_json::{Value, json};

use super::{KUBELET_PORT, NODE_NAME};
use crate::{
    events::{micro, written},
    object_client::{ObjectClient, ObjectPath, is_conflict, is_gone},
};

/// The interval of renewals and the duration of the lease in seconds: the kubelet's defaults.
const RENEW_EVERY: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i64 = 40;

/// The resources of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    processors: usize,
    memory_kib: u64,
    storage_kib: u64,
    pods: u32,
}

impl Capacity {
    /// Returns the resources of this host.
    pub(crate) fn of_host() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, Into::into);
        let [memory_kib, storage_kib] = [memory_kib().unwrap_or(8 << 20), storage_kib().unwrap_or(64 << 20)];
        Self { processors, memory_kib, storage_kib, pods: 1000 }
    }

    /// Returns the number of processors.
    pub(crate) fn processors(self) -> usize {
        self.processors
    }

    /// Returns the memory in KiB.
    pub(crate) fn memory_kib(self) -> u64 {
        self.memory_kib
    }

    /// Returns the size of the disk for pods in KiB.
    pub(crate) fn storage_kib(self) -> u64 {
        self.storage_kib
    }

    /// Returns ample resources, which are the same on every host.
    pub(crate) fn simulated() -> Self {
        Self { processors: 1000, memory_kib: 1 << 30, storage_kib: 1 << 40, pods: 100_000 }
    }
}

/// Returns the size of the file system with the directories of pods.
fn storage_kib() -> Option<u64> {
    let found = rustix::fs::statvfs(std::env::temp_dir()).ok()?;
    Some(found.f_blocks.checked_mul(found.f_frsize)? >> 10)
}

#[cfg(target_os = "linux")]
fn memory_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn memory_kib() -> Option<u64> {
    None
}

/// Creates the Node object, its lease, and the list of its storage drivers. `version` is the cluster's version,
/// `address` the node's, and `pods` the range of its pods' addresses.
pub(crate) async fn register(
    client: &ObjectClient,
    clock: &SharedClock,
    capacity: Capacity,
    version: &str,
    address: Ipv4Addr,
    pods: Option<Cidr>,
) -> Result<(), kube::Error> {
    let now = clock.now();
    let nodes = ObjectPath::core("nodes", None, "");
    let path = ObjectPath { name: NODE_NAME.into(), ..nodes.clone() };
    let status = status(capacity, version, address, now);
    let node = match client.create(&nodes, "", &node(&status, pods)).await {
        Ok(node) => {
            // The server taints new nodes, and there may be no controller that removes the taint of a ready one.
            client.merge(&path, "", &json!({"spec": {"taints": null}})).await?;
            Some(node)
        }
        Err(error) if is_conflict(&error) => {
            client.merge(&path, "/status", &json!({"status": status})).await?;
            client.get(&path).await?
        }
        Err(error) => return Err(error),
    };
    let uid = node.map(|node| node["metadata"]["uid"].clone()).unwrap_or_default();
    create(client, &leases(""), &lease(&uid, now)).await?;
    create(client, &csi_nodes(), &csi_node(&uid)).await
}

/// Creates an object, unless there is one of this name.
async fn create(client: &ObjectClient, path: &ObjectPath, object: &Value) -> Result<(), kube::Error> {
    match client.create(path, "", object).await {
        Err(error) if !is_conflict(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Renews the lease for as long as it is polled.
pub(crate) async fn renew(client: ObjectClient, clock: SharedClock) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let patch = json!({"spec": {"renewTime": micro(clock.now())}});
        let renewed = match client.merge(&leases(NODE_NAME), "", &patch).await {
            Err(error) if is_gone(&error) => recreate_lease(&client, clock.now()).await,
            other => other.map(drop),
        };
        if let Err(error) = renewed {
            tracing::warn!(%error, "failed to renew the lease of the node");
        }
    }
}

/// Creates the lease of the node again, with its namespace if that is missing.
async fn recreate_lease(client: &ObjectClient, now: Timestamp) -> Result<(), kube::Error> {
    let path = leases("");
    let Some(node) = client.get(&ObjectPath::core("nodes", None, NODE_NAME)).await? else { return Ok(()) };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": path.namespace}});
    create(client, &ObjectPath::core("namespaces", None, ""), &namespace).await?;
    client.create(&path, "", &lease(&node["metadata"]["uid"], now)).await.map(drop)
}

fn leases(name: &str) -> ObjectPath {
    ObjectPath {
        group: "coordination.k8s.io".into(),
        version: "v1".into(),
        plural: "leases".into(),
        namespace: Some("kube-node-lease".into()),
        name: name.into(),
    }
}

fn csi_nodes() -> ObjectPath {
    ObjectPath { group: "storage.k8s.io".into(), ..ObjectPath::core("csinodes", None, "") }
}

/// Returns the object with the storage drivers of the node: none, but the volumes of the former built-in drivers count
/// as those of their successors.
fn csi_node(uid: &Value) -> Value {
    const SUCCEEDED: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,\
                             kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": NODE_NAME, "uid": uid});
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": NODE_NAME, "ownerReferences": [owner],
            "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": SUCCEEDED},
        },
        "spec": {"drivers": []},
    })
}

fn lease(uid: &Value, now: Timestamp) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": NODE_NAME, "uid": uid});
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE_NAME, "ownerReferences": [owner]},
        "spec": {"holderIdentity": NODE_NAME, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro(now)},
    })
}

/// Returns the Node object with a status.
fn node(status: &Value, pods: Option<Cidr>) -> Value {
    let pods = pods.map(|range| range.aligned().to_string());
    let (system, machine) = platform();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE_NAME,
            "labels": {
                "kubernetes.io/arch": machine, "kubernetes.io/os": system, "kubernetes.io/hostname": NODE_NAME,
                // Former names, which manifests still select by.
                "beta.kubernetes.io/arch": machine, "beta.kubernetes.io/os": system,
                "node-role.kubernetes.io/control-plane": "",
            },
        },
        "spec": {"podCIDR": pods, "podCIDRs": pods.as_slice()},
        "status": status,
    })
}

/// Returns the operating system and architecture by the names that Go and Kubernetes use.
fn platform() -> (&'static str, &'static str) {
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    (system, machine)
}

/// Returns the release of the kernel; empty if the system doesn't report it.
fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

fn status(capacity: Capacity, version: &str, address: Ipv4Addr, now: Timestamp) -> Value {
    let (system, machine) = platform();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": written(now), "lastTransitionTime": written(now),
        })
    };
    let amounts = json!({
        "cpu": capacity.processors.to_string(),
        "ephemeral-storage": format!("{}Ki", capacity.storage_kib),
        "memory": format!("{}Ki", capacity.memory_kib),
        "pods": capacity.pods.to_string(),
    });
    json!({
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": NODE_NAME},
        ],
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "nodeInfo": {
            "architecture": machine, "operatingSystem": system, "osImage": "Kubewright",
            "containerRuntimeVersion": concat!("kubewright://", env!("CARGO_PKG_VERSION")),
            "kubeletVersion": version, "kubeProxyVersion": "",
            "kernelVersion": kernel(), "machineID": NODE_NAME, "systemUUID": NODE_NAME, "bootID": NODE_NAME,
        },
    })
}
