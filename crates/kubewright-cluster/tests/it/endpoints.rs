//! The endpoints of services over simulated pods.

use k8s_openapi::api::{
    core::v1::{Endpoints, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{pods, replicaset::simulated};

#[tokio::test(start_paused = true)]
async fn slices_follow_the_pods_and_the_service() {
    let cluster = simulated().await;
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    let services: Api<Service> = Api::namespaced(cluster.client(), "default");
    let service = serde_json::from_value(service).expect("a service");
    services.create(&PostParams::default(), &service).await.expect("created");
    let addresses = |slices: &[&EndpointSlice]| {
        let ours = slices.iter().filter(|slice| slice.name_any().starts_with("web-"));
        let endpoints = ours.flat_map(|slice| slice.endpoints.clone().into_iter().flatten());
        let mut all: Vec<_> = endpoints.flat_map(|endpoint| endpoint.addresses).collect();
        all.sort_unstable();
        all
    };
    for name in ["a", "b"] {
        let mut pod = crate::pod(name, "sleep 1000", json!({}));
        pod.labels_mut().insert("app".into(), "web".into());
        crate::create(&cluster, &pod).await;
    }
    let running = cluster.expect::<Pod>(|pods| pods.iter().all(|pod| crate::is_running(pod))).await.expect("they run");
    let mut ips: Vec<_> = running.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect();
    ips.sort_unstable();
    cluster.expect::<EndpointSlice>(|slices| addresses(slices) == ips).await.expect("both");
    let has_both = |all: &[&Endpoints]| {
        let subset = all.iter().find(|one| one.name_any() == "web").and_then(|one| one.subsets.as_ref()?.first());
        subset.is_some_and(|subset| {
            let ports: Vec<_> = subset.ports.iter().flatten().map(|port| port.port).collect();
            subset.addresses.as_ref().is_some_and(|addresses| addresses.len() == 2) && ports == [8080]
        })
    };
    cluster.expect::<Endpoints>(has_both).await.expect("both");
    pods(&cluster).delete("a", &DeleteParams::default()).await.expect("deleted");
    cluster.expect::<EndpointSlice>(|slices| addresses(slices).len() == 1).await.expect("one is left");
    services.delete("web", &DeleteParams::default()).await.expect("deleted");
    let no_slice = |slices: &[&EndpointSlice]| slices.iter().all(|slice| !slice.name_any().starts_with("web-"));
    cluster.expect::<EndpointSlice>(no_slice).await.expect("gone with it");
    cluster.expect::<Endpoints>(|all| all.iter().all(|one| one.name_any() != "web")).await.expect("gone with it");
    cluster.shutdown().await;
}

#[tokio::test]
async fn endpoints_that_a_user_writes_are_mirrored() {
    let cluster = crate::bare().await;
    let manifests = "
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {ports: [{port: 5432}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: db, labels: {app: db}}
subsets:
- addresses: [{ip: 192.0.2.7}]
  ports: [{port: 5432}]
";
    cluster.apply_yaml(manifests).await.expect("applied");
    let addresses = |slices: &[&EndpointSlice]| {
        let ours = slices.iter().filter(|slice| slice.name_any().starts_with("db-"));
        let endpoints = ours.flat_map(|slice| slice.endpoints.clone().into_iter().flatten());
        endpoints.flat_map(|endpoint| endpoint.addresses).collect::<Vec<_>>()
    };
    let slices = cluster.expect::<EndpointSlice>(|all| addresses(all) == ["192.0.2.7"]).await.expect("mirrored");
    let slice = slices.iter().find(|slice| slice.name_any().starts_with("db-")).expect("the slice");
    let labels = slice.labels();
    assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "endpointslicemirroring-controller.k8s.io");
    assert_eq!((labels["kubernetes.io/service-name"].as_str(), labels["app"].as_str()), ("db", "db"));
    cluster.apply_yaml(&manifests.replace("192.0.2.7", "192.0.2.8")).await.expect("applied");
    cluster.expect::<EndpointSlice>(|all| addresses(all) == ["192.0.2.8"]).await.expect("followed");
    let endpoints: Api<Endpoints> = Api::namespaced(cluster.client(), "default");
    endpoints.delete("db", &DeleteParams::default()).await.expect("deleted");
    cluster.expect::<EndpointSlice>(|all| addresses(all).is_empty()).await.expect("gone with them");
    // Those of the API server itself aren't.
    let slices = cluster.expect::<EndpointSlice>(|_| true).await.expect("slices");
    let is_mirror = |slice: &EndpointSlice| slice.name_any().starts_with("kubernetes-");
    assert!(!slices.iter().any(is_mirror));
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_gets_another_manager_is_replaced() {
    let cluster = simulated().await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let services: Api<Service> = Api::namespaced(cluster.client(), "default");
    let service = serde_json::from_value(service).expect("a service");
    services.create(&PostParams::default(), &service).await.expect("created");
    let run = async |name: &str| {
        let mut pod = crate::pod(name, "sleep 1000", json!({}));
        pod.labels_mut().insert("app".into(), "web".into());
        crate::create(&cluster, &pod).await;
    };
    run("a").await;
    const MANAGER: &str = "endpointslice.kubernetes.io/managed-by";
    let own = |slices: &[&EndpointSlice]| -> Vec<(String, usize)> {
        let ours = slices.iter().filter(|slice| {
            slice.name_any().starts_with("web-")
                && slice.labels().get(MANAGER).is_some_and(|by| by == "endpointslice-controller.k8s.io")
        });
        ours.map(|slice| (slice.name_any(), slice.endpoints.as_ref().map_or(0, Vec::len))).collect()
    };
    let found = cluster.expect::<EndpointSlice>(|all| own(all).iter().any(|(_, count)| *count == 1)).await;
    let name = found.expect("a slice").iter().map(|one| one.name_any()).find(|name| name.starts_with("web-"));
    let name = name.expect("its name");
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client(), "default");
    let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {MANAGER: "me"}}}));
    slices.patch(&name, &kube::api::PatchParams::default(), &label).await.expect("patched");
    cluster.expect::<EndpointSlice>(|all| own(all).iter().any(|(_, count)| *count == 1)).await.expect("another slice");
    run("b").await;
    cluster.expect::<EndpointSlice>(|all| own(all).iter().any(|(_, count)| *count == 2)).await.expect("both");
    cluster.shutdown().await;
}
