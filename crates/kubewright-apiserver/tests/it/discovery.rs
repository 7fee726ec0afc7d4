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
