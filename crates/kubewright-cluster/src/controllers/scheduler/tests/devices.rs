//! Pods that use claims of devices.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{PodAction, PodKey, Scheduler, pod, put, refused};
use crate::controllers::scheduler::devices::Binding;

const PREEMPTION: &str = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";

/// A scheduler with the nodes `a` and `b`, and the class `gpu` of the devices with a model.
fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::default();
    for name in ["a", "b"] {
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"pods": "110"}}});
        scheduler.state.nodes.insert(name.to_owned(), node.into());
    }
    let selector = json!({"cel": {"expression": "device.driver == 'd.io' && 'model' in device.attributes['d.io']"}});
    add(&mut scheduler, "DeviceClass", json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}));
    scheduler
}

fn add(scheduler: &mut Scheduler, kind: &str, object: Value) {
    scheduler.state.devices.put(kind, &object.into(), false);
}

/// Adds the slice of a node with devices, given by name and model.
fn add_slice(scheduler: &mut Scheduler, node: &str, devices: &[(&str, &str)]) {
    let device = |(name, model): &(&str, &str)| json!({"name": name, "attributes": {"model": {"string": model}}});
    let devices: Vec<_> = devices.iter().map(device).collect();
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d.io", "nodeName": node, "pool": pool, "devices": devices});
    add(scheduler, "ResourceSlice", json!({"metadata": {"name": format!("{node}-d")}, "spec": spec}));
}

/// A claim with these requests.
fn claim(name: &str, requests: Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"devices": {"requests": requests}},
    })
}

/// A request for a number of devices of the class.
fn request(name: &str, count: i64) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}})
}

/// The same claim with the attribute `model` alike.
fn matching(mut claim: Value) -> Value {
    claim["spec"]["devices"]["constraints"] = json!([{"matchAttribute": "d.io/model"}]);
    claim
}

/// A pod that uses claims.
fn using(name: &str, claims: &[&str]) -> Value {
    let uses = claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim}));
    pod(name, json!({}), json!({"resourceClaims": uses.collect::<Vec<_>>()}))
}

/// Decides about a pod whose claims are to be bound, and returns what is written.
#[track_caller]
fn bindings(scheduler: &mut Scheduler, pod: &PodKey) -> Vec<Binding> {
    match scheduler.decide(pod) {
        Some(PodAction::Prepare { claims, volumes, .. }) => {
            assert_eq!(volumes, []);
            claims
        }
        other => panic!("{other:?}"),
    }
}

/// Adds the claims as they are written.
fn write(scheduler: &mut Scheduler, bindings: &[Binding]) {
    for Binding { claim, allocation, user } in bindings {
        let mut claim = (**claim).clone();
        if let Some(allocation) = allocation {
            claim["status"]["allocation"] = allocation.clone();
        }
        claim["status"]["reservedFor"] = json!([user]);
        add(scheduler, "ResourceClaim", claim);
    }
}

/// Decides about a new pod with a claim, and returns the devices that it gets, or why it gets none.
#[track_caller]
fn check(scheduler: &mut Scheduler, claim: Value, expect: Result<&[&str], &str>) {
    let name = claim["metadata"]["name"].as_str().expect("a name").to_owned();
    add(scheduler, "ResourceClaim", claim);
    let key = put(scheduler, &using(&format!("pod-{name}"), &[&name]));
    match (scheduler.decide(&key), expect) {
        (Some(PodAction::Prepare { claims, .. }), Ok(devices)) => assert_eq!(devices_of(&claims), devices),
        (Some(PodAction::Report(why, _) | PodAction::Fail(why, _)), Err(expect)) => assert_eq!(why, expect),
        other => panic!("{other:?}"),
    }
}

fn devices_of(bindings: &[Binding]) -> Vec<String> {
    let results = |binding: &Binding| {
        let allocation = binding.allocation.as_ref().expect("an allocation");
        allocation["devices"]["results"].as_array().expect("results").clone()
    };
    let shown = |one: Value| {
        ["request", "pool", "device"].map(|field| one[field].as_str().expect("a text").to_owned()).join(" ")
    };
    bindings.iter().flat_map(results).map(shown).collect()
}

