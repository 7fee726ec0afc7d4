//! The registry of served resources. A kind is one entry, and no code outside of its entry knows the kind
//! (ARCHITECTURE.md, invariant 6).

pub mod builtin;
pub(crate) mod custom;
pub(crate) mod resource;
pub(crate) mod schema;
pub(crate) mod strategy;

use std::sync::Arc;

use tokio::sync::watch;

pub(crate) use self::custom::CustomResources;
pub use self::{
    resource::{Cell, Column, ConnectionOptions, Operation, Resource, Scale, Selectable, SelectableValue, Subresource},
    schema::ResourceSchema,
    strategy::{Plain, Strategy},
};
pub use crate::conversion::Versions;

/// Every resource served at the moment: the built-in ones, which never change, and the custom ones.
#[derive(Debug, Default)]
pub struct Registry {
    builtin: Vec<Arc<Resource>>,
    custom: Arc<CustomResources>,
}

impl Registry {
    /// A registry of these built-in resources, and of custom ones that may change.
    pub(crate) fn new(builtin: Vec<Resource>, custom: Arc<CustomResources>) -> Self {
        Self { builtin: builtin.into_iter().map(Arc::new).collect(), custom }
    }

    /// A snapshot of all entries, built-in ones first.
    pub fn all(&self) -> Vec<Arc<Resource>> {
        self.builtin.iter().chain(&*self.custom.all()).cloned().collect()
    }

    /// The entry that is served at `/apis/{group}/{version}/{plural}`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.first(|entry| &*entry.group == group && &*entry.version == version && &*entry.plural == plural)
    }

    /// The first entry that matches. A built-in one comes before any custom one.
    pub(crate) fn first(&self, matches: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        self.builtin.iter().find(|entry| matches(entry)).cloned().or_else(|| self.custom.find(matches))
    }

    /// The current entry at the path of an older one; `None` if it is no longer served.
    pub(crate) fn successor(&self, entry: &Resource) -> Option<Arc<Resource>> {
        self.find(&entry.group, &entry.version, &entry.plural)
    }

    /// A receiver that is notified of every change of what is served.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.custom.changes()
    }
}
