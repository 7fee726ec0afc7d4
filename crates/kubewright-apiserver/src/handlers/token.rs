//! `/token`: service account tokens.

use http::{Method, StatusCode};
use jiff::SignedDuration;
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{call::Call, edit::Admitted, lifecycle::DecodedBody, query::WriteOptions};
use crate::{
    admission::Operation,
    meta,
    registry::Subresource,
    response::{self, Response},
};

/// Issues a token for the object of a call.
pub(super) async fn issue(call: &Call, subresource: &Subresource) -> Result<Response, Status> {
    if call.parts.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let DecodedBody { object: request, mut warnings } =
        call.body_of_kind(subresource.kind, options.field_validation)?;
    let admitted = call.admit_body(Operation::Create, subresource, request, options.dry_run).await?;
    let Admitted { object: request, warnings: admission_warnings } = admitted;
    warnings.extend(admission_warnings);
    let state = &call.state;
    let account = call.present()?.value();
    let now = state.clock.now();
    let (token, token_spec) = state.authenticator.issue_token(&account, &request, state.random.uuid(), now)?;
    let end = now.saturating_add(SignedDuration::from_secs(token_spec.seconds)).unwrap_or(now);
    let metadata = json!({
        "name": meta::text(&account, "name"), "namespace": meta::text(&account, "namespace"),
        "creationTimestamp": meta::time(now),
    });
    let (group, version, kind) = subresource.kind;
    let body: Value = json!({
        "kind": kind, "apiVersion": format!("{group}/{version}"), "metadata": metadata, "spec": token_spec.spec,
        "status": {"token": token, "expirationTimestamp": meta::time(end)},
    });
    let mut response = response::value(StatusCode::CREATED, call.accept.text, &body);
    response::add_warnings(&mut response, &warnings);
    Ok(response)
}
