use serde_json::json;

use super::*;

const LIMITS: Limits = Limits { events: 4, recent_events: 4, bytes: usize::MAX, parsed: 2_000 };

fn put(store: &Store, name: &str, value: Value) -> u64 {
    let committed = store.transact(&"/pods".into(), &Key::new("ns", name), |_| decide(&value), |_, _| {});
    committed.unwrap().object.unwrap().revision()
}

fn decide(value: &Value) -> Result<Mutation, WriteError> {
    Ok(Mutation::Put(json!({"metadata": {}, "data": value})))
}

fn remove(store: &Store, name: &str) {
    let decide = |present: Option<&Arc<Value>>| {
        Ok::<_, WriteError>(Mutation::Remove(present.map(|value| (**value).clone()).unwrap_or_default()))
    };
    store.transact(&"/pods".into(), &Key::new("ns", name), decide, |_, _| {}).unwrap();
}

fn names(objects: &Objects) -> Vec<String> {
    objects.iter().map(|(key, stored)| format!("{}={}", key.name, stored.value()["data"])).collect()
}

#[test]
fn an_older_revision_is_restored_by_undoing_the_log() {
    let store = Store::new(LIMITS);
    put(&store, "a", json!(1));
    let revision = put(&store, "b", json!(1));
    put(&store, "a", json!(2));
    remove(&store, "b");
    put(&store, "c", json!(1));
    assert_eq!(names(&store.snapshot("/pods").objects), ["a=2", "c=1"]);
    assert_eq!(names(&store.snapshot_at("/pods", revision).unwrap().objects), ["a=1", "b=1"]);
}

#[test]
fn dropped_changes_cannot_be_read() {
    let store = Store::new(LIMITS);
    let first = put(&store, "a", json!(0));
    let mut cursor = store.cursor(&"/pods".into(), first);
    for number in 0..5 {
        put(&store, "a", json!(number));
    }
    let expired = Expired { oldest: first + 1 };
    assert_eq!(store.snapshot_at("/pods", first).unwrap_err(), ReadError::Expired(expired));
    assert_eq!(cursor.read(&store, 10).unwrap_err(), expired);
    assert_eq!(store.snapshot_at("/pods", 1000).unwrap_err(), ReadError::Future(store.revision()));
}

#[test]
fn changes_that_lists_need_are_kept_longer() {
    let store = Store::new(Limits { recent_events: 8, bytes: usize::MAX, ..LIMITS });
    let first = put(&store, "a", json!(0));
    for number in 0..8 {
        put(&store, "a", json!(number));
    }
    assert!(store.snapshot_at("/pods", first).is_ok());
    put(&store, "a", json!("beyond the limit"));
    assert!(store.snapshot_at("/pods", first).is_err());
    let needed = store.revision() - 2;
    store.compact(needed);
    let last = put(&store, "a", json!("given up"));
    assert!(store.snapshot_at("/pods", needed - 2).is_err());
    assert!(store.snapshot_at("/pods", last - 4).is_ok());
}

#[test]
fn old_changes_are_given_up_although_no_others_follow() {
    let store = Store::new(Limits { events: 2, recent_events: 100, bytes: usize::MAX, ..LIMITS });
    for number in 0..10 {
        put(&store, "a", json!(number));
    }
    let last = store.revision();
    let is_kept = |revision: u64| store.snapshot_at("/pods", revision).is_ok();
    store.compact(last - 5);
    assert!(is_kept(last - 5) && !is_kept(last - 6), "lists read the changes after it");
    store.compact(last);
    assert!(is_kept(last - 2) && !is_kept(last - 3), "watches continue from the latest changes");
}

#[test]
fn the_log_is_bounded_by_memory() {
    let store = Store::new(Limits { events: usize::MAX, bytes: 4000, ..LIMITS });
    let first = put(&store, "a", json!("x".repeat(1000)));
    put(&store, "a", json!("x".repeat(1000)));
    assert!(store.snapshot_at("/pods", first).is_ok());
    put(&store, "a", json!("x".repeat(1000)));
    put(&store, "a", json!("x".repeat(1000)));
    assert!(store.snapshot_at("/pods", first).is_err());
}

