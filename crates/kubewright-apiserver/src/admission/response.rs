//! The responses of admission webhooks.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::{
    decode,
    status::{Details, Status},
    types::json_type,
};
use serde_json::Value;

use super::webhooks::Phase;
use crate::{object_type::ObjectType, schema_rules};

/// The version of reviews.
pub(super) const VERSION: &str = "admission.k8s.io/v1";
/// The older version, for webhooks that don't accept the other one.
pub(super) const OLD_VERSION: &str = "admission.k8s.io/v1beta1";
/// The kind of reviews.
const KIND: &str = "AdmissionReview";

/// A response that allows the request.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    /// The JSON patch; absent if it has no operations.
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
    /// The annotations for the audit log, with the name of the webhook in their keys.
    pub(super) annotations: Vec<(String, String)>,
}

/// The failure of a call, or a response that denies the request.
#[derive(Debug)]
pub(super) enum CallError {
    /// The webhook could not be called, or its response is invalid. Its failure policy applies.
    Failed(String),
    /// The webhook denied the request.
    Denied { status: Status, warnings: Vec<String>, annotations: Vec<(String, String)> },
}

/// Parses the response to the review with this version and UID. Responses of the older version need neither a version
/// nor a UID nor the type of a patch.
pub(super) fn read(name: &str, reviewed: &str, uid: &str, phase: Phase, body: &[u8]) -> Result<Allowed, CallError> {
    let invalid = |why: String| CallError::Failed(format!("received invalid webhook response: {why}"));
    let review =
        decode_review(reviewed, body).map_err(|why| CallError::Failed(format!("failed to call webhook: {why}")))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(response) = review.get("response").filter(|response| response.is_object()) else {
        return Err(invalid("webhook response was absent".to_owned()));
    };
    let is_strict = reviewed != OLD_VERSION;
    if is_strict {
        let echoed = text(&response["uid"]);
        if echoed != uid {
            return Err(invalid(format!("expected response.uid={uid:?}, got {echoed:?}")));
        }
        let (kind, version) = (text(&review["kind"]), text(&review["apiVersion"]));
        if (kind.as_str(), version.as_str()) != ("AdmissionReview", VERSION) {
            let sent = format!("{}, Kind={kind}", if version.is_empty() { "/" } else { &version });
            return Err(invalid(format!("expected webhook response of {VERSION}, Kind=AdmissionReview, got {sent}")));
        }
    }
    let (patch, patch_type) = (text(&response["patch"]), response.get("patchType").map(text));
    if is_strict {
        check_patch(phase, &patch, patch_type.as_deref()).map_err(invalid)?;
    }
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // A header can't contain the others.
    let warnings = warnings.filter(|text| !text.is_empty() && !text.contains(char::is_control));
    let warnings = warnings.map(str::to_owned).collect();
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    let annotations =
        annotations.filter_map(|(key, value)| Some((format!("{name}/{key}"), value.as_str()?.to_owned())));
    let annotations = annotations.collect();
    if response["allowed"] != Value::Bool(true) {
        return Err(CallError::Denied { status: denied(name, &response["status"]), warnings, annotations });
    }
    let patch = match phase {
        Phase::Mutating if !patch.is_empty() => operations(&patch).map_err(CallError::Failed)?,
        _ => None,
    };
    let patch_type = if is_strict { patch_type } else { None };
    match (&patch, patch_type.as_deref()) {
        (Some(_), Some(other)) if other != "JSONPatch" => {
            Err(CallError::Failed(format!("unsupported patch type {other:?}")))
        }
        _ => Ok(Allowed { patch, warnings, annotations }),
    }
}

