//! The responses of admission webhooks.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::{
    decode,
    status::{Details, Status},
};
use serde_json::Value;

use super::webhooks::Phase;

/// The version of reviews.
pub(super) const VERSION: &str = "admission.k8s.io/v1";
/// The older version, for webhooks that don't accept the other one.
pub(super) const OLD_VERSION: &str = "admission.k8s.io/v1beta1";

/// A response that allows the request.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// The failure of a call, or a response that denies the request.
#[derive(Debug)]
pub(super) enum CallError {
    /// The webhook could not be called, or its response is invalid. Its failure policy applies.
    Failed(String),
    /// The webhook denied the request.
    Denied { status: Status, warnings: Vec<String> },
}

/// Parses the response to the review with this version and UID. Responses of the older version need neither a version nor
/// a UID nor the type of a patch.
pub(super) fn read(name: &str, reviewed: &str, uid: &str, phase: Phase, body: &[u8]) -> Result<Allowed, CallError> {
    let invalid = |why: String| CallError::Failed(format!("received invalid webhook response: {why}"));
    let review =
        decode::json(body).map_err(|error| CallError::Failed(format!("failed to call webhook: {error}")))?.value;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(response) = review.get("response").filter(|response| response.is_object()) else {
        return Err(CallError::Failed("webhook response was absent".to_owned()));
    };
    let (kind, version) = (text(&review["kind"]), text(&review["apiVersion"]));
    let is_strict = reviewed != OLD_VERSION;
    if is_strict && (kind.as_str(), version.as_str()) != ("AdmissionReview", VERSION) {
        let sent = format!("{version}, Kind={kind}");
        return Err(invalid(format!("expected webhook response of {VERSION}, Kind=AdmissionReview, got {sent}")));
    }
    let echoed = text(&response["uid"]);
    if is_strict && echoed != uid {
        return Err(invalid(format!("expected response.uid={uid:?}, got {echoed:?}")));
    }
    if is_strict && phase == Phase::Validating {
        let present = |field: &&str| response.get(field).is_some_and(|value| !value.is_null() && value != "");
        if let Some(field) = ["patch", "patchType"].into_iter().find(present) {
            return Err(invalid(format!("validating webhook may not return response.{field}")));
        }
    }
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(Value::as_str).map(str::to_owned).collect();
    if response["allowed"] != Value::Bool(true) {
        return Err(CallError::Denied { status: denied(name, &response["status"]), warnings });
    }
    let (patch, mut kind) = (text(&response["patch"]), text(&response["patchType"]));
    if !is_strict {
        kind = if patch.is_empty() { String::new() } else { "JSONPatch".to_owned() };
    }
    match (patch.is_empty(), kind.as_str()) {
        (true, "") => Ok(Allowed { patch: None, warnings }),
        (true, _) => Err(invalid("webhook returned response.patchType but not response.patch".to_owned())),
        (false, "") => Err(invalid("webhook returned response.patch but not response.patchType".to_owned())),
        (false, "JSONPatch") => {
            let patch = STANDARD.decode(patch).map_err(|error| invalid(format!("response.patch: {error}")))?;
            let patch = decode::json(&patch).map_err(|error| invalid(format!("response.patch: {error}")))?.value;
            Ok(Allowed { patch: Some(patch), warnings })
        }
        (false, other) => Err(invalid(format!("invalid value of webhook response.patchType: {other:?}"))),
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
        failed(json!([]), "response was absent");
        failed(json!({"kind": "AdmissionReview", "apiVersion": VERSION}), "response was absent");
        failed(
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": "u"}}),
            "got admission.k8s.io/v1beta1, Kind=AdmissionReview",
        );
        failed(review(json!({"uid": "other", "allowed": true})), r#"expected response.uid="u", got "other""#);
        failed(review(json!({"uid": "u", "allowed": true, "patch": "W10="})), "not response.patchType");
        failed(review(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})), "not response.patch");
        failed(review(json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "X"})), r#"patchType: "X""#);
        failed(
            review(json!({"uid": "u", "allowed": true, "patch": "?", "patchType": "JSONPatch"})),
            "response.patch: ",
        );
        assert!(matches!(read("w", VERSION, "u", Phase::Mutating, b"<html>"), Err(CallError::Failed(_))));
    }

    #[test]
    fn responses_of_the_older_version_are_checked_less() {
        let response = json!({"response": {"allowed": true, "patch": "W10="}}).to_string();
        let allowed = read("w", OLD_VERSION, "u", Phase::Mutating, response.as_bytes()).unwrap();
        assert_eq!(allowed.patch, Some(json!([])));
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