#[test]
fn a_cursor_sees_every_change_once_and_in_order() {
    let store = Store::new(Limits::default());
    let mut cursor = store.cursor(&"/pods".into(), store.revision());
    let (mut all, existing) = store.everything();
    assert!(existing.iter().all(|(_, objects)| objects.len() == 0));
    put(&store, "a", json!(1));
    put(&store, "a", json!(2));
    remove(&store, "a");
    for cursor in [&mut cursor, &mut all] {
        let mut seen = Vec::new();
        loop {
            let events = cursor.read(&store, 2).unwrap();
            if events.is_empty() {
                break;
            }
            seen.extend(events.iter().map(|event| (event.object.revision(), event.object.change())));
        }
        assert_eq!(seen, [(2, ChangeKind::Added), (3, ChangeKind::Modified), (4, ChangeKind::Deleted)]);
        assert_eq!(cursor.revision(), 4);
    }
}

#[test]
fn a_decision_is_repeated_if_the_object_has_changed() {
    let store = Store::new(Limits::default());
    put(&store, "a", json!(1));
    let mut calls = 0;
    let committed = store.transact(
        &"/pods".into(),
        &Key::new("ns", "a"),
        |present| {
            calls += 1;
            let data = present.unwrap()["data"].as_i64().unwrap();
            if calls == 1 {
                put(&store, "a", json!(10));
            }
            decide(&json!(data + 1))
        },
        |before, after| {
            assert_eq!((before.unwrap()["data"].clone(), after.unwrap()["data"].clone()), (json!(10), json!(11)))
        },
    );
    assert_eq!(committed.unwrap().change, Some(ChangeKind::Modified));
    assert_eq!(calls, 2);
}

#[tokio::test]
async fn a_waiting_cursor_is_notified() {
    let store = Arc::new(Store::new(Limits::default()));
    let mut cursor = store.cursor(&"/pods".into(), store.revision());
    assert!(cursor.read(&store, 10).unwrap().is_empty());
    let writer = store.clone();
    let task = tokio::spawn(async move { put(&writer, "a", json!(1)) });
    assert!(cursor.wait().await);
    assert_eq!(cursor.read(&store, 10).unwrap().len(), 1);
    task.await.unwrap();
    store.reached(2).await;
}

#[test]
fn a_panic_of_the_observer_does_not_hide_the_write() {
    let store = Store::new(Limits::default());
    let mut cursor = store.cursor(&"/pods".into(), store.revision());
    let write = || store.transact(&"/pods".into(), &Key::new("ns", "a"), |_| decide(&json!(1)), |_, _| panic!("a bug"));
    assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
    assert!(cursor.changed.has_changed().unwrap(), "the cursor is notified");
    assert_eq!(cursor.read(&store, 10).unwrap().len(), 1);
    put(&store, "a", json!(2));
    assert_eq!(cursor.read(&store, 10).unwrap().len(), 1);
}

#[test]
fn replacements_are_made_with_a_change_or_not_at_all() {
    let store = Store::new(LIMITS);
    put(&store, "total", json!(0));
    let pods: Arc<str> = "/pods".into();
    let total = || store.of_namespace("/pods", "ns").into_iter().find(|(key, _)| &*key.name == "total").unwrap();
    let counted = || {
        let (key, before) = total();
        let value = json!({"metadata": {}, "data": before.value()["data"].as_i64().unwrap() + 1});
        Attached { storage: pods.clone(), key, before, value }
    };
    let add = |name: &str, attach: &mut dyn FnMut() -> Result<Vec<Attached>, WriteError>| {
        let key = Key::new("ns", name);
        store.transact_with(&pods, &key, |_| decide(&json!(1)), |_, _| attach(), |_, _| Ok(()), |_, _, _| {})
    };
    let mut cursor = store.cursor(&pods, store.revision());
    // The total changes after the first attempt to count the object.
    let mut attempts = 0;
    let committed = add("a", &mut || {
        let attached = counted();
        attempts += 1;
        if attempts == 1 {
            put(&store, "total", json!(10));
        }
        Ok(vec![attached])
    });
    assert_eq!((attempts, committed.unwrap().change), (2, Some(ChangeKind::Added)));
    assert_eq!(names(&store.snapshot("/pods").objects), ["a=1", "total=11"]);
    let events = cursor.read(&store, 10).unwrap();
    let changed: Vec<_> = events.iter().map(|event| &*event.key.name).collect();
    assert_eq!(changed, ["total", "total", "a"]);
    let revision = store.revision();
    assert!(add("b", &mut || Err(WriteError::closed())).is_err());
    assert_eq!(store.revision(), revision);
}

