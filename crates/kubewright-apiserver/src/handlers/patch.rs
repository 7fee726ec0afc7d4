//! PATCH: JSON patch, merge patch, strategic merge patch, apply.

use http::StatusCode;
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{
    Call, create,
    decode::{self, Decoded, Format},
    lifecycle::{Incoming, manager},
    query::WriteOptions,
    update::Part,
};
use crate::{convert, ownership::Owner, respond::Answer};

/// The kinds of patches, by media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    fn of(call: &Call) -> Result<Self, Status> {
        const ALL: &str = "application/json-patch+json, application/merge-patch+json, \
                           application/strategic-merge-patch+json, application/apply-patch+yaml";
        const CUSTOM: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        let custom = call.resource.schema.custom;
        match decode::media_type(&call.parts.headers).as_str() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(decode::unsupported(if custom { CUSTOM } else { ALL })),
        }
    }
}

/// Patches an object; an apply creates it if it isn't there.
pub(super) fn patch(call: &Call, part: Part) -> Result<Answer, Status> {
    let kind = PatchType::of(call)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let format = if kind == PatchType::Apply { Format::Yaml } else { Format::Json };
    let patch = decode::decode(format, &call.body)?;
    let manager = manager(call, &options);
    let owner = Owner { manager: &manager, subresource: part.subresource(), applied: kind == PatchType::Apply };
    let mut warnings = Vec::new();
    if kind == PatchType::Apply && call.server.store.get(&call.resource.storage, &call.key()).is_none() {
        let Incoming { object, warnings } = call.receive(patch, options.field_validation)?;
        let stored = create::insert(call, object, &owner, options.dry_run)?;
        return Ok(call.object(StatusCode::CREATED, &stored, &warnings));
    }
    let stored = call.modify(options.dry_run, |old| {
        let old = old.ok_or_else(|| call.not_found())?;
        let served = convert::to_served(&call.resource, &std::sync::Arc::new(old.clone()));
        let patched = apply_patch(kind, &served, &patch.value)?;
        let decoded = Decoded { value: patched, duplicates: patch.duplicates.clone() };
        let incoming = call.receive(decoded, options.field_validation)?;
        warnings = incoming.warnings;
        call.prepare_update(part, old, incoming.object, &owner)
    })?;
    Ok(call.object(StatusCode::OK, &stored, &warnings))
}

fn apply_patch(kind: PatchType, object: &Value, patch: &Value) -> Result<Value, Status> {
    match kind {
        PatchType::Json => Err(Status::bad_request("json patch is not yet served")),
        PatchType::Merge | PatchType::Strategic | PatchType::Apply => {
            let mut object = object.clone();
            merge(&mut object, patch);
            Ok(object)
        }
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = object.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
