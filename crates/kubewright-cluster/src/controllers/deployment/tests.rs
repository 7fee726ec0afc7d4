use super::*;

fn now() -> Timestamp {
    "2024-01-01T00:01:00Z".parse().expect("a time")
}

fn deployment(replicas: i64, surge: Value, unavailable: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1, "annotations": {"team": "a"}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"image": "v2"}]}},
        },
    })
}

/// A replica set with an image, a revision, a size, and some available pods.
fn set(deployment: &Value, image: &str, revision: i64, size: i64, available: i64) -> Value {
    let mut like = deployment.clone();
    like["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    let mut set = revision::new_set(&like, revision, size);
    set["metadata"]["uid"] = image.into();
    set["metadata"]["creationTimestamp"] = format!("2024-01-01T00:00:{revision:02}Z").into();
    set["status"] = json!({"replicas": size, "readyReplicas": available, "availableReplicas": available});
    set
}

fn plan(deployment: &Value, sets: &[&Value], running: bool) -> Plan {
    let mut plan = Plan::of(&DEPLOYMENT, deployment);
    let view = View { deployment, sets: sets.to_vec(), runs: &|_| running, taken: &|_| false, failure: None };
    decide(&view, now(), &mut plan);
    plan
}

/// The messages about sizes in the plan's events.
fn scalings(plan: &Plan) -> Vec<String> {
    let told = |step: &Step| match step {
        Step::Event { message, .. } => Some(message.clone()),
        Step::Reported(_, report) => report.success.as_ref().map(|(_, message)| message.clone()),
        _ => None,
    };
    let end = |message: String| {
        let words: Vec<_> = message.split(' ').collect();
        words[words.len() - 4..].join(" ")
    };
    plan.steps.iter().filter_map(told).map(end).collect()
}

#[test]
fn leeway_rounds_as_published() {
    let check = |replicas, surge: Value, unavailable: Value, expect| {
        assert_eq!(
            size::leeway(&deployment(replicas, surge.clone(), unavailable.clone())),
            expect,
            "{surge} {unavailable}"
        );
    };
    check(10, json!("25%"), json!("25%"), (3, 2));
    check(1, json!("25%"), json!("25%"), (1, 0));
    check(3, json!(2), json!(5), (2, 3));
    check(2, json!("0%"), json!("1%"), (0, 1));
    check(0, json!("25%"), json!("25%"), (0, 0));
}

#[test]
fn a_rollout_goes_step_by_step() {
    let object = deployment(4, json!(1), json!(1));
    let check = |old: (i64, i64), new: Option<(i64, i64)>, expect: &[&str]| {
        let old = set(&object, "v1", 1, old.0, old.1);
        let new = new.map(|(size, available)| set(&object, "v2", 2, size, available));
        let sets: Vec<_> = std::iter::once(&old).chain(&new).collect();
        assert_eq!(scalings(&plan(&object, &sets, false)), expect, "{sets:?}");
    };
    check((4, 4), None, &["from 0 to 1"]);
    check((4, 4), Some((1, 0)), &["from 4 to 3"]);
    check((3, 3), Some((1, 0)), &["from 1 to 2"]);
    check((3, 3), Some((2, 0)), &[]);
    check((3, 3), Some((2, 1)), &["from 3 to 2"]);
    // Unavailable pods go first, however few are available.
    check((4, 2), Some((1, 0)), &["from 4 to 3"]);
    check((0, 0), Some((4, 4)), &[]);
    check((0, 0), Some((6, 4)), &["from 6 to 4"]);
}

#[test]
fn recreation_waits_until_all_are_gone() {
    let mut object = deployment(2, Value::Null, Value::Null);
    object["spec"]["strategy"] = json!({"type": "Recreate"});
    let full = set(&object, "v1", 1, 2, 2);
    assert_eq!(scalings(&plan(&object, &[&full], true)), ["from 2 to 0"]);
    let empty = set(&object, "v1", 1, 0, 0);
    assert!(scalings(&plan(&object, &[&empty], true)).is_empty());
    assert_eq!(scalings(&plan(&object, &[&empty], false)), ["from 0 to 2"]);
}

#[test]
fn scaling_in_the_midst_of_a_rollout_is_shared() {
    let before = deployment(10, json!(3), json!(2));
    let (old, new) = (set(&before, "v1", 1, 8, 8), set(&before, "v2", 2, 5, 0));
    let mut object = deployment(15, json!(3), json!(2));
    assert_eq!(scalings(&plan(&object, &[&old, &new], false)), ["from 8 to 11", "from 5 to 7"]);
    object["spec"]["replicas"] = 0.into();
    assert_eq!(scalings(&plan(&object, &[&old, &new], false)), ["from 8 to 0", "from 5 to 0"]);
}

#[test]
fn an_old_template_comes_back_as_the_latest_revision() {
    let object = deployment(1, json!(1), json!(0));
    let (back, other) = (set(&object, "v2", 1, 0, 0), set(&object, "v3", 2, 1, 1));
    let plan = plan(&object, &[&back, &other], false);
    let Some(Step::Merge(_, "", patch)) = plan.steps.first() else { panic!("{plan:?}") };
    let annotations = &patch["metadata"]["annotations"];
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "3");
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");
}

