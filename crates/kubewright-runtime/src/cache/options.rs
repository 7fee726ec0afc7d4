//! What of the cluster the cache looks at, and what it keeps.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use kube::{
    api::ListParams,
    core::{ApiResource, DynamicObject, Selector, SelectorExt},
};

use crate::object::{KindName, Object};

/// Options of a manager's cache, for [`Manager::cache`](crate::manager::Manager::cache). By default every declared kind is
/// watched whole, in the manager's namespaces.
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::{Pod, Secret};
/// # use kube::core::Expression;
/// use kubewright_runtime::cache::{CacheOptions, KindOptions, NamespaceOptions};
///
/// let ours = Expression::Equal("app.kubernetes.io/managed-by".into(), "shop".into());
/// let all = NamespaceOptions::new().labels(Default::default());
/// let options = CacheOptions::new()
///     .kind::<Secret>(KindOptions::new().namespaces(["shop"]).namespace("vault", all).labels(ours.into()))
///     .kind::<Pod>(KindOptions::new().fields("spec.nodeName=n1").without(["spec", "volumes"]))
///     .transform(|object| drop(object.metadata.annotations.take()))
///     .resync(Duration::from_secs(36_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct CacheOptions {
    kinds: BTreeMap<KindName, KindOptions>,
    transform: Option<Transform>,
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

    /// [`CacheOptions::kind`] for a kind that is known only at run time. If it is cluster-scoped, which nothing else says, and
    /// the manager has namespaces, give it `KindOptions::new().namespaces([""; 0])`.
    ///
    /// ```
    /// # use kube::core::{ApiResource, GroupVersionKind};
    /// use kubewright_runtime::cache::{CacheOptions, KindOptions};
    ///
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// let options = CacheOptions::new().kind_dynamic(&widgets, KindOptions::new().namespaces(["shop"]));
    /// ```
    pub fn kind_dynamic(mut self, resource: &ApiResource, options: KindOptions) -> Self {
        self.kinds.insert(KindName::named::<DynamicObject>(resource), options);
        self
    }

    /// [`KindOptions::transform`] for all kinds that have none of their own.
    pub fn transform(self, transform: impl Fn(&mut DynamicObject) + Send + Sync + 'static) -> Self {
        Self { transform: Some(Transform::new(transform)), ..self }
    }

    /// Tells controllers of every cached object again after each such period, with low priority, as an update that changed
    /// nothing. By default never: a watch misses nothing, and what time alone brings about is better asked for with
    /// [`Action::requeue_after`](crate::action::Action::requeue_after).
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period).filter(|period| !period.is_zero()), ..self }
    }

    /// How a kind is kept, given the manager's namespaces.
    pub(super) fn of(&self, kind: &KindName, is_namespaced: bool, namespaces: &BTreeSet<String>) -> Plan {
        let options = self.kinds.get(kind).cloned().unwrap_or_default();
        let KindOptions { namespaces: own, everywhere, without } = options;
        let defaults = NamespaceOptions { transform: self.transform.clone(), ..NamespaceOptions::default() };
        let everywhere = everywhere.or(&defaults);
        let own = own.unwrap_or_else(|| namespaces.iter().map(|name| (name.clone(), Default::default())).collect());
        let scopes = if own.is_empty() || !is_namespaced {
            vec![(None, everywhere)]
        } else {
            own.into_iter().map(|(name, options)| (Some(name), options.or(&everywhere))).collect()
        };
        Plan { scopes, without, resync: self.resync }
    }
}

/// Options of one kind, for [`CacheOptions::kind`].
#[derive(Clone, Debug, Default)]
pub struct KindOptions {
    namespaces: Option<BTreeMap<String, NamespaceOptions>>,
    everywhere: NamespaceOptions,
    without: Vec<Vec<String>>,
}

