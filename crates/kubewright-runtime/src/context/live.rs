//! Reads past the cache.

use kube::core::Selector;

use crate::{
    client::{ApiClient, ClientError},
    object::{Object, ObjectKey},
};

/// Reads that go to the API server each time: for what must be certain, or isn't watched. They cost a request each.
#[derive(Debug)]
pub struct Live<'a> {
    pub(super) api: &'a ApiClient,
    pub(super) namespace: Option<&'a str>,
}

impl Live<'_> {
    /// The object of this key; `None` if there is none.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer.
    pub async fn get<T: Object>(&self, key: &ObjectKey) -> Result<Option<T>, ClientError> {
        self.api.get(key).await
    }

    /// The objects in the reconciled object's namespace, or anywhere for a cluster-scoped one, whose labels match.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer.
    pub async fn list<T: Object>(&self, selector: &Selector) -> Result<Vec<T>, ClientError> {
        self.api.list(self.namespace, selector).await
    }

    /// The objects in all namespaces whose labels match.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer.
    pub async fn list_all<T: Object>(&self, selector: &Selector) -> Result<Vec<T>, ClientError> {
        self.api.list(None, selector).await
    }
}