#[test]
fn history_has_a_limit() {
    let mut object = deployment(1, json!(1), json!(0));
    object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "4".into();
    let sets: Vec<_> = [("a", 1), ("b", 2), ("c", 3)].map(|(image, number)| set(&object, image, number, 0, 0)).into();
    let new = set(&object, "v2", 4, 1, 1);
    let all: Vec<_> = sets.iter().chain([&new]).collect();
    let plan = plan(&object, &all, false);
    let deleted = plan.steps.iter().filter_map(|step| match step {
        Step::Delete(_, uid, _) => Some(uid.as_str()),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_failure_to_create_a_replica_set_is_reported_before_the_next_attempt() {
    let object = deployment(2, json!(1), json!(0));
    let mut plan = Plan::of(&DEPLOYMENT, &object);
    let view = View {
        deployment: &object,
        sets: vec![],
        runs: &|_| false,
        taken: &|_| false,
        failure: Some("quota exceeded"),
    };
    decide(&view, now(), &mut plan);
    let [Step::Merge(_, "/status", patch), create, ..] = &plan.steps[..] else { panic!("{plan:?}") };
    let (Step::Create(_, set), Some(report)) = create.parts() else { panic!("{create:?}") };
    let conditions = patch["status"]["conditions"].as_array().expect("conditions");
    let progressing = conditions.iter().find(|one| one["type"] == "Progressing").expect("the condition");
    let name = text(set, "/metadata/name");
    let message = format!("Failed to create new replica set {name:?}: quota exceeded");
    assert_eq!((&progressing["status"], &progressing["reason"]), (&json!("False"), &json!("ReplicaSetCreateError")));
    assert_eq!(progressing["message"], message);
    assert_eq!(report.failures, [("ReplicaSetCreateError", format!("Failed to create new replica set {name:?}: "))]);
}

#[test]
fn the_revision_of_a_deployment_is_written_with_its_status() {
    let object = deployment(1, json!(1), json!(0));
    let plan = plan(&object, &[], false);
    let [_, Step::Merge(_, "/status", patch)] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(patch["metadata"]["annotations"], json!({"deployment.kubernetes.io/revision": "1"}));
    let conditions = patch["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|one| one["reason"] == "NewReplicaSetCreated"), "{conditions:?}");
}

#[test]
fn a_name_that_is_taken_makes_for_another() {
    let mut object = deployment(1, json!(1), json!(0));
    let first = text(&revision::new_set(&object, 1, 1), "/metadata/name").to_owned();
    let mut plan = Plan::of(&DEPLOYMENT, &object);
    let view =
        View { deployment: &object, sets: vec![], runs: &|_| false, taken: &|name| name == first, failure: None };
    decide(&view, now(), &mut plan);
    let [Step::Merge(_, "/status", patch)] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(patch["status"]["collisionCount"], 1);
    object["status"]["collisionCount"] = 1.into();
    assert_ne!(text(&revision::new_set(&object, 1, 1), "/metadata/name"), first);
}

#[test]
fn a_paused_deployment_is_scaled_but_not_rolled_out() {
    let mut object = deployment(3, json!(1), json!(0));
    object["spec"]["paused"] = true.into();
    let old = set(&deployment(1, json!(1), json!(0)), "v1", 1, 1, 1);
    let plan = plan(&object, &[&old], false);
    assert_eq!(scalings(&plan), ["from 1 to 3"]);
    let Some(Step::Merge(_, "/status", patch)) = plan.steps.last() else { panic!("{plan:?}") };
    let conditions = patch["status"]["conditions"].as_array().cloned().unwrap_or_default();
    assert!(conditions.iter().any(|one| one["reason"] == "DeploymentPaused" && one["status"] == "Unknown"));
}
