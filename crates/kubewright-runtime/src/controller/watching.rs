//! Kinds that reconciles watch as they go, with [`Context::watch`](crate::context::Context::watch): each as long as the last
//! run of some key asked for it. No I/O: the cache starts and ends the watches.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::Mutex;
use tracing::{debug, error};

use super::source::Wake;
use crate::{
    cache::{Cache, Cause, Delta, Handler, Kind, Listener, Unsynced},
    client::AnyObject,
    object::{KindName, ObjectKey},
    predicate::Change,
};

/// Wakes a key because the first list of a kind has come, or only the loop if there is no key.
pub(crate) type Bell = Arc<dyn Fn(Option<&ObjectKey>, &KindName) + Send + Sync>;

/// Which changes wake a key.
enum Filter {
    /// Those of one object.
    Object(ObjectKey),
    /// Those that pass.
    Passing(Box<dyn Fn(&Delta<'_>) -> bool + Send + Sync>),
}

/// Which objects of a kind a run asks for.
pub(crate) enum Asked<T> {
    Object(ObjectKey),
    Passing(Box<dyn Fn(&T) -> bool + Send + Sync>),
}

impl<T: AnyObject> From<Asked<T>> for Filter {
    fn from(asked: Asked<T>) -> Self {
        match asked {
            Asked::Object(key) => Self::Object(key),
            Asked::Passing(passes) => Self::Passing(Box::new(move |delta| {
                let passes = |change: Change<'_, T>| passes(change.object()) || change.old().is_some_and(&passes);
                delta.with(passes).unwrap_or_default()
            })),
        }
    }
}

/// What the keys of one controller watch.
pub(crate) struct Watching {
    cache: Cache,
    wake: Wake,
    bell: Bell,
    kinds: Mutex<BTreeMap<Arc<KindName>, Watched>>,
}

/// A kind that is watched.
struct Watched {
    kind: Arc<Kind>,
    wishes: Arc<Mutex<Wishes>>,
    handler: Handler,
    listener: Listener,
}

/// What of one kind is wanted.
#[derive(Default)]
struct Wishes {
    keys: BTreeMap<ObjectKey, Wish>,
    /// Which of them want to hear of an object, so that its changes find them.
    by_object: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Which of them must be asked about each change.
    asking: BTreeSet<ObjectKey>,
    /// The keys that were told that the kind isn't listed yet, and of which edition it is to be.
    waiting: BTreeMap<ObjectKey, u64>,
}

/// What one key wants to hear of.
#[derive(Default)]
struct Wish {
    /// By the last run that came to its end.
    settled: Vec<Filter>,
    /// By the last run since, if that failed: it may have been about to ask for more.
    failed: Vec<Filter>,
    /// By the run that is under way.
    asked: Vec<Filter>,
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds.lock().keys().map(ToString::to_string).collect::<Vec<_>>();
        f.debug_struct("Watching").field("kinds", &kinds).finish_non_exhaustive()
    }
}

impl Watching {
    pub(super) fn new(cache: Cache, wake: Wake, bell: Bell) -> Self {
        Self { cache, wake, bell, kinds: Mutex::default() }
    }

    /// Notes that a run of the key asked for a kind, which is given once it is listed.
    pub(crate) fn watch<T: AnyObject>(
        &self,
        (of, is_namespaced): (&T::DynamicType, bool),
        key: &ObjectKey,
        asked: Asked<T>,
    ) -> Result<Arc<Kind>, Unsynced> {
        let mut kinds = self.kinds.lock();
        let watched = kinds.entry(Arc::new(KindName::named::<T>(of))).or_insert_with_key(|name| {
            debug!(kind = %name, "watching a kind that a reconcile asks for");
            self.listen(self.cache.watch::<T>(of, is_namespaced))
        });
        let Watched { kind, wishes, .. } = watched;
        let edition = kind.declare_late::<T>();
        let mut wishes = wishes.lock();
        wishes.ask(key, asked.into());
        if kind.is_filled(edition) {
            return Ok(kind.clone());
        }
        wishes.waiting.insert(key.clone(), edition);
        Err(kind.lacking())
    }

    fn listen(&self, kind: Arc<Kind>) -> Watched {
        let wishes = Arc::new(Mutex::new(Wishes::default()));
        let (told, wake) = (wishes.clone(), self.wake.clone());
        let handler = kind.on_change(move |delta| {
            // Who waits for the first list is woken by its end.
            if delta.cause != Cause::FirstList {
                let woken = told.lock().woken_by(delta);
                woken.into_iter().for_each(|key| wake(key, None, delta));
            }
        });
        let (waiting, bell, of) = (wishes.clone(), self.bell.clone(), Arc::downgrade(&kind));
        let listener: Listener = Arc::new(move || {
            let Some(kind) = of.upgrade() else { return };
            // The barrier may be waiting for what has just been seen.
            bell(None, kind.name());
            let listed = waiting.lock().listed(|edition| kind.is_filled(edition));
            listed.iter().for_each(|key| bell(Some(key), kind.name()));
        });
        kind.on_advance(listener.clone());
        Watched { kind, wishes, handler, listener }
    }

    /// A run of the key has ended: what it didn't ask for is not watched for it any more, unless it failed before it could.
    pub(super) fn ended(&self, key: &ObjectKey, is_done: bool) {
        self.kinds.lock().retain(|name, watched| {
            let is_wanted = watched.wishes.lock().ended(key, is_done);
            if !is_wanted {
                debug!(kind = %name, "no reconcile asks for the kind any more");
                watched.kind.off(&watched.handler, &watched.listener);
                self.cache.unwatch(name);
            }
            is_wanted
        });
    }

