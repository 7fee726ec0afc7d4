//! Objects that are computed for each request instead of stored.

use std::sync::Arc;

use http::StatusCode;
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{call::Call, list};
use crate::{
    meta,
    registry::DerivedFrom,
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
    Ok(response::value(StatusCode::OK, call.accept.encoding, &call.present_list(&items, &json!({}))?))
}

/// Returns the response to a GET of a collection or of one object whose objects are derived from stored ones.
pub(super) fn derive(call: &Call, from: DerivedFrom) -> Result<Response, Status> {
    let (strategy, now) = (&call.resource.strategy, call.state.clock.now());
    let derive = |stored: &Stored| strategy.derive(&stored.value(), now);
    if !call.name.is_empty() {
        let key = Key::new(&call.namespace, &call.name);
        let found = call.state.store.get(from.storage, &key);
        let found = found.ok_or_else(|| Status::not_found("", from.resource, &call.name))?;
        let derived = derive(&found).ok_or_else(|| strategy.underived(&found.value()))?;
        return Ok(call.object(StatusCode::OK, &Stored::unsaved(derived), &[]));
    }
    let selection = list::selection(call)?;
    let snapshot = call.state.store.snapshot(from.storage);
    let selected = list::range(&snapshot.objects, selection.namespace(), None);
    let selected = selected.filter(|(key, stored)| selection.matches(key, stored));
    let items: Vec<_> = selected.filter_map(|(_, stored)| derive(stored).map(Stored::unsaved).map(Arc::new)).collect();
    Ok(response::value(StatusCode::OK, call.accept.encoding, &call.present_list(&items, &json!({}))?))
}
