//! What code outside of reconciles uses of a manager: its cache, changes of its kinds, and its events.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use kube::core::{ApiResource, DynamicObject};
use parking_lot::Mutex;

use super::{Manager, ManagerError};
use crate::{
    cache::{Cache, CacheSender, Cached},
    client::Client,
    controller::Index,
    event::{LateQueue, Recorder},
    object::{KindName, Object},
    predicate::Change,
    rbac::{PolicyRule, Verb},
};

/// The verbs that a cached kind needs.
const CACHED: [Verb; 3] = [Verb::Get, Verb::List, Verb::Watch];

/// The handles that a manager has given away, and the kinds that they declare.
#[derive(Default)]
pub(super) struct Handles {
    pub(super) cache: CacheSender,
    pub(super) events: LateQueue,
    pub(super) client: ClientHandle,
    declared: Mutex<Vec<Declared>>,
}

/// A handle to the client of a manager: see [`Manager::client_handle`]. Clones share it.
#[derive(Clone, Default)]
pub struct ClientHandle(Arc<OnceLock<Client>>);

/// The error that a client is used before its manager runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the manager doesn't run yet, so it has no client")]
pub struct NotRunning;

impl fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientHandle").field("is_running", &self.0.get().is_some()).finish_non_exhaustive()
    }
}

impl ClientHandle {
    /// Returns the client. It doesn't read from the cache.
    ///
    /// # Errors
    /// [`NotRunning`] before the manager runs.
    pub fn get(&self) -> Result<Client, NotRunning> {
        self.0.get().cloned().ok_or(NotRunning)
    }

    /// Returns a handle to this client, for tests of code that has a handle.
    pub fn fixed(client: Client) -> Self {
        Self(Arc::new(OnceLock::from(client)))
    }

    pub(super) fn set(&self, client: Client) {
        // A manager runs once.
        let _present = self.0.set(client);
    }
}

/// A declaration: its rule, its index, and what adds it to the cache.
struct Declared {
    rule: PolicyRule,
    index: Option<(KindName, Index)>,
    connect: Box<dyn FnOnce(&Cache) + Send>,
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles").finish_non_exhaustive()
    }
}

impl Handles {
    /// Adds the declared kinds to the cache, and lets the handles read it.
    pub(super) fn connect(&self, cache: &Cache) {
        for declared in self.declared.lock().drain(..) {
            (declared.connect)(cache);
        }
        self.cache.send(cache);
    }

    /// Returns the rules that the declarations need, each once.
    pub(super) fn policy_rules(&self) -> Vec<PolicyRule> {
        let mut rules = Vec::new();
        for declared in self.declared.lock().iter() {
            if !rules.contains(&declared.rule) {
                rules.push(declared.rule.clone());
            }
        }
        rules
    }

    /// Returns the declared indexes.
    pub(super) fn indexes(&self) -> Vec<(KindName, Index)> {
        self.declared.lock().iter().filter_map(|declared| declared.index.clone()).collect()
    }

    fn declare(&self, rule: PolicyRule, connect: impl FnOnce(&Cache) + Send + 'static) {
        self.declared.lock().push(Declared { rule, index: None, connect: Box::new(connect) });
    }
}

impl Manager {
    /// Declares that code outside of reconciles reads the kind of `T` from the cache, and returns the handle for it:
    /// for validators, defaulters, runnables, HTTP handlers, mappers and raw sources (controller-runtime: `GetCache`,
    /// `GetClient`). The kind's watch and objects are shared with the controllers. `/readyz` waits for its list, and
    /// the operator's role has the rules for it.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::core::Selector;
    /// # use kubewright_runtime::manager::{Manager, ManagerError};
    /// # fn example() -> Result<Manager, ManagerError> {
    /// let manager = Manager::from_args()?;
    /// let pods = manager.cached::<Pod>();
    /// Ok(manager.metrics_handler("/pods", axum::routing::get(async move || match pods.reader() {
    ///     Ok(pods) => format!("{} pods", pods.keys(None, &Selector::default()).len()),
    ///     Err(unsynced) => unsynced.to_string(),
    /// })))
    /// # }
    /// ```
    pub fn cached<T: Object>(&self) -> Cached<T> {
        self.handles.declare(PolicyRule::of::<T>(CACHED), |cache| drop(cache.kind::<T>()));
        Cached::new(self.handles.cache.subscribe(), KindName::of::<T>())
    }

