//! Views: types that name the fields of a kind that a controller reads, so that the cache keeps no others.
//!
//! A view is an ordinary serde type whose kind is that of another one, by kube's `Resource` derive. It stands wherever a
//! kind does: `owns`, `watches`, `reads`, `index`, `ctx.children`, `ctx.get`, `ctx.list`, `ctx.delete`, predicates.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::{Resource, api::ObjectMeta};
//! use serde::{Deserialize, Serialize};
//!
//! /// The pods as our controller sees them.
//! #[derive(Clone, Debug, Deserialize, Serialize, Resource)]
//! #[resource(inherit = "Pod")]
//! struct PodView {
//!     #[serde(with = "kubewright_runtime::view::without_annotations")]
//!     metadata: ObjectMeta,
//!     status: Option<PodPhase>,
//! }
//!
//! #[derive(Clone, Debug, Deserialize, Serialize)]
//! struct PodPhase {
//!     phase: Option<String>,
//! }
//! ```
//!
//! What is kept of a kind is the union of what all types read that the manager's controllers declare for it; so one
//! controller that uses the whole `Pod` makes the cache keep whole pods. `kube::core::PartialObjectMeta<Pod>` is a view of the
//! metadata alone: if a kind is used through nothing else, the API server isn't even asked for more.
//!
//! A view is for reading. What is created or applied as a view says no more than the view's fields. A field that takes in
//! whatever there is, such as a `serde_json::Value` or one with `#[serde(flatten)]`, keeps all of that.

pub mod without_annotations {
    //! For `#[serde(with = "…")]` on the metadata of a view: everything but annotations and `generateName`.
    //!
    //! Annotations can be most of an object. With this they aren't kept; to a reader of the view, there are none.

    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
        finalizers: Option<Vec<String>>,
    }

    /// Reads the metadata without annotations.
    ///
    /// # Errors
    /// When it isn't an object's metadata.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
        let metadata = Metadata::deserialize(deserializer)?;
        Ok(ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
            labels: metadata.labels,
            owner_references: metadata.owner_references,
            finalizers: metadata.finalizers,
            ..ObjectMeta::default()
        })
    }

    /// Writes the metadata as it is.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(metadata: &ObjectMeta, serializer: S) -> Result<S::Ok, S::Error> {
        metadata.serialize(serializer)
    }
}
