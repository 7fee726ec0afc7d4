//! Examples of the Kubernetes documentation, and cases that it doesn't cover.

mod property;

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::*;
use crate::schema::{Definitions, OBJECT_META, parse::from_openapi};

/// A cluster with a single object. Each write advances the time by one second.
struct Object {
    schema: crate::schema::Schema,
    status: FieldSet,
    live: Option<Value>,
    now: Timestamp,
}

/// Returns the schema of a workload with every type of list and map.
fn workload() -> Value {
    let list = |kind: &str, keys: Value, items: Value| json!({"type": "array", "items": items, "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": keys});
    let port = json!({"type": "object", "properties": {
        "containerPort": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": {"type": "string"},
    }});
    let container = json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "args": {"type": "array", "items": {"type": "string"}},
        "ports": list("map", json!(["containerPort", "protocol"]), port),
    }});
    json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "data": {"type": "object", "additionalProperties": {"type": "string"}},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic",
                "properties": {"matchLabels": {"type": "object"}}},
            "strategy": {"type": "object", "properties": {"type": {"type": "string"}, "surge": {"type": "integer"}}},
            "containers": list("map", json!(["name"]), container),
            "topics": list("set", Value::Null, json!({"type": "string"})),
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"ready": {"type": "integer"}, "phase": {"type": "string"}}},
    }})
}

/// Returns the metadata definition of every kind.
fn definitions() -> Definitions {
    let strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let metadata = from_openapi(&json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "creationTimestamp": {"type": "string"},
        "managedFields": {"type": "array"},
        "labels": strings,
        "annotations": strings,
        "finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
        },
    }}));
    Definitions::from([(OBJECT_META, metadata)])
}

impl Object {
    fn new() -> Self {
        let now = "2026-01-02T03:04:05.6Z".parse().unwrap();
        Self { schema: from_openapi(&workload()), status: FieldSet::of(["status"]), live: None, now }
    }

    fn ctx<'a>(&'a self, manager: &'a str, definitions: &'a Definitions) -> Context<'a> {
        Context {
            node: Node::new(&self.schema, definitions),
            group_version: "v1",
            kind: "Workload",
            manager,
            subresource: None,
            force: false,
            now: Some(self.now),
            writable: Writable::Except(&self.status),
            blank: None,
            schema_changes: true,
            versions: None,
        }
    }

    fn write(&mut self, by: impl FnOnce(Option<&Value>, &Self) -> Result<Value, Status>) -> Result<(), Status> {
        self.now = self.now.checked_add(1.second()).unwrap();
        self.live = Some(by(self.live.as_ref(), self)?);
        Ok(())
    }

    fn try_apply(&mut self, manager: &str, config: Value, force: bool) -> Result<(), Status> {
        let config = named(config);
        self.write(|live, this| {
            let definitions = definitions();
            apply(live, &config, &Context { force, ..this.ctx(manager, &definitions) })
        })
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, config: Value) {
        self.try_apply(manager, config, false).unwrap();
    }

    #[track_caller]
    fn refused(&mut self, manager: &str, config: Value) -> Status {
        self.try_apply(manager, config, false).unwrap_err()
    }

    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        self.write(|live, this| {
            let mut new = live.cloned().unwrap_or_else(|| named(json!({})));
            change(&mut new);
            Ok(update(live, new, &this.ctx(manager, &definitions())))
        })
        .unwrap();
    }

    fn update_status(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        self.write(|live, this| {
            let mut new = live.cloned().unwrap();
            change(&mut new);
            let definitions = definitions();
            let rest = FieldSet::of(["metadata", "spec"]);
            let writable = Writable::Except(&rest);
            Ok(update(live, new, &Context { subresource: Some("status"), writable, ..this.ctx(manager, &definitions) }))
        })
        .unwrap();
    }

    /// Checks the object without its identifying fields and its ownership.
    #[track_caller]
    fn check(&self, expect: Value) {
        let mut live = self.live.clone().unwrap();
        take_managed(&mut live);
        assert_eq!(live, named(expect));
    }

    /// Checks the owned fields of each `manager/operation`, or `manager/operation/subresource`, in the order of the
    /// entries.
    #[track_caller]
    fn check_owners(&self, expect: &[(&str, &[&str])]) {
        let managers = Managers::decode(managed_fields(self.live.as_ref().unwrap())).unwrap();
        let owners: Vec<_> = managers
            .0
            .iter()
            .map(|entry| {
                let subresource = if entry.subresource.is_empty() { "" } else { "/" };
                let who = format!("{}/{}{subresource}{}", entry.manager, entry.operation.as_str(), entry.subresource);
                (who, sorted(entry.fields.paths()))
            })
            .collect();
        let expect: Vec<_> = expect
            .iter()
            .map(|(who, paths)| (who.to_string(), sorted(paths.iter().map(ToString::to_string).collect())))
            .collect();
        assert_eq!(owners, expect);
    }
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort();
    paths
}

