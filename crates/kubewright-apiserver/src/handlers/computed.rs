//! Objects that are computed for each request instead of stored.

use std::sync::Arc;

use http::StatusCode;
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{call::Call, list};
use crate::{
    meta,
    response::{self, Response},
    storage::{Key, Stored},
};

/// Returns the response to a GET of a collection or of one object.
pub(super) fn respond(call: &Call, objects: Vec<Value>) -> Result<Response, Status> {
    let stored = |object: Value| (Key::new("", meta::text(&object, "name")), Arc::new(Stored::unsaved(object)));
    let mut objects = objects.into_iter().map(stored);
    if !call.name.is_empty() {
        let found = objects.find(|(key, _)| *key.name == *call.name);
        let missing = || Status::not_found(&call.resource.group, &call.resource.singular, &call.name);
        return Ok(call.object(StatusCode::OK, &found.ok_or_else(missing)?.1, &[]));
    }
    let selection = list::selection(call)?;
    let items: Vec<_> =
        objects.filter(|(key, stored)| selection.matches(key, stored)).map(|(_, stored)| stored).collect();
    Ok(response::value(StatusCode::OK, call.accept.text, &call.present_list(&items, &json!({}))?))
}
