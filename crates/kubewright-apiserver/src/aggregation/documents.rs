//! Discovery and OpenAPI of versions that other API servers serve.

use std::time::Duration;

use futures::future::join_all;
use http::header;
use serde_json::{Map, Value, json};

use super::{
    Aggregation,
    services::{ApiService, Remote},
};

/// The time for which documents are kept.
const LIFETIME: Duration = Duration::from_secs(10);
/// Aggregated discovery, or plain discovery from a server that doesn't have it.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;\
                          g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The documents of a server.
#[derive(Debug, Default)]
pub(super) struct Documents {
    /// The resources of the version in aggregated form, once they have been read.
    resources: Option<Value>,
    is_current: bool,
    /// The address of the OpenAPI v3 document.
    open_api: Option<Value>,
    /// The monotonic time at which they were read.
    read: Option<Duration>,
}

/// A version that another server serves, for discovery.
#[derive(Clone, Debug)]
pub(crate) struct RemoteVersion {
    pub(crate) group: String,
    pub(crate) version: String,
    /// The version in aggregated discovery. If its server can't be reached, it is stale.
    pub(crate) document: Value,
    /// The entry of the index of OpenAPI v3.
    pub(crate) open_api: Option<Value>,
}

impl RemoteVersion {
    /// Returns the version of an APIService that names a Service, with what is known of it.
    fn of(service: &ApiService) -> Option<Self> {
        let documents = service.remote.as_ref()?.documents.lock();
        let is_current = service.is_available && documents.is_current;
        Some(Self {
            group: service.group.clone(),
            version: service.version.clone(),
            document: json!({
                "version": service.version,
                "resources": documents.resources.clone().unwrap_or_else(|| json!([])),
                "freshness": if is_current { "Current" } else { "Stale" },
            }),
            open_api: documents.open_api.clone(),
        })
    }
}

impl Aggregation {
    /// Returns the versions that other servers serve. Asks the available servers unless that was done a short time ago.
    pub(crate) async fn versions(&self) -> Vec<RemoteVersion> {
        join_all(self.services.remote().iter().map(|service| self.version(service)))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the versions that other servers serve, with what is known of them.
    pub(crate) fn known_versions(&self) -> Vec<RemoteVersion> {
        self.services.remote().iter().filter_map(|service| RemoteVersion::of(service)).collect()
    }

    async fn version(&self, service: &ApiService) -> Option<RemoteVersion> {
        let remote = service.remote.as_ref()?;
        let now = self.client.clock.monotonic();
        let read = remote.documents.lock().read;
        if service.is_available && read.is_none_or(|read| now.saturating_sub(read) >= LIFETIME) {
            let (resources, open_api) = futures::join!(self.resources(service, remote), self.open_api(service, remote));
            let mut documents = remote.documents.lock();
            documents.read = Some(now);
            documents.is_current = resources.is_some();
            documents.resources = resources.or(documents.resources.take());
            documents.open_api = open_api.or(documents.open_api.take());
        }
        RemoteVersion::of(service)
    }

    async fn document(&self, remote: &Remote, path: &str, accept: &str) -> Option<(bool, Value)> {
        let (code, headers, body) = match self.get(remote, path, accept).await {
            Ok(response) => response,
            Err(why) => {
                tracing::debug!(path, why, "failed to read a document of an aggregated API server");
                return None;
            }
        };
        let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_aggregated = kind.contains("as=APIGroupDiscoveryList");
        let document = serde_json::from_slice(&body).ok().filter(|_| code.is_success())?;
        Some((is_aggregated, document))
    }

    /// Returns the resources of a version in aggregated form.
    async fn resources(&self, service: &ApiService, remote: &Remote) -> Option<Value> {
        if let Some((true, document)) = self.document(remote, "/apis", AGGREGATED).await {
            let groups = document["items"].as_array()?;
            let group = groups.iter().find(|group| group["metadata"]["name"] == *service.group)?;
            let mut versions = group["versions"].as_array()?.iter();
            return versions.find(|version| version["version"] == *service.version).map(|one| one["resources"].clone());
        }
        let (_, list) = self.document(remote, &service.path(), "application/json").await?;
        Some(aggregate(&list))
    }

    /// Returns the address of the OpenAPI v3 document of a version.
    async fn open_api(&self, service: &ApiService, remote: &Remote) -> Option<Value> {
        let (_, index) = self.document(remote, "/openapi/v3", "application/json").await?;
        index["paths"].get(service.path().trim_start_matches('/')).cloned()
    }
}

/// Returns the resources of an `APIResourceList` in aggregated form.
fn aggregate(list: &Value) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    for entry in list["resources"].as_array().into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let kind = json!({"group": text("group"), "version": text("version"), "kind": text("kind")});
        match text("name").split_once('/') {
            None => {
                let mut resource = Map::new();
                resource.insert("resource".into(), text("name").into());
                resource.insert("responseKind".into(), kind);
                resource
                    .insert("scope".into(), if entry["namespaced"] == true { "Namespaced" } else { "Cluster" }.into());
                resource.insert("singularResource".into(), text("singularName").into());
                for field in ["verbs", "shortNames", "categories"] {
                    if let Some(names) = entry.get(field) {
                        resource.insert(field.into(), names.clone());
                    }
                }
                resources.push(resource.into());
            }
            Some((of, name)) => {
                let subresource = json!({"subresource": name, "responseKind": kind, "verbs": entry["verbs"]});
                if let Some(resource) = resources.iter_mut().find(|resource| resource["resource"] == *of) {
                    match resource["subresources"].as_array_mut() {
                        Some(present) => present.push(subresource),
                        None => resource["subresources"] = json!([subresource]),
                    }
                }
            }
        }
    }
    resources.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lists_become_aggregated() {
        let list = json!({"resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"], "shortNames": ["t"]},
            {"name": "things/status", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": ["patch"]},
            {"name": "none/status", "kind": "None"},
        ]});
        let kind = json!({"group": "", "version": "", "kind": "Thing"});
        assert_eq!(
            aggregate(&list),
            json!([{
                "resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "thing",
                "verbs": ["get"], "shortNames": ["t"],
                "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["patch"]}],
            }])
        );
        assert_eq!(aggregate(&json!(null)), json!([]));
    }
}
