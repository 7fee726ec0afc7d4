//! The addresses of services as objects, and the ranges that they are allocated from.

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Service,
    networking::v1::{IPAddress, ServiceCIDR},
};
use kube::{
    Api, Error, ResourceExt,
    api::{DeleteParams, PostParams},
};
use kubewright_apimachinery::clock::VirtualClock;
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

fn service(name: &str, spec: Value) -> Service {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn address_of(service: &Service) -> String {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone()).unwrap_or_default()
}

/// The name and the namespace of the service that an address belongs to.
fn parent(address: &IPAddress) -> (String, String) {
    let parent = &address.spec.parent_ref;
    (parent.name.clone(), parent.namespace.clone().unwrap_or_default())
}

fn condition(range: &ServiceCIDR) -> (String, String, String) {
    let conditions = range.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let [ready] = &conditions[..] else { return Default::default() };
    assert_eq!(ready.type_, "Ready");
    (ready.status.clone(), ready.reason.clone(), ready.message.clone())
}

#[tokio::test]
async fn the_server_has_checked_itself_before_its_service_is_there() {
    let cluster = Cluster::builder().api_only().start().await.unwrap();
    cluster.expect(|services: &[&Service]| services.iter().any(|one| one.name_any() == "kubernetes")).await.unwrap();
    let request = http::Request::get("/metrics/slis").body(Vec::new()).unwrap();
    let metrics = cluster.client().request_text(request).await.unwrap();
    assert!(metrics.contains("kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn each_cluster_ip_is_an_object_for_as_long_as_a_service_has_it() {
    // kube-apiserver maintains them itself.
    let cluster = Cluster::builder().api_only().start().await.unwrap();
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let addresses: Api<IPAddress> = Api::all(cluster.client());
    let of = |name: &'static str| {
        move |all: &[&IPAddress]| all.iter().any(|one| parent(one) == (name.into(), "default".into()))
    };
    let kubernetes = services.get("kubernetes").await.unwrap();
    cluster.expect(of("kubernetes")).await.unwrap();
    let address = addresses.get(&address_of(&kubernetes)).await.unwrap();
    let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
    assert_eq!(json!(address.labels()), labels);
    assert_eq!(address.spec.parent_ref.resource, "services");

    let web = services.create(&PostParams::default(), &service("web", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let headless = service("headless", json!({"clusterIP": "None", "ports": [{"port": 80}]}));
    services.create(&PostParams::default(), &headless).await.unwrap();
    cluster.expect(of("web")).await.unwrap();
    // It is created again, as it is in use.
    addresses.delete(&address_of(&web), &DeleteParams::default()).await.unwrap();
    cluster.expect(of("web")).await.unwrap();
    // That of others stays.
    let parent_ref = json!({"group": "example.com", "resource": "things", "name": "a"});
    let other = json!({"metadata": {"name": "255.255.255.255"}, "spec": {"parentRef": parent_ref}});
    addresses.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
    services.delete("web", &DeleteParams::default()).await.unwrap();
    let left = |all: &[&IPAddress]| {
        let names = all.iter().map(|one| one.name_any()).collect::<Vec<_>>();
        names == [address_of(&kubernetes), "255.255.255.255".into()]
    };
    cluster.expect(left).await.unwrap();
}

#[tokio::test]
async fn every_cluster_has_the_range_of_its_addresses() {
    let cluster = Cluster::builder().api_only().start().await.unwrap();
    let ranges: Api<ServiceCIDR> = Api::all(cluster.client());
    let first = ranges.get("kubernetes").await.unwrap();
    assert_eq!(json!(first.spec), json!({"cidrs": ["127.96.0.0/12"]}));
    let message = "Kubernetes default Service CIDR is ready";
    let is_ready = |range: &ServiceCIDR| condition(range) == ("True".into(), String::new(), message.into());
    cluster.expect::<ServiceCIDR>(|all| all.iter().any(|range| is_ready(range))).await.unwrap();
    ranges.delete("kubernetes", &DeleteParams::default()).await.unwrap();
    let again = |all: &[&ServiceCIDR]| all.iter().any(|range| range.uid() != first.uid() && is_ready(range));
    cluster.expect(again).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_range_is_kept_while_a_service_has_an_address_of_it() {
    let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    let cluster = Cluster::builder().pods(Pods::None).clock(clock).start().await.unwrap();
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let ranges: Api<ServiceCIDR> = Api::all(cluster.client());
    let chosen = service("web", json!({"clusterIP": "203.0.113.10", "ports": [{"port": 80}]}));
    let Err(Error::Api(refused)) = services.create(&PostParams::default(), &chosen).await else {
        panic!("no such range")
    };
    assert!(refused.message.contains("does not match the current range"), "{}", refused.message);

    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["203.0.113.0/24"]}});
    ranges.create(&PostParams::default(), &serde_json::from_value(range).unwrap()).await.unwrap();
    let more = |all: &[&ServiceCIDR], wanted: (&str, &str)| {
        all.iter().any(|range| {
            let (status, reason, _) = condition(range);
            range.name_any() == "more" && (status.as_str(), reason.as_str()) == wanted && range.finalizers().len() == 1
        })
    };
    cluster.expect::<ServiceCIDR>(|all| more(all, ("True", ""))).await.unwrap();
    services.create(&PostParams::default(), &chosen).await.unwrap();
    cluster.expect::<IPAddress>(|all| all.iter().any(|one| one.name_any() == "203.0.113.10")).await.unwrap();

    ranges.delete("more", &DeleteParams::default()).await.unwrap();
    cluster.expect::<ServiceCIDR>(|all| more(all, ("False", "Terminating"))).await.unwrap();
    services.delete("web", &DeleteParams::default()).await.unwrap();
    cluster.expect::<ServiceCIDR>(|all| all.iter().all(|range| range.name_any() == "kubernetes")).await.unwrap();
}
