//! What pods prefer of nodes because of other pods.

use serde_json::{Value, json};

use super::{Scheduler, on, place, pod, put};

/// A scheduler with the nodes `a1` and `a2` in one zone and `b1` in another one, of which the first has the most room.
fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::default();
    for (name, zone, cpu) in [("a1", "a", "100"), ("a2", "a", "2"), ("b1", "b", "2")] {
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone});
        let allocatable = json!({"cpu": cpu, "memory": "80Gi", "pods": "110"});
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}});
        scheduler.state.nodes.insert(name.to_owned(), node.into());
    }
    scheduler
}

/// A pod of the application `web` that requests some of a node.
fn web(name: &str, more: Value) -> Value {
    let mut spec =
        json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}}]});
    spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    pod(name, json!({"labels": {"app": "web"}}), spec)
}

fn selector(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

fn soft(key: &str) -> Value {
    json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector("web")},
    ]})
}

#[test]
fn nodes_with_the_images_of_a_pod_are_preferred() {
    let mut scheduler = scheduler();
    let image = json!([{"names": ["web:1"], "sizeBytes": 1_000_000_000}]);
    let mut node = (*scheduler.state.nodes["b1"]).clone();
    node["status"]["images"] = image;
    node["status"]["allocatable"]["cpu"] = "100".into();
    scheduler.state.nodes.insert("b1".into(), node.into());
    let with_image = |name: &str, image: &str| {
        let mut pod = web(name, json!({}));
        pod["spec"]["containers"][0]["image"] = image.into();
        pod
    };
    assert_eq!(place(&mut scheduler, &with_image("1", "other:1")), "a1");
    let mut scheduler_with_image = self::scheduler();
    scheduler_with_image.state.nodes.clone_from(&scheduler.state.nodes);
    assert_eq!(place(&mut scheduler_with_image, &with_image("1", "web:1")), "b1");
}

#[test]
fn pods_are_spread_by_soft_constraints() {
    let zone = || soft("topology.kubernetes.io/zone");
    let mut scheduler = scheduler();
    assert_eq!(place(&mut scheduler, &web("1", zone())), "a1", "it has the most room");
    assert_eq!(place(&mut scheduler, &web("2", zone())), "b1", "the other zone has no pod");
    let host = || soft("kubernetes.io/hostname");
    assert_eq!(place(&mut scheduler, &web("3", host())), "a2", "the other nodes have one each");
    // A node without the label is left to others, though it is the emptiest.
    let allocatable = json!({"cpu": "1000", "memory": "800Gi", "pods": "110"});
    let node = json!({"metadata": {"name": "c1"}, "status": {"allocatable": allocatable}});
    scheduler.state.nodes.insert("c1".to_owned(), node.into());
    assert_eq!(place(&mut scheduler, &web("4", zone())), "b1");
}

#[test]
fn pods_of_an_owner_or_a_service_are_spread_by_default() {
    let counts = |scheduler: &mut Scheduler, metadata: Value| {
        let mut nodes: Vec<_> = (0..3)
            .map(|number| {
                let mut pod = web(&number.to_string(), json!({}));
                pod["metadata"]
                    .as_object_mut()
                    .expect("an object")
                    .extend(metadata.as_object().cloned().unwrap_or_default());
                place(scheduler, &pod)
            })
            .collect();
        nodes.sort();
        nodes
    };
    assert_eq!(counts(&mut scheduler(), json!({})), ["a1", "a1", "a1"], "nothing selects them");

    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
    let owned = || json!({"ownerReferences": [owner]});
    let metadata = || json!({"namespace": "default", "name": "web"});
    let set = json!({"metadata": metadata(), "spec": {"selector": selector("web")}});
    let mut one = scheduler();
    one.state.groups.take("apps/replicasets", &set.clone().into(), false);
    assert_eq!(counts(&mut one, owned()), ["a1", "a2", "b1"]);
    let mut gone = scheduler();
    gone.state.groups.take("apps/replicasets", &set.clone().into(), false);
    gone.state.groups.take("apps/replicasets", &set.into(), true);
    assert_eq!(counts(&mut gone, owned()), ["a1", "a1", "a1"]);

    let service = |labels: Value| json!({"metadata": metadata(), "spec": {"selector": labels}});
    let mut served = scheduler();
    served.state.groups.take("/services", &service(json!({"app": "web"})).into(), false);
    assert_eq!(counts(&mut served, json!({})), ["a1", "a2", "b1"]);
    let mut other = scheduler();
    other.state.groups.take("/services", &service(json!({"app": "other"})).into(), false);
    assert_eq!(counts(&mut other, json!({})), ["a1", "a1", "a1"]);
}

#[test]
fn pods_prefer_to_be_beside_some_pods_and_apart_from_others() {
    let term = |app: &str, key: &str| json!({"labelSelector": selector(app), "topologyKey": key});
    let preferred = |kind: &str, app: &str, key: &str| {
        let preferred = json!([{"weight": 10, "podAffinityTerm": term(app, key)}]);
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}})
    };
    let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    let cache = |node: &str, spec: Value| on(node, pod("cache", json!({"labels": {"app": "cache"}}), spec));

    let mut near = scheduler();
    put(&mut near, &cache("a2", json!({})));
    assert_eq!(place(&mut near, &web("1", preferred("podAffinity", "cache", host))), "a2");
    assert_eq!(place(&mut near, &web("2", preferred("podAntiAffinity", "cache", zone))), "b1");
    assert_eq!(place(&mut near, &web("3", preferred("podAffinity", "other", host))), "a1");

    // Those that are there have their preferences, too.
    let mut wanted = scheduler();
    put(&mut wanted, &cache("b1", preferred("podAffinity", "web", zone)));
    assert_eq!(place(&mut wanted, &web("1", json!({}))), "b1");
    let mut unwanted = scheduler();
    put(&mut unwanted, &cache("a1", preferred("podAntiAffinity", "web", host)));
    assert_ne!(place(&mut unwanted, &web("1", json!({}))), "a1");
    let mut required = scheduler();
    let affinity =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("web", host)]}}});
    put(&mut required, &cache("a2", affinity));
    assert_eq!(place(&mut required, &web("1", json!({}))), "a2");
}

#[test]
fn pods_are_placed_so_that_resources_are_requested_evenly() {
    let mut scheduler = scheduler();
    let containers = |requests: Value| json!({"containers": [{"name": "main", "resources": {"requests": requests}}]});
    for (name, cpu, memory) in [("a1", "50", "0"), ("a2", "500m", "20Gi"), ("b1", "2", "0")] {
        let requests = json!({"cpu": cpu, "memory": memory});
        put(&mut scheduler, &on(name, pod(&format!("on-{name}"), json!({}), containers(requests))));
    }
    // `a1` has 50 % and 100 % left, `a2` 75 % of both. A quarter of the memory makes them as even as each other.
    assert_eq!(place(&mut scheduler, &pod("1", json!({}), containers(json!({"memory": "20Gi"})))), "a1");
}