/// Adds the fields that identify the object.
fn named(mut object: Value) -> Value {
    object["apiVersion"] = "v1".into();
    object["kind"] = "Workload".into();
    object["metadata"]["name"] = "web".into();
    object
}

#[test]
fn a_config_map_is_created_and_changed_by_apply() {
    let mut object = Object::new();
    object.apply("kubectl", json!({"metadata": {"labels": {"a": "b"}}, "data": {"key": "some value"}}));
    object.check(json!({"metadata": {"labels": {"a": "b"}}, "data": {"key": "some value"}}));
    assert_eq!(
        managed_fields(object.live.as_ref().unwrap()),
        Some(&json!([{
            "manager": "kubectl",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-02T03:04:06Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:key": {}}, "f:metadata": {"f:labels": {"f:a": {}}}},
        }]))
    );
    // A controller changes the applied value and then owns it.
    object.update("controller", |live| live["data"]["key"] = "new value".into());
    object.check_owners(&[("kubectl/Apply", &[".metadata.labels.a"]), ("controller/Update", &[".data.key"])]);
    let conflict =
        object.refused("kubectl", json!({"metadata": {"labels": {"a": "b"}}, "data": {"key": "some value"}}));
    assert_eq!(conflict.message, r#"Apply failed with 1 conflict: conflict with "controller" using v1: .data.key"#);
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        conflict.details.unwrap().causes,
        [crate::status::Cause::new("FieldManagerConflict", ".data.key", r#"conflict with "controller" using v1"#)]
    );
    object.try_apply("kubectl", json!({"data": {"key": "some value"}}), true).unwrap();
    object.check(json!({"metadata": {}, "data": {"key": "some value"}}));
    object.check_owners(&[("kubectl/Apply", &[".data.key"])]);
}

#[test]
fn replicas_are_handed_to_an_autoscaler() {
    let strategy = json!({"type": "Recreate"});
    let with_replicas = json!({"spec": {"replicas": 3, "strategy": strategy}});
    let without = json!({"spec": {"strategy": strategy}});
    let mut object = Object::new();
    object.apply("kubectl", with_replicas.clone());
    // The user takes over replicas as a separate manager, with the current value: both own it.
    object.apply("handover-to-hpa", json!({"spec": {"replicas": 3}}));
    object.check_owners(&[
        ("handover-to-hpa/Apply", &[".spec.replicas"]),
        ("kubectl/Apply", &[".spec.replicas", ".spec.strategy.type"]),
    ]);
    // Now the user's configuration can omit it, and it stays.
    object.apply("kubectl", without.clone());
    object.check(with_replicas);
    object.update("hpa", |live| live["spec"]["replicas"] = 7.into());
    object.check_owners(&[("kubectl/Apply", &[".spec.strategy.type"]), ("hpa/Update", &[".spec.replicas"])]);
    object.apply("kubectl", without);
    object.check(json!({"spec": {"replicas": 7, "strategy": strategy}}));
}

#[test]
fn an_abandoned_field_disappears() {
    let mut object = Object::new();
    object.apply("a", json!({"spec": {"replicas": 3, "strategy": {"type": "x", "surge": 1}}}));
    object.update("defaults", |live| live["spec"]["free"] = json!({"x": 1}));
    object.apply("a", json!({"spec": {"strategy": {"surge": 1}}}));
    object.check(json!({"spec": {"strategy": {"surge": 1}, "free": {"x": 1}}}));
    object.apply("a", json!({}));
    object.check(json!({"spec": {"free": {"x": 1}}}));
    object.check_owners(&[("defaults/Update", &[".spec.free", ".spec.free.x"])]);
}

#[test]
fn an_owner_of_the_name_does_not_remove_it() {
    let mut object = Object::new();
    object.apply("a", json!({"data": {"x": "1"}}));
    // Controllers write such an entry for a manager that hasn't applied yet.
    object.update("b", |live| {
        live["metadata"]["managedFields"] = json!([{"manager": "a", "operation": "Apply", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:apiVersion": {}, "f:metadata": {"f:name": {}}}}]);
    });
    object.apply("a", json!({"data": {"y": "2"}}));
    object.check(json!({"data": {"x": "1", "y": "2"}}));
    object.check_owners(&[("a/Apply", &[".data.y"])]);
}

#[test]
fn list_maps_are_owned_item_by_item() {
    let web = json!({"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]});
    let mut object = Object::new();
    object.apply("a", json!({"spec": {"containers": [web]}}));
    object.apply(
        "mesh",
        json!({"spec": {"containers": [
            {"name": "proxy", "image": "proxy:1"},
            {"name": "web", "ports": [{"containerPort": 80, "protocol": "UDP", "name": "dns"}]},
        ]}}),
    );
    object.check(json!({"spec": {"containers": [
        {"name": "proxy", "image": "proxy:1"},
        {"name": "web", "image": "web:1", "ports": [
            {"containerPort": 80},
            {"containerPort": 80, "protocol": "UDP", "name": "dns"},
        ]},
    ]}}));
    object.check_owners(&[
        (
            "a/Apply",
            &[
                r#".spec.containers[name="web"]"#,
                r#".spec.containers[name="web"].image"#,
                r#".spec.containers[name="web"].name"#,
                r#".spec.containers[name="web"].ports[containerPort=80,protocol="TCP"]"#,
                r#".spec.containers[name="web"].ports[containerPort=80,protocol="TCP"].containerPort"#,
            ],
        ),
        (
            "mesh/Apply",
            &[
                r#".spec.containers[name="proxy"]"#,
                r#".spec.containers[name="proxy"].image"#,
                r#".spec.containers[name="proxy"].name"#,
                r#".spec.containers[name="web"]"#,
                r#".spec.containers[name="web"].name"#,
                r#".spec.containers[name="web"].ports[containerPort=80,protocol="UDP"]"#,
                r#".spec.containers[name="web"].ports[containerPort=80,protocol="UDP"].containerPort"#,
                r#".spec.containers[name="web"].ports[containerPort=80,protocol="UDP"].name"#,
                r#".spec.containers[name="web"].ports[containerPort=80,protocol="UDP"].protocol"#,
            ],
        ),
    ]);
    // `mesh` still owns the container: only fields that `a` alone owned are removed.
    object.apply("a", json!({}));
    object.check(json!({"spec": {"containers": [
        {"name": "proxy", "image": "proxy:1"},
        {"name": "web", "ports": [{"containerPort": 80, "protocol": "UDP", "name": "dns"}]},
    ]}}));
}

#[test]
fn items_keep_their_places() {
    let names = |names: &str| names.chars().map(|name| json!({"name": name})).collect::<Value>();
    for (live, config, expect) in [
        ("abc", "xb", "axbc"),
        ("abc", "ca", "bca"),
        ("abcd", "dxb", "acdxb"),
        ("", "ba", "ba"),
        ("ab", "", "ab"),
        ("ab", "xy", "abxy"),
    ] {
        let mut object = Object::new();
        object.update("creator", |new| new["spec"]["containers"] = names(live));
        object.apply("a", json!({"spec": {"containers": names(config)}}));
        object.check(json!({"spec": {"containers": names(expect)}}));
    }
}

#[test]
fn entries_with_free_names_are_owned_for_themselves() {
    let mut object = Object::new();
    object.apply("a", json!({"data": {}, "spec": {"strategy": {"surge": 1}, "free": {"x": {"y": 1}}}}));
    object.check_owners(&[("a/Apply", &[".data", ".spec.free.x", ".spec.free.x.y", ".spec.strategy.surge"])]);
}

#[test]
fn an_item_goes_with_what_an_updater_set_in_it() {
    let mut object = Object::new();
    object.apply("a", json!({"spec": {"containers": [{"name": "web"}, {"name": "job"}]}}));
    object.update("tuner", |live| live["spec"]["containers"][1]["image"] = "job:tuned".into());
    object.apply("a", json!({"spec": {"containers": [{"name": "web"}]}}));
    object.check(json!({"spec": {"containers": [{"name": "web"}]}}));
    object.check_owners(&[("a/Apply", &[r#".spec.containers[name="web"]"#, r#".spec.containers[name="web"].name"#])]);
}

#[test]
fn an_object_stays_while_someone_owns_a_part() {
    let mut object = Object::new();
    object.apply("a", json!({"spec": {"free": {"x": {"mine": 1}}}}));
    object.update("b", |live| live["spec"]["free"]["x"]["theirs"] = 2.into());
    object.apply("a", json!({"spec": {}}));
    object.check(json!({"spec": {"free": {"x": {"theirs": 2}}}}));
}

#[test]
fn sets_are_owned_value_by_value() {
    let mut object = Object::new();
    object.apply("a", json!({"metadata": {"finalizers": ["a/x", "shared/z"]}}));
    object.apply("b", json!({"metadata": {"finalizers": ["b/y", "shared/z"]}}));
    object.check(json!({"metadata": {"finalizers": ["a/x", "b/y", "shared/z"]}}));
    object.apply("a", json!({"metadata": {"finalizers": []}}));
    object.check(json!({"metadata": {"finalizers": ["b/y", "shared/z"]}}));
    object.apply("b", json!({}));
    // Nobody owns the list itself, even if it was applied empty.
    object.check(json!({"metadata": {}}));
}

#[test]
fn owner_references_are_distinguished_by_uid() {
    let owner = |uid: &str, block: bool| json!({"uid": uid, "name": "o", "blockOwnerDeletion": block});
    let mut object = Object::new();
    object.apply("a", json!({"metadata": {"ownerReferences": [owner("1", true)]}}));
    object.apply("b", json!({"metadata": {"ownerReferences": [owner("2", true)]}}));
    object.check(json!({"metadata": {"ownerReferences": [owner("1", true), owner("2", true)]}}));
    object.check_owners(&[
        ("a/Apply", &[r#".metadata.ownerReferences[uid="1"]"#]),
        ("b/Apply", &[r#".metadata.ownerReferences[uid="2"]"#]),
    ]);
    let conflict = object.refused("b", json!({"metadata": {"ownerReferences": [owner("1", false)]}}));
    assert_eq!(
        conflict.message,
        r#"Apply failed with 1 conflict: conflict with "a": .metadata.ownerReferences[uid="1"]"#
    );
}

#[test]
fn atomic_values_have_one_owner() {
    let mut object = Object::new();
    object.apply(
        "a",
        json!({"spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "containers": [{"name": "web", "args": ["x"]}],
        }}),
    );
    let conflict = object.refused(
        "b",
        json!({"spec": {
            "selector": {"matchLabels": {"tier": "b"}},
            "containers": [{"name": "web", "args": ["x", "y"]}],
        }}),
    );
    assert_eq!(
        conflict.message,
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.selector\n- .spec.containers[name=\"web\"].args"
    );
    object.try_apply("b", json!({"spec": {"selector": {"matchLabels": {"tier": "b"}}}}), true).unwrap();
    object.check(json!({"spec": {
        "selector": {"matchLabels": {"tier": "b"}},
        "containers": [{"name": "web", "args": ["x"]}],
    }}));
}

#[test]
fn conflicts_name_every_manager() {
    let mut object = Object::new();
    object.apply("zoe", json!({"data": {"z": "1"}}));
    object.update("amy", |live| live["data"]["a"] = "1".into());
    object.update_status("kubelet", |live| live["status"] = json!({"ready": 1}));
    let conflict = object.refused("bob", json!({"data": {"a": "2", "z": "2"}, "status": {"ready": 2}}));
    assert_eq!(
        conflict.message,
        "Apply failed with 2 conflicts: conflicts with \"amy\" using v1:\n- .data.a\nconflicts with \"zoe\":\n- .data.z"
    );
}

#[test]
fn an_apply_of_nothing_new_changes_nothing() {
    let config = json!({"data": {"a": "1"}, "metadata": {"creationTimestamp": null}, "spec": {"topics": ["x"]}});
    let mut object = Object::new();
    object.apply("a", config.clone());
    object.update("server", |live| {
        live["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        live["spec"]["replicas"] = 1.into();
    });
    let before = object.live.clone();
    object.apply("a", config);
    assert_eq!(object.live, before);
}

#[test]
fn updates_own_what_they_change() {
    let mut object = Object::new();
    object.update("creator", |new| {
        new["spec"] = json!({"replicas": 1, "strategy": {}, "topics": ["x"]});
        new["status"] = json!({"ready": 0});
    });
    object.check_owners(&[(
        "creator/Update",
        &[".spec", ".spec.replicas", ".spec.strategy", ".spec.topics", r#".spec.topics[="x"]"#],
    )]);
    object.update("other", |live| {
        live["spec"]["replicas"] = 2.into();
        live["spec"]["topics"] = json!(["y"]);
    });
    object.check_owners(&[
        ("creator/Update", &[".spec", ".spec.strategy", ".spec.topics"]),
        ("other/Update", &[".spec.replicas", r#".spec.topics[="y"]"#]),
    ]);
    object.update_status("kubelet", |live| {
        live["status"] = json!({"ready": 1});
        live["spec"]["replicas"] = 9.into();
    });
    object.check_owners(&[
        ("creator/Update", &[".spec", ".spec.strategy", ".spec.topics"]),
        ("other/Update", &[".spec.replicas", r#".spec.topics[="y"]"#]),
        ("kubelet/Update/status", &[".status.ready"]),
    ]);
    let before = object.live.clone();
    object.update("idle", |_| {});
    assert_eq!(object.live, before);
}

#[test]
fn managed_fields_can_be_sent_reset_and_left_out() {
    let mut object = Object::new();
    object.apply("a", json!({"data": {"x": "1"}}));
    object.update("b", |live| {
        take_managed(live);
        live["data"]["y"] = "2".into();
    });
    object.check_owners(&[("a/Apply", &[".data.x"]), ("b/Update", &[".data.y"])]);
    object.update("b", |live| live["metadata"]["managedFields"] = json!([{"manager": "junk", "operation": "Melt"}]));
    object.check_owners(&[("a/Apply", &[".data.x"]), ("b/Update", &[".data.y"])]);
    object.update("c", |live| live["metadata"]["managedFields"][0]["manager"] = "renamed".into());
    object.check_owners(&[("renamed/Apply", &[".data.x"]), ("b/Update", &[".data.y"])]);
    for reset in [json!([{}]), json!([])] {
        let mut object = Object { live: object.live.clone(), ..Object::new() };
        object.update("c", |live| live["metadata"]["managedFields"] = reset);
        object.check_owners(&[]);
        // Updates don't record ownership on an object without any. The first apply shares the fields with
        // `before-first-apply`.
        object.update("c", |live| live["data"]["z"] = "3".into());
        object.check_owners(&[]);
        object.apply("a", json!({"data": {"x": "1"}}));
        object.check_owners(&[
            ("a/Apply", &[".data.x"]),
            ("before-first-apply/Update", &[".data", ".data.x", ".data.y", ".data.z"]),
        ]);
    }
}

#[test]
fn client_side_apply_is_no_conflict_for_kubectl() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut object = Object::new();
    let applied = json!({"data": {"a": "1", "b": "1"}});
    object.update("kubectl-client-side-apply", |new| {
        *new = named(applied.clone());
        new["metadata"]["annotations"][LAST] = named(applied).to_string().into();
    });
    let wanted = json!({"data": {"a": "2", "b": "1"}});
    let mut other = Object { live: object.live.clone(), ..Object::new() };
    other.refused("someone", wanted.clone());
    other.update("controller", |live| live["data"]["a"] = "7".into());
    let conflict = other.refused("kubectl", wanted.clone());
    assert_eq!(conflict.message, r#"Apply failed with 1 conflict: conflict with "controller" using v1: .data.a"#);

    object.apply("kubectl", wanted.clone());
    let live = object.live.unwrap();
    assert_eq!(live["data"], wanted["data"]);
    let last: Value = serde_json::from_str(live["metadata"]["annotations"][LAST].as_str().unwrap()).unwrap();
    assert_eq!(last, named(wanted));
}

#[test]
fn configurations_that_violate_the_schema_are_refused() {
    let refusal = |config: Value| Object::new().refused("a", config).message;
    let prefix = "failed to create typed patch object (/web; /v1, Kind=Workload): ";
    for (config, expect) in [
        (json!({"spec": {"repliicas": 1}}), ".spec.repliicas: field not declared in schema"),
        (json!({"metadata": {"label": {}}}), ".metadata.label: field not declared in schema"),
        (
            json!({"spec": {"containers": 1, "repliicas": 1, "replicas": "a"}, "metadata": {"label": {}}}),
            "errors:\n  .metadata.label: field not declared in schema\n  \
             .spec.containers: expected list, got &{1}\n  .spec.replicas: expected numeric (int or float), got string\n  \
             .spec.repliicas: field not declared in schema",
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}),
            r#".spec.containers: duplicate entries for key [name="a"]"#,
        ),
        (json!({"spec": {"topics": ["a", "b", "a"]}}), r#".spec.topics: duplicate entries for key [="a"]"#),
        (
            json!({"spec": {"containers": [{"image": "a"}]}}),
            ".spec.containers: element 0: associative list with keys has an element that omits all key fields [\"name\"] \
             (and doesn't have default values for any key fields)",
        ),
    ] {
        assert_eq!(refusal(config), format!("{prefix}{expect}"));
    }
    assert_eq!(refusal(json!({"metadata": {"managedFields": []}})), "metadata.managedFields must be nil");
    let definitions = definitions();
    let object = Object::new();
    let other = apply(None, &json!({"apiVersion": "v2"}), &object.ctx("a", &definitions)).unwrap_err();
    assert_eq!(other.message, "invalid object type: /v2, Kind=");
}

#[test]
fn items_with_equal_keys_in_a_live_list_are_owned_as_a_whole() {
    let mut object = Object::new();
    object.update("creator", |new| {
        new["spec"]["containers"] = json!([{"name": "a", "image": "1"}, {"name": "a", "image": "2"}, {"name": "b"}]);
    });
    object.check_owners(&[(
        "creator/Update",
        &[
            ".spec",
            ".spec.containers",
            r#".spec.containers[name="a"]"#,
            r#".spec.containers[name="b"]"#,
            r#".spec.containers[name="b"].name"#,
        ],
    )]);
    let config = json!({"spec": {"containers": [{"name": "a", "image": "3"}]}});
    object.refused("a", config.clone());
    object.try_apply("a", config, true).unwrap();
    object.check(json!({"spec": {"containers": [{"name": "a", "image": "3"}, {"name": "b"}]}}));
}

#[test]
fn old_updates_are_merged() {
    let mut object = Object::new();
    object.update("creator", |new| new["data"]["x"] = "".into());
    for writer in 0..12 {
        object.update(&format!("writer-{writer:02}"), |live| live["data"][format!("k{writer:02}")] = "".into());
    }
    let managers = Managers::decode(managed_fields(object.live.as_ref().unwrap())).unwrap();
    assert_eq!(managers.0.len(), 10);
    assert_eq!(managers.0[0].manager, "ancient-changes");
    assert_eq!(managers.0[0].fields.paths(), [".data", ".data.k00", ".data.k01", ".data.k02", ".data.x"]);
    assert_eq!(managers.0[9].manager, "writer-11");
}

#[test]
fn writes_that_change_nothing_keep_the_object() {
    let mut object = Object::new();
    object.apply("a", json!({"data": {"x": "1"}}));
    let live = object.live.clone().unwrap();
    let mut later = live.clone();
    later["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z".into();
    assert_eq!(ignore_timestamps(&live, later.clone()), live);
    later["data"]["x"] = "2".into();
    assert_eq!(ignore_timestamps(&live, later.clone()), later);
    let mut renamed = live.clone();
    renamed["metadata"]["managedFields"][0]["manager"] = "b".into();
    assert_eq!(ignore_timestamps(&live, renamed.clone()), renamed);
}

#[test]
fn status_is_applied_by_its_own_managers() {
    let mut object = Object::new();
    object.apply("a", json!({"spec": {"replicas": 1}, "status": {"ready": 5}}));
    // The server resets the status afterwards.
    object.check(json!({"spec": {"replicas": 1}, "status": {"ready": 5}}));
    object.check_owners(&[("a/Apply", &[".spec.replicas"])]);
    let config = named(json!({"spec": {"replicas": 1}, "status": {"ready": 1}, "metadata": {"labels": {"x": "y"}}}));
    object
        .write(|live, this| {
            let definitions = definitions();
            let rest = FieldSet::of(["metadata", "spec"]);
            let writable = Writable::Except(&rest);
            apply(live, &config, &Context { subresource: Some("status"), writable, ..this.ctx("a", &definitions) })
        })
        .unwrap();
    object.check_owners(&[("a/Apply", &[".spec.replicas"]), ("a/Apply/status", &[".status.ready"])]);
    // The main resource has a separate entry, so applying to it removes nothing from the status.
    object.apply("a", json!({}));
    object.check(json!({"metadata": {"labels": {"x": "y"}}, "status": {"ready": 1}}));
}

#[test]
fn null_leaves_what_others_own() {
    let mut object = Object::new();
    let strategy = json!({"type": "x", "surge": 1});
    let spec = json!({"strategy": strategy, "topics": ["a"], "replicas": 1, "containers": [{"name": "web"}]});
    object.apply("a", json!({"spec": spec, "data": {"x": "1"}}));
    object.apply("b", json!({"spec": {"strategy": null, "topics": null, "containers": null}, "data": null}));
    object.check(json!({"spec": spec, "data": {"x": "1"}}));
    // A value that isn't merged is replaced.
    object.try_apply("b", json!({"spec": {"replicas": null, "strategy": {"type": null}}}), true).unwrap();
    object.check(json!({
        "spec": {"strategy": {"type": null, "surge": 1}, "topics": ["a"], "replicas": null, "containers": [{"name": "web"}]},
        "data": {"x": "1"},
    }));
    // Null has no items, so its manager no longer applies those that it applied before.
    object.apply("a", json!({"spec": {"topics": null}}));
    object.check(json!({"metadata": {}, "spec": {"strategy": {"type": null}, "topics": null, "replicas": null}}));
}

#[test]
fn the_schema_applies_within_atomic_values() {
    let port = json!({"type": "object", "properties": {"number": {"type": "integer"}}});
    let list = json!({"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["number"]});
    let entry = json!({"type": "object", "properties": {"ports": list, "names": {
        "type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}});
    let schema = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": entry},
        "map": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"entry": entry}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "inner": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    }});
    for (config, expect) in [
        (json!({"free": {"b": 1, "inner": {"b": 1}}}), ""),
        (json!({"list": [{}, {"ports": [{"number": 1}]}], "map": {"entry": {"names": ["a"]}}}), ""),
        (
            json!({"list": [{"ports": [{}]}]}),
            ".list[0].ports: element 0: associative list with keys has an element that omits all key fields [\"number\"] \
             (and doesn't have default values for any key fields)",
        ),
        (
            json!({"list": [{"ports": [{"number": 1}, {"number": 1}]}]}),
            ".list[0].ports: duplicate entries for key [number=1]",
        ),
        (
            json!({"list": [{"ports": [null]}]}),
            ".list[0].ports: element 0: associative list with keys may not have a null element",
        ),
        (
            json!({"map": {"entry": {"names": ["a", null]}}}),
            ".map.entry.names: element 1: associative list without keys has an element that's an explicit null",
        ),
        (json!({"map": {"other": 1}}), ".map.other: field not declared in schema"),
        (json!({"map": {"entry": {"names": [1]}}}), ".map.entry.names[=1]: expected string"),
    ] {
        let definitions = definitions();
        let object = Object { schema: from_openapi(&schema), ..Object::new() };
        let result = apply(None, &named(config), &object.ctx("a", &definitions));
        let message = result.err().map(|status| status.message).unwrap_or_default();
        assert_eq!(message.is_empty(), expect.is_empty(), "{message}");
        assert!(message.contains(expect), "{message}");
    }
}

#[test]
fn an_apply_that_only_adds_owners_has_a_time_if_it_sends_the_servers_metadata() {
    for (metadata, expect) in
        [(json!({}), Value::Null), (json!({"creationTimestamp": null}), json!("2026-01-02T03:04:07Z"))]
    {
        let mut object = Object::new();
        object.apply("a", json!({"data": {"x": "1"}}));
        object.live.as_mut().unwrap()["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        object.apply("b", json!({"metadata": metadata, "data": {"x": "1"}}));
        let managed = managed_fields(object.live.as_ref().unwrap()).unwrap();
        let entry = managed.as_array().unwrap().iter().find(|entry| entry["manager"] == "b").unwrap();
        assert_eq!(entry["time"], expect);
    }
}

#[test]
fn unexpected_objects_cause_no_failure() {
    for odd in [json!(null), json!([]), json!({"metadata": []}), json!({"metadata": {"managedFields": 3}})] {
        let object = Object::new();
        let definitions = definitions();
        let ctx = object.ctx("a", &definitions);
        update(None, odd.clone(), &ctx);
        update(Some(&odd), odd.clone(), &ctx);
        let _ = apply(Some(&odd), &named(json!({"data": {"x": "1"}})), &ctx);
        let _ = apply(None, &odd, &ctx);
    }
}
