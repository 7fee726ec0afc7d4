//! Limit ranges.

use serde_json::{Value, json};

use crate::{raw::send, start};

const RANGES: &str = "/api/v1/namespaces/default/limitranges";

fn pod(resources: Value) -> String {
    let spec = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    json!({"metadata": {"name": "p"}, "spec": spec}).to_string()
}

#[tokio::test]
async fn pods_and_claims_are_held_to_the_limits_of_their_namespace() {
    let (api, _) = start();
    let range = json!({"metadata": {"name": "limits"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    ]}});
    send(&api, &format!("POST {RANGES}"), &[], range.to_string()).await.expect_code(201);

    let line = "POST /api/v1/namespaces/default/pods?dryRun=All";
    let created = send(&api, line, &[], pod(json!({}))).await.expect_code(201).json();
    // The maximum is the default limit, and that is the default request.
    let all = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(created["spec"]["containers"][0]["resources"], json!({"limits": all, "requests": all}));
    assert_eq!(created["status"]["qosClass"], "Guaranteed");
    assert_eq!(
        created["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    );
    let refused = send(&api, line, &[], pod(json!({"limits": {"cpu": "1500m"}}))).await.expect_code(403).json();
    let why = "maximum cpu usage per Container is 1, but limit is 1500m";
    assert_eq!(refused["message"], format!("pods \"p\" is forbidden: {why}"));
    let elsewhere = "POST /api/v1/namespaces/kube-public/pods?dryRun=All";
    send(&api, elsewhere, &[], pod(json!({"limits": {"cpu": "1500m"}}))).await.expect_code(201);

    let claim = |storage: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}});
        json!({"metadata": {"name": "c"}, "spec": spec}).to_string()
    };
    let line = "POST /api/v1/namespaces/default/persistentvolumeclaims";
    let refused = send(&api, line, &[], claim("2Gi")).await.expect_code(403).json();
    let why = "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi";
    assert_eq!(refused["message"], format!("persistentvolumeclaims \"c\" is forbidden: {why}"));
    send(&api, line, &[], claim("1Gi")).await.expect_code(201);

    send(&api, &format!("DELETE {RANGES}/limits"), &[], "").await.expect_code(200);
    let line = "POST /api/v1/namespaces/default/pods?dryRun=All";
    send(&api, line, &[], pod(json!({"limits": {"cpu": "1500m"}}))).await.expect_code(201);
}

#[tokio::test]
async fn resizes_are_held_to_the_limits_of_their_namespace() {
    let (api, _) = start();
    let pods = "/api/v1/namespaces/default/pods";
    let create = async |name: &str, resources: Value| {
        let spec = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
        let body = json!({"metadata": {"name": name, "finalizers": ["example.com/kept"]}, "spec": spec});
        send(&api, &format!("POST {pods}"), &[], body.to_string()).await.expect_code(201);
    };
    let patch = async |path: &str, body: Value| {
        let strategic = "Content-Type: application/strategic-merge-patch+json";
        send(&api, &format!("PATCH {pods}/{path}"), &[strategic], body.to_string()).await
    };
    let resize = async |name: &str, resources: Value| {
        let body = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        patch(&format!("{name}/resize"), body).await
    };
    create("early", json!({"requests": {"cpu": "100m"}})).await;
    let large = json!({"cpu": "2", "memory": "1Gi"});
    create("large", json!({"limits": large, "requests": large})).await;
    let range = json!({"metadata": {"name": "limits"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}},
    ]}});
    send(&api, &format!("POST {RANGES}"), &[], range.to_string()).await.expect_code(201);

    create("p", json!({})).await;
    let both = |cpu: &str| json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}});
    let refused = resize("p", both("1500m")).await.expect_code(403).json();
    let why = "maximum cpu usage per Container is 1, but limit is 1500m";
    assert_eq!(refused["message"], format!("pods \"p\" is forbidden: {why}"));
    resize("p", both("800m")).await.expect_code(200);

    let resized = resize("early", json!({"requests": {"cpu": "200m"}})).await.expect_code(200).json();
    let expect = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "200m", "memory": "1Gi"}});
    assert_eq!(resized["spec"]["containers"][0]["resources"], expect);
    assert!(resized["metadata"]["annotations"].is_null(), "a resize doesn't change the metadata");

    // Other updates don't change resources, so they aren't checked.
    patch("large", json!({"metadata": {"labels": {"a": "b"}}})).await.expect_code(200);
    resize("large", json!({})).await.expect_code(403);
    send(&api, &format!("DELETE {pods}/large"), &[], "").await.expect_code(200);
    resize("large", both("3")).await.expect_code(200);
}

#[tokio::test]
async fn missing_resources_of_a_whole_pod_are_those_of_its_containers() {
    let (api, _) = start();
    let check = async |resources: Value, container: Value, expect: Value| {
        let spec = json!({"resources": resources, "containers": [{"name": "c", "image": "i", "resources": container}]});
        let body = json!({"metadata": {"name": "a"}, "spec": spec}).to_string();
        let pod =
            send(&api, "POST /api/v1/namespaces/default/pods?dryRun=All", &[], body).await.expect_code(201).json();
        assert_eq!(pod["spec"]["resources"], expect);
    };
    let container = json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}});
    let limits = json!({"memory": "2Gi"});
    check(json!({"limits": limits}), container, json!({"limits": limits, "requests": {"cpu": "1", "memory": "1Gi"}}))
        .await;
    check(json!({"limits": limits}), json!({}), json!({"limits": limits, "requests": limits})).await;
    // Requests without limits stay as they are.
    let requests = json!({"requests": {"cpu": "2"}});
    check(requests.clone(), json!({"requests": {"memory": "1"}}), requests).await;
    let own = json!({"limits": {"cpu": "3"}, "requests": {"cpu": "2"}});
    check(own.clone(), json!({"requests": {"cpu": "1"}}), own).await;
}
