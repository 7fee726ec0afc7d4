//! `/token`: a token that stands for the object.

use http::{Method, StatusCode};
use jiff::SignedDuration;
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{Call, admission::Admitted, method_not_allowed, query::WriteOptions};
use crate::{
    admission::Operation,
    meta,
    registry::{Subresource, builtin},
    respond::{self, Answer},
};

/// Makes a token for the object of a call.
pub(super) async fn issue(call: &Call, known: &Subresource) -> Result<Answer, Status> {
    if call.parts.method != Method::POST {
        return Err(method_not_allowed());
    }
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let request = call.body_of_kind(&["TokenRequest"])?;
    let admitted = call.admit_exchange(Operation::Create, known, request, options.dry_run).await?;
    let Admitted { object: request, warnings } = admitted;
    let server = &call.server;
    let holder = server.store.get(&call.resource.storage, &call.key()).ok_or_else(|| call.not_found())?.value();
    let id = server.random.uuid();
    let draft =
        builtin::draft_token(&holder, &request, id, &|storage, namespace, name| server.find(storage, namespace, name))?;
    let now = server.clock.now();
    let token = server.issuer.sign(draft.claims, now, draft.seconds)?;
    let end = now.saturating_add(SignedDuration::from_secs(draft.seconds)).unwrap_or(now);
    let metadata = json!({
        "name": meta::text(&holder, "name"), "namespace": meta::text(&holder, "namespace"),
        "creationTimestamp": meta::time(now),
    });
    let (group, version, kind) = known.exchanges;
    let body: Value = json!({
        "kind": kind, "apiVersion": format!("{group}/{version}"), "metadata": metadata, "spec": draft.spec,
        "status": {"token": token, "expirationTimestamp": meta::time(end)},
    });
    let mut answer = respond::value(StatusCode::CREATED, call.accept.text, &body);
    respond::warn(&mut answer, &warnings);
    Ok(answer)
}
