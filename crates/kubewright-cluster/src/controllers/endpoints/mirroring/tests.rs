use super::*;

/// A controller that knows a service without a selector and its Endpoints.
fn controller(endpoints: Value) -> Mirroring {
    let mut controller = Mirroring::default();
    let service = json!({"metadata": {"namespace": "n", "name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    controller.services.insert(key(), Arc::new(service));
    controller.endpoints.insert(key(), Arc::new(endpoints));
    controller
}

fn key() -> Key {
    Key { namespace: "n".into(), name: "db".into() }
}

fn endpoints(subsets: Value) -> Value {
    let annotations = json!({"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    json!({
        "metadata": {
            "namespace": "n", "name": "db", "uid": "e", "labels": {"app": "db"}, "annotations": annotations,
        },
        "subsets": subsets,
    })
}

fn steps(controller: &Mirroring) -> Vec<Step> {
    controller.decide(&key(), Timestamp::UNIX_EPOCH).steps
}

/// Returns the slices that are created for subsets.
#[track_caller]
fn created(subsets: Value) -> Vec<Value> {
    let steps = steps(&controller(endpoints(subsets))).into_iter();
    let created = steps.map(|step| match step {
        Step::Create(address, slice) if address.namespace.as_deref() == Some("n") => slice,
        other => panic!("{other:?}"),
    });
    created.collect()
}

#[test]
fn a_slice_says_what_the_endpoints_say() {
    let target = json!({"kind": "Pod", "name": "p", "uid": "p"});
    let found = created(json!([{
        "addresses": [{"ip": "10.0.0.1", "hostname": "one", "nodeName": "node", "targetRef": target}],
        "notReadyAddresses": [{"ip": "10.0.0.2"}],
        "ports": [{"port": 5432, "protocol": "TCP"}],
    }]));
    let owner = json!({
        "apiVersion": "v1", "kind": "Endpoints", "name": "db", "uid": "e", "controller": true,
        "blockOwnerDeletion": true,
    });
    let labels = json!({"app": "db", SERVICE_NAME: "db", MANAGED_BY: MANAGER});
    let endpoints = json!([
        {
            "addresses": ["10.0.0.1"], "conditions": {"ready": true}, "hostname": "one", "nodeName": "node",
            "targetRef": target,
        },
        {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
    ]);
    let expect = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": "db-", "labels": labels, "annotations": {"a": "b"}, "ownerReferences": [owner],
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "", "port": 5432, "protocol": "TCP"}],
    });
    assert_eq!(found, [expect]);
}

#[test]
fn subsets_are_repacked_and_divided_by_family() {
    let address = |ip: &str| json!([{"ip": ip}]);
    let found = created(json!([
        {"addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "ports": [{"name": "a", "port": 1}]},
        {"addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "ports": [{"name": "b", "port": 2}]},
        {"addresses": address("10.0.0.3"), "notReadyAddresses": address("10.0.0.3")},
    ]));
    let shape = |slice: &Value| {
        let of = |list: &Value, pointer| {
            list.as_array().into_iter().flatten().map(|one| text(one, pointer).to_owned()).collect::<Vec<_>>()
        };
        (text(slice, "/addressType").to_owned(), of(&slice["endpoints"], "/addresses/0"), of(&slice["ports"], "/name"))
    };
    let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let mut shapes: Vec<_> = found.iter().map(shape).collect();
    shapes.sort();
    let ports = strings(&["a", "b"]);
    let expect = [
        ("IPv4".to_owned(), strings(&["10.0.0.1"]), ports.clone()),
        ("IPv4".to_owned(), strings(&["10.0.0.3"]), Vec::new()),
        ("IPv6".to_owned(), strings(&["::1"]), ports),
    ];
    assert_eq!(shapes, expect);
    let unready = found.iter().find(|slice| slice["ports"] == json!([])).expect("a slice without ports");
    assert_eq!(unready["endpoints"][0]["conditions"]["ready"], false);
}

#[test]
fn at_most_a_thousand_addresses_of_a_subset_are_mirrored() {
    let addresses: Vec<_> =
        (0..1002).map(|index| json!({"ip": format!("10.0.{}.{}", index / 250, index % 250)})).collect();
    let steps = steps(&controller(endpoints(json!([{"addresses": addresses, "ports": [{"port": 1}]}]))));
    let [Step::Event { warning: true, reason: "TooManyAddressesToMirror", message }, Step::Create(_, slice)] =
        &steps[..]
    else {
        panic!("{} steps", steps.len())
    };
    assert!(message.ends_with("per Endpoints subset. 2 addresses were skipped"), "{message}");
    assert_eq!(list(slice, "/endpoints").len(), 1000);
}

#[test]
fn slices_follow_the_endpoints_and_end_with_their_reason() {
    let subsets = |ip: &str| json!([{"addresses": [{"ip": ip}], "ports": [{"port": 1, "protocol": "TCP"}]}]);
    let mut controller = controller(endpoints(subsets("10.0.0.1")));
    let [Step::Create(_, slice)] = &steps(&controller)[..] else { panic!("no slice") };
    let mut slice = slice.clone();
    slice["metadata"]["name"] = "db-1".into();
    slice["metadata"]["uid"] = "s".into();
    slice["metadata"]["labels"]["old"] = "label".into();
    let with = |controller: &mut Mirroring, slice: &Value| {
        controller.slices.entry(key()).or_default().insert("db-1".into(), Arc::new(slice.clone()));
    };
    with(&mut controller, &slice);
    let [Step::Merge(_, "", patch)] = &steps(&controller)[..] else { panic!("no update") };
    assert_eq!(patch["metadata"]["labels"]["old"], Value::Null);
    if let Some(labels) = slice["metadata"]["labels"].as_object_mut() {
        labels.remove("old");
    }
    with(&mut controller, &slice);
    assert_eq!(steps(&controller), []);
    controller.endpoints.insert(key(), Arc::new(endpoints(subsets("10.0.0.2"))));
    let [Step::Merge(_, "", patch)] = &steps(&controller)[..] else { panic!("no update") };
    assert_eq!(patch["endpoints"][0]["addresses"], json!(["10.0.0.2"]));

    let deletion = [Step::delete(&SLICE, &slice)];
    let check = |change: fn(&mut Value), expect: &[Step]| {
        let mut changed = endpoints(subsets("10.0.0.1"));
        change(&mut changed);
        let mut other = self::controller(changed);
        with(&mut other, &slice);
        assert_eq!(steps(&other), expect);
    };
    check(|endpoints| endpoints["metadata"]["labels"][SKIP_MIRROR] = "true".into(), &deletion);
    check(|endpoints| endpoints["metadata"]["annotations"][LEADER] = "{}".into(), &deletion);
    check(|endpoints| endpoints["subsets"] = json!([]), &deletion);
    controller.endpoints.clear();
    assert_eq!(steps(&controller), deletion);
    controller.endpoints.insert(key(), Arc::new(endpoints(subsets("10.0.0.1"))));
    assert_eq!(steps(&controller), []);
    let service = json!({"metadata": {"namespace": "n", "name": "db"}, "spec": {"selector": {"app": "db"}}});
    controller.services.insert(key(), Arc::new(service));
    assert_eq!(steps(&controller), deletion);
}
