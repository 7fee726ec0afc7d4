//! A model test of the cache: after any order of events of a watch, the cache has the same objects as a simple model.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use parking_lot::Mutex;
use proptest::{collection, prelude::*};
use serde_json::{Value, json};

use super::{list_watch::Event, *};
use crate::{object::ObjectKey, predicate::ChangeType};

/// A step of a scenario.
#[derive(Clone, Debug)]
enum Step {
    /// Writes the object with this name, this value and this owner.
    Write(u8, u8, u8),
    /// Writes the object of this name in a form that can't be decoded.
    Corrupt(u8),
    Delete(u8),
    /// Delivers this number of events.
    Deliver(u8),
    /// Delivers this number of the latest events again.
    Repeat(u8),
    /// Interrupts the watch, which begins again with a list.
    Relist,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 0..4u8, 0..3u8).prop_map(|(name, value, owner)| Step::Write(name, value, owner)),
        1 => (0..6u8).prop_map(Step::Corrupt),
        2 => (0..6u8).prop_map(Step::Delete),
        3 => (1..6u8).prop_map(Step::Deliver),
        1 => (1..6u8).prop_map(Step::Repeat),
        1 => Just(Step::Relist),
    ]
}

/// An object on the server: its value and owner, unless it is corrupt.
#[derive(Clone, Debug, PartialEq)]
struct ServerObject {
    uid: u64,
    version: u64,
    content: Option<(u8, u8)>,
}

impl ServerObject {
    fn object(&self, name: u8) -> Value {
        let (value, owner) = self.content.unwrap_or_default();
        let data = if self.content.is_some() { json!({"value": value.to_string()}) } else { json!(["corrupt"]) };
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": format!("o{owner}"), "controller": true});
        json!({"data": data, "metadata": {
            "namespace": "a", "name": name.to_string(), "uid": self.uid.to_string(),
            "resourceVersion": self.version.to_string(), "ownerReferences": [owner],
        }})
    }
}

#[derive(Default)]
struct Server {
    version: u64,
    objects: BTreeMap<u8, ServerObject>,
    log: Vec<(u8, ServerObject, bool)>,
}

impl Server {
    fn write(&mut self, name: u8, content: Option<(u8, u8)>) {
        self.version += 1;
        let uid = self.objects.get(&name).map_or(self.version, |known| known.uid);
        let stored = ServerObject { uid, version: self.version, content };
        self.objects.insert(name, stored.clone());
        self.log.push((name, stored, false));
    }

    fn delete(&mut self, name: u8) {
        if let Some(stored) = self.objects.remove(&name) {
            self.version += 1;
            self.log.push((name, ServerObject { version: self.version, ..stored }, true));
        }
    }
}

/// UID and value by name.
type State = BTreeMap<String, (String, String)>;

struct World {
    server: Server,
    cache: Cache,
    kind: Arc<Kind>,
    /// The number of events that were delivered.
    arrived: usize,
    /// The objects that the cache must have.
    model: BTreeMap<u8, ServerObject>,
    /// The objects according to the changes that the handler received.
    observed: Arc<Mutex<State>>,
    /// Changes that are inconsistent with earlier ones. A panic in a handler would be caught.
    inconsistent: Arc<Mutex<Vec<String>>>,
}

fn entry(object: &ConfigMap) -> (String, String) {
    let value = object.data.iter().flatten().map(|(_, value)| value.clone()).collect();
    (object.uid().unwrap_or_default(), value)
}

