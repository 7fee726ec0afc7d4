//! Listing and watching one object.

use futures::Stream;
use kube::{
    api::{ListParams, WatchEvent, WatchParams},
    client::Client as KubeClient,
};

use super::{AnyObject, ClientError, KindClient, Operation};
use crate::object::ObjectKey;

impl<K: AnyObject> KindClient<K> {
    /// Returns the object and the resource version at which it had this state, also if it doesn't exist.
    pub(crate) async fn list_one(&self, key: &ObjectKey) -> Result<(Option<K>, String), ClientError> {
        let call = self.call(Operation::List, key)?;
        let params = ListParams::default().fields(&format!("metadata.name={}", call.key().name()));
        let mut list = self.page::<K>(&call, &params).await?;
        Ok((list.items.pop(), list.metadata.resource_version.unwrap_or_default()))
    }

    /// Watches the object from a resource version on. Interceptors don't see the request.
    pub(crate) async fn watch_one(
        &self,
        key: &ObjectKey,
        version: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<K>, kube::Error>> + use<K>, ClientError> {
        let call = self.call(Operation::List, key)?;
        let params = WatchParams::default().fields(&format!("metadata.name={}", call.key().name()));
        let requests = self.requests(&call);
        let request = match K::metadata_api() {
            true => requests.watch_metadata(&params, version),
            false => requests.watch(&params, version),
        };
        let mut request = request.map_err(|source| call.failed(kube::Error::BuildRequest(source)))?;
        let client: &KubeClient = self.client().kube();
        self.client().identify(&call, &mut request)?;
        let events = client.request_events::<K>(request).await.map_err(|source| call.failed(source))?;
        Ok(events)
    }
}
