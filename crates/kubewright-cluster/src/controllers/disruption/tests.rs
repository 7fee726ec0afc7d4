use super::{stale::StaleDisruptions, *};

/// The controller, with the kinds of a server.
struct World {
    api: ApiServer,
    pods: Objects,
    controller: Disruptions,
}

impl World {
    fn new() -> Self {
        let api = ApiServer::builder().build();
        let pods = Objects::default();
        Self { controller: Disruptions::new(api.clone(), pods.clone()), pods, api }
    }

    fn change(&self, group: &str, plural: &str, object: &Value) -> Change {
        let resource = self.api.registry().find(group, "v1", plural).expect("the kind");
        Change::new(ChangeKind::Added, 1, resource, object.clone().into())
    }

    fn put(&mut self, group: &str, plural: &str, object: &Value) {
        let change = self.change(group, plural, object);
        if Kind::POD.is_of(&change) {
            self.pods.take(&change);
        }
        self.controller.take(&change);
    }

    fn decide(&mut self, budget: &Value, now: Timestamp) -> Plan {
        self.put("policy", "poddisruptionbudgets", budget);
        self.controller.decide(&Key::of(budget).expect("a key"), now)
    }

    /// The status that is written, as numbers: expected, desired, healthy, allowed.
    fn numbers(&mut self, spec: Value) -> [i64; 4] {
        let status = written(&self.decide(&budget(spec), at(0))).expect("a status");
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"].map(|field| int(&status[field], ""))
    }
}

fn written(plan: &Plan) -> Option<Value> {
    plan.steps.iter().find_map(|step| match step {
        Step::Merge(_, "/status", patch) => Some(patch["status"].clone()),
        _ => None,
    })
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn budget(mut spec: Value) -> Value {
    spec["selector"] = json!({"matchLabels": {"app": "x"}});
    json!({"metadata": {"name": "b", "namespace": "default", "uid": "u", "generation": 1}, "spec": spec})
}

fn pod(name: &str, owner: Option<(&str, &str, &str)>, ready: bool) -> Value {
    let owners: Vec<_> = owner
        .map(|(version, kind, name)| {
            json!({"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": true})
        })
        .into_iter()
        .collect();
    let ready = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}, "ownerReferences": owners},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn scaled(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"replicas": replicas}})
}

/// A world with a set of four replicas, of which three pods exist and two are ready.
fn of_a_set(group: &str, plural: &str, version: &str, kind: &str) -> World {
    let mut world = World::new();
    world.put(group, plural, &scaled("s", 4));
    for (name, ready) in [("a", true), ("b", true), ("c", false)] {
        world.put("", "pods", &pod(name, Some((version, kind, "s")), ready));
    }
    world
}

#[test]
fn numbers_and_percentages_are_of_the_scale() {
    let mut world = of_a_set("apps", "replicasets", "apps/v1", "ReplicaSet");
    assert_eq!(world.numbers(json!({"minAvailable": 1})), [3, 1, 2, 1]);
    assert_eq!(world.numbers(json!({"minAvailable": "30%"})), [4, 2, 2, 0], "rounded up");
    assert_eq!(world.numbers(json!({"maxUnavailable": 3})), [4, 1, 2, 1]);
    assert_eq!(world.numbers(json!({"maxUnavailable": "50%"})), [4, 2, 2, 0]);
    assert_eq!(world.numbers(json!({"maxUnavailable": 9})), [4, 0, 2, 2]);
    assert_eq!(world.numbers(json!({})), [0, 0, 2, 0]);
}

#[test]
fn owners_of_all_kinds_have_a_scale() {
    for (group, plural, version, kind) in [
        ("apps", "statefulsets", "apps/v1", "StatefulSet"),
        ("", "replicationcontrollers", "v1", "ReplicationController"),
    ] {
        let mut world = of_a_set(group, plural, version, kind);
        assert_eq!(world.numbers(json!({"maxUnavailable": 3})), [4, 1, 2, 1], "{kind}");
    }
    let mut world = World::new();
    world.put("apps", "deployments", &scaled("d", 6));
    for name in ["old", "new"] {
        let mut set = scaled(name, 2);
        let deployment =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true});
        set["metadata"]["ownerReferences"] = json!([deployment]);
        world.put("apps", "replicasets", &set);
        world.put("", "pods", &pod(&format!("{name}-1"), Some(("apps/v1", "ReplicaSet", name)), true));
    }
    assert_eq!(world.numbers(json!({"maxUnavailable": 5})), [6, 1, 2, 1], "the Deployment counts once");
}

#[test]
fn a_budget_whose_pods_cannot_be_counted_allows_nothing() {
    let check = |version: &str, kind: &str, expect: &str| {
        let mut world = World::new();
        world.put("", "pods", &pod("a", Some((version, kind, "s")), true));
        let status = written(&world.decide(&budget(json!({"maxUnavailable": 1})), at(0))).expect("a status");
        let condition = &status["conditions"][0];
        assert_eq!((&condition["reason"], &condition["message"]), (&json!("SyncFailed"), &json!(expect)));
        assert_eq!(status["disruptionsAllowed"], 0);
    };
    check("apps/v1", "ReplicaSet", "found no controllers for pod \"a\"");
    check("batch/v1", "Job", "jobs.batch does not implement the scale subresource");
    check("example.com/v1", "Foo", "no matches for kind \"Foo\" in version \"example.com/v1\"");
}