    /// [`Manager::cached`] for a kind that is known only at run time. It counts as namespaced, as in
    /// [`Controller::dynamic`](crate::controller::Controller::dynamic).
    pub fn cached_dynamic(&self, resource: &ApiResource) -> Cached<DynamicObject> {
        let rule = PolicyRule::new(&resource.group, &resource.plural, true, CACHED);
        let name = KindName::named::<DynamicObject>(resource);
        let resource = resource.clone();
        self.handles.declare(rule, move |cache| drop(cache.kind_with::<DynamicObject>(&resource, true)));
        Cached::new(self.handles.cache.subscribe(), name)
    }

    /// Declares an index for [`Reader::indexed`](crate::cache::Reader::indexed), as
    /// [`Controller::index`](crate::controller::Controller::index) does. Handles may use the controllers' indexes too.
    pub fn index<T: Object>(
        self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let (rule, index) = (PolicyRule::of::<T>(CACHED), Index::new(name, &values));
        let connect = Box::new(move |cache: &Cache| cache.kind::<T>().index(name, values));
        self.handles.declared.lock().push(Declared { rule, index: Some((KindName::of::<T>(), index)), connect });
        self
    }

    /// Returns the controllers with the indexes that they declare, and the manager with those that it declares.
    pub(super) fn indexes(&self) -> impl Iterator<Item = (String, Vec<(KindName, Index)>)> {
        let of_controllers =
            self.controllers.iter().map(|controller| (controller.describe().name, controller.indexes()));
        of_controllers.chain([("manager".into(), self.handles.indexes())])
    }

    /// Calls a handler with each change of the objects of kind `T`, without a controller (controller-runtime:
    /// `AddEventHandler` of an informer). The first list comes as additions. It runs on every replica, from the start.
    ///
    /// The handler gets each change once, in order for each object, and nothing is retried: work that may fail belongs
    /// into a controller, whose keys a [`Waker`](crate::controller::Waker) enqueues. It must be quick, because it
    /// blocks further events of the kind. A panic in it is logged.
    /// [`Predicate::passes`](crate::predicate::Predicate::passes) filters changes.
    ///
    /// ```
    /// # use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
    /// # use k8s_openapi::api::core::v1::Node;
    /// # use kubewright_runtime::{manager::Manager, predicate::{Change, ChangeType}};
    /// # fn example(manager: Manager, nodes: Arc<AtomicUsize>) -> Manager {
    /// manager.on_change(move |change: Change<'_, Node>| match change.change_type() {
    ///     ChangeType::Added => drop(nodes.fetch_add(1, Ordering::Relaxed)),
    ///     ChangeType::Deleted => drop(nodes.fetch_sub(1, Ordering::Relaxed)),
    ///     ChangeType::Updated => {}
    /// })
    /// # }
    /// ```
    pub fn on_change<T: Object>(self, handler: impl Fn(Change<'_, T>) + Send + Sync + 'static) -> Self {
        self.handles.declare(PolicyRule::of::<T>(CACHED), move |cache| {
            cache.kind::<T>().on_change(move |delta| {
                delta.with(&handler);
            });
        });
        self
    }

    /// Returns a recorder of events for code outside of reconciles, such as a webhook or a runnable. `kubectl describe`
    /// shows the name under `From`. The operator's role has the rule for it.
    ///
    /// A webhook must not record events about a [dry run](crate::webhook::Request::dry_run), and an object that is
    /// being created has no UID yet, so `kubectl describe` doesn't show events about it.
    pub fn recorder(&self, name: &str) -> Recorder {
        let rule = PolicyRule::new("events.k8s.io", "events", true, [Verb::Create, Verb::Patch]);
        self.handles.declare(rule, |_| {});
        Recorder::new(self.handles.events.clone(), name)
    }
}

/// Checks that each index is declared once, or by the same function.
pub(super) fn check_indexes(
    declarations: impl Iterator<Item = (String, Vec<(KindName, Index)>)>,
) -> Result<(), ManagerError> {
    let mut indexes = BTreeMap::new();
    for (name, declared) in declarations {
        for (kind, index) in declared {
            let (first, known) = indexes.entry((kind.clone(), index.name)).or_insert_with(|| (name.clone(), None));
            if known.replace(index).is_some_and(|known: Index| !known.is(&index)) {
                let (kind, index, first) = (kind.to_string(), index.name.into(), first.clone());
                return Err(ManagerError::SameIndex { kind, index, first, second: name });
            }
        }
    }
    Ok(())
}
