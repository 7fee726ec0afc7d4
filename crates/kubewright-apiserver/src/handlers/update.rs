//! PUT of an object or of a part of it.

use http::StatusCode;
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{
    call::Call,
    create,
    decode::{self, Format},
    edit::{Edited, MAX_ATTEMPTS, PartEdit},
    lifecycle::DecodedBody,
    part::Part,
    query::WriteOptions,
};
use crate::response::Response;

/// Replaces an object, or a part of it.
pub(super) async fn update(call: &Call, part: Part) -> Result<Response, Status> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
    let decoded =
        decode::object(&call.resource.kind, call.resource.schema.custom, Format::of(&call.parts.headers)?, &call.body)?;
    let DecodedBody { object, warnings } = call.receive(decoded, options.field_validation)?;
    let manager = call.manager_name(&options);
    let manager = call.manager(&manager, part.subresource());
    let desired = |old: &Value| {
        call.check_uid(old, &object)?;
        Ok(DecodedBody { object: object.clone(), warnings: warnings.clone() })
    };
    let edit = PartEdit { call, part, manager: &manager, desired };
    let creates = call.resource.lifecycle.created_by_update && part == Part::Main;
    for _ in 0..MAX_ATTEMPTS {
        if creates && !call.exists() {
            call.authorize("create")?;
            let incoming = DecodedBody { object: object.clone(), warnings: warnings.clone() };
            let create_options = WriteOptions { kind: "CreateOptions", ..options.clone() };
            match create::create_admitted(call, incoming, &manager, &create_options).await {
                // Another client created the object first, so it is replaced.
                Err(status) if status.reason == "AlreadyExists" => {}
                result => return result,
            }
        }
        match call.edit(&edit, &options, part.subresource()).await {
            Ok(Edited { stored, warnings }) => return Ok(call.object(StatusCode::OK, &stored, &warnings)),
            // Another client deleted the object, so it is created again.
            Err(status) if creates && status.reason == "NotFound" && !call.exists() => {}
            Err(status) => return Err(status),
        }
    }
    Err(Status::stale(&call.resource.group, &call.resource.plural, &call.name))
}
