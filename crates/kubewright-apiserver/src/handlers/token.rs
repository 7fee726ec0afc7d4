//! `/token`: service account tokens.

use std::sync::Arc;

use http::{Method, StatusCode};
use jiff::SignedDuration;
use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::{call::Call, edit::Admitted, lifecycle::DecodedBody, query::WriteOptions};
use crate::{
    admission::Operation,
    auth::service_account::credential_id,
    codec, meta,
    object_type::ObjectType,
    registry::{Resource, ResourceSchema, Subresource, builtin},
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
    let admitted = call.admit_body(Operation::Create, subresource, request, options.dry_run).await?;
    let Admitted { object: request, warnings: admission_warnings } = admitted;
    warnings.extend(admission_warnings);
    let state = &call.state;
    let account = call.present()?.value();
    let now = state.clock.now();
    check_identity(&request, &account)?;
    let (token, token_spec) = state.authenticator.issue_token(&account, &request, state.random.uuid(), now)?;
    call.audit.annotate(ISSUED_CREDENTIAL_ID, &credential_id(&token_spec.claims));
    let metadata = metadata(call, &request, &account, &call.manager_name(&options))?;
    let end = now.saturating_add(SignedDuration::from_secs(token_spec.seconds)).unwrap_or(now);
    let mut body: Value = json!({
        "metadata": metadata, "spec": token_spec.spec,
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

/// Returns the metadata of the response: that of the request, completed by that of the account, with the owners of the
/// fields of the request.
fn metadata(call: &Call, request: &Value, account: &Value, manager: &str) -> Result<Value, Status> {
    let request_type =
        ObjectType::of(GROUP, "v1", KIND).ok_or_else(|| Status::internal("no type of token requests"))?;
    let schema = ResourceSchema {
        root: builtin::reference(&format!("io.k8s.api.authentication.v1.{KIND}")),
        definitions: builtin::definitions(),
        name: KIND.to_owned(),
        custom: false,
        served: Some(request_type),
        stored: None,
    };
    let resource = Resource {
        group: GROUP.into(),
        version: "v1".into(),
        kind: KIND.into(),
        schema: Arc::new(schema),
        status: false,
        versions: None,
        builtin_versions: Arc::default(),
        ..(*call.resource).clone()
    };
    let mut sent = request.clone();
    meta::edit(&mut sent, |metadata| drop(metadata.remove("managedFields")));
    request_type.complete(&mut sent);
    let mut metadata = call.manager(manager, "token").track(&resource, None, sent)["metadata"].take();
    for field in ["name", "namespace", "uid"] {
        metadata[field] = account["metadata"][field].clone();
    }
    metadata["creationTimestamp"] = meta::time(call.state.clock.now());
    Ok(metadata)
}