impl KindOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches the kind in these namespaces, instead of the manager's; none means all. A later call adds to them. The
    /// operator's role must allow it. Without effect on cluster-scoped kinds.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let known = self.namespaces.get_or_insert_default();
        for name in namespaces {
            known.entry(name.into()).or_default();
        }
        self
    }

    /// [`KindOptions::namespaces`] for one, with options of its own. What they don't say is as for the kind.
    pub fn namespace(mut self, name: impl Into<String>, options: NamespaceOptions) -> Self {
        self.namespaces.get_or_insert_default().insert(name.into(), options);
        self
    }

    /// Watches only objects whose labels match. To the cache there are no others: an object whose label is taken off is
    /// deleted. Reconciles don't wait for writes of their own to objects that don't match.
    pub fn labels(self, selector: Selector) -> Self {
        Self { everywhere: self.everywhere.labels(selector), ..self }
    }

    /// Watches only objects whose fields are so, such as `spec.nodeName=n1`: as with labels. The API server decides which
    /// fields can be asked for. Reconciles don't wait for writes of their own to this kind, since only the API server can
    /// tell whether they will show.
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { everywhere: self.everywhere.fields(selector), ..self }
    }

    /// Doesn't keep this field, given as the names that lead to it; through lists it is dropped from each element. To
    /// readers it is as if the object didn't have it. Where a controller can say which fields it wants, a
    /// [view](crate::view) is the better way.
    pub fn without(mut self, field: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.without.push(field.into_iter().map(Into::into).collect());
        self
    }

    /// Changes each object before it is kept, as `cache.ByObject`'s `Transform`: whoever reads it, by whatever type, and by
    /// predicates and indexes, sees the result. Managed fields and the last-applied annotation are gone in any case, before.
    ///
    /// It must give the same result for the same object, and be quick: the watch waits. Namespace, name, UID and resource
    /// version stay what they are. If it panics, the object counts as undecodable: it is reported, and left out.
    ///
    /// Each object that arrives is made into a tree of JSON for it and read from that again, which takes several times as
    /// long as taking it in without. [`KindOptions::without`] and [views](crate::view) cost nothing.
    ///
    /// ```
    /// use kubewright_runtime::cache::KindOptions;
    ///
    /// // Of each secret, which keys it has.
    /// let options = KindOptions::new().transform(|secret| {
    ///     for value in secret.data["data"].as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
    ///         *value = "".into();
    ///     }
    /// });
    /// ```
    pub fn transform(self, transform: impl Fn(&mut DynamicObject) + Send + Sync + 'static) -> Self {
        Self { everywhere: self.everywhere.transform(transform), ..self }
    }
}

/// Options of one kind in one namespace, for [`KindOptions::namespace`].
#[derive(Clone, Debug, Default)]
pub struct NamespaceOptions {
    labels: Option<Selector>,
    fields: Option<String>,
    transform: Option<Transform>,
}

impl NamespaceOptions {
    /// Those of the kind.
    pub fn new() -> Self {
        Self::default()
    }

    /// [`KindOptions::labels`] there; `Selector::default()` selects all.
    pub fn labels(self, selector: Selector) -> Self {
        Self { labels: Some(selector), ..self }
    }

    /// [`KindOptions::fields`] there; an empty one selects all.
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()), ..self }
    }

    /// [`KindOptions::transform`] there.
    pub fn transform(self, transform: impl Fn(&mut DynamicObject) + Send + Sync + 'static) -> Self {
        Self { transform: Some(Transform::new(transform)), ..self }
    }

    /// What these don't say, as others say it.
    fn or(self, others: &Self) -> Self {
        Self {
            labels: self.labels.or_else(|| others.labels.clone()),
            fields: self.fields.or_else(|| others.fields.clone()),
            transform: self.transform.or_else(|| others.transform.clone()),
        }
    }

    /// Asks the API server for what is selected.
    pub(super) fn params(&self) -> ListParams {
        let fields = self.fields.clone().filter(|fields| !fields.is_empty());
        let params = ListParams { field_selector: fields, ..ListParams::default() };
        match self.labels.as_ref().filter(|selector| !selector.selects_all()) {
            Some(selector) => params.labels_from(selector),
            None => params,
        }
    }

    pub(super) fn transformation(&self) -> Option<&Transform> {
        self.transform.as_ref()
    }

    /// Whether an object with these labels is known to be one that the cache shows.
    pub(super) fn shows(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let none = BTreeMap::new();
        let matches = |selector: &Selector| selector.matches(labels.unwrap_or(&none));
        self.fields.as_ref().is_none_or(String::is_empty) && self.labels.as_ref().is_none_or(matches)
    }
}

