//! Block devices that containers use as they are.

use std::process::Command;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use serde_json::json;

use crate::{create, phase, pod, pods, running, until, volumes::wait_for_event};

/// A device whose content is a file.
struct Loop(String);

impl Loop {
    /// Returns `None` where there are no such devices, as without root.
    fn new(file: &std::path::Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let path = String::from_utf8(output.stdout).expect("a path").trim().to_owned();
        output.status.success().then_some(Self(path))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ended = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_device_is_at_its_path_and_is_not_mounted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("disk");
    std::fs::write(&file, [b'a'; 1 << 20]).expect("a file");
    let Some(disk) = Loop::new(&file) else { return };
    let cluster = running().await;
    let volume = json!({"metadata": {"name": "disk"}, "spec": {
        "volumeMode": "Block", "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
        "local": {"path": disk.0}, "storageClassName": "",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["kubewright"]},
        ]}]}},
    }});
    let volume = serde_json::from_value::<PersistentVolume>(volume).expect("a volume");
    Api::all(cluster.client()).create(&PostParams::default(), &volume).await.expect("created");
    let claim = json!({"metadata": {"name": "disk"}, "spec": {
        "volumeMode": "Block", "resources": {"requests": {"storage": "1Mi"}}, "accessModes": ["ReadWriteOnce"],
        "volumeName": "disk", "storageClassName": "",
    }});
    let claim = serde_json::from_value::<PersistentVolumeClaim>(claim).expect("a claim");
    let claims = Api::<PersistentVolumeClaim>::namespaced(cluster.client(), "default");
    claims.create(&PostParams::default(), &claim).await.expect("created");

    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let script = "device=$(readlink -f ${KUBEWRIGHT_ROOT}/srv/disk); test -b $device && head -c 3 $device";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script],
        "volumeDevices": [{"name": "v", "devicePath": "/srv/disk"}]});
    let spec = json!({"containers": [container], "volumes": volumes, "restartPolicy": "Never"});
    create(&cluster, &pod("reads", "", spec)).await;
    until(&cluster, "reads", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    assert_eq!(pods(&cluster).logs("reads", &LogParams::default()).await.expect("a log"), "aaa");

    let container = json!({"name": "main", "image": "busybox", "command": ["true"],
        "volumeMounts": [{"name": "v", "mountPath": "/srv/disk"}]});
    create(&cluster, &pod("mounts", "", json!({"containers": [container], "volumes": volumes}))).await;
    let why = "volume v has volumeMode Block, but is specified in volumeMounts";
    wait_for_event(&cluster, "FailedMount", &format!("MountVolume.SetUp failed for volume \"v\" : {why}")).await;
    cluster.shutdown().await;
}
