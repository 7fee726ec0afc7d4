//! Who owns which field: the pipeline's side of server-side apply.

use jiff::Timestamp;
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use crate::registry::Resource;

/// Who writes, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    /// The field manager.
    pub(crate) manager: &'a str,
    /// The subresource written to; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The write was an apply, which recorded its ownership already.
    pub(crate) applied: bool,
}

/// Records the ownership of a new object's fields.
pub(crate) fn created(
    _resource: &Resource,
    _owner: &Owner<'_>,
    _object: &mut Value,
    _now: Timestamp,
) -> Result<(), Status> {
    Ok(())
}

/// Records the ownership of the fields that an update changed.
pub(crate) fn updated(
    _resource: &Resource,
    _owner: &Owner<'_>,
    _old: &Value,
    _object: &mut Value,
    _now: Timestamp,
) -> Result<(), Status> {
    Ok(())
}
