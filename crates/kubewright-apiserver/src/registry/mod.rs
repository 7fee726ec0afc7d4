//! The registry of served resources. Each kind is one entry, and no code outside of the entry depends on the kind
//! (ARCHITECTURE.md, invariant 6).

pub mod builtin;
pub(crate) mod custom;
mod entries;
pub(crate) mod lifecycle;
pub(crate) mod resource;
pub(crate) mod schema;
pub(crate) mod strategy;

use std::sync::Arc;

use kubewright_apimachinery::watch;

use self::entries::Entries;
pub(crate) use self::{
    custom::CustomResources,
    lifecycle::{PART_METADATA, USER_METADATA},
};
pub use self::{
    lifecycle::{Dependents, Lifecycle},
    resource::{
        AtKubelet, BuiltinVersion, Cell, Column, ConnectionOptions, Operation, Resource, Scale, SelectableField,
        SelectableValue, Subresource,
    },
    schema::ResourceSchema,
    strategy::{DefaultStrategy, DerivedFrom, Settled, Strategy},
};
pub use crate::conversion::Versions;

/// All resources that are currently served: the built-in ones, which never change, and the custom ones.
#[derive(Debug, Default)]
pub struct Registry {
    builtin: Entries,
    custom: Arc<CustomResources>,
}

impl Registry {
    /// Creates a registry of built-in resources, and of custom ones that may change.
    pub(crate) fn new(builtin: Vec<Resource>, custom: Arc<CustomResources>) -> Self {
        let builtin: Vec<_> = builtin.into_iter().map(Arc::new).collect();
        Self { builtin: builtin.into(), custom }
    }

    /// Returns a snapshot of all entries, built-in ones first.
    pub fn all(&self) -> Vec<Arc<Resource>> {
        self.builtin.all().iter().chain(self.custom.entries().all()).cloned().collect()
    }

    /// Returns the entry served at `/apis/{group}/{version}/{plural}`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let builtin = self.builtin.find(group, version, plural).cloned();
        builtin.or_else(|| self.custom.entries().find(group, version, plural).cloned())
    }

    /// Returns an entry of a kind, in any version.
    pub fn first_of_kind(&self, group: &str, kind: &str) -> Option<Arc<Resource>> {
        self.first(|entry| &*entry.group == group && &*entry.kind == kind)
    }

    /// Returns whether a group has built-in resources.
    pub(crate) fn has_builtin_group(&self, group: &str) -> bool {
        self.builtin.all().iter().any(|entry| &*entry.group == group)
    }

    /// Returns the first matching entry. Built-in entries precede custom ones.
    pub(crate) fn first(&self, matches: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        self.builtin.all().iter().find(|entry| matches(entry)).cloned().or_else(|| self.custom.find(matches))
    }

    /// Returns the current entry at the path of an older one, or `None` if it is no longer served.
    pub(crate) fn successor(&self, entry: &Resource) -> Option<Arc<Resource>> {
        self.find(&entry.group, &entry.version, &entry.plural)
    }

    /// Returns a receiver that is notified of every change of the served resources.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.custom.changes()
    }
}
