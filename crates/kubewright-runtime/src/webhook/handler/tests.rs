//! Defaulters and validators of a typed kind, called with reviews as values.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright_apimachinery::{clock::SystemClock, patch::json};
use serde_json::json;

use super::*;

/// A defaulter that sets `data.<key>` if it is missing.
struct DefaultValue(&'static str);

impl Defaulter<ConfigMap> for DefaultValue {
    async fn set_defaults(&self, config: &mut ConfigMap, request: &Request) -> Result<(), Denied> {
        if request.user.username.as_deref() == Some("mallory") {
            return Err(Denied::forbidden("not for mallory"));
        }
        if let Some(ConfigMap { data: Some(old), .. }) = request.old_object() {
            // Existing values are kept.
            config.data.get_or_insert_default().extend(old);
        }
        let value = config.data.get_or_insert_default().len().to_string();
        config.data.get_or_insert_default().entry(self.0.into()).or_insert(value);
        Ok(())
    }
}

/// A validator that rejects `data.<key>`, and any change of `data.fixed`.
struct ForbiddenKey(&'static str);

impl Validator<ConfigMap> for ForbiddenKey {
    async fn validate_create(&self, config: &ConfigMap, _: &Request) -> Result<ValidationErrors, Denied> {
        let mut errors = ValidationErrors::default();
        errors.warn(format!("{} is forbidden", self.0));
        if config.data.as_ref().is_some_and(|data| data.contains_key(self.0)) {
            errors.forbidden(format!("data.{}", self.0), "it is");
        }
        Ok(errors)
    }

    async fn validate_update(
        &self,
        old: &ConfigMap,
        new: &ConfigMap,
        request: &Request,
    ) -> Result<ValidationErrors, Denied> {
        let fixed = |config: &ConfigMap| config.data.as_ref().and_then(|data| data.get("fixed").cloned());
        let mut errors = self.validate_create(new, request).await?;
        if fixed(old) != fixed(new) {
            errors.invalid("data.fixed", fixed(new), "field is immutable");
        }
        Ok(errors)
    }

    async fn validate_delete(&self, config: &ConfigMap, _: &Request) -> Result<ValidationErrors, Denied> {
        let kept = config.data.as_ref().is_some_and(|data| data.contains_key("kept"));
        if kept { Err(Denied::forbidden("it is kept")) } else { Ok(ValidationErrors::default()) }
    }
}

fn review(operation: &str, object: &Value, old: &Value) -> Review {
    review_by("ann", operation, object, old)
}

fn review_by(user: &str, operation: &str, object: &Value, old: &Value) -> Review {
    let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "operation": operation, "name": "c",
        "userInfo": {"username": user}, "object": object, "oldObject": old,
    }});
    Review::read(body.to_string().as_bytes(), &SystemClock::shared()).unwrap()
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "odd": 1}, "data": data, "unknown": [1]})
}

fn defaulting() -> Defaulting<ConfigMap> {
    Defaulting(vec![Arc::new(DefaultValue("a")), Arc::new(DefaultValue("b"))])
}

fn validating() -> Validating<ConfigMap> {
    Validating(vec![Arc::new(ForbiddenKey("x")), Arc::new(ForbiddenKey("y"))])
}

fn message(response: &AdmissionResponse) -> (u16, &str) {
    response.refusal.as_ref().map_or((200, ""), |status| (status.code, status.message.as_str()))
}

#[tokio::test]
async fn defaults_are_a_patch_that_keeps_unknown_fields() {
    for operation in ["CREATE", "UPDATE"] {
        let object = config(json!({"b": "own"}));
        let response = defaulting().handle(&review(operation, &object, &Value::Null)).await;
        assert_eq!(response.refusal, None);
        let defaulted = json::apply(&object, &response.patch.unwrap()).unwrap();
        assert_eq!(defaulted, config(json!({"a": "1", "b": "own"})));
    }
}

