//! Options of the cache: which objects it watches, and which fields it keeps.

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

/// Options of a manager's cache, for [`Manager::cache`](crate::manager::Manager::cache). By default all objects of each
/// declared kind are watched, in the manager's namespaces.
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
    streams: bool,
}

impl CacheOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the options for `K`'s kind, for all types as which it is read. Later options replace earlier ones.
    pub fn kind<K: Object>(mut self, options: KindOptions) -> Self {
        self.kinds.insert(KindName::of::<K>(), options);
        self
    }

    /// [`CacheOptions::kind`] for a kind that is known only at run time.
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

    /// Sets [`KindOptions::transform`] for all kinds without one of their own.
    pub fn transform(self, transform: impl Fn(&mut DynamicObject) + Send + Sync + 'static) -> Self {
        Self { transform: Some(Transform::new(transform)), ..self }
    }

    /// Passes every cached object to the controllers again in each period, with low priority, as an update without a
    /// difference. Never by default: a watch misses nothing, and work at a certain time is better requested with
    /// [`Action::requeue_after`](crate::action::Action::requeue_after).
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period).filter(|period| !period.is_zero()), ..self }
    }

    /// Sets whether first lists are streamed as the beginning of the watch, which spares the API server the memory of
    /// whole pages (client-go: `WatchListClient`; see
    /// <https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists>). It is on by default in no API
    /// server before 1.34; one that doesn't stream lists is asked for pages. By default, lists are paged.
    pub fn streamed_lists(self, streamed: bool) -> Self {
        Self { streams: streamed, ..self }
    }

    /// Returns the plan for a kind, given the manager's namespaces.
    pub(super) fn of(&self, kind: &KindName, is_namespaced: bool, namespaces: &BTreeSet<String>) -> Plan {
        let options = self.kinds.get(kind).cloned().unwrap_or_default();
        let KindOptions { namespaces: own, everywhere, without, resync, streams } = options;
        let defaults = NamespaceOptions { transform: self.transform.clone(), ..NamespaceOptions::default() };
        let everywhere = everywhere.or(&defaults);
        let own = own.unwrap_or_else(|| namespaces.iter().map(|name| (name.clone(), Default::default())).collect());
        let scopes = if own.is_empty() || !is_namespaced {
            vec![(None, everywhere)]
        } else {
            own.into_iter().map(|(name, options)| (Some(name), options.or(&everywhere))).collect()
        };
        let resync = resync.or(self.resync).filter(|period| !period.is_zero());
        Plan { scopes, without, resync, streams: streams.unwrap_or(self.streams), needs_discovery: false }
    }
}

/// Options of one kind, for [`CacheOptions::kind`].
#[derive(Clone, Debug, Default)]
pub struct KindOptions {
    namespaces: Option<BTreeMap<String, NamespaceOptions>>,
    everywhere: NamespaceOptions,
    without: Vec<Vec<String>>,
    resync: Option<Duration>,
    streams: Option<bool>,
}

