//! `AdmissionReview` of `admission.k8s.io`, read and written.
//!
//! The objects are kept as they were sent, so that no unknown field is lost; kube's types would decode their metadata.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::authentication::v1::UserInfo;
use kubewright_apimachinery::{clock::SharedClock, status::Status};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::{Operation, Request, response::AdmissionResponse};
use crate::object::KindName;

const GROUP: &str = "admission.k8s.io/";

/// A body that isn't a review. The API server shows the message to users.
#[derive(Debug, Error)]
pub(super) enum ReviewError {
    #[error("the body is not an AdmissionReview: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("expected an AdmissionReview of admission.k8s.io/v1, got kind {kind:?} of {version:?}")]
    WrongKind { kind: String, version: String },
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

/// A review to answer.
#[derive(Debug)]
pub(super) struct Review {
    version: String,
    uid: String,
    pub(super) object: Arc<Value>,
    pub(super) old_object: Arc<Value>,
    pub(super) request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    request: Option<BodyRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BodyRequest {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    request_kind: Option<Kind>,
    #[serde(default)]
    resource: Resource,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    operation: Operation,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    options: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resource {
    resource: String,
}

impl Kind {
    fn named(self, plural: &str) -> KindName {
        KindName { group: self.group, version: self.version, kind: self.kind, plural: plural.into() }
    }
}

impl Review {
    pub(super) fn read(body: &[u8], clock: &SharedClock) -> Result<Self, ReviewError> {
        let Body { api_version: version, kind, request } = serde_json::from_slice(body)?;
        // The older version has the same form; controller-runtime answers both.
        if kind != "AdmissionReview" || !matches!(version.strip_prefix(GROUP), Some("v1" | "v1beta1")) {
            return Err(ReviewError::WrongKind { kind, version });
        }
        let it = request.ok_or(ReviewError::NoRequest)?;
        let plural = it.resource.resource;
        let kind = it.kind.named(&plural);
        let (object, old_object) = (Arc::new(it.object), Arc::new(it.old_object));
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(Self {
            version,
            uid: it.uid,
            object: object.clone(),
            old_object: old_object.clone(),
            request: Request {
                operation: it.operation,
                user: it.user_info,
                dry_run: it.dry_run.unwrap_or_default(),
                namespace: given(it.namespace),
                name: it.name,
                subresource: given(it.sub_resource),
                requested: it.request_kind.map_or_else(|| kind.clone(), |asked| asked.named(&plural)),
                kind,
                options: it.options,
                object,
                old: old_object,
                clock: clock.clone(),
            },
        })
    }

    /// Returns the review with the response.
    pub(super) fn response(&self, answer: AdmissionResponse) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": answer.refusal.is_none()});
        response["status"] = match answer.refusal {
            Some(status) => status.to_json(),
            None => json!({"metadata": {}, "code": 200}),
        };
        if !answer.warnings.is_empty() {
            response["warnings"] = answer.warnings.into();
        }
        if let Some(patch) = answer.patch {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(patch.to_string()).into();
        }
        json!({"kind": "AdmissionReview", "apiVersion": self.version, "response": response})
    }

    /// Returns the refusal of a review of another kind.
    pub(super) fn unexpected(&self, expected: &KindName) -> Option<Status> {
        let of = |kind: &KindName| (kind.group.clone(), kind.version.clone(), kind.kind.clone());
        (of(&self.request.kind) != of(expected)).then(|| {
            let name = |kind: &KindName| format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
            Status::bad_request(format!("expected an object of {}, got {}", name(expected), name(&self.request.kind)))
        })
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::SystemClock;

    use super::*;

    fn read(body: Value) -> Result<Review, ReviewError> {
        Review::read(body.to_string().as_bytes(), &SystemClock::shared())
    }

    #[test]
    fn a_review_is_read_and_answered_in_its_version() {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            let review = read(json!({"kind": "AdmissionReview", "apiVersion": version, "request": {
                "uid": "u", "kind": {"group": "g", "version": "v2", "kind": "K"}, "operation": "UPDATE", "dryRun": true,
                "requestKind": {"group": "g", "version": "v1", "kind": "K"}, "resource": {"resource": "ks"},
                "userInfo": {"username": "ann", "groups": ["staff"]}, "name": "n", "namespace": "", "object": {"a": 1},
                "oldObject": null, "options": {"fieldManager": "ann"},
            }}))
            .unwrap();
            let request = &review.request;
            assert_eq!((request.operation, request.dry_run, &request.namespace), (Operation::Update, true, &None));
            assert_eq!(request.user.username.as_deref(), Some("ann"));
            assert_eq!((request.requested.version.as_str(), request.requested.plural.as_str()), ("v1", "ks"));
            assert_eq!((review.object.as_ref(), review.old_object.as_ref()), (&json!({"a": 1}), &Value::Null));
            assert_eq!((&request.options["fieldManager"], request.old_object::<String>()), (&json!("ann"), None));
            let answer = AdmissionResponse {
                warnings: vec!["w".into()],
                patch: Some(json!([])),
                ..AdmissionResponse::allowed()
            };
            let answer = review.response(answer);
            assert_eq!(answer["apiVersion"], version);
            let response = json!({"uid": "u", "allowed": true, "status": {"metadata": {}, "code": 200},
                "warnings": ["w"], "patchType": "JSONPatch", "patch": "W10="});
            assert_eq!(answer["response"], response);
            let answer = review.response(AdmissionResponse::denied(Status::bad_request("no")));
            assert_eq!(
                (&answer["response"]["allowed"], &answer["response"]["status"]["code"]),
                (&json!(false), &json!(400))
            );
        }
    }

    #[test]
    fn invalid_reviews_are_reported_clearly() {
        let check = |body: &str, says: &str| {
            let error = Review::read(body.as_bytes(), &SystemClock::shared()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        check("", "not an AdmissionReview: EOF");
        check("{", "not an AdmissionReview: EOF");
        check("7", "not an AdmissionReview: ");
        check("{}", r#"got kind "" of """#);
        check(r#"{"kind":"Pod","apiVersion":"v1"}"#, r#"got kind "Pod" of "v1""#);
        check(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2"}"#, "got kind \"AdmissionReview\" of");
        let review = |request: &str| {
            format!(r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{request}}}"#)
        };
        check(&review("null"), "has no request");
        check(&review("{}"), "missing field `operation`");
        check(&review(r#"{"operation":"EAT"}"#), "unknown variant `EAT`");
        check(
            &review(&format!(r#"{{"operation":"CREATE","object":{}1{}}}"#, "[".repeat(9999), "]".repeat(9999))),
            "recursion",
        );
    }

    #[test]
    fn another_kind_is_not_expected() {
        let kind =
            |group: &str| KindName { group: group.into(), version: "v1".into(), kind: "K".into(), plural: "ks".into() };
        let review = read(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "kind": {"group": "g", "version": "v1", "kind": "K"}, "operation": "CREATE"}}))
        .unwrap();
        assert_eq!(review.unexpected(&kind("g")), None);
        let refusal = review.unexpected(&kind("h")).unwrap();
        assert_eq!(refusal.message, "expected an object of h/v1, Kind=K, got g/v1, Kind=K");
    }
}