#[tokio::test]
async fn a_defaulter_sees_the_old_object() {
    let (old, new) = (config(json!({"kept": "1", "a": ""})), config(json!({"a": "2", "b": "3"})));
    let response = defaulting().handle(&review("UPDATE", &new, &old)).await;
    let defaulted = json::apply(&new, &response.patch.unwrap()).unwrap();
    assert_eq!(defaulted, config(json!({"kept": "1", "a": "", "b": "3"})));
}

#[tokio::test]
async fn a_defaulted_object_is_not_patched_again() {
    let object = config(json!({"a": "0", "b": "1"}));
    assert_eq!(defaulting().handle(&review("CREATE", &object, &Value::Null)).await, AdmissionResponse::allowed());
}

#[tokio::test]
async fn deletions_and_undecodable_objects_get_no_defaults() {
    let object = config(json!({}));
    assert_eq!(defaulting().handle(&review("DELETE", &Value::Null, &object)).await, AdmissionResponse::allowed());
    let response = defaulting().handle(&review("CREATE", &config(json!({"a": 1})), &Value::Null)).await;
    assert_eq!((response.refusal, response.patch), (None, None));
    assert!(response.warnings[0].starts_with("no defaults: the object can't be read: "), "{:?}", response.warnings);
}

#[tokio::test]
async fn a_defaulter_can_deny_and_sees_the_user() {
    let response = defaulting().handle(&review_by("mallory", "CREATE", &config(json!({})), &Value::Null)).await;
    assert_eq!(message(&response), (403, "not for mallory"));
}

#[tokio::test]
async fn the_errors_of_all_validators_are_reported_at_once() {
    let (old, new) = (config(json!({"fixed": "1"})), config(json!({"x": "", "y": "", "fixed": "2"})));
    let response = validating().handle(&review("UPDATE", &new, &old)).await;
    let expected = "ConfigMap \"c\" is invalid: [data.x: Forbidden: it is, \
        data.fixed: Invalid value: \"2\": field is immutable, data.y: Forbidden: it is]";
    assert_eq!(message(&response), (422, expected));
    assert_eq!(response.warnings, ["x is forbidden", "y is forbidden"]);
    let response = validating().handle(&review("CREATE", &config(json!({"fixed": "2"})), &Value::Null)).await;
    assert_eq!((message(&response).0, response.warnings.len()), (200, 2));
}

#[tokio::test]
async fn deletions_are_validated_with_the_old_object() {
    let response = validating().handle(&review("DELETE", &Value::Null, &config(json!({"kept": ""})))).await;
    assert_eq!(message(&response), (403, "it is kept"));
    let response = validating().handle(&review("DELETE", &Value::Null, &config(json!({"x": ""})))).await;
    assert_eq!(response, AdmissionResponse::allowed());
    let response = validating().handle(&review("CONNECT", &Value::Null, &Value::Null)).await;
    assert_eq!(response, AdmissionResponse::allowed());
}

/// A stored object may not match the type. Correcting and deleting it must remain possible.
#[tokio::test]
async fn an_undecodable_old_object_can_be_updated_and_deleted() {
    let broken = config(json!({"a": 1}));
    let response = validating().handle(&review("UPDATE", &config(json!({})), &broken)).await;
    assert_eq!(message(&response).0, 200);
    let response = validating().handle(&review("DELETE", &Value::Null, &broken)).await;
    assert_eq!(message(&response).0, 200);
    let response = validating().handle(&review("UPDATE", &broken, &broken)).await;
    assert_eq!(message(&response).0, 400);
}

#[tokio::test]
async fn another_kind_is_refused() {
    let mut review = review("CREATE", &config(json!({})), &Value::Null);
    review.request.kind.kind = "Scale".into();
    for response in [validating().handle(&review).await, defaulting().handle(&review).await] {
        assert_eq!(message(&response), (400, "expected an object of /v1, Kind=ConfigMap, got /v1, Kind=Scale"));
    }
}
