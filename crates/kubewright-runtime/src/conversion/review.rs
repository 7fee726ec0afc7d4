//! `ConversionReview` of `apiextensions.k8s.io`: parsing requests and making responses.

use std::{panic::AssertUnwindSafe, sync::Arc};

use kube::core::{
    Status,
    conversion::{ConversionRequest, ConversionResponse, ConversionReview},
};
use serde_json::Value;
use thiserror::Error;

use super::{AnyHub, ConversionError};
use crate::panic;

const GROUP: &str = "apiextensions.k8s.io/";

/// A body that isn't a review. The API server shows the message to users.
#[derive(Debug, Error)]
pub(crate) enum ReviewError {
    #[error("the body is not a ConversionReview: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("expected a ConversionReview of apiextensions.k8s.io/v1, got kind {kind:?} of {version:?}")]
    WrongKind { kind: String, version: String },
    #[error("the ConversionReview has no request")]
    NoRequest,
}

/// The response to a review, and whether a conversion panicked.
#[derive(Debug)]
pub(crate) struct ConversionOutcome {
    pub(crate) review: ConversionReview,
    pub(crate) panicked: bool,
}

/// Answers a review: with all its objects converted, or with the error of one.
pub(crate) fn answer(body: &[u8], hubs: &[Arc<dyn AnyHub>]) -> Result<ConversionOutcome, ReviewError> {
    let review: ConversionReview = serde_json::from_slice(body)?;
    let (kind, version) = (&review.types.kind, &review.types.api_version);
    // The older version has the same form; controller-runtime answers both.
    if kind != "ConversionReview" || !matches!(version.strip_prefix(GROUP), Some("v1" | "v1beta1")) {
        return Err(ReviewError::WrongKind { kind: kind.clone(), version: version.clone() });
    }
    let mut request = ConversionRequest::from_review(review).map_err(|_| ReviewError::NoRequest)?;
    let (objects, to) = (std::mem::take(&mut request.objects), request.desired_api_version.clone());
    let mut panicked = false;
    let converted = objects.into_iter().map(|object| {
        let name = name(&object);
        let work = AssertUnwindSafe(|| convert(object, &to, hubs));
        let result = std::panic::catch_unwind(work).unwrap_or_else(|panic| {
            panicked = true;
            let panic = panic::message(panic.as_ref());
            tracing::error!(object = name, panic, "a conversion panicked");
            Err(ConversionError::new(format!("panic: {panic} [recovered]")))
        });
        result.map_err(|error| format!("{name}: {error}"))
    });
    let response = match converted.collect::<Result<Vec<_>, _>>() {
        Ok(converted) => ConversionResponse::for_request(request).success(converted),
        Err(why) => {
            tracing::warn!(to, why, "conversion failed");
            ConversionResponse::for_request(request).failure(Status::failure(&why, "InternalError"))
        }
    };
    Ok(ConversionOutcome { review: response.into_review(), panicked })
}

fn convert(object: Value, to: &str, hubs: &[Arc<dyn AnyHub>]) -> Result<Value, ConversionError> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let hub = hubs.iter().find(|hub| {
        let hub = hub.describe().hub;
        hub.group == group && hub.kind == kind
    });
    let hub =
        hub.ok_or_else(|| ConversionError::new(format!("no conversion of {version}, Kind={kind} is served here")))?;
    hub.convert(object, to)
}

