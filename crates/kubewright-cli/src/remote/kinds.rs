//! Where objects are in the API of a cluster.

use std::collections::BTreeMap;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersion,
    discovery::{self, Scope},
};
use serde_json::Value;

use super::failure::status;

/// The kinds that a cluster knows, asked for as needed.
pub(super) struct Kinds {
    client: Client,
    versions: BTreeMap<String, Vec<(ApiResource, Scope)>>,
}

/// An object and its place.
#[derive(Clone)]
pub(super) struct Located {
    pub(super) api: Api<DynamicObject>,
    pub(super) name: String,
}

impl Kinds {
    pub(super) fn of(client: &Client) -> Self {
        Self { client: client.clone(), versions: BTreeMap::new() }
    }

    /// Where an object is, or would be; nowhere if the cluster doesn't know its kind.
    pub(super) async fn locate(&mut self, object: &Value) -> Result<Option<Located>, kube::Error> {
        let version = text(object, "/apiVersion");
        if !self.versions.contains_key(version) {
            let known = self.ask(version).await?;
            self.versions.insert(version.to_owned(), known);
        }
        let kind = text(object, "/kind");
        let found = self.versions[version].iter().find(|(resource, _)| resource.kind == kind);
        Ok(found.map(|(resource, scope)| {
            let api = match (scope, text(object, "/metadata/namespace")) {
                (Scope::Cluster, _) => Api::all_with(self.client.clone(), resource),
                (Scope::Namespaced, "") => Api::default_namespaced_with(self.client.clone(), resource),
                (Scope::Namespaced, namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            };
            Located { api, name: text(object, "/metadata/name").to_owned() }
        }))
    }

    /// Kinds may have come meanwhile.
    pub(super) fn forget(&mut self, version: &str) {
        self.versions.remove(version);
    }

    async fn ask(&self, version: &str) -> Result<Vec<(ApiResource, Scope)>, kube::Error> {
        let Ok(version) = version.parse::<GroupVersion>() else { return Ok(Vec::new()) };
        match discovery::pinned_group(&self.client, &version).await {
            Ok(group) => {
                let resources = group.versioned_resources(&version.version);
                Ok(resources.into_iter().map(|(resource, can)| (resource, can.scope)).collect())
            }
            Err(error) if status(&error).is_some_and(|status| status.code == 404) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// A text in an object, empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What kubectl calls an object, and its namespace.
pub(super) fn title(object: &Value) -> String {
    let kind = text(object, "/kind").to_lowercase();
    let kind = match text(object, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    };
    let name = text(object, "/metadata/name");
    match text(object, "/metadata/namespace") {
        "" => format!("{kind}/{name}"),
        namespace => format!("{kind}/{name} in {namespace}"),
    }
}

/// Whether it is a definition of a kind.
pub(super) fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

/// Whether it has the API server ask an operator.
pub(crate) fn is_webhook(object: &Value) -> bool {
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"].contains(&text(object, "/kind"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_called_as_kubectl_calls_them() {
        let metadata = json!({"name": "cow", "namespace": "barn"});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata});
        assert_eq!(title(&deployment), "deployment.apps/cow in barn");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "barn"}});
        assert_eq!(title(&namespace), "namespace/barn");
    }
}