impl World {
    fn new() -> Self {
        let cache = Cache::new(BTreeSet::new(), Default::default());
        let kind = cache.kind::<ConfigMap>();
        kind.index("value", |object: &ConfigMap| {
            object.data.iter().flatten().map(|(_, value)| value.clone()).collect()
        });
        let observed = Arc::new(Mutex::new(State::new()));
        let inconsistent = Arc::new(Mutex::new(Vec::new()));
        let (objects, errors) = (observed.clone(), inconsistent.clone());
        kind.on_change(move |delta| {
            delta.with(|change: crate::predicate::Change<'_, ConfigMap>| {
                let mut objects = objects.lock();
                let name = change.object().name_any();
                let known = objects.get(&name).cloned();
                let is_right = match change.change_type() {
                    ChangeType::Added => known.is_none(),
                    ChangeType::Updated => known == change.old().map(entry),
                    ChangeType::Deleted => known.as_ref().map(|(uid, _)| uid.clone()) == change.object().uid(),
                };
                if !is_right {
                    errors.lock().push(format!("{:?} of {name}, known as {known:?}", change.change_type()));
                }
                match change.change_type() {
                    ChangeType::Deleted => objects.remove(&name),
                    _ => objects.insert(name, entry(change.object())),
                };
            });
        });
        Self { server: Server::default(), cache, kind, arrived: 0, model: BTreeMap::new(), observed, inconsistent }
    }

    fn event(&self, event: Event<Value>) {
        let draft = |value: Value| serde_json::from_value(value).expect("an object");
        let event = match event {
            Event::Apply(value) => Event::Apply(draft(value)),
            Event::Delete(value) => Event::Delete(draft(value)),
            Event::InitApply(value) => Event::InitApply(draft(value)),
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
        };
        // A corrupt object is an error, which is ignored.
        let _ = self.kind.take(0, event);
    }

    fn deliver(&self, number: usize) {
        let (name, stored, is_gone) = &self.server.log[number];
        let object = stored.object(*name);
        self.event(if *is_gone { Event::Delete(object) } else { Event::Apply(object) });
    }

    /// Updates the model with a state of an object. If it is corrupt, the latest valid state is kept.
    fn learn(&mut self, name: u8, stored: ServerObject) {
        if stored.content.is_some() {
            self.model.insert(name, stored);
        } else {
            self.forget_unless(name, |known| known.uid == stored.uid);
        }
    }

    fn forget_unless(&mut self, name: u8, keep: impl Fn(&ServerObject) -> bool) {
        if self.model.get(&name).is_some_and(|known| !keep(known)) {
            self.model.remove(&name);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write(name, value, owner) => self.server.write(name, Some((value, owner))),
            Step::Corrupt(name) => self.server.write(name, None),
            Step::Delete(name) => self.server.delete(name),
            Step::Deliver(count) => {
                for _ in 0..count.min((self.server.log.len() - self.arrived) as u8) {
                    self.deliver(self.arrived);
                    let (name, stored, is_gone) = self.server.log[self.arrived].clone();
                    if is_gone {
                        self.forget_unless(name, |known| known.uid != stored.uid);
                    } else {
                        self.learn(name, stored);
                    }
                    self.arrived += 1;
                }
            }
            Step::Repeat(count) => {
                (self.arrived.saturating_sub(count.into())..self.arrived).for_each(|number| self.deliver(number));
            }
            Step::Relist => {
                self.event(Event::Init);
                let objects = self.server.objects.clone();
                objects.iter().for_each(|(name, stored)| self.event(Event::InitApply(stored.object(*name))));
                self.event(Event::InitDone);
                self.model.retain(|name, _| objects.contains_key(name));
                objects.into_iter().for_each(|(name, stored)| self.learn(name, stored));
                self.arrived = self.server.log.len();
            }
        }
        self.check();
    }

    fn check(&self) {
        let reader = Reader::<ConfigMap>::new(self.cache.kind::<ConfigMap>(), None);
        let shown = |objects: Vec<Arc<ConfigMap>>| -> State {
            objects.iter().map(|object| (object.name_any(), entry(object))).collect()
        };
        let expected = |which: &dyn Fn((u8, u8)) -> bool| -> State {
            let matching = self.model.iter().filter(|(_, stored)| stored.content.is_some_and(which));
            let shown = matching.map(|(name, stored)| {
                let (value, _) = stored.content.unwrap_or_default();
                (name.to_string(), (stored.uid.to_string(), value.to_string()))
            });
            shown.collect()
        };
        let everything = shown(reader.list(None, &Default::default()));
        assert_eq!(everything, expected(&|_| true));
        assert_eq!(*self.observed.lock(), everything, "the changes add up to other objects");
        assert_eq!(*self.inconsistent.lock(), Vec::<String>::new());
        assert_eq!(reader.len(), everything.len());
        for number in 0..4u8 {
            let indexed = shown(reader.indexed("value", &number.to_string()));
            assert_eq!(indexed, expected(&|(value, _)| value == number), "value {number}");
            let owned = shown(reader.controlled_by(&format!("o{number}")));
            assert_eq!(owned, expected(&|(_, owner)| owner == number), "owner {number}");
            assert_eq!(
                reader.get(&ObjectKey::namespaced("a", &number.to_string())).is_some(),
                self.model.contains_key(&number)
            );
        }
    }
}

proptest! {
    #[test]
    fn the_cache_equals_the_model(steps in collection::vec(step(), 0..60)) {
        let mut world = World::new();
        world.take(Step::Relist);
        steps.into_iter().for_each(|step| world.take(step));
        world.take(Step::Deliver(u8::MAX));
    }
}
