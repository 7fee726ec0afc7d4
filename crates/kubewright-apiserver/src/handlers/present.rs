//! Objects as tables or as metadata only.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Call;
use crate::{discovery::group_version, respond::Shape, storage::Stored};

/// `PartialObjectMetadata` of an object.
pub(super) fn metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// The metadata of a table with one row.
pub(super) fn table_metadata(stored: &Stored) -> Value {
    json!({"resourceVersion": stored.revision().to_string()})
}

impl Call {
    /// A list in the shape that the client wants.
    pub(super) fn present_list(&self, objects: &[Arc<Value>], list_metadata: Value) -> Value {
        match self.accept.shape {
            Shape::Whole => json!({
                "kind": &*self.resource.list_kind,
                "apiVersion": group_version(&self.resource.group, &self.resource.version),
                "metadata": list_metadata,
                "items": objects.iter().map(|object| &**object).collect::<Vec<_>>(),
            }),
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": list_metadata,
                "items": objects.iter().map(|object| metadata(object)).collect::<Vec<_>>(),
            }),
            Shape::Table => self.table(objects, list_metadata),
        }
    }

    /// A `Table` of objects.
    pub(super) fn table(&self, objects: &[Arc<Value>], list_metadata: Value) -> Value {
        let rows: Vec<_> = objects
            .iter()
            .map(|object| json!({"cells": [object["metadata"]["name"]], "object": metadata(object)}))
            .collect();
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}],
            "rows": rows,
        })
    }
}
