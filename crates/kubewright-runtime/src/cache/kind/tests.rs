use std::{
    collections::BTreeSet,
    sync::{OnceLock, Weak, atomic::AtomicUsize},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Resource, ResourceExt,
    core::{PartialObjectMeta, Selector},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    super::{
        options::{CacheOptions, KindOptions},
        reader::Reader,
    },
    *,
};
use crate::{object::Object, predicate::Change};

/// A pod reduced to its phase.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
struct Phased {
    #[serde(with = "crate::view::without_annotations")]
    metadata: kube::api::ObjectMeta,
    status: Value,
}

fn pod() -> Value {
    json!({
        "metadata": {
            "namespace": "a", "name": "p", "uid": "0b7e9b7e-1111-4222-8333-a00000000001", "resourceVersion": "12",
            "labels": {"app": "web"}, "annotations": {"x": "y"},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    })
}

fn kind() -> Arc<Kind> {
    kind_with(KindOptions::new())
}

fn kind_with(options: KindOptions) -> Arc<Kind> {
    let name = KindName::of::<Pod>();
    let plan = CacheOptions::new().kind::<Pod>(options).of(&name, true, &BTreeSet::new());
    Arc::new(Kind::new(name, plan))
}

fn only<T: Object>(kind: &Arc<Kind>) -> Arc<T> {
    Reader::<T>::new(kind.clone(), None).get(&ObjectKey::namespaced("a", "p")).expect("the object")
}

#[test]
fn an_object_keeps_the_fields_that_its_types_read() {
    let (whole, view, both) = (kind(), kind(), kind());
    whole.declare::<Pod>();
    view.declare::<Phased>();
    both.declare::<PartialObjectMeta<Pod>>();
    both.declare::<Phased>();
    for kind in [&whole, &view, &both] {
        kind.put(&pod());
    }
    let expected: Pod = serde_json::from_value(pod()).expect("a pod");
    assert_eq!(*only::<Pod>(&whole), expected);
    assert_eq!(only::<Phased>(&whole).status["podIP"], "10.0.0.1");

    let seen = only::<Pod>(&view);
    assert_eq!((&seen.spec, seen.annotations().len()), (&None, 0), "fields that no type reads");
    assert_eq!((seen.labels(), seen.uid()), (expected.labels(), expected.uid()));
    assert_eq!(seen.resource_version().as_deref(), Some("12"));
    assert_eq!(only::<Phased>(&view).status["phase"], "Running");

    assert_eq!(only::<PartialObjectMeta<Pod>>(&both).annotations(), expected.annotations());
    assert_eq!(only::<Phased>(&both).status["phase"], "Running");
    assert_eq!(only::<Pod>(&both).spec, None);
    let size = |kind: &Kind| kind.read(|store| store.within(None).map(|row| row.bytes().len()).sum::<usize>());
    assert!(size(&view) < size(&both) && size(&both) < size(&whole));
}

#[test]
fn only_metadata_is_requested_if_no_type_reads_more() {
    let kind = kind();
    kind.declare::<PartialObjectMeta<Pod>>();
    assert!(kind.is_metadata_only());
    kind.put(&pod());
    assert_eq!(only::<Pod>(&kind).status, None);
    kind.declare::<Phased>();
    assert!(!kind.is_metadata_only());
}

#[test]
fn every_reader_sees_the_transformed_object() {
    let options = KindOptions::new().without(["status", "podIP"]).transform(|pod| {
        assert_eq!((pod.data["status"].get("podIP"), pod.metadata.name.as_deref()), (None, Some("p")));
        pod.data["spec"]["nodeName"] = "elsewhere".into();
        pod.metadata.labels.get_or_insert_default().insert("app".into(), "db".into());
        pod.metadata.name = Some("other".into());
    });
    let kind = kind_with(options);
    kind.index("node", |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    kind.put(&pod());
    let mut expected: Pod = serde_json::from_value(pod()).expect("a pod");
    expected.status.as_mut().expect("a status").pod_ip = None;
    expected.spec.as_mut().expect("a spec").node_name = Some("elsewhere".into());
    expected.metadata.labels.get_or_insert_default().insert("app".into(), "db".into());
    assert_eq!(*only::<Pod>(&kind), expected, "the transform can't change the name");
    let reader = Reader::<Pod>::new(kind, None);
    assert_eq!(reader.indexed_keys("node", "elsewhere"), [ObjectKey::namespaced("a", "p")]);
    let labelled = Selector::from_iter([("app".to_owned(), "db".to_owned())]);
    assert_eq!(reader.keys(None, &labelled).len(), 1);
}

#[test]
fn an_object_whose_transform_panics_is_ignored() {
    let kind = kind_with(KindOptions::new().transform(|pod| assert!(pod.data.get("spec").is_none(), "a spec")));
    kind.declare::<Pod>();
    let draft = |value: Value| serde_json::from_value(value).expect("an object");
    let bad = kind.take(0, Event::Apply(draft(pod()))).expect_err("the transform panics");
    assert_eq!((bad.key.to_string().as_str(), bad.reason.as_str()), ("a/p", "the cache's transform panicked"));
    kind.take(0, Event::Apply(draft(json!({"metadata": {"namespace": "a", "name": "q"}}))))
        .expect("the event is valid");
    assert_eq!(Reader::<Pod>::new(kind, None).len(), 1);
}

/// The decoding code belongs to the operator, and may be slow.
#[test]
fn readers_do_not_wait_while_an_object_is_decoded() {
    let (shared, decoded) = (Arc::new(OnceLock::<Weak<Kind>>::new()), Arc::new(AtomicUsize::new(0)));
    let (known, counted) = (shared.clone(), decoded.clone());
    let kind = kind_with(KindOptions::new().transform(move |_| {
        let kind = known.get().and_then(Weak::upgrade).expect("it is set");
        assert!(kind.state.try_write().is_some(), "the state is locked");
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    kind.declare::<Pod>();
    shared.set(Arc::downgrade(&kind)).expect("once");
    let draft = |uid: &str, version: u64| -> RawObject {
        let object =
            json!({"metadata": {"namespace": "a", "name": "p", "uid": uid, "resourceVersion": version.to_string()}});
        serde_json::from_value(object).expect("an object")
    };
    let take = |events: Vec<Event<RawObject>>, expected: usize| {
        events.into_iter().for_each(|event| kind.take(0, event).expect("the event is valid"));
        assert_eq!(decoded.swap(0, Ordering::Relaxed), expected);
    };
    take(vec![Event::Init, Event::InitApply(draft("u", 3)), Event::InitDone], 1);
    take(vec![Event::Apply(draft("u", 5))], 1);
    // A state that is already known isn't decoded again.
    take(vec![Event::Apply(draft("u", 5)), Event::Delete(draft("v", 4))], 0);
    take(vec![Event::Init, Event::InitApply(draft("u", 5)), Event::InitDone], 0);
    take(vec![Event::Init, Event::InitApply(draft("v", 6)), Event::InitDone], 1);
    // It is decoded again if more fields have to be kept, or if the known versions are void.
    kind.declare_late::<Phased>();
    let phased = json!({"metadata": {"namespace": "a", "name": "p", "uid": "v", "resourceVersion": "6"}, "status": {}});
    let phased: RawObject = serde_json::from_value(phased).expect("an object");
    take(vec![Event::Init, Event::InitApply(phased.clone()), Event::InitDone], 1);
    kind.forget_versions(0);
    take(vec![Event::Init, Event::InitApply(phased.clone()), Event::InitDone], 1);
    take(vec![Event::Delete(phased)], 1);
    assert!(Reader::<Pod>::new(kind, None).is_empty());
}

#[test]
fn a_resync_handles_the_objects_that_still_exist() {
    let kind = kind();
    kind.declare::<Pod>();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let handling = handled.clone();
    kind.on_change(move |delta| {
        if delta.cause == Cause::Resync {
            handling.lock().push((delta.object.name().to_owned(), delta.changed_fields()));
        }
    });
    let put = |name: &str, version: u64| {
        kind.put(&json!({"metadata": {"namespace": "a", "name": name, "resourceVersion": version.to_string()}}));
    };
    ["c", "a", "b"].iter().zip(1..).for_each(|(name, version)| put(name, version));
    let keys = kind.keys_of(0);
    assert_eq!(keys.iter().map(ObjectKey::name).collect::<Vec<_>>(), ["a", "b", "c"]);
    let gone = json!({"metadata": {"namespace": "a", "name": "b", "resourceVersion": "4"}});
    kind.take(0, Event::Delete(serde_json::from_value(gone).expect("an object"))).expect("the event is valid");
    put("d", 5);
    kind.resync(&keys[..2]);
    assert_eq!(*handled.lock(), [("a".to_owned(), Vec::new())]);
}

static READ: AtomicUsize = AtomicUsize::new(0);

/// A pod that counts how often it is decoded.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
struct Counted {
    #[serde(deserialize_with = "counting")]
    metadata: kube::api::ObjectMeta,
}

fn counting<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<kube::api::ObjectMeta, D::Error> {
    READ.fetch_add(1, Ordering::Relaxed);
    Deserialize::deserialize(deserializer)
}

#[test]
fn each_state_of_a_change_is_decoded_once_for_all_handlers() {
    let kind = kind();
    kind.declare::<Counted>();
    let put = |name: &str, version: u64| {
        kind.put(&json!({"metadata": {"namespace": "a", "name": name, "resourceVersion": version.to_string()}}));
    };
    put("p", 1);
    // The most recent objects stay decoded for a while.
    let crowd = |from: u64| (from..from + 50).for_each(|version| put(&format!("q{version}"), version));
    crowd(2);
    for _ in 0..3 {
        kind.on_change(|delta| assert!(delta.with(|change: Change<'_, Counted>| change.old().is_some()).is_some()));
    }
    READ.store(0, Ordering::Relaxed);
    put("p", 100);
    assert_eq!(READ.swap(0, Ordering::Relaxed), 2, "the new state on arrival, and the old state");
    crowd(200);
    READ.store(0, Ordering::Relaxed);
    kind.resync(&[ObjectKey::namespaced("a", "p")]);
    assert_eq!(READ.load(Ordering::Relaxed), 2, "each state once");
}

/// The API server accepts such nesting; `serde_json` alone would fail for the whole list.
#[test]
fn an_object_nested_too_deep_is_reported_and_the_others_arrive() {
    let nested = |name: &str, depth: usize| {
        let (open, close) = (r#"{"a":["#.repeat(depth), "]}".repeat(depth));
        format!(r#"{{"metadata":{{"namespace":"a","name":"{name}"}},"spec":{open}{close}}}"#)
    };
    let items = [nested("bad", 4_000), nested("deep", 59), nested("good", 1)].join(",");
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[{items}]}}"#);
    let list: kube::core::ObjectList<RawObject> = serde_json::from_str(&list).expect("a list");
    let kind = kind();
    kind.declare::<Phaseless>();
    let taken = list.items.into_iter().map(|draft| kind.take(0, Event::Apply(draft)));
    let bad = taken.filter_map(Result::err).map(|bad| (bad.key.to_string(), bad.reason)).collect::<Vec<_>>();
    assert_eq!(bad, [("a/bad".to_owned(), "it is nested more than 120 levels deep".to_owned())]);
    assert_eq!(Reader::<Phaseless>::new(kind, None).len(), 2);
}

/// A pod with an arbitrary spec.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
struct Phaseless {
    metadata: kube::api::ObjectMeta,
    spec: Value,
}

#[test]
fn labels_select_without_an_index() {
    let kind = kind();
    kind.declare::<Pod>();
    kind.put(&pod());
    let reader = Reader::<Pod>::new(kind, None);
    let keys = |selector: &str| reader.keys(None, &Selector::from_iter([("app".to_owned(), selector.to_owned())]));
    assert_eq!(keys("web"), [ObjectKey::namespaced("a", "p")]);
    assert!(keys("db").is_empty());
}