/// What becomes of an object before it is kept.
#[derive(Clone)]
pub(super) struct Transform(Arc<dyn Fn(&mut DynamicObject) + Send + Sync>);

impl Transform {
    fn new(transform: impl Fn(&mut DynamicObject) + Send + Sync + 'static) -> Self {
        Self(Arc::new(transform))
    }

    pub(super) fn apply(&self, object: &mut DynamicObject) {
        (self.0)(object);
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}

/// How a kind is kept.
#[derive(Debug)]
pub(super) struct Plan {
    /// Where it is watched (`None`: everywhere), and what of it there.
    pub(super) scopes: Vec<(Option<String>, NamespaceOptions)>,
    /// The fields that aren't kept.
    pub(super) without: Vec<Vec<String>>,
    /// After how long all objects are told again.
    pub(super) resync: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::core::Expression;

    use super::*;

    /// Where `K` is watched, and by which selectors.
    fn scopes<K: Object>(options: &CacheOptions, namespaces: &[&str]) -> Vec<String> {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        let plan = options.of(&KindName::of::<K>(), K::is_namespaced(), &namespaces);
        let shown = |(scope, options): &(Option<String>, NamespaceOptions)| {
            let ListParams { label_selector, field_selector, .. } = options.params();
            let selectors = [label_selector, field_selector].map(Option::unwrap_or_default).join("&");
            format!("{}?{selectors}", scope.as_deref().unwrap_or("*"))
        };
        plan.scopes.iter().map(shown).collect()
    }

    #[test]
    fn a_namespace_has_its_own_options_and_else_those_of_the_kind() {
        let red = || Selector::from(Expression::Equal("color".into(), "red".into()));
        assert_eq!(scopes::<Pod>(&CacheOptions::new(), &[]), ["*?&"]);
        assert_eq!(scopes::<Pod>(&CacheOptions::new(), &["a", "b"]), ["a?&", "b?&"]);
        let options = KindOptions::new()
            .labels(red())
            .namespace("c", NamespaceOptions::new().fields("spec.nodeName=n"))
            .namespace("d", NamespaceOptions::new().labels(Selector::default()))
            .namespaces(["b", "c"]);
        let options = CacheOptions::new().kind::<Pod>(options).kind::<Node>(KindOptions::new().labels(red()));
        assert_eq!(scopes::<Pod>(&options, &["a"]), ["b?color=red&", "c?color=red&spec.nodeName=n", "d?&"]);
        assert_eq!(scopes::<Node>(&options, &["a"]), ["*?color=red&"]);
        let everywhere = CacheOptions::new().kind::<Pod>(KindOptions::new().namespaces([""; 0]));
        assert_eq!(scopes::<Pod>(&everywhere, &["a"]), ["*?&"]);
    }

    #[test]
    fn of_selectors_by_fields_nothing_is_known() {
        let labels = BTreeMap::from([("color".to_owned(), "red".to_owned())]);
        let red = NamespaceOptions::new().labels(Expression::Equal("color".into(), "red".into()).into());
        assert!(red.shows(Some(&labels)) && !red.shows(None) && NamespaceOptions::new().shows(None));
        assert!(!red.clone().fields("spec.nodeName=n").shows(Some(&labels)));
        assert!(red.fields("").shows(Some(&labels)));
    }
}