#[test]
fn pods_without_a_controller_are_not_counted() {
    let mut world = World::new();
    world.put("", "pods", &pod("a", None, true));
    assert_eq!(world.numbers(json!({"maxUnavailable": 1})), [0, 0, 1, 0]);
    assert_eq!(world.numbers(json!({"minAvailable": 1})), [1, 1, 1, 0]);
}

#[test]
fn an_evicted_pod_does_not_count_for_two_minutes() {
    let mut world = of_a_set("apps", "replicasets", "apps/v1", "ReplicaSet");
    let mut budget = budget(json!({"minAvailable": 1}));
    budget["status"] = json!({"disruptedPods": {"a": "1970-01-01T00:01:00Z", "gone": "1970-01-01T00:01:00Z"}});
    let plan = world.decide(&budget, at(100));
    let status = written(&plan).expect("a status");
    assert_eq!((&status["currentHealthy"], &status["disruptionsAllowed"]), (&json!(1), &json!(0)));
    assert_eq!(status["disruptedPods"], json!({"a": "1970-01-01T00:01:00Z", "gone": null}));
    assert_eq!(plan.requeue_after.map(|delay| delay.as_secs()), Some(80));
    let status = written(&world.decide(&budget, at(181))).expect("a status");
    assert_eq!((&status["currentHealthy"], &status["disruptedPods"]["a"]), (&json!(2), &Value::Null));
}

#[test]
fn a_status_is_written_once() {
    let mut world = of_a_set("apps", "replicasets", "apps/v1", "ReplicaSet");
    let mut budget = budget(json!({"minAvailable": 1}));
    let status = written(&world.decide(&budget, at(0))).expect("a status");
    let condition = json!([{
        "type": ALLOWED, "status": "True", "observedGeneration": 1, "reason": "SufficientPods", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }]);
    assert_eq!(status["conditions"], condition);
    budget["status"] = status;
    assert_eq!(world.decide(&budget, at(60)).steps, []);
    budget["metadata"]["generation"] = 2.into();
    let status = written(&world.decide(&budget, at(60))).expect("a status");
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
    assert_eq!(status["observedGeneration"], 2);
}

#[test]
fn a_pod_that_was_not_deleted_loses_its_condition() {
    let world = World::new();
    let mut pod = pod("a", None, true);
    let target = json!({"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"});
    pod["status"]["conditions"].as_array_mut().expect("a list").push(target);
    let mut controller = StaleDisruptions::default();
    let [key] = &controller.take(&world.change("", "pods", &pod))[..] else { panic!() };
    let early = controller.decide(key, at(100));
    assert_eq!((early.steps.len(), early.requeue_after), (0, Some(Duration::from_secs(20))));
    let conditions = written(&controller.decide(key, at(120))).expect("a status")["conditions"].clone();
    assert_eq!((&conditions[0]["type"], &conditions[1]["status"]), (&json!("Ready"), &json!("False")));
    pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
    assert_eq!(controller.take(&world.change("", "pods", &pod)), []);
}

#[test]
fn selectors_are_printed_as_by_go() {
    let check = |selector: Value, expect: &str| assert_eq!(selector_text(&selector), expect);
    check(Value::Null, "nil");
    check(
        json!({"matchLabels": {"b": "2", "a": "1"}}),
        "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{},}",
    );
    check(
        json!({"matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}),
        "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{\
         LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}",
    );
}

#[test]
fn a_pod_with_several_budgets_has_an_event() {
    let mut world = World::new();
    let mut other = budget(json!({"minAvailable": 1}));
    other["metadata"]["name"] = "a".into();
    world.put("", "pods", &pod("p", None, true));
    world.decide(&budget(json!({"minAvailable": 1})), at(0));
    world.decide(&other, at(0));
    let events = |plan: &Plan| {
        let found = plan.steps.iter().filter_map(|step| match step {
            Step::EventAbout(event) => Some(format!("{} {}: {}", event.regarding[1], event.reason, event.message)),
            _ => None,
        });
        found.collect::<Vec<_>>()
    };
    let key = Key::of(&other).expect("a key");
    assert!(events(&world.controller.decide(&key, at(0))).is_empty());
    world.put("", "pods", &pod("p", None, true));
    let expect = "Pod MultiplePodDisruptionBudgets: Pod \"default\"/\"p\" matches multiple PodDisruptionBudgets.  Chose \"a\" arbitrarily.";
    assert_eq!(events(&world.controller.decide(&key, at(0))), [expect]);
    world.controller.finished(&key, None);
    assert!(events(&world.controller.decide(&key, at(0))).is_empty());
}