/// Returns a pod of 2.9 KB, with the owners of its fields.
fn pod(name: &str) -> Value {
    let env = |number| json!({"name": format!("VARIABLE_{number}"), "value": "the value of a variable"});
    let owned =
        |number| (format!(r#"k:{{"name":"VARIABLE_{number}"}}"#), json!({".": {}, "f:name": {}, "f:value": {}}));
    let fields: serde_json::Map<_, _> = (0..18).map(owned).collect();
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {"app": "web", "pod-template-hash": "6d4f9c7b58", "version": "v1"},
            "managedFields": [{
                "manager": "kubewright", "operation": "Update", "apiVersion": "v1", "time": "2026-01-31T23:59:59Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": {r#"k:{"name":"web"}"#: {"f:env": fields}}}},
            }],
        },
        "spec": {
            "containers": [{"name": "web", "image": "web", "env": (0..18).map(env).collect::<Vec<_>>(), "resources": {}}],
            "restartPolicy": "Always",
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    })
}

fn write(store: &Store, storage: &str, name: &str, mutation: impl Fn() -> Mutation) {
    let decide = |_: Option<&Arc<Value>>| Ok::<_, WriteError>(mutation());
    store.transact(&storage.into(), &Key::new("ns", name), decide, |_, _| {}).unwrap().object.unwrap().json();
}

/// Returns the memory of all versions of objects that a store holds, each counted once, in bytes.
fn held(store: &Store) -> usize {
    let state = store.state.read();
    let mut versions: BTreeMap<_, Arc<Stored>> = BTreeMap::new();
    let mut count = |version: &Arc<Stored>| drop(versions.insert(Arc::as_ptr(version), version.clone()));
    for collection in state.collections.values() {
        collection.objects.iter().for_each(|(_, object)| count(object));
    }
    for log in state.collections.values().map(|collection| &collection.log).chain([&state.log]) {
        for event in log.after(log.floor()).unwrap() {
            count(&event.object);
            event.previous.iter().for_each(&mut count);
        }
    }
    versions.values().map(|version| version.memory()).sum()
}

#[test]
fn objects_are_held_as_text_alone() {
    const PODS: usize = 2_000;
    let limits = Limits { parsed: 1 << 20, ..Limits::default() };
    let store = Store::new(limits);
    for number in 0..PODS {
        let name = format!("pod-{number}");
        write(&store, "/pods", &name, || Mutation::Put(pod(&name)));
    }
    let text = store.get("/pods", &Key::new("ns", "pod-0")).unwrap().json().len();
    assert!((2_500..3_300).contains(&text), "{text} bytes");
    let (all, parsed) = (held(&store), limits.parsed + (128 << 10));
    assert!(all - parsed.min(all) < PODS * (text + 600), "{all} bytes for {PODS} pods");

    let event = json!({"metadata": {"name": "e"}, "message": "x".repeat(970)});
    let before = held(&store);
    for number in 0..PODS {
        write(&store, "/events", &format!("event-{number}"), || Mutation::Put(event.clone()));
    }
    let each = (held(&store) - before).saturating_sub(limits.parsed) / PODS;
    assert!(each < 1_536, "{each} bytes for an event of 1 KB");
}

#[test]
fn removed_objects_are_held_within_the_limits() {
    let limits = Limits { bytes: 1 << 20, parsed: 256 << 10, ..Limits::default() };
    let store = Store::new(limits);
    for number in 0..600 {
        let name = format!("pod-{number}");
        for _ in 0..3 {
            write(&store, "/pods", &name, || Mutation::Put(pod(&name)));
        }
    }
    for number in 0..600 {
        let name = format!("pod-{number}");
        write(&store, "/pods", &name, || Mutation::Remove(pod(&name)));
    }
    let (all, limit) = (held(&store), limits.bytes + limits.parsed + (128 << 10));
    assert!(all < limit, "{all} bytes, more than {limit}");
    assert!(all > limits.bytes / 2, "the history is used: {all} bytes");
}
