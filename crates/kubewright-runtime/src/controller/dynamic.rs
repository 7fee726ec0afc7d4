//! Declarations of kinds that are known only at run time.

use kube::core::{ApiResource, DynamicObject};

use super::{
    Controller,
    source::{Owners, Source, mapped_keys, ranked_keys},
};
use crate::{
    cache::Reader,
    object::{AnyObject, ObjectKey},
    predicate::Predicate,
};

/// The declarations of a [`Controller`] for a kind that is known only at run time, by [`Controller::dynamic`].
#[must_use]
pub struct DynamicKind<'a, K: AnyObject> {
    controller: Controller<K>,
    resource: &'a ApiResource,
}

impl<K: AnyObject> std::fmt::Debug for DynamicKind<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamicKind").field("resource", self.resource).finish_non_exhaustive()
    }
}

impl<K: AnyObject> Controller<K> {
    /// Declares a kind that is known only at run time. Its objects are kube's [`DynamicObject`]s;
    /// [`Context::dynamic`](crate::context::Context::dynamic) reads them.
    ///
    /// Types that other declarations use for the kind share its watch and its copy in the cache, which has all fields
    /// then. A manager of some namespaces asks the API server for the scope of the kind, and watches one without
    /// namespaces as a whole. The generated roles can't know the scope: they allow such a kind in the manager's
    /// namespaces, so one without them needs a [rule](crate::manager::Manager::policy_rule) of its own.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::core::{ApiResource, GroupVersionKind};
    /// # use kubewright_runtime::{controller::Controller, object::ObjectKey};
    /// # fn example(controller: Controller<ConfigMap>) -> Controller<ConfigMap> {
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// controller.dynamic(&widgets, |kind| {
    ///     kind.watches(|widget, _| {
    ///         let settings = widget.data["spec"]["settings"].as_str().unwrap_or_default();
    ///         vec![ObjectKey::of(widget).sibling(settings)]
    ///     })
    /// })
    /// # }
    /// ```
    pub fn dynamic<'a>(
        self,
        resource: &'a ApiResource,
        declare: impl FnOnce(DynamicKind<'a, K>) -> DynamicKind<'a, K>,
    ) -> Self {
        declare(DynamicKind { controller: self, resource }).controller
    }
}

impl<K: AnyObject> DynamicKind<'_, K> {
    /// As [`Controller::owns`].
    pub fn owns(self) -> Self {
        self.owns_when(Predicate::always())
    }

    /// As [`Controller::owns_when`].
    pub fn owns_when(self, predicate: Predicate<DynamicObject>) -> Self {
        let source =
            Source::owned::<K, DynamicObject>(self.reconciled(), self.resource.clone(), predicate, Owners::Controller);
        self.with(source)
    }

    /// As [`Controller::owns_for_every_owner`].
    pub fn owns_for_every_owner(self) -> Self {
        self.owns_for_every_owner_when(Predicate::always())
    }

    /// As [`Controller::owns_for_every_owner_when`].
    pub fn owns_for_every_owner_when(self, predicate: Predicate<DynamicObject>) -> Self {
        let source =
            Source::owned::<K, DynamicObject>(self.reconciled(), self.resource.clone(), predicate, Owners::Every);
        self.with(source)
    }

    /// As [`Controller::watches`].
    pub fn watches(
        self,
        mapper: impl Fn(&DynamicObject, &Reader<K>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watches_when(Predicate::always(), mapper)
    }

    /// As [`Controller::watches_when`].
    pub fn watches_when(
        self,
        predicate: Predicate<DynamicObject>,
        mapper: impl Fn(&DynamicObject, &Reader<K>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let mapper = move |object: &DynamicObject, known: &Reader<K>| mapped_keys(mapper(object, known));
        let source = Source::mapped::<K, DynamicObject>(self.reconciled(), self.resource.clone(), predicate, mapper);
        self.with(source)
    }

    /// As [`Controller::watches_with_priority`].
    pub fn watches_with_priority(
        self,
        mapper: impl Fn(&DynamicObject, &Reader<K>) -> Vec<(ObjectKey, i32)> + Send + Sync + 'static,
    ) -> Self {
        self.watches_with_priority_when(Predicate::always(), mapper)
    }

    /// As [`Controller::watches_with_priority_when`].
    pub fn watches_with_priority_when(
        self,
        predicate: Predicate<DynamicObject>,
        mapper: impl Fn(&DynamicObject, &Reader<K>) -> Vec<(ObjectKey, i32)> + Send + Sync + 'static,
    ) -> Self {
        let mapper = move |object: &DynamicObject, known: &Reader<K>| ranked_keys(mapper(object, known));
        let source = Source::mapped::<K, DynamicObject>(self.reconciled(), self.resource.clone(), predicate, mapper);
        self.with(source)
    }

    /// As [`Controller::reads`].
    pub fn reads(self) -> Self {
        let source = Source::read::<DynamicObject>(self.resource.clone());
        self.with(source)
    }

    /// As [`Controller::index`].
    pub fn index(
        self,
        name: &'static str,
        values: impl Fn(&DynamicObject) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let source = Source::indexed::<DynamicObject>(self.resource.clone(), name, values);
        self.with(source)
    }

    fn reconciled(&self) -> K::DynamicType {
        self.controller.kind.clone()
    }

    fn with(self, source: Source) -> Self {
        Self { controller: self.controller.watch(source), ..self }
    }
}
