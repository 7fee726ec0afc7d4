//! The connection of a controller with the cache: the kinds that it declares, and its handlers of their changes.
//!
//! A controller of a manager that doesn't run yet declares its kinds for good. One that is added later, *late*, holds
//! its kinds as long as it is there: those that nobody else uses are no longer watched when it is removed. A kind may
//! have been listed before a late controller comes, so its objects are listed again if the controller reads more of
//! them, and then passed to its handlers.

use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    cache::{Cache, Delta, Handler, Kind, Listener},
    object::{AnyObject, KindName, KindScope},
};

/// See the [module](self).
pub(super) struct Wiring {
    cache: Cache,
    is_late: bool,
    kinds: BTreeMap<Arc<KindName>, Arc<Kind>>,
    types: BTreeSet<(Arc<KindName>, TypeId)>,
    handlers: Vec<(Arc<Kind>, Handler)>,
    listeners: Vec<(Arc<Kind>, Listener)>,
    /// The generations from which on the kinds have all fields and indexes that a late controller reads.
    generations: Vec<(Arc<Kind>, u64)>,
}

impl Wiring {
    pub(super) fn new(cache: Cache, is_late: bool) -> Self {
        Self {
            cache,
            is_late,
            kinds: BTreeMap::new(),
            types: BTreeSet::new(),
            handlers: Vec::new(),
            listeners: Vec::new(),
            generations: Vec::new(),
        }
    }

    /// Returns the informer of a kind, which is read as `T`.
    pub(super) fn kind<T: AnyObject>(&mut self, of: &T::DynamicType) -> Arc<Kind> {
        let kind = self.hold::<T>(of);
        if self.is_late {
            self.generations.push((kind.clone(), kind.declare_late::<T>()));
        }
        kind
    }

    /// Adds an index of a kind.
    pub(super) fn index<T: AnyObject>(
        &mut self,
        of: &T::DynamicType,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) {
        let kind = self.hold::<T>(of);
        if self.is_late {
            self.generations.push((kind.clone(), kind.index_late(name, values)));
        } else {
            kind.index(name, values);
        }
    }

    fn hold<T: AnyObject>(&mut self, of: &T::DynamicType) -> Arc<Kind> {
        let is_namespaced = KindScope::of::<T>().is_namespaced();
        let name = Arc::new(KindName::named::<T>(of));
        let kind = match self.kinds.get(&name) {
            Some(held) if self.is_late => held.clone(),
            _ if self.is_late => self.cache.watch::<T>(of, is_namespaced),
            _ => self.cache.kind_with::<T>(of, is_namespaced),
        };
        self.types.insert((kind.name().clone(), TypeId::of::<T>()));
        self.kinds.insert(kind.name().clone(), kind.clone());
        kind
    }

    /// Calls the handler with the changes of a kind.
    pub(super) fn on_change(&mut self, kind: &Arc<Kind>, handler: impl Fn(&Delta<'_>) + Send + Sync + 'static) {
        self.handlers.push((kind.clone(), kind.on_change(handler)));
    }

    /// Calls the listener when any of the kinds has advanced.
    pub(super) fn on_advance(&mut self, listener: impl Fn() + Send + Sync + 'static) {
        let listener: Listener = Arc::new(listener);
        for kind in self.kinds.values() {
            kind.on_advance(listener.clone());
            self.listeners.push((kind.clone(), listener.clone()));
        }
    }

    /// Returns the names of the kinds.
    pub(super) fn names(&self) -> BTreeSet<Arc<KindName>> {
        self.kinds.keys().cloned().collect()
    }

    /// Returns the types as which the kinds are read.
    pub(super) fn types(&self) -> BTreeSet<(Arc<KindName>, TypeId)> {
        self.types.clone()
    }

    /// Returns the kinds.
    pub(super) fn kinds(&self) -> Vec<Arc<Kind>> {
        self.kinds.values().cloned().collect()
    }

    /// Returns what a late controller lacks of kinds that were watched before.
    pub(super) fn backlog(&self) -> Option<Backlog> {
        let (handlers, generations) = (self.handlers.clone(), self.generations.clone());
        self.is_late.then_some(Backlog { handlers, generations })
    }

    /// Removes the handlers of a late controller, and gives up its kinds.
    pub(super) fn undo(self) {
        self.handlers.iter().for_each(|(kind, handler)| kind.off_change(handler));
        self.listeners.iter().for_each(|(kind, listener)| kind.off_advance(listener));
        self.kinds.keys().for_each(|kind| self.cache.unwatch(kind));
    }
}

/// The objects of kinds that were watched before a controller came.
pub(super) struct Backlog {
    handlers: Vec<(Arc<Kind>, Handler)>,
    generations: Vec<(Arc<Kind>, u64)>,
}

impl Backlog {
    /// Returns whether all objects have the fields that the controller reads.
    pub(super) fn is_complete(&self) -> bool {
        self.generations.iter().all(|(kind, generation)| kind.is_complete(*generation))
    }

    /// Passes the objects to the handlers.
    pub(super) fn replay(self) {
        self.handlers.iter().for_each(|(kind, handler)| kind.replay(handler));
    }
}
