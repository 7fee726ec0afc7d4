//! The informer: reads the feed once for all controllers that share it.
//!
//! It keeps the state of the controllers, so that one task wakes up for a write, and a controller only if the write
//! concerns one of its objects. Each controller reads the feed to its end before it decides ([`Subscription::decide`]).

use std::{collections::BTreeSet, fmt, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{ApiServer, Feed};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    batch,
    kind::Kind,
    objects::Objects,
    reconcile::{Answers, Controller, Key, Plan, StepKind},
};
use crate::panics;

/// The feed that controllers share, and their state.
#[derive(Clone)]
pub(crate) struct Informer {
    pods: Objects,
    state: Arc<Mutex<State>>,
}

struct State {
    api: ApiServer,
    /// Absent until the first reading after a controller was added: a feed begins with references to all objects.
    feed: Option<Feed>,
    pods: Objects,
    subscribers: Vec<Subscriber>,
}

struct Subscriber {
    controller: Box<dyn Controller>,
    /// The objects that need a decision.
    dirty: BTreeSet<Key>,
    /// Notified when an object needs a decision.
    wake: Arc<Notify>,
}

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").finish_non_exhaustive()
    }
}

impl Informer {
    /// Creates an informer without controllers.
    pub(crate) fn new(api: ApiServer) -> Self {
        let pods = Objects::default();
        let state = State { api, feed: None, pods: pods.clone(), subscribers: Vec::new() };
        Self { pods, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the pods, which are up to date whenever a controller processes a change or decides.
    pub(crate) fn pods(&self) -> Objects {
        self.pods.clone()
    }

    /// Returns whether there are no controllers.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().subscribers.is_empty()
    }

    /// Adds a controller. All controllers then start over with a snapshot at the next reading, since the new one needs
    /// it.
    pub(crate) fn subscribe(&self, controller: impl Controller + 'static) -> Subscription {
        let mut state = self.state.lock();
        let wake = Arc::new(Notify::new());
        let subscriber = Subscriber { controller: Box::new(controller), dirty: BTreeSet::new(), wake: wake.clone() };
        state.subscribers.push(subscriber);
        state.feed = None;
        Subscription { index: state.subscribers.len() - 1, state: self.state.clone(), wake }
    }

    /// Passes changes to the controllers, for as long as it is polled.
    pub(crate) async fn run(self) {
        let mut signal = self.state.lock().feed().signal();
        loop {
            self.state.lock().catch_up();
            if !signal.changed().await {
                return;
            }
        }
    }
}

impl State {
    /// Returns the feed. After a controller was added, all of them start over with its snapshot.
    fn feed(&mut self) -> &mut Feed {
        if self.feed.is_none() {
            self.reset();
        }
        self.feed.get_or_insert_with(|| self.api.feed())
    }

    fn reset(&mut self) {
        self.pods.clear();
        for subscriber in &mut self.subscribers {
            subscriber.controller.reset();
        }
    }

    /// Reads the feed to its end.
    fn catch_up(&mut self) {
        loop {
            let batch = batch::ready(self.feed());
            if batch.changes.is_empty() && !batch.restarted {
                return;
            }
            if batch.restarted {
                self.reset();
            }
            for change in &batch.changes {
                if Kind::POD.is_of(change) {
                    self.pods.take(change);
                }
                for subscriber in &mut self.subscribers {
                    let keys = panics::catch(|| subscriber.controller.take(change)).unwrap_or_else(|message| {
                        let (storage, revision) = (&*change.resource.storage, change.revision);
                        tracing::error!(message, storage, revision, "a controller has panicked at a change");
                        Vec::new()
                    });
                    if !keys.is_empty() {
                        subscriber.dirty.extend(keys);
                        subscriber.wake.notify_one();
                    }
                }
            }
        }
    }
}

/// A controller of an informer.
pub(crate) struct Subscription {
    state: Arc<Mutex<State>>,
    index: usize,
    wake: Arc<Notify>,
}

impl Subscription {
    /// Waits until an object may need a decision. Cancel safe.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Reads the feed to its end, and returns the objects that need a decision, with `also`.
    pub(crate) fn waiting(&self, also: impl IntoIterator<Item = Key>) -> Vec<Key> {
        self.with(|subscriber| {
            subscriber.dirty.extend(also);
            subscriber.dirty.iter().cloned().collect()
        })
    }

    /// Reads the feed to its end, which includes every write that the API server has answered, and decides about an
    /// object, which then doesn't need a decision any more. `None` means that the controller has panicked. That
    /// concerns this object only, since a decision leaves the state of the controller usable.
    pub(crate) fn decide(&self, key: &Key, now: Timestamp) -> Option<Plan> {
        self.with(|subscriber| {
            subscriber.dirty.remove(key);
            let plan = panics::catch(|| subscriber.controller.decide(key, now));
            plan.inspect_err(|message| {
                let Key { namespace, name } = key;
                tracing::error!(message, namespace, name, "a controller has panicked at a decision");
            })
            .ok()
        })
    }

    /// See [`Controller::answered`] and [`Controller::finished`].
    pub(crate) fn finished(&self, key: &Key, failure: Option<(StepKind, String)>, answers: Answers) {
        let controller = &mut self.state.lock().subscribers[self.index].controller;
        if !answers.is_empty() {
            controller.answered(key, answers);
        }
        controller.finished(key, failure);
    }

