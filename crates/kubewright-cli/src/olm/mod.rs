//! Operators that the Operator Lifecycle Manager (OLM) installs from bundles.
//!
//! [`install`] serves the catalog of a bundle and subscribes to it, and [`upgrade`] serves another one; [`progress`]
//! judges what OLM reports. [`cleanup`] deletes all that belongs to a package.

mod cleanup;
mod image;
mod install;
mod progress;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

pub(crate) use self::{
    cleanup::{CleanupOptions, cleanup},
    image::files_of_image,
    install::{install, upgrade},
};
use crate::remote::{Kinds, Remote, explain, text};

/// The group of OLM's kinds.
const GROUP: &str = "operators.coreos.com";
/// OLM's kinds that commands use: the kind, its version and its plural name.
const KINDS: [(&str, &str, &str); 5] = [
    ("CatalogSource", "v1alpha1", "catalogsources"),
    ("ClusterServiceVersion", "v1alpha1", "clusterserviceversions"),
    ("InstallPlan", "v1alpha1", "installplans"),
    ("OperatorGroup", "v1", "operatorgroups"),
    ("Subscription", "v1alpha1", "subscriptions"),
];
/// The label of namespaces with the pod security standard of their pods.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// How OLM is installed.
const HINT: &str = "install it first (https://olm.operatorframework.io/docs/getting-started), such as with kubectl apply --server-side -f \
                    https://github.com/operator-framework/operator-lifecycle-manager/releases/latest/download/crds.yaml and then olm.yaml \
                    of the same release";

/// OLM in a cluster, and the namespace that a command acts on.
pub(crate) struct Olm<'a> {
    remote: &'a Remote,
    namespace: String,
}

impl<'a> Olm<'a> {
    /// Checks that a cluster has OLM. The namespace defaults to that of the context.
    pub(crate) async fn find(remote: &'a Remote, namespace: Option<&str>) -> Result<Self> {
        let mut kinds = Kinds::new(&remote.client);
        let mut missing = Vec::new();
        for (kind, version, plural) in KINDS {
            let object = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": kind});
            match kinds.locate(&object).await {
                Ok(Some(_)) => {}
                Ok(None) => missing.push(format!("{plural}.{GROUP}")),
                Err(error) => bail!("ask {remote} for the kinds of {GROUP}: {}", explain(&error)),
            }
        }
        if !missing.is_empty() {
            bail!(
                "the Operator Lifecycle Manager is not installed in {remote}: it has no {}; {HINT}",
                missing.join(", ")
            );
        }
        let namespace = namespace.unwrap_or(remote.client.default_namespace()).to_owned();
        Ok(Self { remote, namespace })
    }

    /// Returns the namespace that the command acts on.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.remote.client.clone(), &self.namespace, &resource(kind))
    }

    /// Returns an object, if it exists.
    async fn get(&self, kind: &str, name: &str) -> Result<Option<Value>, kube::Error> {
        let found = self.api(kind).get_opt(name).await?;
        found.map(|object| serde_json::to_value(object).map_err(kube::Error::SerdeError)).transpose()
    }

    /// Returns all objects of a kind in the namespace.
    async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        list(&self.api(kind), &ListParams::default())
            .await
            .map_err(|error| anyhow::anyhow!("list {} in {}: {}", title(kind), self.namespace, explain(&error)))
    }

    /// Returns the Subscription to a package.
    pub(crate) async fn subscription(&self, package: &str) -> Result<Option<Value>> {
        let all = self.list("Subscription").await?;
        Ok(all.into_iter().find(|subscription| text(subscription, "/spec/name") == package))
    }

    /// Returns a CatalogSource of the namespace, if it exists.
    pub(crate) async fn catalog_source(&self, name: &str) -> Result<Option<Value>> {
        let found = self.get("CatalogSource", name).await;
        found.map_err(|error| anyhow::anyhow!("catalogsource {name} in {}: {}", self.namespace, explain(&error)))
    }

    /// Returns whether the namespace enforces the pod security standard `restricted`. A user who can't read it has to
    /// say so.
    pub(crate) async fn is_restricted(&self) -> bool {
        let namespaces: Api<Namespace> = Api::all(self.remote.client.clone());
        let found = namespaces.get_metadata_opt(&self.namespace).await.ok().flatten();
        found.is_some_and(|found| found.labels().get(ENFORCE).is_some_and(|standard| standard == "restricted"))
    }

    /// Returns what identifies an object in the namespace.
    fn reference(&self, kind: &str, name: &str) -> Value {
        let resource = resource(kind);
        let metadata = json!({"name": name, "namespace": self.namespace});
        json!({"apiVersion": resource.api_version, "kind": kind, "metadata": metadata})
    }
}

/// Returns the resource of one of OLM's kinds.
fn resource(kind: &str) -> ApiResource {
    let known = KINDS.iter().find(|(other, ..)| *other == kind);
    let (kind, version, plural) = known.copied().unwrap_or((kind, "v1", ""));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, kind), plural)
}

fn title(kind: &str) -> String {
    format!("{}.{GROUP}", resource(kind).plural)
}

async fn list(api: &Api<DynamicObject>, parameters: &ListParams) -> Result<Vec<Value>, kube::Error> {
    let found = api.list(parameters).await?;
    found.items.into_iter().map(|object| serde_json::to_value(object).map_err(kube::Error::SerdeError)).collect()
}
