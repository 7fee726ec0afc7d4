//! Reads past the cache.

use kube::{api::ListParams, core::Selector};

use crate::{
    client::{Client, ClientError},
    object::{Object, ObjectKey},
};

/// Reads that go to the API server each time: for what must be certain, or isn't watched. They cost a request each.
///
/// Other selectors, pages, metadata alone and kinds known only at run time are for
/// [`Context::client`](super::Context::client).
#[derive(Debug)]
pub struct Live {
    pub(super) client: Client,
}

impl Live {
    /// The object of this key; `None` if there is none.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer.
    pub async fn get<T: Object>(&self, key: &ObjectKey) -> Result<Option<T>, ClientError> {
        self.client.kind().get(key).await
    }

    /// The objects in the reconciled object's namespace, or anywhere for a cluster-scoped one, whose labels match.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer.
    pub async fn list<T: Object>(&self, selector: &Selector) -> Result<Vec<T>, ClientError> {
        list(&self.client, selector).await
    }

    /// The objects in all namespaces whose labels match.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer.
    pub async fn list_all<T: Object>(&self, selector: &Selector) -> Result<Vec<T>, ClientError> {
        list(&self.client.clone().all_namespaces(), selector).await
    }
}

async fn list<T: Object>(client: &Client, selector: &Selector) -> Result<Vec<T>, ClientError> {
    let all = ListParams::default();
    client.kind().list(&if selector.selects_all() { all } else { all.labels_from(selector) }).await
}