/// Decodes a review of the sent version by its type. The errors are those of Kubernetes' client.
fn decode_review(reviewed: &str, body: &[u8]) -> Result<Value, String> {
    let decoded = decode::json_into_struct(body);
    let mut review = decoded.map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))?.value;
    if let Some(why) = schema_rules::not_an_object(&review) {
        return Err(why);
    }
    let text = |field: &str| review[field].as_str().unwrap_or_default();
    let version = Some(text("apiVersion")).filter(|version| !version.is_empty()).unwrap_or(reviewed);
    let kind = Some(text("kind")).filter(|kind| !kind.is_empty()).unwrap_or(KIND);
    if kind != KIND || ![VERSION, OLD_VERSION].contains(&version) {
        return Err(schema_rules::unregistered(&kind.into(), version));
    }
    if version != reviewed {
        let short = |version: &str| version.trim_start_matches("admission.k8s.io/").to_owned();
        let (from, to) = (short(version), short(reviewed));
        return Err(format!("converting ({from}.{KIND}) to ({to}.{KIND}): unknown conversion"));
    }
    // Both versions have the same fields.
    if let Some(ty) = ObjectType::of("admission.k8s.io", "v1", KIND) {
        ty.decode_text(&mut review, Some(body))?;
    }
    Ok(review)
}

