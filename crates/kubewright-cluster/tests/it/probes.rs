//! Probes and hooks of running pods.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Event, discovery::v1::EndpointSlice};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use kubewright_cluster::{Cluster, ImageTable, Pods, Program};
use serde_json::{Value, json};

use crate::{address, create, gone, is_default, is_running, node::container, playing, pod, pods, running, until};

/// Waits for an event about a pod whose message starts with `message`.
async fn wait_for_event(cluster: &Cluster, name: &str, kind: &str, reason: &str, message: &str) {
    let about = |event: &Event| {
        event.involved_object.name.as_deref() == Some(name)
            && event.type_.as_deref() == Some(kind)
            && event.reason.as_deref() == Some(reason)
            && event.message.as_deref().unwrap_or_default().starts_with(message)
    };
    let found = cluster.expect::<Event>(|events| events.iter().any(|event| about(event))).await;
    found.unwrap_or_else(|unmet| panic!("no {reason} {message:?} of {name}: {unmet}"));
}

fn web(spec: Value) -> Value {
    let mut container = spec;
    container["name"] = json!("main");
    container["image"] = json!("web");
    container["ports"] = json!([{"name": "http", "containerPort": 8080}]);
    json!({"restartPolicy": "Always", "containers": [container]})
}

fn ready(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

#[tokio::test]
async fn unready_pods_receive_no_connections() {
    let cluster = playing().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("ready").display().to_string();
    let get = json!({"path": format!("/file?{mark}"), "port": "http"});
    let probe = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 1});
    let mut web = pod("web", "", web(json!({"readinessProbe": probe})));
    web.labels_mut().insert("app".into(), "web".into());
    create(&cluster, &web).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080}]}});
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(cluster.client(), "default");
    let service = serde_json::from_value(service).expect("a service");
    services.create(&PostParams::default(), &service).await.expect("created");
    let served = |ready: bool| {
        move |slices: &[&EndpointSlice]| {
            let ours = slices.iter().filter(|slice| slice.name_any().starts_with("web-"));
            let endpoints: Vec<_> = ours.flat_map(|slice| slice.endpoints.clone().unwrap_or_default()).collect();
            let is = |ready: bool| {
                endpoints.iter().all(|one| one.conditions.as_ref().and_then(|it| it.ready) == Some(ready))
            };
            !endpoints.is_empty() && is(ready)
        }
    };

    wait_for_event(
        &cluster,
        "web",
        "Warning",
        "Unhealthy",
        "Readiness probe failed: HTTP probe failed with statuscode: 503",
    )
    .await;
    let unready = until(&cluster, "web", is_running).await;
    let status = container(&unready);
    assert_eq!((status.ready, status.started), (false, Some(true)));
    cluster.expect(served(false)).await.expect("it doesn't serve");
    std::fs::write(&mark, "").expect("written");
    until(&cluster, "web", ready).await;
    cluster.expect(served(true)).await.expect("it serves");
    std::fs::remove_file(&mark).expect("removed");
    let unready = until(&cluster, "web", |pod| !ready(pod)).await;
    assert_eq!(container(&unready).restart_count, 0);
    cluster.expect(served(false)).await.expect("it serves no more");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_container_that_is_not_alive_is_restarted() {
    let cluster = playing().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("bad");
    let exec =
        json!({"command": ["sh", "-c", format!("test ! -e {0} || {{ rm {0}; echo broken; false; }}", mark.display())]});
    let probe = json!({"exec": exec, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 20});
    create(&cluster, &pod("web", "", web(json!({"livenessProbe": probe})))).await;
    until(&cluster, "web", ready).await;
    std::fs::write(&mark, "").expect("written");
    wait_for_event(&cluster, "web", "Warning", "Unhealthy", "Liveness probe failed: broken").await;
    wait_for_event(&cluster, "web", "Normal", "Killing", "Container main failed liveness probe, will be restarted")
        .await;
    let again = until(&cluster, "web", |pod| container(pod).restart_count == 1 && ready(pod)).await;
    let last = container(&again).last_state.and_then(|state| state.terminated).map(|ended| ended.exit_code);
    assert_eq!(last, Some(137));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_startup_probe_holds_back_the_others() {
    let cluster = playing().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("started").display().to_string();
    let get = json!({"path": format!("/file?{mark}"), "port": 8080});
    let startup = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 1000});
    let wrong = json!({"httpGet": {"path": "/nothing", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1});
    let tcp = json!({"tcpSocket": {"port": "http"}, "periodSeconds": 1});
    let spec = json!({"startupProbe": startup, "livenessProbe": wrong, "readinessProbe": tcp});
    create(&cluster, &pod("web", "", web(spec))).await;
    wait_for_event(
        &cluster,
        "web",
        "Warning",
        "Unhealthy",
        "Startup probe failed: HTTP probe failed with statuscode: 503",
    )
    .await;
    let waiting = until(&cluster, "web", is_running).await;
    let status = container(&waiting);
    assert_eq!((status.started, status.ready, status.restart_count), (Some(false), false, 0));
    std::fs::write(&mark, "").expect("written");
    wait_for_event(
        &cluster,
        "web",
        "Warning",
        "Unhealthy",
        "Liveness probe failed: HTTP probe failed with statuscode: 404",
    )
    .await;
    until(&cluster, "web", |pod| container(pod).restart_count >= 1).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn failed_probes_are_reported_in_events() {
    let cluster = playing().await;
    let check = async |name: &str, probe: Value, message: &str| {
        let mut probe = probe;
        probe["periodSeconds"] = json!(1);
        let found = create(&cluster, &pod(name, "", web(json!({"readinessProbe": probe})))).await;
        let found = until(&cluster, &found.name_any(), is_running).await;
        let message = message.replace("POD", &address(&found));
        wait_for_event(&cluster, name, "Warning", "Unhealthy", &format!("Readiness probe {message}")).await;
    };
    let refused = "failed: Get \"http://POD:9/\": dial tcp POD:9: connect: connection refused";
    check("http", json!({"httpGet": {"port": 9}}), refused).await;
    check("tcp", json!({"tcpSocket": {"port": 9}}), "failed: dial tcp POD:9: connect: connection refused").await;
    let slow = json!({"exec": {"command": ["sleep", "1000"]}});
    check("slow", slow, "failed: command timed out: \"sleep 1000\" timed out after 1s").await;
    let errored = "errored and resulted in unknown state: failed to exec in container: exec: \"no-such-tool\"";
    check("gone", json!({"exec": {"command": ["no-such-tool"]}}), errored).await;
    check("port", json!({"httpGet": {"port": "what"}}), "errored and resulted in unknown state: couldn't find port")
        .await;
    let tls = json!({"httpGet": {"port": 8080, "scheme": "HTTPS"}});
    check("tls", tls, "failed: Get \"https://POD:8080/\": ").await;

    let closed = "failed: timeout: failed to connect service \"POD:9\" within 1s: context deadline exceeded";
    check("grpc", json!({"grpc": {"port": 9}}), closed).await;
    // The server speaks HTTP/1 only.
    let deaf = "failed: timeout: failed to connect service \"POD:8080\" within 1s: context deadline exceeded";
    check("grpc-http1", json!({"grpc": {"port": 8080}}), deaf).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn grpc_probes_call_the_health_service() {
    let cluster = playing().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("ready").display().to_string();
    let health = |probe: Value| {
        let mut spec = web(probe);
        spec["containers"][0]["image"] = json!("health");
        spec
    };
    let probe =
        |service: &str| json!({"grpc": {"port": 8080, "service": service}, "periodSeconds": 1, "failureThreshold": 2});
    let served = json!({"readinessProbe": probe(&mark), "livenessProbe": {"grpc": {"port": 8080}}});
    create(&cluster, &pod("served", "", health(served))).await;
    let unhealthy = "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")";
    wait_for_event(&cluster, "served", "Warning", "Unhealthy", unhealthy).await;
    std::fs::write(&mark, "").expect("written");
    until(&cluster, "served", ready).await;
    std::fs::remove_file(&mark).expect("removed");
    let unready = until(&cluster, "served", |pod| !ready(pod)).await;
    assert_eq!(container(&unready).restart_count, 0);

    let check = async |service: &str, message: &str| {
        create(&cluster, &pod(service, "", health(json!({"readinessProbe": probe(service)})))).await;
        let message = format!("Readiness probe failed: {message}");
        wait_for_event(&cluster, service, "Warning", "Unhealthy", &message).await;
    };
    check("silent", "timeout: health rpc did not complete within 1s").await;
    let absent = "error: health rpc probe failed: rpc error: code = NotFound desc = no such service";
    check("absent", absent).await;
    let other =
        "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service";
    check("other", other).await;

    // A liveness probe ends the container after its threshold.
    create(&cluster, &pod("dead", "", health(json!({"livenessProbe": probe("absent")})))).await;
    until(&cluster, "dead", |pod| container(pod).restart_count >= 1).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn probes_follow_redirects_to_the_same_host() {
    let cluster = playing().await;
    let probe = |location: &str| {
        let get = json!({"path": format!("/redirect?{location}"), "port": 8080});
        web(json!({"readinessProbe": {"httpGet": get, "periodSeconds": 1}}))
    };
    create(&cluster, &pod("local", "", probe("/nothing"))).await;
    let failed = "Readiness probe failed: HTTP probe failed with statuscode: 404";
    wait_for_event(&cluster, "local", "Warning", "Unhealthy", failed).await;
    create(&cluster, &pod("circle", "", probe("/redirect?/"))).await;
    until(&cluster, "circle", ready).await;
    create(&cluster, &pod("away", "", probe("http://0.0.0.0/"))).await;
    let warning = "Readiness probe warning: Probe terminated redirects, Response body: Found http://0.0.0.0/";
    wait_for_event(&cluster, "away", "Warning", "ProbeWarning", warning).await;
    until(&cluster, "away", ready).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_https_probe_accepts_any_certificate() {
    let cluster = playing().await;
    let server = cluster.listen("127.0.0.1:0".parse().expect("an address")).await.expect("it listens").address();
    let get = json!({"host": "127.0.0.1", "port": server.port(), "path": "/livez", "scheme": "HTTPS"});
    create(&cluster, &pod("web", "", web(json!({"readinessProbe": {"httpGet": get}})))).await;
    until(&cluster, "web", ready).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_end() {
    let cluster = playing().await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let hook = |word: &str| json!({"exec": {"command": ["sh", "-c", format!("echo {word} >> {log}")]}});
    let spec = web(json!({"lifecycle": {"postStart": hook("hello"), "preStop": hook("bye")}}));
    create(&cluster, &pod("polite", "", spec)).await;
    until(&cluster, "polite", is_running).await;
    assert_eq!(std::fs::read_to_string(&log).expect("written"), "hello\n");
    pods(&cluster).delete("polite", &DeleteParams::default()).await.expect("accepted");
    gone(&cluster, "polite").await;
    assert_eq!(std::fs::read_to_string(&log).expect("written"), "hello\nbye\n");

    // An HTTP hook may be answered with any status.
    let asking = json!({"preStop": {"httpGet": {"path": "/nothing", "port": 8080}}});
    let ask = web(json!({"lifecycle": asking, "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}));
    create(&cluster, &pod("asking", "", ask)).await;
    until(&cluster, "asking", ready).await;
    pods(&cluster).delete("asking", &DeleteParams::default()).await.expect("accepted");
    gone(&cluster, "asking").await;
    let events: Api<Event> = Api::namespaced(cluster.client(), "default");
    let events = events.list(&Default::default()).await.expect("events");
    assert!(events.iter().all(|event| event.reason.as_deref() != Some("FailedPreStopHook")), "{events:?}");

    let failing = json!({"exec": {"command": ["sh", "-c", "echo alas; exit 3"]}});
    create(&cluster, &pod("failing", "", web(json!({"lifecycle": {"postStart": failing}})))).await;
    wait_for_event(&cluster, "failing", "Warning", "FailedPostStartHook", "PostStartHook failed").await;
    until(&cluster, "failing", |pod| container(pod).restart_count >= 1).await;
    cluster.shutdown().await;
}

/// A container is asked to end by SIGTERM, though its hook doesn't end.
#[tokio::test]
async fn hooks_do_not_outlast_the_grace_period() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    for which in ["postStart", "preStop"] {
        let [begun, asked] = ["begun", "asked"].map(|what| folder.path().join(format!("{which}-{what}")));
        let (begins, asks) = (begun.display(), asked.display());
        let command = format!("trap ': > {asks}; exit 0' TERM; : > {begins}; while true; do sleep 0.1; done");
        let never = json!({"exec": {"command": ["sleep", "1000"]}});
        let main =
            json!({"name": "main", "image": "busybox", "command": ["sh", "-c", command], "lifecycle": {which: never}});
        let name = which.to_ascii_lowercase();
        create(&cluster, &pod(&name, "", json!({"terminationGracePeriodSeconds": 1, "containers": [main]}))).await;
        crate::eventually("the trap", async || begun.exists().then_some(())).await;
        if which == "preStop" {
            until(&cluster, &name, is_running).await;
        }
        pods(&cluster).delete(&name, &DeleteParams::default()).await.expect("accepted");
        gone(&cluster, &name).await;
        assert!(asked.exists(), "{which}");
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_hook_of_a_sidecar_runs_while_other_containers_end() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    // It uses up the grace period.
    let main = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.02; done"]});
    let hook = json!({"preStop": {"exec": {"command": ["sh", "-c", format!("echo bye >> {log}")]}}});
    let sidecar = json!({"name": "proxy", "image": "busybox", "restartPolicy": "Always", "lifecycle": hook,
        "command": ["sh", "-c", "exec sleep 1000"]});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [main], "initContainers": [sidecar]});
    create(&cluster, &pod("polite", "", spec)).await;
    until(&cluster, "polite", is_running).await;
    pods(&cluster).delete("polite", &DeleteParams::default()).await.expect("accepted");
    gone(&cluster, "polite").await;
    assert_eq!(std::fs::read_to_string(&log).expect("written"), "bye\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn probes_of_simulated_pods_count_as_passed() {
    let images = ImageTable::empty().with("web", Program::executable("/nowhere"));
    let cluster = Cluster::builder().pods(Pods::Simulate).images(images).start().await.expect("a cluster");
    let never = json!({"exec": {"command": ["false"]}, "initialDelaySeconds": 1000});
    create(&cluster, &pod("web", "", web(json!({"startupProbe": never, "readinessProbe": never})))).await;
    let found = until(&cluster, "web", ready).await;
    assert_eq!(container(&found).started, Some(true));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_rollout_waits_for_readiness() {
    let cluster = playing().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("ready").display().to_string();
    let template = |path: &str| {
        let probe = json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "failureThreshold": 1000});
        let container = json!({"name": "main", "image": "web", "readinessProbe": probe});
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}})
    };
    let deployment = |path: &str| {
        let spec = json!({
            "replicas": 1, "minReadySeconds": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template(path),
        });
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}).to_string()
    };
    let state = |all: &[&Deployment], updated: i32, available: i32, total: i32| {
        let found = all.iter().find(|one| is_default(**one, "web")).and_then(|one| one.status.clone());
        found.is_some_and(|status| {
            (status.updated_replicas, status.available_replicas, status.replicas)
                == (Some(updated), Some(available), Some(total))
        })
    };
    cluster.apply_yaml(&deployment("/")).await.expect("applied");
    cluster.expect::<Deployment>(|all| state(all, 1, 1, 1)).await.expect("it is available");
    cluster.apply_yaml(&deployment(&format!("/file?{mark}"))).await.expect("applied");
    // The new pod isn't ready, so the old one stays.
    cluster.expect::<Deployment>(|all| state(all, 1, 1, 2)).await.expect("both are there");
    wait_for_failed_readiness(&cluster).await;
    std::fs::write(&mark, "").expect("written");
    cluster.expect::<Deployment>(|all| state(all, 1, 1, 1)).await.expect("the old one goes");
    cluster.shutdown().await;
}

/// Waits until any readiness probe has failed.
async fn wait_for_failed_readiness(cluster: &Cluster) {
    let failed = |event: &Event| event.message.as_deref().unwrap_or_default().starts_with("Readiness probe failed");
    cluster.expect::<Event>(|events| events.iter().any(|event| failed(event))).await.expect("it isn't ready");
}
