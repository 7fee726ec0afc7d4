use super::*;

fn service() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "s", "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ports": [
            {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
            {"name": "admin", "port": 81, "targetPort": 9000, "protocol": "TCP"},
        ]},
    })
}

fn pod(name: &str, ip: &str, port: u16, ready: bool) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]}]},
        "status": {
            "phase": "Running", "podIP": ip,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    })
}

fn known(service: &Value, pods: &[Value]) -> Endpoints {
    let mut endpoints = Endpoints::new(Objects::default());
    let key = |object: &Value| Key::of(object).expect("a key");
    endpoints.services.insert(key(service), Arc::new(service.clone()));
    pods.iter().for_each(|pod| endpoints.pods.insert(pod, pod.clone().into()));
    endpoints
}

/// The objects that are created: the slices, then the Endpoints.
fn created(endpoints: &Endpoints) -> Vec<Value> {
    let key = endpoints.services.keys().next().expect("a service").clone();
    let plan = endpoints.decide(&key, Timestamp::UNIX_EPOCH);
    let steps = plan.steps.into_iter();
    steps.filter_map(|step| if let Step::Create(_, body) = step { Some(body) } else { None }).collect()
}

#[test]
fn pods_are_listed_with_ports_and_conditions() {
    let mut leaving = pod("c", "10.0.0.3", 8080, true);
    leaving["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    let mut ended = pod("d", "10.0.0.4", 8080, false);
    ended["status"]["phase"] = "Failed".into();
    let mut other = pod("e", "10.0.0.5", 8080, true);
    other["metadata"]["labels"] = json!({});
    let pods = [pod("a", "10.0.0.1", 8080, true), pod("b", "10.0.0.2", 8080, false), leaving, ended, other];
    let [slice, endpoints] = &created(&known(&service(), &pods))[..] else { panic!() };
    let found: Vec<_> = slice["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| {
            let holds = |kind: &str| one["conditions"][kind] == true;
            (one["addresses"][0].as_str().unwrap_or_default(), holds("ready"), holds("serving"), holds("terminating"))
        })
        .collect();
    let expect = [("10.0.0.1", true, true, false), ("10.0.0.2", false, false, false), ("10.0.0.3", false, true, true)];
    assert_eq!(found, expect);
    assert_eq!(slice["ports"][0], json!({"name": "http", "port": 8080, "protocol": "TCP"}));
    assert_eq!(slice["ports"][1]["port"], 9000);
    assert_eq!(slice["metadata"]["labels"][SERVICE_NAME], "web");
    let subset = &endpoints["subsets"][0];
    assert_eq!((&subset["addresses"][0]["ip"], &subset["addresses"][1]), (&json!("10.0.0.1"), &Value::Null));
    assert_eq!(subset["notReadyAddresses"][0]["ip"], "10.0.0.2");
}

#[test]
fn other_port_numbers_and_many_pods_need_more_slices() {
    let pods = [pod("a", "10.0.0.1", 8080, true), pod("b", "10.0.0.2", 8081, true)];
    assert_eq!(created(&known(&service(), &pods)).len(), 3);
    let pods: Vec<_> =
        (0..250).map(|index| pod(&format!("p{index:03}"), &format!("10.0.1.{index}"), 80, true)).collect();
    let made = created(&known(&service(), &pods));
    let sizes: Vec<_> = made.iter().filter_map(|slice| Some(slice["endpoints"].as_array()?.len())).collect();
    assert_eq!(sizes, [100, 100, 50]);
}

#[test]
fn a_sidecar_has_named_ports() {
    let mut with_sidecar = pod("a", "10.0.0.1", 8080, true);
    let ports = json!([{"name": "http", "containerPort": 9090, "protocol": "TCP"}]);
    with_sidecar["spec"]["containers"][0]["ports"] = json!([]);
    for (policy, expect) in [("Always", json!(9090)), ("", Value::Null)] {
        with_sidecar["spec"]["initContainers"] = json!([{"restartPolicy": policy, "ports": ports}]);
        let [slice, _] = &created(&known(&service(), &[with_sidecar.clone()]))[..] else { panic!() };
        let found = slice["ports"].as_array().into_iter().flatten().find(|port| port["name"] == "http");
        assert_eq!(found.map_or(Value::Null, |port| port["port"].clone()), expect);
    }
}

