//! Objects in the representation that the client accepts: complete, as tables, or only their metadata.

use std::sync::Arc;

use http::StatusCode;
use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::call::Call;
use crate::{
    codec,
    group_version::group_version,
    registry::{Resource, builtin::CREATED_AT},
    response::{self, Encoding, Representation, Response},
    storage::Stored,
    table::{self, Include},
};

/// The number of objects of a table that are in memory at the same time.
const BATCH: usize = 500;

/// Returns the `PartialObjectMetadata` of an object.
pub(super) fn metadata(version: &str, object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": object["metadata"]})
}

/// Returns 406 for the metadata of a list that is asked for of one object. Go's name of its type is part of the
/// message.
pub(super) fn no_list(resource: &Resource) -> Status {
    let why = format!(
        "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
        go_type(resource, &resource.kind)
    );
    Status::new(406, "NotAcceptable", why)
}

fn no_object(resource: &Resource) -> Status {
    let why = format!(
        "you requested PartialObjectMetadata, but the requested object is a list ({})",
        go_type(resource, &resource.list_kind)
    );
    Status::new(406, "NotAcceptable", why)
}

/// Returns the name of the type of a kind in Go's packages, which are named after the groups.
fn go_type(resource: &Resource, kind: &str) -> String {
    if resource.schema.custom {
        let list = if *kind == *resource.list_kind { "List" } else { "" };
        return format!("*unstructured.Unstructured{list}");
    }
    let package = resource.group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
    format!("*{package}.{kind}")
}

/// Returns whether a built-in kind has no columns of its own. Kubernetes builds the tables of such kinds by other code,
/// which leaves the rows of an empty list null.
fn has_default_columns(resource: &Resource) -> bool {
    !resource.schema.custom && resource.columns.iter().any(|column| column.name == CREATED_AT)
}

/// Returns the metadata of a table with one row.
pub(super) fn table_metadata(stored: &Stored) -> Value {
    json!({"resourceVersion": stored.revision().to_string()})
}

impl Call {
    /// Returns the response with one object.
    pub(super) fn object(&self, code: StatusCode, stored: &Stored, warnings: &[String]) -> Response {
        let (resource, encoding) = (&self.resource, self.accept.encoding);
        let served = || codec::to_served(resource, &stored.value());
        let mut response = match self.accept.representation {
            Representation::Whole if encoding == Encoding::Protobuf => response::value(code, encoding, &served()),
            Representation::Whole => response::json_text(code, encoding, codec::served_text(resource, stored)),
            Representation::Metadata => response::value(code, encoding, &metadata(self.accept.meta_version, &served())),
            Representation::MetadataList => response::status_as(encoding, &no_list(resource)),
            Representation::Table => match self.table(&[served()], &table_metadata(stored), true) {
                Ok(table) => response::value(code, encoding, &table),
                Err(status) => response::status(&status),
            },
        };
        response::add_warnings(&mut response, warnings);
        response
    }

    /// Returns a list in the representation that the client accepts. Its objects are read one after the other, since
    /// there may be many.
    pub(super) fn present_list(&self, items: &[Arc<Stored>], list_metadata: &Value) -> Result<Value, Status> {
        let resource = &self.resource;
        let mut objects = items.iter().map(|stored| codec::to_served(resource, &stored.value()));
        Ok(match self.accept.representation {
            Representation::Whole => json!({
                "kind": &*resource.list_kind,
                "apiVersion": group_version(&resource.group, &resource.version),
                "metadata": list_metadata,
                "items": objects
                    .map(|object| {
                        let mut object = Arc::unwrap_or_clone(object);
                        codec::item(resource, &mut object);
                        object
                    })
                    .collect::<Vec<_>>(),
            }),
            Representation::Metadata => return Err(no_object(resource)),
            Representation::MetadataList => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": self.accept.meta_version,
                "metadata": list_metadata,
                // In place of an empty list, Kubernetes writes null here, unlike in a list of objects.
                "items": (!items.is_empty())
                    .then(|| objects.map(|object| metadata(self.accept.meta_version, &object)).collect::<Vec<_>>()),
            }),
            Representation::Table => {
                let mut batch = || objects.by_ref().take(BATCH).collect::<Vec<_>>();
                let mut table = self.table(&batch(), list_metadata, true)?;
                if items.is_empty() && has_default_columns(resource) {
                    table["rows"] = Value::Null;
                }
                loop {
                    let batch = batch();
                    if batch.is_empty() {
                        break table;
                    }
                    let more = self.table(&batch, list_metadata, false)?["rows"].take();
                    if let (Some(rows), Value::Array(more)) = (table["rows"].as_array_mut(), more) {
                        rows.extend(more);
                    }
                }
            }
        })
    }

    /// Returns the part of an object that each row of a table includes.
    fn include(&self) -> Result<Include, Status> {
        let text = self.query.get("includeObject").unwrap_or_default();
        Include::parse(text).ok_or_else(|| {
            let why = "must be 'Metadata', 'Object', 'None', or empty";
            let cause = Cause::invalid("includeObject", &text.into(), why);
            Status::bad_request(format!("Unable to convert to Table as requested: {cause}"))
        })
    }

    /// Returns a `Table` of objects.
    pub(super) fn table(&self, objects: &[Arc<Value>], metadata: &Value, headers: bool) -> Result<Value, Status> {
        let options = self.table_options(headers)?;
        Ok(table::render(&self.resource, objects.iter().map(|object| &**object), metadata, options))
    }

    /// Returns the options of a table.
    pub(super) fn table_options(&self, headers: bool) -> Result<table::Options, Status> {
        Ok(table::Options {
            include: self.include()?,
            headers,
            now: self.state.clock.now(),
            version: self.accept.meta_version,
        })
    }
}