impl KindOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches the kind in these namespaces instead of the manager's; an empty list means all. A later call adds
    /// namespaces. The operator's role must allow it. Cluster-scoped kinds ignore it.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let known = self.namespaces.get_or_insert_default();
        for name in namespaces {
            known.entry(name.into()).or_default();
        }
        self
    }

    /// Adds one of [`KindOptions::namespaces`], with options of its own. Unset options are those of the kind.
    pub fn namespace(mut self, name: impl Into<String>, options: NamespaceOptions) -> Self {
        self.namespaces.get_or_insert_default().insert(name.into(), options);
        self
    }

    /// [`CacheOptions::resync`] for this kind; [`Duration::ZERO`] for none.
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period), ..self }
    }

    /// [`CacheOptions::streamed_lists`] for this kind.
    pub fn streamed_lists(self, streamed: bool) -> Self {
        Self { streams: Some(streamed), ..self }
    }

    /// Watches only objects whose labels match. Others don't exist for the cache: removing the label deletes the object
    /// there. Reconciles don't wait for their own writes to objects that don't match.
    pub fn labels(self, selector: Selector) -> Self {
        Self { everywhere: self.everywhere.labels(selector), ..self }
    }

    /// Watches only objects whose fields match, such as `spec.nodeName=n1`, as with labels. The API server decides
    /// which fields are selectable. Reconciles don't wait for their own writes to this kind, since only the API server
    /// can tell whether the objects match.
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { everywhere: self.everywhere.fields(selector), ..self }
    }

    /// Drops this field, given by the names of its path; in lists it is dropped from each element. Readers see the
    /// object without it. If a controller can name the fields that it needs, a [view](crate::view) is better.
    pub fn without(mut self, field: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.without.push(field.into_iter().map(Into::into).collect());
        self
    }

    /// Changes each object before it is stored, like `Transform` in controller-runtime's `cache.ByObject`: all readers,
    /// predicates and indexes see the result. Managed fields and the last-applied annotation are removed before.
    ///
    /// It must return the same result for the same object, and be quick, since the watch waits. Namespace, name, UID
    /// and resource version can't be changed. If it panics, the object counts as undecodable: it is reported and
    /// ignored.
    ///
    /// Each object that arrives is converted to a JSON tree and back, which takes several times as long as without a
    /// transform. [`KindOptions::without`] and [views](crate::view) cost nothing.
    ///
    /// ```
    /// use kubewright_runtime::cache::KindOptions;
    ///
    /// // Keeps the keys of each secret without their values.
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
    /// Returns the options of the kind.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`KindOptions::labels`] for the namespace; `Selector::default()` selects all.
    pub fn labels(self, selector: Selector) -> Self {
        Self { labels: Some(selector), ..self }
    }

    /// Sets [`KindOptions::fields`] for the namespace; an empty selector selects all.
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()), ..self }
    }

    /// Sets [`KindOptions::transform`] for the namespace.
    pub fn transform(self, transform: impl Fn(&mut DynamicObject) + Send + Sync + 'static) -> Self {
        Self { transform: Some(Transform::new(transform)), ..self }
    }

    /// Returns these options, with unset ones taken from `others`.
    fn or(self, others: &Self) -> Self {
        Self {
            labels: self.labels.or_else(|| others.labels.clone()),
            fields: self.fields.or_else(|| others.fields.clone()),
            transform: self.transform.or_else(|| others.transform.clone()),
        }
    }

    /// Returns the selectors for a list or watch.
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

    /// Returns whether an object with these labels is certain to be selected.
    pub(super) fn shows(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let none = BTreeMap::new();
        let matches = |selector: &Selector| selector.matches(labels.unwrap_or(&none));
        self.fields.as_ref().is_none_or(String::is_empty) && self.labels.as_ref().is_none_or(matches)
    }
}

/// A function that changes objects before they are stored.
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

/// The options of a kind, resolved for its scopes.
#[derive(Debug)]
pub(super) struct Plan {
    /// The watched namespaces (`None`: all), with their options.
    pub(super) scopes: Vec<(Option<String>, NamespaceOptions)>,
    /// The dropped fields.
    pub(super) without: Vec<Vec<String>>,
    /// The resync period.
    pub(super) resync: Option<Duration>,
    /// Whether lists are streamed.
    pub(super) streams: bool,
    /// Whether discovery has to say first that the kind is namespaced.
    pub(super) needs_discovery: bool,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::core::Expression;

    use super::*;

    /// Returns the scopes and selectors of `K`.
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
    fn unset_options_of_a_namespace_are_those_of_the_kind() {
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
    fn a_kind_has_its_own_resync_and_form_of_lists() {
        let second = Duration::from_secs(1);
        let options = CacheOptions::new()
            .resync(second)
            .streamed_lists(true)
            .kind::<Pod>(KindOptions::new().resync(Duration::ZERO).streamed_lists(false));
        let plan = |kind: KindName| {
            let Plan { resync, streams, .. } = options.of(&kind, true, &BTreeSet::new());
            (resync, streams)
        };
        assert_eq!(plan(KindName::of::<Node>()), (Some(second), true));
        assert_eq!(plan(KindName::of::<Pod>()), (None, false));
    }

    #[test]
    fn a_field_selector_makes_the_selection_uncertain() {
        let labels = BTreeMap::from([("color".to_owned(), "red".to_owned())]);
        let red = NamespaceOptions::new().labels(Expression::Equal("color".into(), "red".into()).into());
        assert!(red.shows(Some(&labels)) && !red.shows(None) && NamespaceOptions::new().shows(None));
        assert!(!red.clone().fields("spec.nodeName=n").shows(Some(&labels)));
        assert!(red.fields("").shows(Some(&labels)));
    }
}
