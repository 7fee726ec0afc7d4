//! The cache against a simple model of what it should hold, under any order of events that a watch may bring.

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

/// What happens to the server, or to the watch.
#[derive(Clone, Debug)]
enum Step {
    /// The object of this name gets this value and this owner.
    Write(u8, u8, u8),
    /// The object of this name is no longer as its type says.
    Spoil(u8),
    Delete(u8),
    /// So many events arrive.
    Deliver(u8),
    /// So many of the last events arrive again.
    Repeat(u8),
    /// The watch is lost, and begins with a list.
    Relist,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 0..4u8, 0..3u8).prop_map(|(name, value, owner)| Step::Write(name, value, owner)),
        1 => (0..6u8).prop_map(Step::Spoil),
        2 => (0..6u8).prop_map(Step::Delete),
        3 => (1..6u8).prop_map(Step::Deliver),
        1 => (1..6u8).prop_map(Step::Repeat),
        1 => Just(Step::Relist),
    ]
}

/// An object as the server has it: its value and owner, unless it is spoilt.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    uid: u64,
    version: u64,
    content: Option<(u8, u8)>,
}

impl Stored {
    fn object(&self, name: u8) -> Value {
        let (value, owner) = self.content.unwrap_or_default();
        let data = if self.content.is_some() { json!({"value": value.to_string()}) } else { json!(["spoilt"]) };
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
    objects: BTreeMap<u8, Stored>,
    log: Vec<(u8, Stored, bool)>,
}

impl Server {
    fn write(&mut self, name: u8, content: Option<(u8, u8)>) {
        self.version += 1;
        let uid = self.objects.get(&name).map_or(self.version, |known| known.uid);
        let stored = Stored { uid, version: self.version, content };
        self.objects.insert(name, stored.clone());
        self.log.push((name, stored, false));
    }

    fn delete(&mut self, name: u8) {
        if let Some(stored) = self.objects.remove(&name) {
            self.version += 1;
            self.log.push((name, Stored { version: self.version, ..stored }, true));
        }
    }
}

/// Name to UID and value.
type State = BTreeMap<String, (String, String)>;

struct World {
    server: Server,
    cache: Cache,
    kind: Arc<Kind>,
    /// How many of the server's events have arrived.
    arrived: usize,
    /// What the cache should hold.
    model: BTreeMap<u8, Stored>,
    /// What one would believe who only hears of changes.
    heard: Arc<Mutex<State>>,
    /// What was told of a change that can't have happened: a panic in a handler would be caught.
    wrong: Arc<Mutex<Vec<String>>>,
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
        let heard = Arc::new(Mutex::new(State::new()));
        let wrong = Arc::new(Mutex::new(Vec::new()));
        let (hearing, doubting) = (heard.clone(), wrong.clone());
        kind.on_change(move |delta| {
            delta.with(|change: crate::predicate::Change<'_, ConfigMap>| {
                let mut heard = hearing.lock();
                let name = change.object().name_any();
                let known = heard.get(&name).cloned();
                let is_right = match change.change_type() {
                    ChangeType::Added => known.is_none(),
                    ChangeType::Updated => known == change.old().map(entry),
                    ChangeType::Deleted => known.as_ref().map(|(uid, _)| uid.clone()) == change.object().uid(),
                };
                if !is_right {
                    doubting.lock().push(format!("{:?} of {name}, known as {known:?}", change.change_type()));
                }
                match change.change_type() {
                    ChangeType::Deleted => heard.remove(&name),
                    _ => heard.insert(name, entry(change.object())),
                };
            });
        });
        Self { server: Server::default(), cache, kind, arrived: 0, model: BTreeMap::new(), heard, wrong }
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
        // That a spoilt object is none is told, and left out.
        let _ = self.kind.take(0, event);
    }

    fn deliver(&self, number: usize) {
        let (name, stored, is_gone) = &self.server.log[number];
        let object = stored.object(*name);
        self.event(if *is_gone { Event::Delete(object) } else { Event::Apply(object) });
    }

    /// An object has been seen: if it is spoilt, its last good state is kept.
    fn learn(&mut self, name: u8, stored: Stored) {
        if stored.content.is_some() {
            self.model.insert(name, stored);
        } else {
            self.forget_unless(name, |known| known.uid == stored.uid);
        }
    }

    fn forget_unless(&mut self, name: u8, keep: impl Fn(&Stored) -> bool) {
        if self.model.get(&name).is_some_and(|known| !keep(known)) {
            self.model.remove(&name);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write(name, value, owner) => self.server.write(name, Some((value, owner))),
            Step::Spoil(name) => self.server.write(name, None),
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
        assert_eq!(*self.heard.lock(), everything, "what was told");
        assert_eq!(*self.wrong.lock(), Vec::<String>::new(), "told out of turn");
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
    fn the_cache_holds_what_the_model_says(steps in collection::vec(step(), 0..60)) {
        let mut world = World::new();
        world.take(Step::Relist);
        steps.into_iter().for_each(|step| world.take(step));
        world.take(Step::Deliver(u8::MAX));
    }
}
