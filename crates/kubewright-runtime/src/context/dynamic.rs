//! Cached reads of kinds that are known only at run time.

use std::sync::Arc;

use kube::core::{ApiResource, DynamicObject};

use super::{Context, WatchRequest};
use crate::{
    cache::{Reader, Unsynced},
    client::ClientError,
    object::{AnyObject, KindName, ObjectKey},
};

/// The cached reads of a [`Context`] for a kind that is known only at run time, by [`Context::dynamic`].
#[derive(Debug)]
pub struct DynamicReader<'a, K: AnyObject> {
    context: &'a Context<K>,
    resource: &'a ApiResource,
}

impl<K: AnyObject> Context<K> {
    /// The cached reads for a kind that is known only at run time. Requests past the cache are made by
    /// [`Client::dynamic`](crate::client::Client::dynamic).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::core::{ApiResource, GroupVersionKind};
    /// # use kubewright_runtime::{client::ClientError, context::Context};
    /// # fn example(ctx: &Context<ConfigMap>) -> Result<(), ClientError> {
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// for widget in ctx.dynamic(&widgets).children()? {
    ///     println!("{}", widget.data["spec"]["color"]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn dynamic<'a>(&'a self, resource: &'a ApiResource) -> DynamicReader<'a, K> {
        DynamicReader { context: self, resource }
    }
}

impl<K: AnyObject> DynamicReader<'_, K> {
    /// As [`Context::children`].
    ///
    /// # Errors
    /// As [`DynamicReader::cached`].
    pub fn children(&self) -> Result<Vec<Arc<DynamicObject>>, ClientError> {
        self.cached().map(|reader| self.context.children_in(&reader))
    }

    /// As [`Context::cached`].
    ///
    /// # Errors
    /// [`ClientError::NotDeclared`] if the controller doesn't declare the kind by
    /// [`Controller::dynamic`](crate::controller::Controller::dynamic).
    pub fn cached(&self) -> Result<Reader<DynamicObject>, ClientError> {
        let reader = self.context.declared(&KindName::named::<DynamicObject>(self.resource))?;
        Ok(reader.noted(self.context.tracker.recorder()))
    }

    /// As [`Context::watch`].
    ///
    /// # Errors
    /// As [`Context::watch`].
    pub fn watch(
        &self,
        passes: impl Fn(&DynamicObject) -> bool + Send + Sync + 'static,
    ) -> Result<Reader<DynamicObject>, Unsynced> {
        self.context.watch_as((self.resource, true), WatchRequest::Passing(Box::new(passes)))
    }

    /// As [`Context::watch_object`], for a kind as in [`DynamicReader::watch`].
    ///
    /// # Errors
    /// As [`Context::watch`].
    pub fn watch_object(&self, key: &ObjectKey) -> Result<Option<Arc<DynamicObject>>, Unsynced> {
        let reader =
            self.context.watch_as::<DynamicObject>((self.resource, true), WatchRequest::Object(key.clone()))?;
        Ok(reader.get(key))
    }
}
