//! `/token`: service account tokens.

use http::{Method, StatusCode};
use jiff::SignedDuration;
use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::{call::Call, edit::Admitted, lifecycle::DecodedBody, query::WriteOptions};
use crate::{
    auth::service_account::credential_id,
    codec, meta,
    object_type::ObjectType,
    registry::Subresource,
    response::{self, Response},
};

/// The group and kind of token requests.
const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// The annotation of the audit log with the identifier of an issued token.
const ISSUED_CREDENTIAL_ID: &str = "authentication.kubernetes.io/issued-credential-id";
/// The time for which a token is valid by default.
const DEFAULT_SECONDS: u64 = 3600;

/// Issues a token for the object of a call.
pub(super) async fn issue(call: &Call, subresource: &Subresource) -> Result<Response, Status> {
    if call.parts.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let DecodedBody { object: mut request, mut warnings } =
        call.body_of_kind(subresource.kind, options.field_validation)?;
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
    let state = &call.state;
    let account = call.present()?.value();
    let now = state.clock.now();
    let identify = |request: &mut Value| {
        check_identity(request, &account)?;
        for field in ["name", "namespace", "uid"] {
            meta::set(request, field, account["metadata"].get(field).cloned());
        }
        meta::set(request, "creationTimestamp", Some(meta::time(now)));
        state.authenticator.default_audiences(request);
        Ok(())
    };
    let admitted = call.admit_body(subresource.name, subresource.kind, request, &options, identify).await?;
    let Admitted { object: request, warnings: admission_warnings } = admitted;
    warnings.extend(admission_warnings);
    let (token, token_spec) = state.authenticator.issue_token(&account, &request, state.random.uuid(), now)?;
    call.audit.annotate(ISSUED_CREDENTIAL_ID, &credential_id(&token_spec.claims));
    let end = now.saturating_add(SignedDuration::from_secs(token_spec.seconds)).unwrap_or(now);
    let mut body: Value = json!({
        "metadata": request["metadata"], "spec": token_spec.spec,
        "status": {"token": token, "expirationTimestamp": meta::time(end)},
    });
    let (group, version, kind) = subresource.kind;
    codec::set_type(&mut body, group, version, kind);
    if let Some(ty) = ObjectType::of(group, version, kind) {
        ty.complete(&mut body);
    }
    let mut response = response::value(StatusCode::CREATED, call.accept.encoding, &body);
    response::add_warnings(&mut response, &warnings);
    Ok(response)
}

/// Checks that the name and UID of a request are those of the account, if it has any.
fn check_identity(request: &Value, account: &Value) -> Result<(), Status> {
    let name = meta::text(account, "name");
    let sent = meta::text(request, "name");
    if !sent.is_empty() && sent != name {
        let why = "must match the service account name if specified";
        let cause = Cause::invalid("metadata.name", &sent.into(), why);
        return Err(Status::invalid(GROUP, KIND, name, vec![cause]));
    }
    let (sent, uid) = (meta::text(request, "uid"), meta::text(account, "uid"));
    if !sent.is_empty() && sent != uid {
        let why =
            format!("the UID in the token request ({sent}) does not match the UID of the service account ({uid})");
        return Err(Status::conflict(GROUP, KIND, name, &why));
    }
    Ok(())
}
