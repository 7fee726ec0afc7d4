//! PUT of an object or of a part of it.

use http::StatusCode;
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{
    call::Call,
    decode::{self, Format},
    edit::{Edited, PartEdit},
    lifecycle::DecodedBody,
    part::Part,
    query::WriteOptions,
};
use crate::response::Response;

/// Replaces an object, or a part of it.
pub(super) async fn update(call: &Call, part: Part) -> Result<Response, Status> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
    let decoded = decode::decode(Format::of(&call.parts.headers)?, &call.body)?;
    let DecodedBody { object, warnings } = call.receive(decoded, options.field_validation)?;
    let manager = call.manager_name(&options);
    let manager = call.manager(&manager, part.subresource());
    let desired = |old: &Value| {
        call.check_uid(old, &object)?;
        Ok(DecodedBody { object: object.clone(), warnings: warnings.clone() })
    };
    let edit = PartEdit { call, part, manager: &manager, desired };
    let Edited { stored, warnings } = call.edit(&edit, &options, part.subresource()).await?;
    Ok(call.object(StatusCode::OK, &stored, &warnings))
}