/// Returns the name of the object in messages: `default/web`.
fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;
    use crate::conversion::{Convertible, Hub};

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "example.com", version = "v1", kind = "Pane", namespaced)]
    struct PaneSpec {
        side: String,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "example.com", version = "v2", kind = "Pane", namespaced, root = "Pane2")]
    struct Pane2Spec {
        side: i32,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "example.com", version = "v3", kind = "Pane", namespaced, root = "Pane3")]
    struct Pane3Spec {
        half: i32,
    }

    impl Convertible for Pane {
        type Hub = Pane2;

        fn convert_to(self) -> Result<Pane2, ConversionError> {
            assert_ne!(self.spec.side, "boom", "on purpose");
            let metadata = if self.spec.side == "0" { Default::default() } else { self.metadata };
            Ok(Pane2 { metadata, spec: Pane2Spec { side: self.spec.side.parse()? } })
        }

        fn convert_from(hub: Pane2) -> Result<Self, ConversionError> {
            Ok(Self { metadata: hub.metadata, spec: PaneSpec { side: hub.spec.side.to_string() } })
        }
    }

    impl Convertible for Pane3 {
        type Hub = Pane2;

        fn convert_to(self) -> Result<Pane2, ConversionError> {
            Ok(Pane2 { metadata: self.metadata, spec: Pane2Spec { side: 2 * self.spec.half } })
        }

        fn convert_from(hub: Pane2) -> Result<Self, ConversionError> {
            if hub.spec.side % 2 == 1 {
                return Err("spec.side: an odd number has no half".into());
            }
            Ok(Self { metadata: hub.metadata, spec: Pane3Spec { half: hub.spec.side / 2 } })
        }
    }

    fn hubs() -> Vec<Arc<dyn AnyHub>> {
        vec![Arc::new(Hub::<Pane2>::new().spoke::<Pane>().spoke::<Pane3>())]
    }

    fn pane(version: &str, spec: Value) -> Value {
        let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Pane", "metadata": metadata, "spec": spec})
    }

    fn ask(objects: Vec<Value>, to: &str) -> (Value, bool) {
        let review = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": {
            "uid": "7", "desiredAPIVersion": format!("example.com/{to}"), "objects": objects,
        }});
        let answered = answer(review.to_string().as_bytes(), &hubs()).unwrap();
        let review = serde_json::to_value(answered.review).unwrap();
        assert_eq!(
            (&review["kind"], &review["apiVersion"]),
            (&json!("ConversionReview"), &json!("apiextensions.k8s.io/v1"))
        );
        assert_eq!(review["response"]["uid"], "7");
        (review["response"].clone(), answered.panicked)
    }

    #[test]
    fn every_version_becomes_every_other_by_way_of_the_hub() {
        let all =
            || vec![pane("v1", json!({"side": "8"})), pane("v2", json!({"side": 8})), pane("v3", json!({"half": 4}))];
        for (to, spec) in [("v1", json!({"side": "8"})), ("v2", json!({"side": 8})), ("v3", json!({"half": 4}))] {
            let (response, _) = ask(all(), to);
            assert_eq!(response["result"]["status"], "Success", "{response}");
            assert_eq!(
                response["convertedObjects"],
                json!([pane(to, spec.clone()), pane(to, spec.clone()), pane(to, spec)])
            );
        }
    }

    #[test]
    fn an_object_that_cannot_be_converted_fails_the_review_and_is_named() {
        let check = |object: Value, to: &str, says: &str| {
            let (response, panicked) = ask(vec![pane("v2", json!({"side": 2})), object], to);
            assert_eq!((&response["result"]["status"], &response["convertedObjects"]), (&json!("Failure"), &json!([])));
            assert_eq!(response["result"]["message"], says);
            panicked
        };
        assert!(!check(pane("v1", json!({"side": "x"})), "v2", "n/p: invalid digit found in string"));
        check(pane("v2", json!({"side": 3})), "v3", "n/p: spec.side: an odd number has no half");
        check(pane("v2", json!({})), "v3", "n/p: can't decode Pane of v2: missing field `side`");
        check(pane("v9", json!({})), "v3", "n/p: no conversion for version example.com/v9");
        let lost = "n/p: the conversion made another object of it: it must move `metadata` over";
        check(pane("v1", json!({"side": "0"})), "v2", lost);
        let door = json!({"apiVersion": "example.com/v1", "kind": "Door", "metadata": {"name": "d"}});
        check(door, "v2", "d: no conversion of example.com/v1, Kind=Door is served here");
        let panic =
            "n/p: panic: assertion `left != right` failed: on purpose\n  left: \"boom\"\n right: \"boom\" [recovered]";
        assert!(check(pane("v1", json!({"side": "boom"})), "v2", panic));
    }

    #[test]
    fn invalid_reviews_are_reported_clearly() {
        let check = |body: &str, says: &str| {
            let error = answer(body.as_bytes(), &hubs()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        check("", "not a ConversionReview: EOF");
        check("{}", "not a ConversionReview: missing field");
        check(r#"{"kind":"Pod","apiVersion":"v1"}"#, r#"got kind "Pod" of "v1""#);
        let version = r#""kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1""#;
        check(&format!("{{{version}}}"), "has no request");
        check(&format!("{{{version},\"request\":{{\"uid\":\"7\"}}}}"), "missing field");
    }
}
