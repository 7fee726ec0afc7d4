//! The content and paths of a container's volumes.

use std::{os::unix::fs::symlink, path::Path};

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, LogParams, Patch, PatchParams, PostParams},
};
use kubewright_cluster::{Cluster, Endpoint, ImageTable, Pods, Program};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::{
    config_maps, create, eventually,
    exec::{Exec, V5},
    is_running, phase, pod, pods, running, until, waiting_reason,
    wire::{listen, request},
};

fn container(name: &str, command: &str, mounts: Value) -> Value {
    json!({"name": name, "image": "busybox", "command": ["sh", "-c", command], "volumeMounts": mounts})
}

async fn config_map(cluster: &Cluster, name: &str) {
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": name}, "data": {"COLOR": "red"}})).expect("a map");
    config_maps(cluster).create(&PostParams::default(), &map).await.expect("created");
}

pub(crate) async fn wait_for_event(cluster: &Cluster, reason: &str, message: &str) {
    let says = |event: &Event| {
        event.reason.as_deref() == Some(reason) && event.message.as_deref().unwrap_or_default().contains(message)
    };
    cluster.expect::<Event>(|events| events.iter().any(|event| says(event))).await.expect("an event");
}

#[tokio::test]
async fn files_are_found_below_the_root() {
    let cluster = running().await;
    config_map(&cluster, "settings").await;
    let secret = serde_json::from_value(json!({"metadata": {"name": "keys"}, "stringData": {"token": "s3cret"}}));
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
    secrets.create(&PostParams::default(), &secret.expect("a secret")).await.expect("created");
    let field = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    let sources = json!([{"configMap": {"name": "settings"}}, {"downwardAPI": {"items": [field]}}]);
    let command = "cd $KUBEWRIGHT_ROOT && cat etc/config/COLOR && echo && cat run/keys/token && echo && cat all/* && echo && \
                   cat color";
    let mounts = json!([{"name": "config", "mountPath": "/etc/config"}, {"name": "keys", "mountPath": "/run/keys"},
        {"name": "all", "mountPath": "/all"}, {"name": "config", "mountPath": "/color", "subPath": "COLOR"}]);
    let spec = json!({
        "containers": [container("main", command, mounts)],
        "volumes": [{"name": "config", "configMap": {"name": "settings"}}, {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "all", "projected": {"sources": sources}}],
    });
    create(&cluster, &pod("reader", "", spec)).await;
    until(&cluster, "reader", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    let text = pods(&cluster).logs("reader", &LogParams::default()).await.expect("a log");
    assert_eq!(text, "red\ns3cret\nredreader\nred");
    if !has_mount_namespaces(&cluster).await {
        let message = "Container main has /etc/config, /run/keys, /all, /color, /var/run/secrets/kubernetes.io/serviceaccount below ";
        wait_for_event(&cluster, "VolumesElsewhere", message).await;
    }
    cluster.shutdown().await;
}

/// Returns whether the node has mount namespaces, which it says after the start of its first pod with volumes.
async fn has_mount_namespaces(cluster: &Cluster) -> bool {
    let note = |node: &Node| node.annotations().get("kubewright.dev/mount-namespaces").cloned();
    let nodes = cluster.expect::<Node>(|nodes| nodes.iter().any(|node| note(node).is_some())).await.expect("a note");
    nodes.iter().find_map(note).as_deref() == Some("true")
}

/// Reads a file of a container until it has this content.
async fn until_file_says(cluster: &Cluster, endpoint: &Endpoint, pod: &str, path: &str, expect: &str) {
    let path = format!(
        "/api/v1/namespaces/default/pods/{pod}/exec?stdout=1&stderr=1&command=sh&command=-c&command=cat+{path}"
    );
    eventually(&format!("{path}: {expect}"), async || {
        let (out, ..) = Exec::open(endpoint, V5, &path).await.rest().await;
        (out == expect).then_some(())
    })
    .await;
    assert!(!has_ended(cluster, pod).await, "the container is the same");
}

async fn has_ended(cluster: &Cluster, pod: &str) -> bool {
    !is_running(&pods(cluster).get(pod).await.expect("the pod"))
}

/// The hosts file has what the kubelet writes, and follows the Services in place of DNS.
#[tokio::test]
async fn services_are_found_by_name() {
    let cluster = running().await;
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let make = async |name: &str| {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        let service = serde_json::from_value(service).expect("a service");
        let made = services.create(&PostParams::default(), &service).await.expect("created");
        made.spec.and_then(|spec| spec.cluster_ip).expect("an address")
    };
    let web = make("web").await;
    let command = "cat /etc/hosts; until grep -w late.default.svc /etc/hosts; do sleep 0.02; done";
    let aliases = json!([{"ip": "127.0.0.9", "hostnames": ["one.example", "two.example"]}]);
    create(&cluster, &pod("reader", command, json!({"hostAliases": aliases}))).await;
    let started = until(&cluster, "reader", |pod| is_running(pod) || phase(pod) == "Succeeded").await;
    if !has_mount_namespaces(&cluster).await {
        return cluster.shutdown().await;
    }
    let late = make("late").await;
    until(&cluster, "reader", |pod| phase(pod) == "Succeeded").await;
    let text = pods(&cluster).logs("reader", &LogParams::default()).await.expect("a log");
    let address = started.status.and_then(|status| status.pod_ip).expect("an address");
    for line in [
        "127.0.0.1\tlocalhost".to_owned(),
        format!("{address}\treader"),
        "127.0.0.9\tone.example\ttwo.example".to_owned(),
        format!("{web}\tweb.default.svc.cluster.local\tweb.default.svc\tweb.default\tweb"),
        format!("{late}\tlate.default.svc.cluster.local\tlate.default.svc\tlate.default\tlate"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(text.contains("\tkubernetes.default.svc.cluster.local\t"), "{text}");
    // A volume at its path is what the container has asked for.
    let own = container("main", "cat /etc/hosts", json!([{"name": "hosts", "mountPath": "/etc/hosts"}]));
    let spec = json!({"containers": [own], "volumes": [{"name": "hosts", "hostPath": {"path": "/etc/hosts"}}]});
    create(&cluster, &pod("host", "", spec)).await;
    until(&cluster, "host", |pod| phase(pod) == "Succeeded").await;
    let text = pods(&cluster).logs("host", &LogParams::default()).await.expect("a log");
    assert!(!text.contains("Kubernetes-managed"), "{text}");
    cluster.shutdown().await;
}

/// A message is a file at a path of the container, also in one of its volumes, or the end of the log.
#[tokio::test]
async fn containers_leave_messages_when_they_end() {
    let cluster = running().await;
    let ended = async |name: &str, command: &str, more: Value| {
        let mut main = container("main", command, json!([{"name": "shared", "mountPath": "/shared"}]));
        main.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spec = json!({"containers": [main], "volumes": [{"name": "shared", "emptyDir": {}}]});
        create(&cluster, &pod(name, "", spec)).await;
        let pod = until(&cluster, name, |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
        let statuses = pod.status.and_then(|status| status.container_statuses).expect("statuses");
        statuses[0].state.as_ref().and_then(|state| state.terminated.clone()).expect("ended").message
    };
    let own = "printf done > $KUBEWRIGHT_ROOT/dev/termination-log";
    assert_eq!(ended("own", own, json!({})).await.as_deref(), Some("done"));
    assert_eq!(ended("silent", "echo text", json!({})).await, None);
    let from_log = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let failing = "seq 100; exit 1";
    let text = ended("failing", failing, from_log.clone()).await.expect("a message");
    assert_eq!((text.lines().next(), text.lines().count()), (Some("21"), 80));
    assert_eq!(ended("succeeding", "seq 100", from_log.clone()).await, None);
    assert_eq!(ended("short", "printf done; exit 1", from_log).await.as_deref(), Some("done"));
    if has_mount_namespaces(&cluster).await {
        let usual = "test -c /dev/null && test -e /dev/stdout && printf usual > /dev/termination-log";
        assert_eq!(ended("usual", usual, json!({})).await.as_deref(), Some("usual"));
        let path = json!({"terminationMessagePath": "/shared/end"});
        assert_eq!(ended("shared", "printf there > /shared/end", path).await.as_deref(), Some("there"));
        assert!(!std::path::Path::new("/dev/termination-log").exists(), "nothing is created on the host");
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn files_follow_changes() {
    let cluster = running().await;
    let endpoint = listen(&cluster).await;
    config_map(&cluster, "settings").await;
    let field = json!({"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}});
    let mounts = json!([{"name": "config", "mountPath": "/etc/config"}, {"name": "info", "mountPath": "/info"},
        {"name": "config", "mountPath": "/color", "subPath": "COLOR"}]);
    let spec = json!({
        "containers": [container("main", "exec sleep 1000", mounts)],
        "volumes": [{"name": "config", "configMap": {"name": "settings", "optional": true}},
            {"name": "info", "downwardAPI": {"items": [field]}}],
    });
    create(&cluster, &pod("follower", "", spec)).await;
    until(&cluster, "follower", is_running).await;
    let root = if has_mount_namespaces(&cluster).await { "" } else { "$KUBEWRIGHT_ROOT" };
    let at = |path: &str| format!("{root}{path}");
    until_file_says(&cluster, &endpoint, "follower", &at("/etc/config/COLOR"), "red").await;
    let patch = Patch::Merge(json!({"data": {"COLOR": "blue"}}));
    config_maps(&cluster).patch("settings", &PatchParams::default(), &patch).await.expect("patched");
    until_file_says(&cluster, &endpoint, "follower", &at("/etc/config/COLOR"), "blue").await;
    until_file_says(&cluster, &endpoint, "follower", &at("/color"), "red").await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"size": "big"}}}));
    pods(&cluster).patch("follower", &PatchParams::default(), &patch).await.expect("patched");
    until_file_says(&cluster, &endpoint, "follower", &at("/info/labels"), "size=\"big\"").await;
    config_maps(&cluster).delete("settings", &DeleteParams::default()).await.expect("deleted");
    until_file_says(&cluster, &endpoint, "follower", &at("/etc/config/COLOR"), "").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_program_finds_its_token_where_it_expects_it() {
    let cluster = running().await;
    let endpoint = listen(&cluster).await;
    let place = "/var/run/secrets/kubernetes.io/serviceaccount";
    let command = format!(
        "cd {place} || cd $KUBEWRIGHT_ROOT{place}; cat namespace; echo; cat token; echo; head -n 1 ca.crt; echo [$KUBECONFIG]"
    );
    let created = create(&cluster, &pod("robot", &command, json!({}))).await;
    let spec = created.spec.as_ref().expect("a spec");
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    until(&cluster, "robot", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    let text = pods(&cluster).logs("robot", &LogParams::default()).await.expect("a log");
    let is_in_place = has_mount_namespaces(&cluster).await;
    assert!(!is_in_place || !text.contains("cd:"), "{text}");
    let lines: Vec<_> = text.lines().filter(|line| !line.contains("cd:")).collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (4, "default", "-----BEGIN CERTIFICATE-----"));
    assert_eq!(lines[3] == "[]", is_in_place, "a kubeconfig would hide the configuration in the cluster: {}", lines[3]);
    // The account has no rights, so the refusal says who the server takes the bearer for. Its pod has to exist.
    let (mut stream, head) =
        request(&endpoint, lines[1], "GET /api/v1/namespaces/default/pods", &["Connection: close"]).await;
    let mut body = Vec::new();
    stream.read_to_end(&mut body).await.expect("the body");
    let body = String::from_utf8_lossy(&body);
    assert!(
        head.starts_with("HTTP/1.1 403 ") && body.contains("system:serviceaccount:default:default"),
        "{head} {body}"
    );
    assert!(!std::path::Path::new(place).exists(), "nothing is created on the host");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_pod_needs_an_account_that_exists() {
    let cluster = running().await;
    let named = pod("lost", "true", json!({"serviceAccountName": "nobody"}));
    let error = pods(&cluster).create(&PostParams::default(), &named).await.expect_err("refused").to_string();
    let expect = "pods \"lost\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" not found";
    assert!(error.contains(expect), "{error}");
    // The default account of a new namespace is waited for.
    let namespace = serde_json::from_value(json!({"metadata": {"name": "fresh"}})).expect("a namespace");
    Api::<Namespace>::all(cluster.client()).create(&PostParams::default(), &namespace).await.expect("created");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "fresh");
    let made = pods.create(&PostParams::default(), &pod("early", "true", json!({}))).await.expect("created");
    let owned = made.metadata.managed_fields.expect("owners")[0].fields_v1.clone().expect("fields").0.to_string();
    assert!(!owned.contains("volumes") && !owned.contains("serviceAccountName"), "{owned}");
    let volumes = made.spec.and_then(|spec| spec.volumes).unwrap_or_default();
    assert!(volumes[0].name.starts_with("kube-api-access-"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn without_their_controller_accounts_are_not_looked_up() {
    let cluster = Cluster::builder().api_only().start().await.expect("a cluster");
    let made = create(&cluster, &pod("plain", "true", json!({}))).await;
    let spec = made.spec.expect("a spec");
    assert_eq!((spec.service_account_name, spec.volumes), (None, None));
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_empty_directory_is_shared_and_outlives_a_container() {
    let cluster = running().await;
    let at = |path: &str| json!([{"name": "shared", "mountPath": path}]);
    let main = "test -e $KUBEWRIGHT_ROOT/in/second && cat $KUBEWRIGHT_ROOT/in/* && exit 0; touch $KUBEWRIGHT_ROOT/in/second; exit 1";
    let spec = json!({
        "restartPolicy": "OnFailure",
        "initContainers": [container("before", "echo hello > $KUBEWRIGHT_ROOT/out/first", at("/out"))],
        "containers": [container("main", main, at("/in"))],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    create(&cluster, &pod("sharing", "", spec)).await;
    let ended = until(&cluster, "sharing", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(crate::node::container(&ended).restart_count, 1);
    let log = LogParams { container: Some("main".into()), ..LogParams::default() };
    assert_eq!(pods(&cluster).logs("sharing", &log).await.expect("a log"), "hello\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_pod_beyond_its_limit_of_storage_is_evicted() {
    let cluster = running().await;
    let mut spec =
        json!({"containers": [container("main", "dd if=/dev/zero of=file bs=1M count=3; sleep 1000", json!([]))]});
    spec["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "2Mi"}});
    create(&cluster, &pod("large", "", spec)).await;
    let status = until(&cluster, "large", |pod| phase(pod) == "Failed").await.status.unwrap_or_default();
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some(message)));
    wait_for_event(&cluster, "Evicted", message).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_volume_does_not_hide_the_program_of_an_image_which_can_look_itself_up() {
    let place = tempfile::tempdir().expect("a folder");
    let program = place.path().join("program");
    symlink("/bin/sh", &program).expect("a program");
    let images = ImageTable::empty().with("example.com/program", Program::single(&program));
    let cluster = Cluster::builder().pods(Pods::Run).images(images).start().await.expect("a cluster");
    let mounts = json!([{"name": "v", "mountPath": place.path()}]);
    let args = ["-c", "exec program -c 'echo it runs'"];
    let main = json!({"name": "main", "image": "example.com/program", "args": args, "volumeMounts": mounts});
    let spec = json!({"restartPolicy": "Never", "containers": [main], "volumes": [{"name": "v", "emptyDir": {}}]});
    create(&cluster, &pod("hidden", "", spec)).await;
    until(&cluster, "hidden", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    assert_eq!(pods(&cluster).logs("hidden", &LogParams::default()).await.expect("a log"), "it runs\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_volume_at_the_directory_for_temporary_files_does_not_hide_the_pods_own_files() {
    let cluster = running().await;
    let place = std::env::temp_dir();
    let command = format!("echo own >file && cat $HOME/file && cd {0} && echo x >y && echo *", place.display());
    let mut spec = json!({"containers": [container("main", &command, json!([{"name": "v", "mountPath": place}]))]});
    spec["restartPolicy"] = json!("Never");
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    create(&cluster, &pod("hidden", "", spec)).await;
    until(&cluster, "hidden", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    if has_mount_namespaces(&cluster).await {
        assert_eq!(pods(&cluster).logs("hidden", &LogParams::default()).await.expect("a log"), "own\ny\n");
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_volume_below_the_directory_for_temporary_files_is_found_there() {
    let cluster = running().await;
    config_map(&cluster, "settings").await;
    // Programs in Go look for the certificates of their webhooks below the directory of temporary files.
    let command = "cat ${TMPDIR:-/tmp}/server/certificates/COLOR && touch ${TMPDIR:-/tmp}/kubewright-temporary";
    let mounts = json!([{"name": "v", "mountPath": "/tmp/server/certificates"}]);
    let mut spec = json!({"containers": [container("main", command, mounts)]});
    spec["restartPolicy"] = json!("Never");
    spec["volumes"] = json!([{"name": "v", "configMap": {"name": "settings"}}]);
    create(&cluster, &pod("found", "", spec)).await;
    let ended = until(&cluster, "found", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    assert_eq!(pods(&cluster).logs("found", &LogParams::default()).await.expect("a log"), "red");
    assert_eq!(phase(&ended), "Succeeded");
    assert!(!Path::new("/tmp/kubewright-temporary").exists(), "what the program creates stays with the pod");
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_name_of_the_host_is_that_of_the_pod() {
    let cluster = running().await;
    for (pod_name, host_network) in [("own", false), ("shared", true)] {
        create(&cluster, &pod(pod_name, "uname -n", json!({"hostNetwork": host_network}))).await;
        until(&cluster, pod_name, |pod| phase(pod) == "Succeeded").await;
    }
    if has_mount_namespaces(&cluster).await {
        let log = async |name: &str| pods(&cluster).logs(name, &LogParams::default()).await.expect("a log");
        assert_eq!(log("own").await, "own\n");
        assert_ne!(log("shared").await, "shared\n");
    }
    cluster.shutdown().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_empty_directory_can_be_in_memory() {
    let cluster = running().await;
    let mount = json!([{"name": "cache", "mountPath": "/cache"}]);
    let command = "echo x > $KUBEWRIGHT_ROOT/cache/file; stat -f -c %T $KUBEWRIGHT_ROOT/cache";
    let mut spec = json!({"containers": [container("main", command, mount)]});
    spec["volumes"] = json!([{"name": "cache", "emptyDir": {"medium": "Memory"}}]);
    create(&cluster, &pod("fast", "", spec)).await;
    let uid = until(&cluster, "fast", |pod| phase(pod) == "Succeeded").await.uid().expect("a UID");
    let text = pods(&cluster).logs("fast", &LogParams::default()).await.expect("a log");
    assert_eq!(text, "tmpfs\n");
    let nodes = std::fs::read_dir("/dev/shm").expect("it can be read").flatten();
    let mut files = nodes.map(|node| node.path().join(&uid).join("cache/file"));
    let file = files.find(|file| file.exists()).expect("the file");
    pods(&cluster).delete("fast", &crate::background()).await.expect("deleted");
    eventually("the volume is gone", async || (!file.exists()).then_some(())).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn containers_have_the_capabilities_that_they_ask_for() {
    let cluster = running().await;
    let command = "grep -E 'CapEff|NoNewPrivs' /proc/self/status | tr -d '\\t'";
    for (name, security, expect) in [
        ("plain", json!({}), "CapEff:00000000a80425ff\nNoNewPrivs:0\n"),
        (
            "few",
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
            "CapEff:0000000000000404\nNoNewPrivs:1\n",
        ),
    ] {
        let mut main = container("main", command, json!([]));
        main["securityContext"] = security;
        create(&cluster, &pod(name, "", json!({"containers": [main]}))).await;
        until(&cluster, name, |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
        let text = pods(&cluster).logs(name, &LogParams::default()).await.expect("a log");
        // Other users have no capabilities, and pass none on.
        if rustix::process::geteuid().is_root() {
            assert_eq!(text, expect);
        }
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn processes_and_volumes_have_the_users_and_groups_of_the_pod() {
    let cluster = running().await;
    config_map(&cluster, "settings").await;
    let command = "id -u; id -g; id -G; touch data/new part/new $HOME/made && stat -Lc '%n %u %g %a' data data/new part token/token etc/COLOR && \
                   echo written >/dev/stdout";
    let mounts = [("data", "/kubewright/data"), ("token", "/kubewright/token"), ("etc", "/kubewright/etc")];
    let mut mounts: Vec<_> = mounts.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect();
    mounts.push(json!({"name": "data", "mountPath": "/kubewright/part", "subPath": "a/b"}));
    let mut main = container("main", &format!("cd $KUBEWRIGHT_ROOT/kubewright; {command}"), json!(mounts));
    main["securityContext"] = json!({"runAsUser": 4000, "runAsGroup": 4001});
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let spec = json!({
        "securityContext": {"runAsUser": 1, "runAsNonRoot": true, "fsGroup": 4002, "supplementalGroups": [4003]},
        "containers": [main],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "token", "projected": {"sources": [token]}},
            {"name": "etc", "configMap": {"name": "settings", "defaultMode": 0o400}}],
    });
    create(&cluster, &pod("owner", "", spec.clone())).await;
    let ended = until(&cluster, "owner", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    let text = pods(&cluster).logs("owner", &LogParams::default()).await.expect("a log");
    if rustix::process::geteuid().is_root() {
        let files = "data 0 4002 2777\ndata/new 4000 4002 644\npart 0 4002 2777\ntoken/token 4000 4002 640\n\
                     etc/COLOR 0 4002 440\n";
        assert_eq!(text, format!("4000\n4001\n4001 4002 4003\n{files}written\n"));
        let status = &ended.status.expect("a status").container_statuses.expect("statuses")[0];
        let user = json!({"linux": {"uid": 4000, "gid": 4001, "supplementalGroups": [4001, 4002, 4003]}});
        assert_eq!(json!(status.user), user);
    }
    let mut refused = spec;
    refused["containers"][0]["securityContext"]["runAsUser"] = json!(0);
    create(&cluster, &pod("refused", "", refused)).await;
    let waiting = until(&cluster, "refused", |pod| waiting_reason(pod) == "CreateContainerConfigError").await;
    assert!(json!(waiting).to_string().contains("runAsUser breaks non-root policy"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_read_only_root_file_system_has_volumes_that_can_be_written() {
    let cluster = running().await;
    let command = "touch /data/file && ! touch made 2>/dev/null && ! touch /tmp/made 2>/dev/null";
    let mut main = container("main", command, json!([{"name": "data", "mountPath": "/data"}]));
    main["securityContext"] = json!({"readOnlyRootFilesystem": true});
    let spec = json!({"containers": [main], "volumes": [{"name": "data", "emptyDir": {}}]});
    create(&cluster, &pod("sealed", "", spec)).await;
    let ended = until(&cluster, "sealed", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    // In a user namespace, it can't be read-only.
    if has_mount_namespaces(&cluster).await && rustix::process::geteuid().is_root() {
        assert_eq!(phase(&ended), "Succeeded");
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn paths_of_the_host_are_created_and_checked() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/deep");
    let mounts = || json!([{"name": "v", "mountPath": "/data"}]);
    let spec = |kind: &str, path: &std::path::Path| {
        json!({"containers": [container("main", "touch $KUBEWRIGHT_ROOT/data/file", mounts())],
            "volumes": [{"name": "v", "hostPath": {"path": path, "type": kind}}]})
    };
    create(&cluster, &pod("writer", "", spec("DirectoryOrCreate", &path))).await;
    until(&cluster, "writer", |pod| phase(pod) == "Succeeded").await;
    assert!(path.join("file").is_file());
    create(&cluster, &pod("other", "", spec("File", &path))).await;
    let why = format!(
        "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {} is not a file",
        path.display()
    );
    wait_for_event(&cluster, "FailedMount", &why).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn missing_sources_are_waited_for_and_unsupported_volumes_are_reported() {
    let cluster = running().await;
    let mounts = || json!([{"name": "v", "mountPath": "/v"}]);
    let spec = json!({"containers": [container("main", "test $(cat $KUBEWRIGHT_ROOT/v/COLOR) = red", mounts())],
        "volumes": [{"name": "v", "configMap": {"name": "later"}}]});
    create(&cluster, &pod("waits", "", spec)).await;
    let gone = "MountVolume.SetUp failed for volume \"v\" : configmap \"later\" not found";
    wait_for_event(&cluster, "FailedMount", gone).await;
    until(&cluster, "waits", |pod| waiting_reason(pod) == "ContainerCreating").await;
    config_map(&cluster, "later").await;
    until(&cluster, "waits", |pod| phase(pod) == "Succeeded").await;

    let remote = json!({"name": "v", "nfs": {"server": "s", "path": "/"}});
    let spec = json!({"containers": [container("main", "true", mounts())], "volumes": [remote]});
    create(&cluster, &pod("remote", "", spec)).await;
    wait_for_event(&cluster, "FailedMount", "this node has no volumes of the type nfs").await;
    cluster.shutdown().await;
}