#[test]
fn only_headless_services_have_the_label_of_headless_ones() {
    let mut service = service();
    service["metadata"]["labels"][HEADLESS] = "".into();
    for (address, expect) in [("10.96.0.9", false), ("None", true)] {
        service["spec"]["clusterIP"] = address.into();
        for object in created(&known(&service, &[pod("a", "10.0.0.1", 8080, true)])) {
            assert_eq!(object["metadata"]["labels"].get(HEADLESS).is_some(), expect, "{object}");
        }
    }
}

#[test]
fn correct_slices_are_not_written() {
    let mut endpoints = known(&service(), &[pod("a", "10.0.0.1", 8080, true)]);
    let [slice, object] = &created(&endpoints)[..] else { panic!() };
    let key = Key { namespace: "default".into(), name: "web".into() };
    endpoints.slices.entry(key.clone()).or_default().insert("web-x".into(), Arc::new(slice.clone()));
    endpoints.endpoints.insert(key.clone(), Arc::new(object.clone()));
    assert_eq!(endpoints.decide(&key, Timestamp::UNIX_EPOCH).steps, []);
    endpoints.services.clear();
    let plan = endpoints.decide(&key, Timestamp::UNIX_EPOCH);
    assert!(matches!(&plan.steps[..], [Step::Delete(address, ..)] if &*address.plural == "endpoints"));
}

#[test]
fn labels_that_a_service_no_longer_has_are_removed() {
    let mut service = service();
    let [slice, object] = &created(&known(&service, &[pod("a", "10.0.0.1", 8080, true)]))[..] else { panic!() };
    service["metadata"]["labels"] = json!({"tier": "b"});
    let mut endpoints = known(&service, &[pod("a", "10.0.0.1", 8080, true)]);
    let key = Key { namespace: "default".into(), name: "web".into() };
    endpoints.slices.entry(key.clone()).or_default().insert("web-x".into(), Arc::new(slice.clone()));
    endpoints.endpoints.insert(key.clone(), Arc::new(object.clone()));
    let steps = endpoints.decide(&key, Timestamp::UNIX_EPOCH).steps;
    assert_eq!(steps.len(), 2);
    for step in steps {
        let Step::Merge(_, _, patch) = step else { panic!("{step:?}") };
        let labels = &patch["metadata"]["labels"];
        assert_eq!((labels.get("team"), &labels["tier"]), (Some(&Value::Null), &json!("b")));
    }
}

#[test]
fn services_without_a_selector_are_left_alone() {
    let mut plain = service();
    plain["spec"]["selector"] = Value::Null;
    assert_eq!(created(&known(&plain, &[pod("a", "10.0.0.1", 8080, true)])), [] as [Value; 0]);
    let mut external = service();
    external["spec"]["type"] = "ExternalName".into();
    assert_eq!(created(&known(&external, &[])), [] as [Value; 0]);
}

#[test]
fn changes_are_dated() {
    let mut known = known(&service(), &[]);
    let key = known.services.keys().next().expect("a service").clone();
    known.trigger(&key, "2024-01-01T00:00:02Z");
    known.trigger(&key, "2024-01-01T00:00:01Z");
    for object in created(&known) {
        assert_eq!(object["metadata"]["annotations"][TRIGGER], "2024-01-01T00:00:01Z");
    }
    known.finished(&key, None);
    let objects = created(&known);
    assert!(objects.iter().all(|object| object["metadata"].get("annotations").is_none()), "{objects:?}");
    assert_eq!(objects[0]["metadata"]["generateName"], "web-");
}

#[test]
fn the_endpoints_of_a_service_go_with_it() {
    let mut known = known(&service(), &[]);
    let key = known.services.keys().next().expect("a service").clone();
    known.services.clear();
    let foreign = json!({"metadata": {"name": "web", "namespace": "default", "uid": "e"}});
    known.endpoints.insert(key.clone(), Arc::new(foreign));
    assert_eq!(known.decide(&key, Timestamp::UNIX_EPOCH).steps, []);
    known.abandoned.insert(key.clone());
    assert!(matches!(&known.decide(&key, Timestamp::UNIX_EPOCH).steps[..], [Step::Delete(..)]));
}
