//! Containers with file systems and processes of their own.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{LogParams, Patch, PatchParams};
use kubewright_cluster::{Cluster, Pods, StartError};
use serde_json::{Value, json};

use crate::{
    create, eventually,
    exec::{Exec, V5, path},
    exit_code, is_running, phase, pod, pods, until,
    wire::listen,
};

/// A cluster with isolated containers; `None` on a host that can't make them, which the cluster says.
async fn cluster() -> Option<Cluster> {
    match Cluster::builder().pods(Pods::Run).isolate_containers(true).start().await {
        Ok(cluster) => Some(cluster),
        Err(StartError::Isolation(why)) => {
            let folder = tempfile::tempdir().expect("a folder");
            let script = "mkdir u w n && mount -t overlay overlay -o lowerdir=/,upperdir=u,workdir=w,volatile n";
            let mut tried = std::process::Command::new("unshare");
            let tried = tried.args(["--mount", "sh", "-c", script]).current_dir(folder.path()).output();
            assert!(!tried.is_ok_and(|output| output.status.success()), "the host could make them: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_done(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

async fn log_of(cluster: &Cluster, name: &str, command: &str, more: Value) -> String {
    create(cluster, &pod(name, command, more)).await;
    until(cluster, name, is_done).await;
    pods(cluster).logs(name, &LogParams::default()).await.expect("a log")
}

#[tokio::test]
async fn files_of_containers_are_their_own() {
    let Some(cluster) = cluster().await else { return };
    let command = "[ -e /tmp/kubewright-own ] && echo there; echo $HOSTNAME >/tmp/kubewright-own; mv /tmp/kubewright-own /kubewright-moved; \
                   cat /kubewright-moved; exec sleep 1000";
    for name in ["one", "two"] {
        create(&cluster, &pod(name, command, json!({}))).await;
    }
    for name in ["one", "two"] {
        until(&cluster, name, is_running).await;
        let own = format!("{name}\n");
        eventually("its own file", async || {
            pods(&cluster).logs(name, &LogParams::default()).await.ok().filter(|text| *text == own)
        })
        .await;
    }
    assert!(!Path::new("/tmp/kubewright-own").exists() && !Path::new("/kubewright-moved").exists());
    cluster.shutdown().await;
}

#[tokio::test]
async fn commands_and_hooks_share_the_files_of_the_container() {
    let Some(cluster) = cluster().await else { return };
    let hook = json!({"postStart": {"exec": {"command": ["sh", "-c", "echo hook >/tmp/kubewright-hook"]}}});
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/kubewright-ready"]}, "periodSeconds": 1});
    let command = "until grep hook /tmp/kubewright-hook && grep exec /kubewright-exec; do sleep 0.02; done; \
                   touch /tmp/kubewright-ready; exec sleep 1000";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", command], "lifecycle": hook,
        "readinessProbe": probe});
    create(&cluster, &pod("main", "", json!({"containers": [container]}))).await;
    until(&cluster, "main", is_running).await;
    let endpoint = listen(&cluster).await;
    let words = ["sh", "-c", "echo exec >/kubewright-exec; cat /tmp/kubewright-hook"];
    let mut exec = Exec::open(&endpoint, V5, &path("main", "stdout=true", &words)).await;
    let (stdout, stderr, result) = exec.rest().await;
    assert_eq!((stdout.as_str(), &result["status"]), ("hook\n", &json!("Success")), "{stderr}");
    until(&cluster, "main", |pod| {
        pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).is_some_and(|all| all[0].ready)
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_restart_begins_with_the_files_of_the_image() {
    let Some(cluster) = cluster().await else { return };
    let command = "echo run >>/var/kubewright-runs; echo run >>/data/runs; wc -l </var/kubewright-runs; [ $(wc -l </data/runs) = 2 ]";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", command], "workingDir": "/kubewright-work/deep",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let spec =
        json!({"restartPolicy": "OnFailure", "containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]});
    assert_eq!(log_of(&cluster, "main", "", spec).await.trim(), "1");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_working_directory_is_created() {
    let Some(cluster) = cluster().await else { return };
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", "pwd; touch own; ls"],
        "workingDir": "/kubewright-work/deep"});
    let log = log_of(&cluster, "main", "", json!({"containers": [container], "restartPolicy": "Never"})).await;
    assert_eq!(log, "/kubewright-work/deep\nown\n");
    assert!(!Path::new("/kubewright-work").exists());
    assert_eq!(log_of(&cluster, "plain", "pwd", json!({"restartPolicy": "Never"})).await, "/\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_directory_of_temporary_files_is_the_usual_one() {
    let Some(cluster) = cluster().await else { return };
    let text = log_of(&cluster, "temporary", "echo ${TMPDIR-none}; dirname $(mktemp)", json!({})).await;
    assert_eq!(text, "none\n/tmp\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn volumes_are_shared_and_a_root_can_be_read_only() {
    let Some(cluster) = cluster().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let pod_with = |script: &str, read_only: bool| {
        let mounts = ["data", "memory", "host"].map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
        let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script], "volumeMounts": mounts,
            "securityContext": {"readOnlyRootFilesystem": read_only}});
        let volumes = json!([{"name": "data", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "host", "hostPath": {"path": folder.path()}}]);
        json!({"restartPolicy": "Never", "containers": [container], "volumes": volumes})
    };
    let script = "for dir in data memory host; do touch /$dir/a $KUBEWRIGHT_ROOT/$dir/b; ls /$dir; done";
    assert_eq!(log_of(&cluster, "both", "", pod_with(script, false)).await, "a\nb\n".repeat(3));
    assert!(folder.path().join("a").exists() && folder.path().join("b").exists());
    let script =
        "for dir in data memory host . /tmp / /var; do touch /$dir/kubewright-file 2>/dev/null && echo $dir; done";
    assert_eq!(log_of(&cluster, "sealed", "", pod_with(script, true)).await, "data\nmemory\nhost\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn directories_of_the_host_are_shared_at_their_own_paths() {
    let Some(cluster) = cluster().await else { return };
    let (open, sealed) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let paths = [open.path(), sealed.path()];
    let mounts = json!([
        {"name": "open", "mountPath": paths[0]}, {"name": "sealed", "mountPath": paths[1], "readOnly": true},
    ]);
    let script =
        format!("for dir in {} {}; do echo >$dir/file; done 2>/dev/null", paths[0].display(), paths[1].display());
    let container =
        json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script], "volumeMounts": mounts});
    let volumes =
        json!([{"name": "open", "hostPath": {"path": paths[0]}}, {"name": "sealed", "hostPath": {"path": paths[1]}}]);
    let spec = json!({"restartPolicy": "Never", "containers": [container], "volumes": volumes});
    create(&cluster, &pod("writer", "", spec)).await;
    until(&cluster, "writer", is_done).await;
    assert_eq!(paths.map(|path| path.join("file").exists()), [true, false]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_volume_in_memory_has_its_size_and_survives_restarts() {
    let Some(cluster) = cluster().await else { return };
    let mount = json!([
        {"name": "memory", "mountPath": "/memory"}, {"name": "memory", "mountPath": "/part", "subPath": "deep/part"},
    ]);
    let container = |name: &str, script: &str| json!({"name": name, "image": "busybox", "command": ["sh", "-c", script], "volumeMounts": mount});
    let first = "echo run >>/memory/runs; df -k /memory | tail -1 | tr -s ' ' | cut -d' ' -f1,2; \
                 head -c 2M /dev/zero 2>/dev/null >/memory/large || rm /memory/large; [ $(wc -l </memory/runs) = 2 ]";
    let second = "until [ -s /memory/runs ]; do sleep 0.05; done; echo shared >/part/file; cat /memory/deep/part/file";
    let volumes = json!([{"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]);
    let spec = json!({"restartPolicy": "OnFailure", "containers": [container("main", first), container("other", second)], "volumes": volumes});
    create(&cluster, &pod("memory", "", spec)).await;
    let done = until(&cluster, "memory", is_done).await;
    assert_eq!(phase(&done), "Succeeded");
    let log = async |container: &str| {
        let of = LogParams { container: Some(container.into()), ..LogParams::default() };
        pods(&cluster).logs("memory", &of).await.expect("a log")
    };
    assert!(log("main").await.starts_with("tmpfs 1024\n"));
    assert_eq!(log("other").await, "shared\n");
    let uid = done.metadata.uid.expect("a UID");
    let mounted = || std::fs::read_to_string("/proc/self/mountinfo").expect("mounts").contains(&uid);
    assert!(mounted());
    pods(&cluster).delete("memory", &Default::default()).await.expect("deleted");
    eventually("no mount", async || (!mounted()).then_some(())).await;
    cluster.shutdown().await;
}

/// A directory that is a shared mount, as those of most hosts are.
struct SharedMount(tempfile::TempDir);

impl SharedMount {
    fn new() -> Self {
        let mount = Self(tempfile::tempdir().expect("a folder"));
        mount.run("mount --bind . . && mount --make-shared \"$PWD\"");
        mount
    }

    fn run(&self, script: &str) {
        let status = std::process::Command::new("sh").args(["-c", script]).current_dir(self.0.path()).status();
        assert!(status.expect("a shell").success(), "{script}");
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        let path = self.0.path();
        let _ended = std::process::Command::new("umount").args(["--recursive", "--lazy"]).arg(path).status();
    }
}

#[tokio::test]
async fn mounts_are_seen_as_far_as_containers_ask_for() {
    let Some(cluster) = cluster().await else { return };
    let host = SharedMount::new();
    let file = |path: &str| std::fs::read_to_string(host.0.path().join(path)).unwrap_or_default();
    let start = async |name: &str, propagation: Option<&str>, script: &str| {
        let mounts = json!([
            {"name": "host", "mountPath": "/host", "mountPropagation": propagation},
            {"name": "own", "mountPath": "/own", "mountPropagation": propagation},
        ]);
        let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script],
            "securityContext": {"privileged": true}, "volumeMounts": mounts});
        let volumes = json!([{"name": "host", "hostPath": {"path": host.0.path()}}, {"name": "own", "emptyDir": {}}]);
        create(&cluster, &pod(name, "", json!({"containers": [container], "volumes": volumes}))).await;
        until(&cluster, name, is_running).await;
    };
    let wait = "until [ -s /host/both/file ]; do sleep 0.05; done; until [ -s /host/from-host/file ]; do sleep 0.05; done; \
                touch /host/seen; sleep 1000";
    start("slave", Some("HostToContainer"), wait).await;
    let look = "touch /host/looks; until [ -e /host/seen ]; do sleep 0.05; done; cat /host/both/file /host/from-host/file 2>/dev/null; echo none; sleep 1000";
    start("private", None, look).await;
    eventually("the container looks", async || host.0.path().join("looks").exists().then_some(())).await;
    let script = "mkdir /host/both /own/nested && mount -t tmpfs tmpfs /host/both && mount -t tmpfs tmpfs /own/nested && \
                  echo both >/host/both/file; sleep 1000";
    start("both", Some("Bidirectional"), script).await;
    eventually("the mount on the host", async || (file("both/file") == "both\n").then_some(())).await;
    host.run("mkdir from-host && mount -t tmpfs tmpfs from-host && echo host >from-host/file");
    eventually("the mounts in the container", async || host.0.path().join("seen").exists().then_some(())).await;
    let log =
        async || pods(&cluster).logs("private", &LogParams::default()).await.ok().filter(|log| log.ends_with("none\n"));
    let log = eventually("what the container sees", log).await;
    assert!(!log.contains("both\n") && !log.contains("host\n"), "{log}");
    let uid = pods(&cluster).get("both").await.expect("a pod").metadata.uid.expect("a UID");
    let mounted = || std::fs::read_to_string("/proc/self/mountinfo").expect("mounts").contains(&uid);
    assert!(mounted());
    let now = kube::api::DeleteParams::default().grace_period(0);
    pods(&cluster).delete("both", &now).await.expect("deleted");
    eventually("no mount of the pod", async || (!mounted()).then_some(())).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_mount_that_the_host_does_not_share_is_not_propagated_to_it() {
    let Some(cluster) = cluster().await else { return };
    let host = SharedMount::new();
    host.run("mount --make-private \"$PWD\"");
    let mounts = json!([{"name": "host", "mountPath": "/host", "mountPropagation": "Bidirectional"}]);
    let container =
        json!({"name": "main", "image": "busybox", "securityContext": {"privileged": true}, "volumeMounts": mounts});
    let volumes = json!([{"name": "host", "hostPath": {"path": host.0.path()}}]);
    create(&cluster, &pod("private", "", json!({"containers": [container], "volumes": volumes}))).await;
    let path = host.0.path().display().to_string();
    let why = format!("path {path:?} is mounted on {path:?} but it is not a shared mount");
    until(&cluster, "private", |pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let waiting = statuses.and_then(|all| all.first()?.state.as_ref()?.waiting.as_ref());
        waiting.is_some_and(|waiting| {
            waiting.reason.as_deref() == Some("CreateContainerError") && waiting.message.as_deref() == Some(&*why)
        })
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn processes_of_containers_are_their_own() {
    let Some(cluster) = cluster().await else { return };
    let command = "trap 'exit 7' TERM; echo $$$$; while :; do sleep 0.02; done";
    create(&cluster, &pod("main", command, json!({}))).await;
    until(&cluster, "main", is_running).await;
    let endpoint = listen(&cluster).await;
    let words = ["sh", "-c", "ls /proc | grep -c '^[0-9]'; kill -TERM 1"];
    let mut exec = Exec::open(&endpoint, V5, &path("main", "stdout=true", &words)).await;
    let (stdout, ..) = exec.rest().await;
    let count: u32 = stdout.trim().parse().expect("a number");
    assert!(count < 20, "{count} processes are seen");
    let ended = until(&cluster, "main", is_done).await;
    assert_eq!(exit_code(&ended), Some(7));
    assert_eq!(pods(&cluster).logs("main", &LogParams::default()).await.expect("a log"), "1\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn containers_of_a_pod_can_share_their_processes() {
    let Some(cluster) = cluster().await else { return };
    let container =
        |name: &str, command: &str| json!({"name": name, "image": "busybox", "command": ["sh", "-c", command]});
    // The first process of the namespace is neither's. Each file system is that of the process in whose directory it
    // is.
    let server = "trap 'exit 7' USR1; (sleep 0.02 & exit); sleep 1000 & echo secret >/tmp/kubewright-own; wait";
    let client = "[ $$$$ = 1 ] && exit 1; tr '\\0' ' ' </proc/1/cmdline; echo; ls /proc | grep -c '^[0-9]'; \
                  while grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.02; done; \
                  until other=$(grep -ls 'exit [7]' /proc/[0-9]*/cmdline) && own=${other%/cmdline}/root/tmp/kubewright-own && [ -s \"$own\" ]; \
                  do sleep 0.02; done; cat $own; other=${other%/cmdline}; kill -s USR1 ${other#/proc/}";
    let spec = json!({"shareProcessNamespace": true, "restartPolicy": "Never",
        "containers": [container("server", server), container("client", client)]});
    create(&cluster, &pod("shared", "", spec)).await;
    let ended = until(&cluster, "shared", is_done).await;
    let logs = LogParams { container: Some("client".into()), ..LogParams::default() };
    let log = pods(&cluster).logs("shared", &logs).await.expect("a log");
    let [first, count, own] = log.lines().collect::<Vec<_>>()[..] else { panic!("{log}") };
    assert_eq!((first.trim(), own), ("cat", "secret"));
    assert!(count.parse::<u32>().expect("a number") < 20, "{log}");
    let statuses = ended.status.and_then(|status| status.container_statuses).expect("statuses");
    let code = |name: &str| {
        let status = statuses.iter().find(|status| status.name == name).and_then(|status| status.state.clone());
        status.and_then(|state| state.terminated).map(|state| state.exit_code)
    };
    assert_eq!((code("server"), code("client")), (Some(7), Some(0)));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_container_that_needs_more_memory_than_its_limit_is_killed() {
    let Some(cluster) = cluster().await else { return };
    // What reads a line needs memory for all of it.
    let command = "until [ -e /tmp/kubewright-go ]; do sleep 0.02; done; head -c 64M /dev/zero | tail -n 1 >/dev/null";
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", command],
        "resources": {"limits": {"memory": "16Mi"}}});
    for name in ["limited", "resized"] {
        let pod = pod(name, "", json!({"containers": [container], "restartPolicy": "Never"}));
        create(&cluster, &pod).await;
        until(&cluster, name, is_running).await;
    }
    if !has_limits(&cluster).await {
        return cluster.shutdown().await;
    }
    let larger = json!({"spec": {"containers": [{"name": "main",
        "resources": {"limits": {"memory": "256Mi"}, "requests": {"memory": "256Mi"}}}]}});
    pods(&cluster)
        .patch_subresource("resize", "resized", &PatchParams::default(), &Patch::Strategic(larger))
        .await
        .expect("a resize");
    until(&cluster, "resized", |pod| {
        let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?[0].resources.clone());
        status.and_then(|resources| resources.limits?.get("memory").cloned()).is_some_and(|limit| limit.0 == "256Mi")
    })
    .await;
    let endpoint = listen(&cluster).await;
    for (name, ending) in [("limited", ("OOMKilled", 137)), ("resized", ("Completed", 0))] {
        let mut exec = Exec::open(&endpoint, V5, &path(name, "stdout=true", &["touch", "/tmp/kubewright-go"])).await;
        exec.rest().await;
        let pod = until(&cluster, name, is_done).await;
        let state = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?[0].state.as_ref());
        let ended = state.and_then(|state| state.terminated.as_ref()).expect("an ended container");
        assert_eq!((ended.reason.as_deref(), ended.exit_code), (Some(ending.0), ending.1), "{name}: {ended:?}");
    }
    cluster.shutdown().await;
}

/// Returns whether the host can limit the memory of the containers.
async fn has_limits(cluster: &Cluster) -> bool {
    let endpoint = listen(cluster).await;
    let mut exec = Exec::open(&endpoint, V5, &path("limited", "stdout=true", &["cat", "/proc/self/cgroup"])).await;
    let (groups, ..) = exec.rest().await;
    let is_limited = groups.contains("/kubewright/");
    let folders = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(|root| Path::new(root).join("kubewright-trial"));
    let can_create = folders.iter().any(|folder| {
        let is_made = std::fs::create_dir(folder).is_ok() && folder.join("cgroup.procs").exists();
        let is_limit = ["memory.limit_in_bytes", "memory.max"].iter().any(|file| folder.join(file).exists());
        let _none = std::fs::remove_dir(folder);
        is_made && is_limit
    });
    assert!(is_limited || !can_create, "the container has no group of its own: {groups}");
    is_limited
}