#[test]
fn a_pod_with_a_missing_claim_is_not_tried() {
    let mut scheduler = scheduler();
    let key = put(&mut scheduler, &using("web", &["c"]));
    assert_eq!(scheduler.decide(&key), None);
    add_slice(&mut scheduler, "a", &[("x", "m")]);
    let mut going = claim("c", json!([request("r", 1)]));
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    add(&mut scheduler, "ResourceClaim", going);
    assert_eq!(scheduler.decide(&key), None);
    add(&mut scheduler, "ResourceClaim", claim("c", json!([request("r", 1)])));
    assert_eq!(devices_of(&bindings(&mut scheduler, &key)), ["r a x"]);
    // A claim of a template has the name that the status of the pod has for it, and belongs to the pod.
    let mut templated =
        pod("made", json!({}), json!({"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]}));
    let key = put(&mut scheduler, &templated);
    assert_eq!(scheduler.decide(&key), None);
    templated["status"]["resourceClaimStatuses"] = json!([{"name": "r", "resourceClaimName": "made-r"}]);
    put(&mut scheduler, &templated);
    let mut made = claim("made-r", json!([]));
    add(&mut scheduler, "ResourceClaim", made.clone());
    assert_eq!(scheduler.decide(&key), None, "it is another pod's");
    made["metadata"]["ownerReferences"] = json!([{"uid": "made", "controller": true}]);
    add(&mut scheduler, "ResourceClaim", made);
    assert_eq!(bindings(&mut scheduler, &key).len(), 1);
}

#[test]
fn a_claim_gets_devices_of_one_node_that_no_other_claim_has() {
    let mut scheduler = scheduler();
    add_slice(&mut scheduler, "b", &[("x", "m"), ("y", "m")]);
    add(&mut scheduler, "ResourceClaim", claim("c", json!([request("r", 1)])));
    let first = put(&mut scheduler, &using("first", &["c"]));
    let written = bindings(&mut scheduler, &first);
    let expected = json!({
        "devices": {"results": [{"request": "r", "driver": "d.io", "pool": "b", "device": "x"}]},
        "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
        ]},
    });
    assert_eq!(written[0].allocation, Some(expected));
    assert_eq!(written[0].user, json!({"resource": "pods", "name": "first", "uid": "first"}));
    let done = PodAction::Prepare { volumes: Vec::new(), claims: written.clone(), awaited: None };
    assert_eq!(scheduler.end(&first, &done, true), std::slice::from_ref(&first));
    assert_eq!(scheduler.decide(&first), None, "the claim as it is written isn't known yet");
    check(
        &mut scheduler,
        claim("two", json!([request("r", 2)])),
        Err(&unavailable("2 cannot allocate all claims", "still not schedulable")),
    );
    check(&mut scheduler, claim("one", json!([request("r", 1)])), Ok(&["r b y"]));
    // Another pod waits until the allocation is written, and uses the same devices then.
    let second = put(&mut scheduler, &using("second", &["c"]));
    let why = "resource claim default/c is in the process of being allocated";
    assert_eq!(refused(&mut scheduler, &second), unavailable(why, "no new claims to deallocate"));
    write(&mut scheduler, &written);
    assert_eq!(scheduler.decide(&first), Some(PodAction::Bind("b".into())));
    let shared = bindings(&mut scheduler, &second);
    assert_eq!((shared.len(), &shared[0].allocation), (1, &None));
}

fn unavailable(why: &str, about_claims: &str) -> String {
    format!("0/2 nodes are available: {why}. {about_claims}, {PREEMPTION}")
}

#[test]
fn a_claim_that_goes_while_it_is_written_is_an_error() {
    let mut scheduler = scheduler();
    add_slice(&mut scheduler, "a", &[("x", "m")]);
    let wanted = claim("c", json!([request("r", 1)]));
    add(&mut scheduler, "ResourceClaim", wanted.clone());
    let key = put(&mut scheduler, &using("web", &["c"]));
    bindings(&mut scheduler, &key);
    scheduler.state.devices.put("ResourceClaim", &wanted.into(), true);
    let why = "running PreBind plugin \"DynamicResources\": claim default/c got deleted in the meantime";
    match scheduler.decide(&key) {
        Some(PodAction::Fail(told, _)) => assert_eq!(told, why),
        other => panic!("{other:?}"),
    }
    assert_eq!(scheduler.decide(&key), None, "it pauses");
}

#[test]
fn what_could_not_be_written_is_free() {
    let mut scheduler = scheduler();
    add_slice(&mut scheduler, "a", &[("x", "m")]);
    add(&mut scheduler, "ResourceClaim", claim("c", json!([request("r", 1)])));
    let key = put(&mut scheduler, &using("web", &["c"]));
    let claims = bindings(&mut scheduler, &key);
    scheduler.end(&key, &PodAction::Prepare { volumes: Vec::new(), claims, awaited: None }, false);
    check(&mut scheduler, claim("other", json!([request("r", 1)])), Ok(&["r a x"]));
}

#[test]
fn requests_have_counts_modes_and_selectors() {
    let devices = [("x", "m"), ("y", "n"), ("z", "m")];
    let checked = |claim: Value, expect: Result<&[&str], &str>| {
        let mut scheduler = scheduler();
        add_slice(&mut scheduler, "a", &devices);
        check(&mut scheduler, claim, expect);
    };
    let none = unavailable("2 cannot allocate all claims", "still not schedulable");
    checked(claim("c", json!([request("r", 2)])), Ok(&["r a x", "r a y"]));
    checked(matching(claim("c", json!([request("r", 2)]))), Ok(&["r a x", "r a z"]));
    checked(matching(claim("c", json!([request("r", 3)]))), Err(&none));
    checked(claim("c", json!([request("r", 2), request("s", 1)])), Ok(&["r a x", "r a y", "s a z"]));
    checked(claim("c", json!([request("r", 2), request("s", 2)])), Err(&none));
    let selecting = |expression: &str, of: Value| {
        let mut request = json!({"name": "r", "exactly": of});
        request["exactly"]["deviceClassName"] = "gpu".into();
        request["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
        claim("c", json!([request]))
    };
    let all = || json!({"allocationMode": "All"});
    checked(selecting("device.attributes['d.io'].model == 'n'", json!({"count": 1})), Ok(&["r a y"]));
    checked(selecting("device.attributes['d.io'].model == 'm'", all()), Ok(&["r a x", "r a z"]));
    checked(selecting("false", all()), Err(&none));
    let failed =
        "running \"DynamicResources\" filter plugin: claim default/c: selector #0: CEL runtime error: no such key: no";
    checked(selecting("device.attributes['d.io'].no == 1", all()), Err(failed));
    let unlike = "running \"DynamicResources\" filter plugin: claim default/c, request r: cannot add device d.io/a/y because a \
                  claim constraint would not be satisfied";
    checked(matching(selecting("true", all())), Err(unlike));
    let too_many = "running \"DynamicResources\" filter plugin: claim default/c: number of requested devices 33 exceeds the \
                    claim limit of 32";
    checked(claim("c", json!([request("r", 33)])), Err(too_many));
    let mut other = claim("c", json!([request("r", 1)]));
    other["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "none".into();
    let missing = unavailable("request r: device class none does not exist", "no new claims to deallocate");
    checked(other, Err(&missing));
}

#[test]
fn a_search_without_an_end_is_given_up() {
    let mut scheduler = scheduler();
    let names: Vec<_> = (0..60).map(|number| (format!("x{number}"), format!("m{}", number % 5))).collect();
    let devices: Vec<_> = names.iter().map(|(name, model)| (&**name, &**model)).collect();
    add_slice(&mut scheduler, "a", &devices);
    let mut six = claim("c", json!([request("r", 6)]));
    six["spec"]["devices"]["constraints"] = json!([{"distinctAttribute": "d.io/model"}]);
    let why = "running \"DynamicResources\" filter plugin: node a: timed out trying to allocate devices";
    check(&mut scheduler, six.clone(), Err(why));
    let mut five = claim("five", json!([request("r", 5)]));
    five["spec"]["devices"]["constraints"] = six["spec"]["devices"]["constraints"].take();
    check(&mut scheduler, five, Ok(&["r a x0", "r a x1", "r a x2", "r a x3", "r a x4"]));
    let huge = json!([request("r", i64::MAX), request("s", i64::MAX), request("t", i64::MAX)]);
    let too_many = format!(
        "running \"DynamicResources\" filter plugin: claim default/huge: number of requested devices {} exceeds the claim \
         limit of 32",
        u64::MAX
    );
    check(&mut scheduler, claim("huge", huge), Err(&too_many));
}

/// A request for one of several numbers of devices, the first that is there.
fn first_of(counts: &[i64]) -> Value {
    let one = |count: &i64| json!({"name": format!("n{count}"), "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
    json!({"name": "r", "firstAvailable": counts.iter().map(one).collect::<Vec<_>>()})
}

#[test]
fn the_first_alternative_that_is_there_is_allocated() {
    let mut scheduler = scheduler();
    let both = || claim("c", json!([first_of(&[2, 1]), request("s", 1)]));
    add_slice(&mut scheduler, "a", &[("x", "m"), ("y", "m")]);
    check(&mut scheduler, both(), Ok(&["r/n1 a x", "s a y"]));
    // The node with what is preferred is the best one.
    let mut scheduler = self::scheduler();
    add_slice(&mut scheduler, "a", &[("x", "m"), ("y", "m")]);
    add_slice(&mut scheduler, "b", &[("x", "m"), ("y", "m"), ("z", "m")]);
    check(&mut scheduler, both(), Ok(&["r/n2 b x", "r/n2 b y", "s b z"]));
}

#[test]
fn allocations_have_the_configuration_of_classes_and_claims() {
    let mut scheduler = scheduler();
    let opaque = |number: i64| json!({"opaque": {"driver": "d.io", "parameters": {"number": number}}});
    add(&mut scheduler, "DeviceClass", json!({"metadata": {"name": "gpu"}, "spec": {"config": [opaque(1)]}}));
    add_slice(&mut scheduler, "a", &[("x", "m"), ("y", "m"), ("z", "m")]);
    let mut with_config = claim("c", json!([first_of(&[1]), request("s", 1), request("t", 1)]));
    let about = |requests: &[&str], number: i64| {
        let mut config = opaque(number);
        if !requests.is_empty() {
            config["requests"] = requests.into();
        }
        config
    };
    with_config["spec"]["devices"]["config"] =
        json!([about(&[], 2), about(&["r/n1"], 3), about(&["r/n2"], 4), about(&["s"], 5)]);
    add(&mut scheduler, "ResourceClaim", with_config);
    let key = put(&mut scheduler, &using("web", &["c"]));
    let allocation = bindings(&mut scheduler, &key)[0].allocation.clone().expect("an allocation");
    let from = |source: &str, requests: &[&str], number: i64| {
        let mut config = about(requests, number);
        config["source"] = source.into();
        config
    };
    let expected = json!([
        from("FromClass", &["r/n1", "s", "t"], 1),
        from("FromClaim", &[], 2),
        from("FromClaim", &["r/n1"], 3),
        from("FromClaim", &["s"], 5),
    ]);
    assert_eq!(allocation["devices"]["config"], expected);
}

#[test]
fn devices_can_be_tainted_too_small_or_in_use() {
    let mut scheduler = scheduler();
    let device = |name: &str, more: Value| {
        let mut device =
            json!({"name": name, "attributes": {"model": {"string": "m"}}, "capacity": {"m": {"value": "4Gi"}}});
        device.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        device
    };
    let taint = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let devices = [device("tainted", json!({"taints": taint})), device("good", json!({}))];
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d.io", "allNodes": true, "pool": pool, "devices": devices});
    add(&mut scheduler, "ResourceSlice", json!({"metadata": {"name": "s"}, "spec": spec}));
    let wants = |name: &str, more: Value| {
        let mut request = request("r", 1);
        request["exactly"].as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        claim(name, json!([request]))
    };
    let none = unavailable("2 cannot allocate all claims", "still not schedulable");
    let capacity = |wanted: &str| json!({"capacity": {"requests": {"m": wanted}}});
    check(&mut scheduler, wants("large", capacity("5Gi")), Err(&none));
    check(&mut scheduler, wants("small", capacity("4Gi")), Ok(&["r p good"]));
    check(&mut scheduler, wants("second", json!({})), Err(&none));
    check(&mut scheduler, wants("admin", json!({"adminAccess": true})), Ok(&["r p good"]));
    check(&mut scheduler, wants("tolerant", json!({"tolerations": [{"operator": "Exists"}]})), Ok(&["r p tainted"]));
    // A toleration without a key is for every key, also one of a value.
    let mut scheduler = self::scheduler();
    let tainted = json!([{"key": "k", "value": "v", "effect": "NoExecute"}]);
    let devices = json!([device("tainted", json!({"taints": tainted}))]);
    add_pool(&mut scheduler, &[json!({"allNodes": true, "devices": devices})]);
    check(&mut scheduler, wants("other", json!({"tolerations": [{"value": "w"}]})), Err(&none));
    check(&mut scheduler, wants("equal", json!({"tolerations": [{"value": "v"}]})), Ok(&["r p tainted"]));
}

/// Adds a pool `p` with slices of these specs.
fn add_pool(scheduler: &mut Scheduler, specs: &[Value]) {
    for (index, spec) in specs.iter().enumerate() {
        let mut spec = spec.clone();
        spec["driver"] = "d.io".into();
        spec["pool"] = json!({"name": "p", "generation": 1, "resourceSliceCount": specs.len()});
        add(scheduler, "ResourceSlice", json!({"metadata": {"name": format!("s{index}")}, "spec": spec}));
    }
}

/// Counters of the memory of a device.
fn memory(amount: &str) -> Value {
    json!({"memory": {"value": amount}})
}

/// A part of a device, with its memory.
fn part(name: &str, model: &str, amount: &str) -> Value {
    let consumed = json!([{"counterSet": "gpu", "counters": memory(amount)}]);
    json!({"name": name, "attributes": {"model": {"string": model}}, "consumesCounters": consumed})
}

/// A request for a device of a model.
fn of_model(name: &str, model: &str) -> Value {
    let mut request = request(name, 1);
    let expression = format!("device.attributes['d.io'].model == '{model}'");
    request["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    request
}

#[test]
fn devices_consume_shared_counters() {
    let none = unavailable("2 cannot allocate all claims", "still not schedulable");
    let with_parts = || {
        let mut scheduler = scheduler();
        let counters = json!({"nodeName": "b", "sharedCounters": [{"name": "gpu", "counters": memory("8Gi")}]});
        let near = [
            part("0-whole", "whole", "8Gi"),
            part("1-half", "half", "4Gi"),
            part("2-half", "half", "4Gi"),
            part("3-quarter", "quarter", "2Gi"),
        ];
        let far = json!({"nodeName": "b", "devices": [part("4-far", "far", "6Gi")]});
        add_pool(&mut scheduler, &[counters, json!({"nodeName": "a", "devices": near}), far]);
        scheduler
    };
    let mut scheduler = with_parts();
    check(&mut scheduler, claim("first", json!([of_model("r", "half")])), Ok(&["r p 1-half"]));
    check(&mut scheduler, claim("whole", json!([of_model("r", "whole")])), Err(&none));
    let both = json!([of_model("r", "half"), of_model("s", "quarter")]);
    check(&mut scheduler, claim("both", both), Err(&none));
    check(&mut scheduler, claim("small", json!([of_model("r", "quarter")])), Ok(&["r p 3-quarter"]));
    check(&mut scheduler, claim("second", json!([of_model("r", "half")])), Err(&none));
    // What doesn't fit together is given back during the search.
    let mut scheduler = with_parts();
    let any = json!([request("r", 1), of_model("s", "half")]);
    check(&mut scheduler, claim("any", any), Ok(&["r p 1-half", "s p 2-half"]));
    // The devices of other nodes count, too.
    let mut scheduler = with_parts();
    check(&mut scheduler, claim("far", json!([of_model("r", "far")])), Ok(&["r p 4-far"]));
    check(&mut scheduler, claim("near", json!([of_model("r", "half")])), Err(&none));
    check(&mut scheduler, claim("small", json!([of_model("r", "quarter")])), Ok(&["r p 3-quarter"]));
}

/// A request for a part of a device.
fn with_memory(name: &str, amount: Option<&str>) -> Value {
    let mut request = request(name, 1);
    if let Some(amount) = amount {
        request["exactly"]["capacity"] = json!({"requests": {"memory": amount}});
    }
    request
}

#[test]
fn requests_share_the_capacity_of_a_device() {
    let none = unavailable("2 cannot allocate all claims", "still not schedulable");
    let with_shared = || {
        let mut scheduler = scheduler();
        let capacity = json!({"memory": {"value": "10Gi", "requestPolicy": {"default": "1Gi"}}});
        let mut device = part("x", "m", "1Gi");
        device["allowMultipleAllocations"] = true.into();
        device["capacity"] = capacity;
        let counters = json!({"allNodes": true, "sharedCounters": [{"name": "gpu", "counters": memory("1Gi")}]});
        add_pool(&mut scheduler, &[counters, json!({"allNodes": true, "devices": [device]})]);
        scheduler
    };
    let wants = |name: &str, amount: Option<&str>| claim(name, json!([with_memory("r", amount)]));
    let mut scheduler = with_shared();
    add(&mut scheduler, "ResourceClaim", wants("first", Some("6Gi")));
    let first = put(&mut scheduler, &using("first", &["first"]));
    let written = bindings(&mut scheduler, &first);
    let expected = json!([{
        "request": "r", "driver": "d.io", "pool": "p", "device": "x", "shareID": "", "consumedCapacity": {"memory": "6Gi"},
    }]);
    assert_eq!(written[0].allocation.as_ref().expect("an allocation")["devices"]["results"], expected);
    check(&mut scheduler, wants("second", Some("6Gi")), Err(&none));
    write(&mut scheduler, &written);
    check(&mut scheduler, wants("third", Some("6Gi")), Err(&none));
    check(&mut scheduler, wants("default", None), Ok(&["r p x"]));
    check(&mut scheduler, wants("fourth", Some("4Gi")), Err(&none));
    check(&mut scheduler, wants("fifth", Some("3Gi")), Ok(&["r p x"]));
    // Requests of a claim share it as well, but each of them gets a device once.
    let several = |name: &str, amounts: &[&str]| {
        let requests =
            amounts.iter().enumerate().map(|(index, amount)| with_memory(&format!("r{index}"), Some(amount)));
        claim(name, requests.collect())
    };
    let mut scheduler = with_shared();
    check(&mut scheduler, several("three", &["4Gi", "4Gi", "4Gi"]), Err(&none));
    check(&mut scheduler, claim("twice", json!([request("r", 2)])), Err(&none));
    check(&mut scheduler, several("two", &["4Gi", "5Gi"]), Ok(&["r0 p x", "r1 p x"]));
}

#[test]
fn incomplete_and_invalid_pools_are_not_used() {
    let mut scheduler = scheduler();
    let none = |why: &str| unavailable(&format!("2 {why}"), "still not schedulable");
    let slice = |name: &str, count: i64| {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": count});
        let devices = json!([{"name": "x", "attributes": {"model": {"string": "m"}}}]);
        let spec = json!({"driver": "d.io", "allNodes": true, "pool": pool, "devices": devices});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    add(&mut scheduler, "ResourceSlice", slice("first", 2));
    check(&mut scheduler, claim("c", json!([request("r", 1)])), Err(&none("cannot allocate all claims")));
    let all = json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]);
    let why = "running \"DynamicResources\" filter plugin: claim default/all, request r: asks for all devices, but resource \
               pool d.io/p is currently being updated";
    check(&mut scheduler, claim("all", all), Err(why));
    add(&mut scheduler, "ResourceSlice", slice("second", 2));
    check(&mut scheduler, claim("d", json!([request("r", 1)])), Err(&none("invalid resource pools were encountered")));
}

#[test]
fn an_idle_claim_on_a_node_that_a_pod_cannot_use_loses_its_devices() {
    let mut scheduler = scheduler();
    let selector = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
    ]});
    let mut elsewhere = claim("c", json!([request("r", 1)]));
    elsewhere["status"] = json!({"allocation": {"devices": {}, "nodeSelector": selector}});
    add(&mut scheduler, "ResourceClaim", elsewhere.clone());
    let cordoned = json!({"metadata": {"name": "b"}, "spec": {"unschedulable": true}});
    scheduler.state.nodes.insert("b".into(), Arc::new(cordoned));
    let key = put(&mut scheduler, &using("web", &["c"]));
    let why = "1 node(s) were unschedulable, 1 resourceclaim not available on the node";
    let Some(PodAction::Deallocate { why: told, claim, .. }) = scheduler.decide(&key) else { panic!("it is idle") };
    assert_eq!(told, unavailable(why, "deallocation of ResourceClaim completed"));
    assert_eq!(claim["metadata"]["name"], "c");
    // Not if another pod uses it.
    let mut scheduler_of_used = self::scheduler();
    elsewhere["status"]["reservedFor"] = json!([{"resource": "pods", "name": "other", "uid": "other"}]);
    add(&mut scheduler_of_used, "ResourceClaim", elsewhere);
    scheduler_of_used.state.nodes.remove("b");
    let key = put(&mut scheduler_of_used, &using("web", &["c"]));
    let why = "0/1 nodes are available: 1 resourceclaim not available on the node. still not schedulable, preemption: 0/1 \
               nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(refused(&mut scheduler_of_used, &key), why);
}

#[test]
fn pods_wait_until_devices_meet_their_conditions() {
    let conditions = || json!({"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]});
    let with_device = || {
        let mut scheduler = scheduler();
        let mut device = conditions();
        device["name"] = "x".into();
        device["attributes"] = json!({"model": {"string": "m"}});
        add_pool(&mut scheduler, &[json!({"nodeName": "a", "devices": [device]})]);
        add(&mut scheduler, "ResourceClaim", claim("c", json!([request("r", 1)])));
        let key = put(&mut scheduler, &using("web", &["c"]));
        let Some(PodAction::Prepare { claims, awaited, .. }) = scheduler.decide(&key) else { panic!("it is free") };
        assert_eq!(awaited.as_deref(), Some("a"));
        let mut result = conditions();
        for (field, value) in [("request", "r"), ("driver", "d.io"), ("pool", "p"), ("device", "x")] {
            result[field] = value.into();
        }
        let allocation = claims[0].allocation.as_ref().expect("an allocation");
        assert_eq!(allocation["devices"]["results"], json!([result]));
        write(&mut scheduler, &claims);
        assert_eq!(scheduler.decide(&key), None, "nothing is known about the conditions");
        (scheduler, key)
    };
    let report = |scheduler: &mut Scheduler, kind: &str| {
        let key = crate::controllers::reconcile::Key { namespace: "default".into(), name: "c".into() };
        let mut claim = (**scheduler.state.devices.claim(&key).expect("the claim")).clone();
        let condition = json!({"type": kind, "status": "True", "reason": "Why", "message": "it is"});
        claim["status"]["devices"] = json!([{"driver": "d.io", "pool": "p", "device": "x", "conditions": [condition]}]);
        add(scheduler, "ResourceClaim", claim);
    };
    let (mut scheduler, key) = with_device();
    report(&mut scheduler, "attached");
    assert_eq!(scheduler.decide(&key), Some(PodAction::Bind("a".into())));
    // Those that fail are given back.
    let (mut scheduler, key) = with_device();
    report(&mut scheduler, "broken");
    let failed = |action, expect: &str| match action {
        Some(PodAction::Fail(why, _)) => {
            assert_eq!(why, format!("running PreBind plugin \"DynamicResources\": {expect}"))
        }
        other => panic!("{other:?}"),
    };
    failed(scheduler.decide(&key), "device binding failed: claim=c, reason=Why, message=\"it is\"");
    scheduler.wake(&key);
    let Some(PodAction::Deallocate { why, .. }) = scheduler.decide(&key) else { panic!("it is of no use") };
    let elsewhere = "2 resourceclaim not available on the node";
    assert_eq!(why, unavailable(elsewhere, "deallocation of ResourceClaim completed"));
    // So are those that take too long.
    let (mut scheduler, key) = with_device();
    scheduler.wake(&key);
    failed(scheduler.decide(&key), "device binding timeout: context deadline exceeded");
}