/// Checks that a patch and its type are those of a phase, and that one doesn't come without the other.
fn check_patch(phase: Phase, patch: &str, patch_type: Option<&str>) -> Result<(), String> {
    let why = match (phase, patch.is_empty(), patch_type) {
        (Phase::Validating, false, _) => "validating webhook may not return response.patch",
        (Phase::Validating, true, Some(_)) => "validating webhook may not return response.patchType",
        (Phase::Mutating, false, None) => "webhook returned response.patch but not response.patchType",
        (Phase::Mutating, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (Phase::Mutating, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// Returns the operations of a patch in base64, if there are any.
fn operations(patch: &str) -> Result<Option<Value>, String> {
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    let patch = decode::json(&bytes).map_err(|error| undecodable(error.to_string()))?.value;
    match &patch {
        Value::Null => Ok(None),
        Value::Array(operations) => Ok((!operations.is_empty()).then_some(patch)),
        other => {
            let found = json_type(other);
            Err(undecodable(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch")))
        }
    }
}

/// Returns the webhook's status, with the webhook's name in the message. A code that doesn't indicate failure becomes
/// 400.
fn denied(name: &str, status: &Value) -> Status {
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let denied = format!("admission webhook {name:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code =
        status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let details = status.get("details").filter(|details| details.is_object()).map(details);
    Status { details: details.map(Box::new), ..Status::new(code.unwrap_or(400), text("reason"), message) }
}

/// Returns the details of a status, without fields of wrong types.
fn details(details: &Value) -> Details {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = details["causes"].as_array().into_iter().flatten();
    let cause = |cause: &Value| kubewright_apimachinery::status::Cause {
        reason: text(&cause["reason"]),
        message: text(&cause["message"]),
        field: text(&cause["field"]),
    };
    Details {
        name: text(&details["name"]),
        group: text(&details["group"]),
        kind: text(&details["kind"]),
        uid: text(&details["uid"]),
        causes: causes.map(cause).collect(),
        retry_after_seconds: details["retryAfterSeconds"].as_u64().and_then(|seconds| u32::try_from(seconds).ok()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn validating_webhooks_return_no_patch() {
        let response = |patch: Value| {
            let mut response = json!({"uid": "u", "allowed": true});
            response.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
            json!({"kind": "AdmissionReview", "apiVersion": VERSION, "response": response}).to_string()
        };
        for (patch, field) in [
            (json!({"patch": "W10=", "patchType": "JSONPatch"}), "patch"),
            (json!({"patchType": "JSONPatch"}), "patchType"),
        ] {
            let Err(CallError::Failed(why)) = read("w", VERSION, "u", Phase::Validating, response(patch).as_bytes())
            else {
                panic!("{field} is accepted")
            };
            assert_eq!(
                why,
                format!("received invalid webhook response: validating webhook may not return response.{field}")
            );
        }
        let plain = response(json!({"patch": null}));
        assert!(read("w", VERSION, "u", Phase::Validating, plain.as_bytes()).is_ok());
    }

    fn failed(response: Value, expect: &str) {
        match read("w", VERSION, "u", Phase::Mutating, response.to_string().as_bytes()) {
            Err(CallError::Failed(why)) => assert!(why.contains(expect), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    fn review(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": VERSION, "response": response})
    }

    #[test]
    fn invalid_responses_are_failures() {
        failed(json!([]), "failed to call webhook: couldn't get version/kind; json parse error: ");
        failed(json!({}), "received invalid webhook response: webhook response was absent");
        failed(json!({"kind": "AdmissionReview", "apiVersion": VERSION}), "response was absent");
        failed(
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": "u"}}),
            "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        );
        failed(json!({"kind": "X", "apiVersion": VERSION, "response": {}}), "no kind \"X\" is registered for version");
        failed(json!({"response": {"uid": "u"}}), "got /, Kind=");
        failed(
            review(json!({"uid": "u", "allowed": "yes"})),
            "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
        );
        failed(review(json!({"uid": "other", "allowed": true})), r#"expected response.uid="u", got "other""#);
        failed(review(json!({"uid": "u", "allowed": true, "patch": "W10="})), "not response.patchType");
        failed(review(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})), "not response.patch");
        let patched = |patch: &str, kind: &str| {
            let patch = STANDARD.encode(patch);
            review(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": kind}))
        };
        failed(patched(r#"[{"op": "add"}]"#, "X"), r#"unsupported patch type "X""#);
        failed(patched("[]", ""), r#"webhook returned invalid response.patchType of """#);
        let undecodable = "received undecodable patch in webhook response: ";
        failed(
            patched("x", "JSONPatch"),
            &format!("{undecodable}invalid character 'x' looking for beginning of value"),
        );
        failed(
            patched("{}", "JSONPatch"),
            &format!("{undecodable}json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        );
        assert!(matches!(read("w", VERSION, "u", Phase::Mutating, b"<html>"), Err(CallError::Failed(_))));
    }

    #[test]
    fn a_patch_without_operations_may_have_any_type() {
        let response = review(json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "X"})).to_string();
        assert_eq!(read("w", VERSION, "u", Phase::Mutating, response.as_bytes()).unwrap().patch, None);
    }

    #[test]
    fn warnings_that_a_header_cannot_contain_are_left_out() {
        let response = review(json!({"uid": "u", "allowed": true, "warnings": ["a", "", "b\nc", "d"]})).to_string();
        let allowed = read("w", VERSION, "u", Phase::Mutating, response.as_bytes()).unwrap();
        assert_eq!(allowed.warnings, ["a", "d"]);
    }

    #[test]
    fn responses_of_the_older_version_are_checked_less() {
        let operations = json!([{"op": "remove", "path": "/data"}]);
        let patch = STANDARD.encode(operations.to_string());
        let response = json!({"response": {"allowed": true, "patch": patch}}).to_string();
        let allowed = read("w", OLD_VERSION, "u", Phase::Mutating, response.as_bytes()).unwrap();
        assert_eq!(allowed.patch, Some(operations));
        assert!(read("w", VERSION, "u", Phase::Mutating, response.as_bytes()).is_err());
    }

    #[test]
    fn a_denial_always_has_an_error_code() {
        let check = |status: Value, code: u16, message: &str| {
            let status = denied("w", &status);
            assert_eq!((status.code, status.message.as_str()), (code, message));
        };
        check(Value::Null, 400, r#"admission webhook "w" denied the request without explanation"#);
        check(json!({"code": 200, "reason": "Odd"}), 400, r#"admission webhook "w" denied the request: Odd"#);
        check(json!({"code": 422, "message": "no"}), 422, r#"admission webhook "w" denied the request: no"#);
        check(
            json!({"code": -1, "message": 7}),
            400,
            r#"admission webhook "w" denied the request without explanation"#,
        );
    }
}