    fn with<T>(&self, act: impl FnOnce(&mut Subscriber) -> T) -> T {
        let mut state = self.state.lock();
        state.catch_up();
        act(&mut state.subscribers[self.index])
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::{
        Api,
        api::{DeleteParams, ObjectMeta, PostParams},
    };
    use kubewright_apimachinery::selector::LabelSelector;
    use kubewright_apiserver::Change;
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::value::text;

    /// Counts the changes of objects of the kind of a name, and decides nothing.
    struct Counter(&'static str, Arc<Mutex<Vec<u64>>>);

    impl Controller for Counter {
        fn reset(&mut self) {
            self.1.lock().clear();
        }

        fn take(&mut self, change: &Change) -> Vec<Key> {
            if &*change.resource.kind != self.0 {
                return Vec::new();
            }
            self.1.lock().push(change.revision);
            Key::of(change.object()).into_iter().collect()
        }

        fn decide(&self, _key: &Key, _now: Timestamp) -> Plan {
            Plan::default()
        }
    }

    async fn create(api: &ApiServer, name: &str) {
        let map =
            ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() };
        Api::default_namespaced(api.client()).create(&PostParams::default(), &map).await.expect("created");
    }

    #[tokio::test]
    async fn a_controller_is_woken_only_for_its_objects_and_decides_with_all_writes() {
        let api = ApiServer::builder().build();
        let informer = Informer::new(api.clone());
        create(&api, "before").await;
        let (maps, pods) = <(Arc<Mutex<Vec<u64>>>, Arc<Mutex<Vec<u64>>>)>::default();
        let of_maps = informer.subscribe(Counter("ConfigMap", maps.clone()));
        let of_pods = informer.subscribe(Counter("Pod", pods.clone()));
        let reading = tokio::spawn(informer.run());
        of_maps.woken().await;
        assert_eq!(of_maps.waiting([]).len(), 1, "of the snapshot");
        create(&api, "after").await;
        of_maps.woken().await;
        assert!(of_pods.woken().now_or_never().is_none() && pods.lock().is_empty());
        let waiting = of_maps.waiting([]);
        assert_eq!(waiting.len(), 2);
        create(&api, "latest").await;
        of_maps.decide(&waiting[0], Timestamp::UNIX_EPOCH);
        assert_eq!(maps.lock().len(), 3, "the write is answered, so it has been read");
        assert_eq!(of_maps.waiting([]).len(), 2);
        reading.abort();
    }

    /// Panics at the changes and the decisions of objects of these names.
    struct Panicking(&'static str, &'static str);

    impl Controller for Panicking {
        fn reset(&mut self) {}

        fn take(&mut self, change: &Change) -> Vec<Key> {
            let key = (&*change.resource.kind == "ConfigMap").then(|| Key::of(change.object())).flatten();
            assert!(key.as_ref().is_none_or(|key| key.name != self.0), "a change that can't be read");
            key.into_iter().collect()
        }

        fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
            assert!(key.name != self.1, "a decision that can't be made");
            Plan { requeue_after: Some(std::time::Duration::from_secs(1)), ..Plan::default() }
        }
    }

    #[tokio::test]
    async fn a_panic_of_a_controller_concerns_one_object_only() {
        let api = ApiServer::builder().build();
        let informer = Informer::new(api.clone());
        let panicking = informer.subscribe(Panicking("a", "b"));
        let maps = Arc::default();
        let counter = informer.subscribe(Counter("ConfigMap", Arc::clone(&maps)));
        for name in ["a", "b", "c"] {
            create(&api, name).await;
        }
        let waiting = panicking.waiting([]);
        let names: Vec<_> = waiting.iter().map(|key| &*key.name).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(panicking.decide(&waiting[0], Timestamp::UNIX_EPOCH), None);
        assert!(panicking.decide(&waiting[1], Timestamp::UNIX_EPOCH).is_some());
        assert_eq!(counter.waiting([]).len(), 3);
        assert_eq!(maps.lock().len(), 3);
    }

    #[tokio::test]
    async fn pods_are_found_by_labels_and_controllers() {
        let api = ApiServer::builder().build();
        let informer = Informer::new(api.clone());
        let subscription = informer.subscribe(Counter("Pod", Arc::default()));
        let pods: Api<Pod> = Api::default_namespaced(api.client());
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true});
        for (name, app, owners) in [("a", "x", json!([])), ("b", "x", json!([owner])), ("c", "y", json!([]))] {
            let pod = json!({
                "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": owners},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            });
            let pod = serde_json::from_value(pod).expect("a pod");
            pods.create(&PostParams::default(), &pod).await.expect("created");
        }
        assert_eq!(subscription.waiting([]).len(), 3);
        let selector = LabelSelector::from_object(&json!({"matchLabels": {"app": "x"}})).expect("a selector");
        let names = |found: Vec<Arc<Value>>| -> Vec<String> {
            found.iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect()
        };
        let found = informer.pods();
        assert_eq!(names(found.selected("default", &selector)), ["a", "b"]);
        assert_eq!(names(found.orphans("default", &selector)), ["a"]);
        assert!(found.selected("other", &selector).is_empty());
        pods.delete("a", &DeleteParams::default().grace_period(0)).await.expect("deleted");
        subscription.waiting([]);
        assert!(found.orphans("default", &selector).is_empty());
    }
}
