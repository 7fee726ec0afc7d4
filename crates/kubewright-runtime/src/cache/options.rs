//! What of the cluster the cache looks at, and what it keeps.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::core::{Selector, SelectorExt};

use crate::object::{KindName, Object};

/// Options of a manager's cache, for [`Manager::cache`](crate::manager::Manager::cache). By default every declared kind is
/// watched whole, in the manager's namespaces.
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::{Pod, Secret};
/// # use kube::core::Expression;
/// use kubewright_runtime::cache::{CacheOptions, KindOptions};
///
/// let ours = Expression::Equal("app.kubernetes.io/managed-by".into(), "shop".into());
/// let options = CacheOptions::new()
///     .kind::<Secret>(KindOptions::new().namespaces(["shop"]).labels(ours.into()))
///     .kind::<Pod>(KindOptions::new().fields("spec.nodeName=n1").without(["spec", "volumes"]))
///     .resync(Duration::from_secs(36_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct CacheOptions {
    kinds: BTreeMap<KindName, KindOptions>,
    resync: Option<Duration>,
}

impl CacheOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Options for `K`'s kind, whatever types it is read as. Later ones replace earlier ones.
    pub fn kind<K: Object>(mut self, options: KindOptions) -> Self {
        self.kinds.insert(KindName::of::<K>(), options);
        self
    }

    /// Tells controllers of every cached object again after each such period, with low priority, as an update that changed
    /// nothing. By default never: a watch misses nothing, and what time alone brings about is better asked for with
    /// [`Outcome::after`](crate::outcome::Outcome::after).
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period).filter(|period| !period.is_zero()), ..self }
    }

    pub(super) fn of(&self, kind: &KindName) -> (KindOptions, Option<Duration>) {
        (self.kinds.get(kind).cloned().unwrap_or_default(), self.resync)
    }
}

/// Options of one kind, for [`CacheOptions::kind`].
#[derive(Clone, Debug, Default)]
pub struct KindOptions {
    namespaces: Option<BTreeSet<String>>,
    labels: Option<Selector>,
    fields: Option<String>,
    without: Vec<Vec<String>>,
}

impl KindOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches the kind in these namespaces, instead of the manager's; none means all. The operator's role must allow it.
    /// Without effect on cluster-scoped kinds.
    pub fn namespaces(self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { namespaces: Some(namespaces.into_iter().map(Into::into).collect()), ..self }
    }

    /// Watches only objects whose labels match. To the cache there are no others: an object whose label is taken off is
    /// deleted. Reconciles don't wait for writes of their own to objects that don't match.
    pub fn labels(self, selector: Selector) -> Self {
        Self { labels: Some(selector), ..self }
    }

    /// Watches only objects whose fields are so, such as `spec.nodeName=n1`: as with labels. The API server decides which
    /// fields can be asked for. Reconciles don't wait for writes of their own to this kind, since only the API server can
    /// tell whether they will show.
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()), ..self }
    }

    /// Doesn't keep this field, given as the names that lead to it; through lists it is dropped from each element. To
    /// readers it is as if the object didn't have it. Where a controller can say which fields it wants, a
    /// [view](crate::view) is the better way.
    pub fn without(mut self, field: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.without.push(field.into_iter().map(Into::into).collect());
        self
    }

    /// The namespaces to watch, given the manager's.
    pub(super) fn scopes<'a>(&'a self, of_the_manager: &'a BTreeSet<String>) -> &'a BTreeSet<String> {
        self.namespaces.as_ref().unwrap_or(of_the_manager)
    }

    pub(super) fn label_selector(&self) -> Option<&Selector> {
        self.labels.as_ref().filter(|selector| !selector.selects_all())
    }

    pub(super) fn field_selector(&self) -> Option<&str> {
        self.fields.as_deref()
    }

    /// The fields that aren't kept.
    pub(super) fn dropped(&self) -> &[Vec<String>] {
        &self.without
    }

    /// Whether an object with these labels is known to be one that the cache shows.
    pub(super) fn shows(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let none = BTreeMap::new();
        let matches = |selector: &Selector| selector.matches(labels.unwrap_or(&none));
        self.fields.is_none() && self.labels.as_ref().is_none_or(matches)
    }
}
