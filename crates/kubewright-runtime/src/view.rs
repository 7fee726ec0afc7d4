//! Views: types with the fields of a kind that a controller reads. The cache keeps only these fields.
//!
//! A view is an ordinary serde type that has the kind of another type, by kube's `Resource` derive. It can be used
//! wherever a kind can: `owns`, `watches`, `reads`, `index`, `ctx.children`, `ctx.get`, `ctx.list`, `ctx.delete`,
//! predicates.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::{Resource, api::ObjectMeta};
//! use serde::{Deserialize, Serialize};
//!
//! /// The fields of pods that our controller reads.
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
//! For each kind the cache keeps the union of the fields of all types that the manager's controllers declare: one
//! controller that declares the whole `Pod` makes the cache keep whole pods. `kube::core::PartialObjectMeta<Pod>` is a
//! view of the metadata. If controllers use a kind only as such, the API server sends only metadata.
//!
//! Views are for reading. An object that is created or applied from a view has only the view's fields. A field that
//! accepts any content, such as a `serde_json::Value` or one with `#[serde(flatten)]`, keeps all of it.

pub mod without_annotations {
    //! Metadata without annotations and `generateName`, for `#[serde(with = "…")]` on the metadata of a view.
    //!
    //! Annotations can be most of an object. With this the cache doesn't keep them, and the view has none.

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

    /// Deserializes the metadata without annotations.
    ///
    /// # Errors
    /// If the value isn't the metadata of an object.
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

    /// Serializes the metadata.
    ///
    /// # Errors
    /// As the serializer.
    pub fn serialize<S: Serializer>(metadata: &ObjectMeta, serializer: S) -> Result<S::Ok, S::Error> {
        metadata.serialize(serializer)
    }
}
