//! The discovery documents, compared with those of a real API server.
//!
//! `tests/data/discovery.json` contains the resource lists of all stable versions that Kubernetes 1.36.3 serves.

use std::collections::BTreeMap;

use kubewright_apiserver::ApiServer;
use serde_json::Value;

use crate::raw::send;

/// Returns the entries of a resource list by name.
fn entries(list: &Value) -> BTreeMap<String, Value> {
    let entries = list["resources"].as_array().into_iter().flatten();
    let version = list["groupVersion"].as_str().unwrap();
    entries.map(|entry| (format!("{version} {}", entry["name"].as_str().unwrap()), entry.clone())).collect()
}

#[tokio::test]
async fn the_stable_resources_are_those_of_kubernetes() {
    let server = ApiServer::builder().build();
    let lists: Vec<Value> = serde_json::from_str(include_str!("../data/discovery.json")).unwrap();
    let mut differences = Vec::new();
    for list in &lists {
        let version = list["groupVersion"].as_str().unwrap();
        let root = if version.contains('/') { "apis" } else { "api" };
        let answer = send(&server, &format!("GET /{root}/{version}"), &[], "").await;
        let served = serde_json::from_str(&answer.text).ok().filter(|_| answer.code == 200);
        let served = served.map_or_else(BTreeMap::new, |served| entries(&served));
        for (name, expected) in entries(list) {
            match served.get(&name) {
                Some(served) if *served == expected => {}
                Some(served) => differences.push((name, format!("{served}, in Kubernetes {expected}"))),
                None => differences.push((name, "missing".to_owned())),
            }
        }
        for name in served.keys().filter(|name| !entries(list).contains_key(*name)) {
            differences.push((name.clone(), "not in Kubernetes".to_owned()));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

async fn text(server: &ApiServer, path: &str, headers: &[&str]) -> String {
    send(server, &format!("GET {path}"), headers, "").await.expect_code(200).text
}

/// Kubernetes writes these documents from Go's structs, and a newline at their end.
#[tokio::test]
async fn documents_have_their_fields_in_the_order_of_kubernetes() {
    let server = ApiServer::builder().build();
    let versions = concat!(
        r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":"#,
        r#"[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}"#,
        "\n"
    );
    assert_eq!(text(&server, "/api", &["Host: 10.0.0.1:6443"]).await, versions);
    let group = concat!(
        r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"#,
        r#""preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#,
        "\n"
    );
    assert_eq!(text(&server, "/apis/apps", &[]).await, group);
    let aggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let starts: [(&str, &[&str], &str); 5] = [
        (
            "/apis",
            &[],
            concat!(
                r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apiregistration.k8s.io","versions":"#,
                r#"[{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"}],"preferredVersion":"#,
                r#"{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"}},{"name":"apps","versions":"#
            ),
        ),
        (
            "/api/v1",
            &[],
            concat!(
                r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"binding","#,
                r#""namespaced":true,"kind":"Binding","verbs":["create"]},{"name":"componentstatuses","#,
                r#""singularName":"componentstatus","namespaced":false,"kind":"ComponentStatus","verbs":["get","list"],"#,
                r#""shortNames":["cs"]},"#
            ),
        ),
        (
            "/apis/apps/v1",
            &[],
            concat!(
                r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":"#,
                r#"[{"name":"controllerrevisions","singularName":"controllerrevision","namespaced":true,"#,
                r#""kind":"ControllerRevision","verbs":["#
            ),
        ),
        (
            "/apis",
            &[aggregated],
            concat!(
                r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":"#,
                r#"[{"metadata":{"name":"apiregistration.k8s.io"},"versions":[{"version":"v1","resources":"#,
                r#"[{"resource":"apiservices","responseKind":{"group":"","version":"","kind":"APIService"},"#,
                r#""scope":"Cluster","singularResource":"apiservice","verbs":["#
            ),
        ),
        (
            "/api",
            &[aggregated],
            concat!(
                r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":"#,
                r#"[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"bindings","#
            ),
        ),
    ];
    for (path, headers, start) in starts {
        let document = text(&server, path, headers).await;
        assert!(document.starts_with(start), "{path}\n{document:.600}\n{start}");
        assert!(document.ends_with("}\n"), "{path}");
    }
    let scale = concat!(
        r#"{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","#,
        r#""kind":"Scale","verbs":["get","patch","update"]}"#
    );
    assert!(text(&server, "/apis/apps/v1", &[]).await.contains(scale));
}

/// The group of the aggregator itself is served in another way than the others.
#[tokio::test]
async fn each_group_of_the_list_can_be_read() {
    let server = ApiServer::builder().build();
    let list: Value = serde_json::from_str(&text(&server, "/apis", &[]).await).unwrap();
    for group in list["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        for path in [format!("/apis/{name}"), format!("/apis/{name}/")] {
            let answer = send(&server, &format!("GET {path}"), &[], "").await.expect_code(200).json();
            assert_eq!((&answer["kind"], &answer["name"]), (&"APIGroup".into(), &group["name"]), "{path}");
        }
    }
    send(&server, "POST /apis/apiregistration.k8s.io", &[], "").await.expect_code(405);
}

/// What is no API object is indented, and has no newline at its end.
#[tokio::test]
async fn the_version_and_the_index_are_indented() {
    let server = ApiServer::builder().build();
    let version = text(&server, "/version", &[]).await;
    let start = "{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n  \"emulationMajor\": \"1\",\n";
    assert!(version.starts_with(start) && version.ends_with("\"\n}"), "{version}");
    let names: Vec<_> = version.lines().filter_map(|line| line.split('"').nth(1)).collect();
    let expect = [
        "major",
        "minor",
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    assert_eq!(names, expect);
    let index = text(&server, "/", &[]).await;
    let start = "{\n  \"paths\": [\n    \"/.well-known/openid-configuration\",\n    \"/api\",\n    \"/api/v1\",\n";
    assert!(index.starts_with(start) && index.ends_with("\"\n  ]\n}"), "{index}");
}