    /// Whether a kind is watched.
    pub(crate) fn has(&self, kind: &KindName) -> bool {
        self.kinds.lock().contains_key(kind)
    }

    /// What is watched.
    pub(super) fn kinds(&self) -> Vec<Arc<Kind>> {
        self.kinds.lock().values().map(|watched| watched.kind.clone()).collect()
    }
}

impl Wishes {
    fn ask(&mut self, key: &ObjectKey, filter: Filter) {
        match &filter {
            Filter::Object(object) => {
                self.by_object.entry(object.clone()).or_default().insert(key.clone());
            }
            Filter::Passing(_) => {
                self.asking.insert(key.clone());
            }
        }
        self.keys.entry(key.clone()).or_default().asked.push(filter);
    }

    fn woken_by(&self, delta: &Delta<'_>) -> BTreeSet<ObjectKey> {
        let named = self.by_object.get(delta.object).into_iter().flatten();
        let passing = self.asking.iter().filter(|key| self.keys.get(key).is_some_and(|wish| wish.wants(delta)));
        named.chain(passing).cloned().collect()
    }

    /// The keys that need no longer wait.
    fn listed(&mut self, is_filled: impl Fn(u64) -> bool) -> Vec<ObjectKey> {
        let keys = self.waiting.extract_if(.., |_, edition| is_filled(*edition));
        keys.map(|(key, _)| key).collect()
    }

    /// Whether any key wants something, now that a run of this one has ended.
    fn ended(&mut self, key: &ObjectKey, is_done: bool) -> bool {
        if let Some(wish) = self.keys.get_mut(key) {
            let asked = std::mem::take(&mut wish.asked);
            let over = match is_done {
                true => std::mem::replace(wish, Wish { settled: asked, ..Wish::default() }).into_filters(),
                false => std::mem::replace(&mut wish.failed, asked),
            };
            for object in over.iter().filter_map(Filter::object).filter(|object| !wish.names(object)) {
                if let Some(keys) = self.by_object.get_mut(object) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.by_object.remove(object);
                    }
                }
            }
            if wish.filters().all(|filter| filter.object().is_some()) {
                self.asking.remove(key);
            }
            if wish.filters().next().is_none() {
                self.keys.remove(key);
                self.waiting.remove(key);
            }
        }
        !self.keys.is_empty()
    }
}

impl Filter {
    fn object(&self) -> Option<&ObjectKey> {
        match self {
            Self::Object(object) => Some(object),
            Self::Passing(_) => None,
        }
    }
}

impl Wish {
    fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.settled.iter().chain(&self.failed).chain(&self.asked)
    }

    fn into_filters(self) -> Vec<Filter> {
        [self.settled, self.failed, self.asked].into_iter().flatten().collect()
    }

    /// Whether changes of this object are wanted, whatever they are.
    fn names(&self, object: &ObjectKey) -> bool {
        self.filters().any(|filter| filter.object() == Some(object))
    }

    /// Whether a filter lets the change pass.
    fn wants(&self, delta: &Delta<'_>) -> bool {
        let passes = |filter: &Filter| {
            let Filter::Passing(passes) = filter else { return false };
            // It is an operator's: one that panics must not keep other keys from being woken.
            catch_unwind(AssertUnwindSafe(|| passes(delta))).unwrap_or_else(|_| {
                error!(kind = %delta.kind, object = %delta.object, "a filter of a watch panicked: it counts as passed");
                true
            })
        };
        self.filters().any(passes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("a", name)
    }

    /// Who watches what: by the object, and with filters.
    fn wanted(wishes: &Wishes) -> (Vec<String>, Vec<String>) {
        let pair = |(object, keys): (&ObjectKey, &BTreeSet<ObjectKey>)| {
            let keys = keys.iter().map(ObjectKey::name).collect::<Vec<_>>();
            format!("{} {}", object.name(), keys.join(","))
        };
        let asking = wishes.asking.iter().map(|key| key.name().to_owned());
        (wishes.by_object.iter().map(pair).collect(), asking.collect())
    }

    #[test]
    fn what_no_run_names_any_more_is_not_looked_for() {
        let mut wishes = Wishes::default();
        let object = |name: &str| Filter::Object(key(name));
        wishes.ask(&key("one"), object("x"));
        wishes.ask(&key("one"), Filter::Passing(Box::new(|_| true)));
        wishes.ask(&key("two"), object("x"));
        assert_eq!(
            wanted(&wishes),
            (vec!["x one,two".into()], vec!["one".into()]),
            "from the moment on that it is asked for"
        );
        assert!(wishes.ended(&key("one"), true) && wishes.ended(&key("two"), true));

        // One that fails adds to what it heard of before.
        wishes.ask(&key("one"), object("y"));
        assert!(wishes.ended(&key("one"), false));
        assert_eq!(wanted(&wishes), (vec!["x one,two".into(), "y one".into()], vec!["one".into()]));
        wishes.ask(&key("one"), object("y"));
        assert!(wishes.ended(&key("one"), true));
        assert_eq!(wanted(&wishes), (vec!["x two".into(), "y one".into()], vec![]));
        wishes.ask(&key("two"), Filter::Passing(Box::new(|_| true)));
        assert!(wishes.ended(&key("two"), true) && wishes.ended(&key("one"), true));
        assert_eq!(wanted(&wishes), (vec![], vec!["two".into()]));
        assert!(!wishes.ended(&key("two"), true), "nobody wants anything");
        assert_eq!(wanted(&wishes), (vec![], vec![]));
    }
}
