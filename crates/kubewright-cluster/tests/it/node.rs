//! Running pods: their ends, restarts and deletion.

use std::{pin::pin, time::Duration};

use futures::TryStreamExt;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node, Pod},
    storage::v1::CSINode,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, WatchEvent, WatchParams},
};
use serde_json::json;

use crate::{create, exit_code, gone, is_running, phase, pod, pods, running, state, until, waiting_reason};

pub(crate) fn container(pod: &Pod) -> k8s_openapi::api::core::v1::ContainerStatus {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
    statuses.into_iter().next().unwrap_or_default()
}

fn condition(pod: &Pod, kind: &str) -> String {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.into_iter().find(|one| one.type_ == kind).map(|one| one.status).unwrap_or_default()
}

fn deletion(seconds: u32) -> DeleteParams {
    DeleteParams { grace_period_seconds: Some(seconds), ..DeleteParams::default() }
}

#[tokio::test]
async fn the_node_is_ready_and_alive() {
    let cluster = running().await;
    let node = Api::<Node>::all(cluster.client()).get("kubewright").await.expect("registered");
    let status = node.status.clone().expect("a status");
    assert!(status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True"));
    if let Ok(release) = std::fs::read_to_string("/proc/sys/kernel/osrelease") {
        assert_eq!(status.node_info.expect("described").kernel_version, release.trim());
    }
    let capacity = status.capacity.unwrap_or_default();
    assert!(
        ["cpu", "memory", "ephemeral-storage", "pods"].iter().all(|name| capacity.contains_key(*name)),
        "{capacity:?}"
    );
    let lease = Api::<Lease>::namespaced(cluster.client(), "kube-node-lease").get("kubewright").await.expect("a lease");
    assert!(lease.spec.is_some_and(|spec| spec.renew_time.is_some()));
    let drivers = Api::<CSINode>::all(cluster.client()).get("kubewright").await.expect("its storage drivers");
    assert!(drivers.spec.drivers.is_empty());
    assert_eq!(drivers.owner_references()[0].uid, node.uid().unwrap_or_default());
    let is_marked = |node: &Node| node.annotations().get("node.alpha.kubernetes.io/ttl").is_some_and(|ttl| ttl == "0");
    cluster
        .expect::<Node>(|nodes| nodes.iter().any(|node| is_marked(node)))
        .await
        .expect("the annotation of a small cluster");
    assert!(drivers.annotations()["storage.alpha.kubernetes.io/migrated-plugins"].contains("kubernetes.io/aws-ebs,"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn ends() {
    let cluster = running().await;
    let check = async |name: &str, command: &str, policy: &str, expect: (&str, i32, &str)| {
        create(&cluster, &pod(name, command, json!({"restartPolicy": policy}))).await;
        let ended = until(&cluster, name, |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
        let reason = state(&ended).terminated.and_then(|ended| ended.reason).unwrap_or_default();
        assert_eq!((phase(&ended), exit_code(&ended).unwrap_or(-1), reason.as_str()), expect, "{name}");
        assert_eq!(condition(&ended, "Ready"), "False");
        assert_eq!(condition(&ended, "PodScheduled"), "True");
    };
    check("well", "echo YAY", "OnFailure", ("Succeeded", 0, "Completed")).await;
    check("badly", "exit 42", "Never", ("Failed", 42, "Error")).await;
    check("killed", "kill -KILL $$$$", "Never", ("Failed", 137, "Error")).await;
    check("no-input", "cat", "Never", ("Succeeded", 0, "Completed")).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_running_pod_is_ready_and_has_events() {
    let cluster = running().await;
    create(&cluster, &pod("web", "sleep 1000", json!({}))).await;
    let found = until(&cluster, "web", is_running).await;
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        assert_eq!(condition(&found, kind), "True", "{kind}");
    }
    let status = found.status.clone().unwrap_or_default();
    assert!(status.pod_ip.is_some_and(|ip| ip.starts_with("127.")));
    assert!(status.host_ip.is_some() && status.start_time.is_some());
    assert_eq!(found.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("kubewright"));
    assert!(container(&found).ready);
    let reasons = |events: &[&Event]| {
        let about = |(reason, field): (&str, Option<&str>)| {
            events.iter().any(|event| {
                let about = &event.involved_object;
                event.reason.as_deref() == Some(reason)
                    && about.name.as_deref() == Some("web")
                    && about.field_path.as_deref() == field
            })
        };
        let field = Some("spec.containers{main}");
        [("Scheduled", None), ("Pulled", field), ("Created", field), ("Started", field)].into_iter().all(about)
    };
    cluster.expect(reasons).await.expect("events");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_crash_is_restarted_at_once_then_backs_off() {
    let cluster = running().await;
    create(&cluster, &pod("crash", "exit 3", json!({"restartPolicy": "Always"}))).await;
    let found = until(&cluster, "crash", |pod| waiting_reason(pod) == "CrashLoopBackOff").await;
    let status = container(&found);
    assert_eq!(status.restart_count, 1);
    let last = status.last_state.and_then(|state| state.terminated).expect("the last end");
    assert_eq!(last.exit_code, 3);
    let message = state(&found).waiting.and_then(|waiting| waiting.message).unwrap_or_default();
    let uid = found.uid().unwrap_or_default();
    assert_eq!(message, format!("back-off 10s restarting failed container=main pod=crash_default({uid})"));
    assert_eq!(phase(&found), "Running");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_container_that_fails_once_succeeds_on_its_second_run() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    let command = format!("test -e {0} && exit 0; touch {0}; exit 1", mark.display());
    create(&cluster, &pod("twice", &command, json!({"restartPolicy": "OnFailure"}))).await;
    let ended = until(&cluster, "twice", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(container(&ended).restart_count, 1);
    cluster.shutdown().await;
}

#[tokio::test]
async fn unknown_images_and_programs() {
    let cluster = running().await;
    let image = |image: &str| json!({"containers": [{"name": "main", "image": image}]});
    create(&cluster, &pod("unknown", "", image("example.com/nothing:1"))).await;
    let found = until(&cluster, "unknown", |pod| waiting_reason(pod) == "ErrImagePull").await;
    assert_eq!(phase(&found), "Pending");
    let found = until(&cluster, "unknown", |pod| waiting_reason(pod) == "ImagePullBackOff").await;
    let message = state(&found).waiting.and_then(|waiting| waiting.message).unwrap_or_default();
    assert!(message.contains("example.com/nothing:1"), "{message}");

    create(&cluster, &pod("invalid", "", image("Not An Image"))).await;
    until(&cluster, "invalid", |pod| waiting_reason(pod) == "InvalidImageName").await;

    let command = json!({"containers": [{"name": "main", "image": "busybox", "command": ["no-such-tool"]}]});
    create(&cluster, &pod("no-tool", "", command)).await;
    let failed = until(&cluster, "no-tool", |pod| phase(pod) == "Failed").await;
    let ended = state(&failed).terminated.expect("it has ended");
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (128, Some("StartError")));
    assert!(ended.message.unwrap_or_default().contains("executable file not found in $PATH"));

    // They can be deleted like any other.
    for name in ["unknown", "invalid", "no-tool"] {
        pods(&cluster).delete(name, &DeleteParams::default()).await.expect("accepted");
        gone(&cluster, name).await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn init_containers_run_first_and_in_order() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let shell =
        |name: &str, command: String| json!({"name": name, "image": "busybox", "command": ["sh", "-c", command]});
    let spec = json!({
        "initContainers": [shell("a", format!("echo a >> {log}")), shell("b", format!("echo b >> {log}"))],
        "containers": [shell("main", format!("echo main >> {log}"))],
    });
    create(&cluster, &pod("ordered", "", spec)).await;
    let ended = until(&cluster, "ordered", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(std::fs::read_to_string(&log).expect("written"), "a\nb\nmain\n");
    assert_eq!(condition(&ended, "Initialized"), "True");

    let spec = json!({"initContainers": [shell("a", "exit 7".into())], "containers": [shell("main", "true".into())]});
    create(&cluster, &pod("stuck", "", spec)).await;
    let failed = until(&cluster, "stuck", |pod| phase(pod) == "Failed").await;
    assert_eq!(state(&failed).waiting.and_then(|waiting| waiting.reason).as_deref(), Some("PodInitializing"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn deletion_terminates_gracefully() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (ready, mark) = (folder.path().join("ready"), folder.path().join("mark"));
    let command = format!(
        "trap 'touch {}; exit 0' TERM; touch {}; while true; do sleep 0.05; done",
        mark.display(),
        ready.display()
    );
    create(&cluster, &pod("polite", &command, json!({}))).await;
    until(&cluster, "polite", is_running).await;
    wait_for(&ready).await;
    pods(&cluster).delete("polite", &DeleteParams::default()).await.expect("accepted");
    gone(&cluster, "polite").await;
    assert!(mark.exists(), "it was asked");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_deleted_pod_can_be_read_for_a_while_unless_it_is_forced() {
    let cluster = running().await;
    let command = "trap 'exit 0' TERM; while true; do sleep 0.01; done";
    let clock = kubewright_apimachinery::clock::SystemClock::shared();
    let mut lasted = Vec::new();
    for (name, options) in [("polite", DeleteParams::default()), ("forced", deletion(0))] {
        create(&cluster, &pod(name, command, json!({}))).await;
        until(&cluster, name, is_running).await;
        let start = clock.monotonic();
        pods(&cluster).delete(name, &options).await.expect("accepted");
        let found = pods(&cluster).get_opt(name).await.expect("an answer");
        lasted.push((clock.monotonic() - start, found.is_some()));
        gone(&cluster, name).await;
        lasted.push((clock.monotonic() - start, false));
    }
    let visible = std::time::Duration::from_millis(200);
    assert!(lasted[0].1 || lasted[0].0 > visible, "{lasted:?}");
    assert!(lasted[1].0 >= visible, "{lasted:?}");
    assert!(!lasted[2].1, "a forced deletion removes the object at once");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed_after_the_grace_period() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    let command = format!("trap '' TERM; touch {}; while true; do sleep 0.05; done", ready.display());
    create(&cluster, &pod("stubborn", &command, json!({}))).await;
    until(&cluster, "stubborn", is_running).await;
    wait_for(&ready).await;
    let clock = kubewright_apimachinery::clock::SystemClock::shared();
    pods(&cluster).delete("stubborn", &deletion(1)).await.expect("accepted");
    let dying = until(&cluster, "stubborn", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!(dying.metadata.deletion_grace_period_seconds, Some(1));
    gone(&cluster, "stubborn").await;
    let took = clock.monotonic();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn force_deletion_does_not_wait() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let id = folder.path().join("id");
    let command =
        format!("trap '' TERM; echo $$$$ > {0}.new; mv {0}.new {0}; while true; do sleep 0.05; done", id.display());
    create(&cluster, &pod("forced", &command, json!({}))).await;
    until(&cluster, "forced", is_running).await;
    wait_for(&id).await;
    let process = std::fs::read_to_string(&id).expect("written");
    pods(&cluster).delete("forced", &deletion(0)).await.expect("deleted");
    assert!(pods(&cluster).get_opt("forced").await.expect("answered").is_none(), "at once");
    let path = std::path::PathBuf::from(format!("/proc/{}", process.trim()));
    for _ in 0..500 {
        if !path.exists() {
            return cluster.shutdown().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the process {process} lives on");
}

#[tokio::test]
async fn a_deadline_fails_the_pod() {
    let cluster = running().await;
    let spec = json!({"activeDeadlineSeconds": 1, "restartPolicy": "Always"});
    create(&cluster, &pod("slow", "sleep 1000", spec)).await;
    let failed = until(&cluster, "slow", |pod| phase(pod) == "Failed").await;
    let reason = failed.status.as_ref().and_then(|status| status.reason.clone());
    assert_eq!(reason.as_deref(), Some("DeadlineExceeded"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn many_pods_at_once() {
    let cluster = running().await;
    for index in 0..40 {
        create(&cluster, &pod(&format!("p{index}"), "sleep 1000", json!({}))).await;
    }
    cluster.expect::<Pod>(|pods| pods.len() == 40 && pods.iter().all(|pod| is_running(pod))).await.expect("all run");
    pods(&cluster).delete_collection(&DeleteParams::default(), &Default::default()).await.expect("accepted");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("all gone");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_status_that_others_wipe_is_written_again() {
    let cluster = running().await;
    create(&cluster, &pod("web", "sleep 1000", json!({}))).await;
    until(&cluster, "web", is_running).await;
    let wipe = kube::api::Patch::Merge(json!({"status": {"phase": "Pending", "containerStatuses": null}}));
    pods(&cluster).patch_status("web", &Default::default(), &wipe).await.expect("wiped");
    until(&cluster, "web", is_running).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_steady_pod_is_not_written_to() {
    let cluster = running().await;
    create(&cluster, &pod("web", "sleep 1000", json!({}))).await;
    until(&cluster, "web", is_running).await;
    let started = |events: &[&Event]| events.iter().any(|event| event.reason.as_deref() == Some("Started"));
    cluster.expect(started).await.expect("the last event");
    let version = pods(&cluster).get("web").await.expect("the pod").resource_version();
    // Longer than any retry takes.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(pods(&cluster).get("web").await.expect("the pod").resource_version(), version);
    cluster.shutdown().await;
}

/// Waits until a process of a pod has created a file. There is no event to wait for.
async fn wait_for(path: &std::path::Path) {
    for _ in 0..1000 {
        if path.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} is not there", path.display());
}

#[tokio::test]
async fn the_lease_of_the_node_is_created_again() {
    let cluster = running().await;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    let before = leases.get("kubewright").await.expect("a lease");
    leases.delete("kubewright", &DeleteParams::default()).await.expect("deleted");
    let renewed = |leases: &[&Lease]| leases.iter().any(|lease| lease.metadata.uid != before.metadata.uid);
    cluster.expect::<Lease>(renewed).await.expect("at the next renewal");
    cluster.shutdown().await;
}

/// Clients wait for this state, which is the last one of the object.
#[tokio::test]
async fn a_deleted_pod_is_removed_after_its_end_is_reported() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    for (name, code, phase) in [("quick", 0, "Succeeded"), ("failing", 3, "Failed")] {
        let trapped = folder.path().join(name);
        let command = format!("trap 'exit {code}' TERM; : > {}; while true; do sleep 0.1; done", trapped.display());
        create(&cluster, &pod(name, &command, json!({}))).await;
        let running = until(&cluster, name, is_running).await;
        wait_for(&trapped).await;
        let watched = WatchParams::default().fields(&format!("metadata.name={name}"));
        let changes = pods(&cluster).watch(&watched, &running.resource_version().expect("a version")).await;
        let mut changes = pin!(changes.expect("a watch"));
        pods(&cluster).delete(name, &DeleteParams::default()).await.expect("accepted");
        let mut last = running;
        while let Some(WatchEvent::Modified(pod)) = changes.try_next().await.expect("a change") {
            last = pod;
        }
        assert_eq!((crate::phase(&last), exit_code(&last)), (phase, Some(code)), "{name}");
        assert_eq!(condition(&last, "Ready"), "False", "{name}");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conditions_of_others_survive() {
    let cluster = running().await;
    let all = pods(&cluster);
    let containers: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| json!({"name": name, "image": "busybox", "command": ["sleep", "1000"]}))
        .collect();
    let write = async |number: u64| {
        let name = format!("p{number}");
        let spec = json!({"readinessGates": [{"conditionType": "example.com/ok"}], "containers": containers});
        create(&cluster, &pod(&name, "", spec)).await;
        // While the node reports the start of the containers.
        tokio::time::sleep(Duration::from_millis(number * 10)).await;
        let gate = json!({"status": {"conditions": [{"type": "example.com/ok", "status": "True"}]}});
        let patch = kube::api::Patch::Strategic(gate);
        all.patch_status(&name, &kube::api::PatchParams::default(), &patch).await.expect("patched");
    };
    futures::future::join_all((0..40).map(write)).await;
    let is_ready = |pod: &&Pod| condition(pod, "Ready") == "True";
    let ready = cluster.expect::<Pod>(|all| all.iter().filter(|pod| is_ready(pod)).count() == 40).await;
    let lost = |pods: Vec<Pod>| pods.iter().filter(|pod| condition(pod, "example.com/ok").is_empty()).count();
    let found = all.list(&kube::api::ListParams::default()).await.expect("listed").items;
    assert!(ready.is_ok(), "{} of 40 conditions are lost", lost(found));
    cluster.shutdown().await;
}
