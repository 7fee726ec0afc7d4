//! Reads from the API server.

use kube::{api::ListParams, core::Selector};

use crate::{
    client::{Client, ClientError},
    object::{Object, ObjectKey},
};

/// Reads from the API server, for kinds that aren't watched and for decisions that need the current state. Each costs a
/// request.
///
/// If a read returns a newer state than the cache has, the key's next run waits for the cache to catch up.
///
/// For other selectors, single pages, metadata only and kinds known only at run time see
/// [`Context::client`](super::Context::client).
#[derive(Debug)]
pub struct Live {
    pub(super) client: Client,
}

impl Live {
    /// Returns the object of this key; `None` if there is none.
    ///
    /// # Errors
    /// If the API server rejects the request or doesn't respond.
    pub async fn get<T: Object>(&self, key: &ObjectKey) -> Result<Option<T>, ClientError> {
        self.client.kind().get(key).await
    }

    /// Returns the objects whose labels match, in the reconciled object's namespace, or in all if it is cluster-scoped.
    ///
    /// # Errors
    /// If the API server rejects the request or doesn't respond.
    pub async fn list<T: Object>(&self, selector: &Selector) -> Result<Vec<T>, ClientError> {
        list(&self.client, selector).await
    }

    /// Returns the objects in all namespaces whose labels match.
    ///
    /// # Errors
    /// If the API server rejects the request or doesn't respond.
    pub async fn list_all<T: Object>(&self, selector: &Selector) -> Result<Vec<T>, ClientError> {
        list(&self.client.clone().all_namespaces(), selector).await
    }
}

async fn list<T: Object>(client: &Client, selector: &Selector) -> Result<Vec<T>, ClientError> {
    let all = ListParams::default();
    client.kind().list(&if selector.selects_all() { all } else { all.labels_from(selector) }).await
}
