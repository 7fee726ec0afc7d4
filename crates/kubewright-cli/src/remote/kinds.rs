//! The kinds of a cluster, and the locations of objects in its API.

use std::collections::BTreeMap;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersion,
    discovery::{self, Scope},
};
use serde_json::Value;

use super::failure::status;

/// The kinds of a cluster, discovered as needed.
pub(crate) struct Kinds {
    client: Client,
    versions: BTreeMap<String, Vec<(ApiResource, Scope)>>,
}

/// The location of an object.
#[derive(Clone)]
pub(crate) struct ObjectLocation {
    pub(super) api: Api<DynamicObject>,
    pub(super) name: String,
}

impl Kinds {
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone(), versions: BTreeMap::new() }
    }

    /// Returns the location of an object; `None` if the cluster does not have its kind.
    pub(crate) async fn locate(&mut self, object: &Value) -> Result<Option<ObjectLocation>, kube::Error> {
        let version = text(object, "/apiVersion");
        if !self.versions.contains_key(version) {
            let known = self.discover(version).await?;
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
            ObjectLocation { api, name: text(object, "/metadata/name").to_owned() }
        }))
    }

    /// Removes a group version from the cache, after a kind was installed.
    pub(super) fn forget(&mut self, version: &str) {
        self.versions.remove(version);
    }

    async fn discover(&self, version: &str) -> Result<Vec<(ApiResource, Scope)>, kube::Error> {
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

/// Returns a string in an object, or an empty string.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Formats the name of an object as kubectl does, with its namespace.
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

/// Returns whether an object is a CustomResourceDefinition.
pub(super) fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

/// Returns the kind that a CustomResourceDefinition defines, in its first served version.
pub(crate) fn defined_resource(definition: &Value) -> Option<ApiResource> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array)?;
    let served = versions.iter().find(|version| version["served"] == true)?;
    let (group, version) = (text(definition, "/spec/group"), text(served, "/name"));
    Some(ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: format!("{group}/{version}"),
        kind: text(definition, "/spec/names/kind").into(),
        plural: text(definition, "/spec/names/plural").into(),
    })
}

/// Returns whether an object is a webhook configuration.
pub(crate) fn is_webhook_configuration(object: &Value) -> bool {
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"].contains(&text(object, "/kind"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_named_as_in_kubectl() {
        let metadata = json!({"name": "cow", "namespace": "barn"});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata});
        assert_eq!(title(&deployment), "deployment.apps/cow in barn");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "barn"}});
        assert_eq!(title(&namespace), "namespace/barn");
    }
}
