//! Conversion by a webhook
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-conversion>).
//!
//! A webhook may change everything but the identity of an object. Of the returned metadata, only labels and annotations
//! are used.

use std::time::Duration;

use kubewright_apimachinery::{decode, name, status::Cause};
use serde_json::{Map, Value, json};

use crate::webhook_client::{Endpoint, WebhookClient};

const GROUP: &str = "apiextensions.k8s.io";
/// The supported versions of conversion reviews, preferred first.
pub(crate) const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// The time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of objects in a review, and their approximate maximum size in bytes. The response has to fit,
/// too.
const BATCH: (usize, usize) = (500, 2 << 20);

/// A webhook that converts the objects of one CRD.
#[derive(Debug)]
pub(crate) struct Webhook {
    /// The `apiVersion` of the reviews.
    review: String,
    endpoint: Endpoint,
}

impl Webhook {
    /// Creates the webhook of a valid `conversion.webhook`.
    pub(crate) fn new(webhook: &Value) -> Self {
        let versions = webhook["conversionReviewVersions"].as_array();
        let known = versions.into_iter().flatten().find(|version| REVIEW_VERSIONS.iter().any(|known| version == known));
        let version = known.and_then(Value::as_str).unwrap_or(REVIEW_VERSIONS[0]);
        Self {
            review: format!("{GROUP}/{version}"),
            endpoint: Endpoint::new(&webhook["clientConfig"], Some(TIMEOUT.as_secs())),
        }
    }

    /// Converts objects of one kind, preserving their order. None of them may have the version `to` already.
    ///
    /// # Errors
    /// Returns an error in Kubernetes' wording if the webhook can't be called, reports a failure or returns invalid
    /// objects.
    pub(super) async fn convert(
        &self,
        client: &WebhookClient,
        kind: &str,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, String> {
        let from = objects.first().and_then(|object| object["apiVersion"].as_str()).unwrap_or_default();
        let place = format!("conversion webhook for {from}, Kind={kind}");
        let mut converted = Vec::with_capacity(objects.len());
        let mut rest = objects.as_slice();
        while !rest.is_empty() {
            let batch = texts(rest);
            let returned = self.call(client, &batch, to).await.map_err(|why| format!("{place} failed: {why}"))?;
            if returned.len() != batch.len() {
                return Err(format!("{place} returned {} objects, expected {}", returned.len(), batch.len()));
            }
            let (sent, others) = rest.split_at(batch.len());
            for (index, (before, mut after)) in sent.iter().zip(returned).enumerate() {
                check(before, &after, kind, to)
                    .and_then(|()| restore_metadata(before, &mut after))
                    .map_err(|why| format!("{place} returned invalid converted object at index {index}: {why}"))?;
                converted.push(after);
            }
            rest = others;
        }
        Ok(converted)
    }

    async fn call(&self, client: &WebhookClient, objects: &[String], to: &str) -> Result<Vec<Value>, String> {
        let (uid, review) = (client.random.uuid(), &self.review);
        let body = format!(
            r#"{{"kind":"ConversionReview","apiVersion":"{review}","request":{{"uid":"{uid}","desiredAPIVersion":{},"objects":[{}]}}}}"#,
            json!(to),
            objects.join(",")
        );
        let response = self.endpoint.post(client, body.into(), TIMEOUT).await?;
        read(&response, review, &uid)
    }
}

/// Returns the texts of the first objects, as many as fit into one review.
fn texts(objects: &[Value]) -> Vec<String> {
    let (most, bytes) = BATCH;
    let (mut texts, mut size) = (Vec::new(), 0);
    for object in objects.iter().take(most) {
        let text = object.to_string();
        size += text.len();
        texts.push(text);
        if size > bytes {
            break;
        }
    }
    texts
}

/// Parses the objects of the response to the review with this UID.
fn read(body: &[u8], version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let mut review = decode::json(body).map_err(|error| error.to_string())?.value;
    decode::untyped_numbers(&mut review);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let strict = version.ends_with("/v1");
    let (kind, got) = (text(&review["kind"]), text(&review["apiVersion"]));
    if strict && (kind.as_str(), got.as_str()) != ("ConversionReview", version) {
        return Err(format!("expected webhook response of {version}, Kind=ConversionReview, got {got}, Kind={kind}"));
    }
    let response = &mut review["response"];
    if !response.is_object() {
        return Err("no response provided".into());
    }
    let echoed = text(&response["uid"]);
    if strict && echoed != uid {
        return Err(format!("expected response.uid={uid:?}, got {echoed:?}"));
    }
    let (status, message) = (text(&response["result"]["status"]), text(&response["result"]["message"]));
    match (status.as_str(), message.as_str()) {
        ("Success", _) => {}
        (_, "") => return Err(format!("response.result.status was '{status}', not 'Success'")),
        _ => return Err(message),
    }
    match response["convertedObjects"].take() {
        Value::Null => Ok(Vec::new()),
        Value::Array(objects) => Ok(objects),
        _ => Err("response.convertedObjects is not a list".into()),
    }
}

/// Checks that a converted object is the one that was sent, in the version `to`.
fn check(before: &Value, after: &Value, kind: &str, to: &str) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, got) = (text(&after["apiVersion"]), text(&after["kind"]));
    if version != to {
        return Err(format!("invalid groupVersion (expected {to}, received {version})"));
    }
    if got != kind {
        return Err(format!("invalid kind (expected {kind}, received {got})"));
    }
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let [before, after] = [before, after].map(|object| text(&object["metadata"][field]));
        if before != after {
            return Err(format!("must have the same {word}: {before} != {after}"));
        }
    }
    Ok(())
}

/// Restores the metadata of a converted object, except for labels and annotations.
fn restore_metadata(before: &Value, after: &mut Value) -> Result<(), String> {
    let returned = match after.get_mut("metadata").map(Value::take) {
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err("metadata is no object in converted object".into()),
        None => return Err("missing metadata in converted object".into()),
    };
    let mut metadata = before["metadata"].as_object().cloned().unwrap_or_default();
    type Rule = fn(&str, &Value) -> Vec<Cause>;
    let rules: [(&str, Rule); 2] = [("labels", name::labels), ("annotations", name::annotations)];
    for (field, rule) in rules {
        let Some(texts) = returned.get(field).filter(|value| !value.is_null()) else {
            metadata.remove(field);
            continue;
        };
        let strings = |fields: &Map<String, Value>| fields.values().all(Value::is_string);
        if !texts.as_object().is_some_and(strings) {
            return Err(format!("metadata.{field} must be a map of strings in converted object"));
        }
        if metadata.get(field) != Some(texts) {
            let wrong: Vec<_> = rule(&format!("metadata.{field}"), texts).iter().map(ToString::to_string).collect();
            if !wrong.is_empty() {
                return Err(wrong.join(", "));
            }
        }
        metadata.insert(field.into(), texts.clone());
    }
    after["metadata"] = Value::Object(metadata);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "apiextensions.k8s.io/v1";

    #[test]
    fn invalid_responses_are_refused() {
        let failed = |version: &str, response: Value, expect: &str| {
            let why = read(response.to_string().as_bytes(), version, "u").unwrap_err();
            assert!(why.contains(expect), "{why}");
        };
        let review = |response: Value| json!({"kind": "ConversionReview", "apiVersion": V1, "response": response});
        failed(
            V1,
            json!([]),
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind=",
        );
        failed(V1, json!({"kind": "ConversionReview", "apiVersion": V1}), "no response provided");
        failed(V1, review(json!({"uid": "x"})), r#"expected response.uid="u", got "x""#);
        failed(V1, review(json!({"uid": "u"})), "response.result.status was '', not 'Success'");
        failed(V1, review(json!({"uid": "u", "result": {"status": "Failed", "message": "no"}})), "no");
        let success = json!({"status": "Success"});
        failed(V1, review(json!({"uid": "u", "result": success, "convertedObjects": 1})), "is not a list");
        assert!(read(b"<html>", V1, "u").is_err());
        // Responses of v1beta1 may lack kind and UID.
        let old = json!({"response": {"result": success, "convertedObjects": [{}]}});
        assert_eq!(read(old.to_string().as_bytes(), "apiextensions.k8s.io/v1beta1", "u").unwrap(), [json!({})]);
    }

    #[test]
    fn only_labels_and_annotations_of_the_metadata_may_change() {
        let before = json!({"metadata": {"name": "a", "uid": "1", "generation": 3, "labels": {"a": "b"}}});
        let mut after = json!({"metadata": {"name": "a", "generation": 9, "annotations": {"x/y": "z"}}, "spec": {}});
        restore_metadata(&before, &mut after).unwrap();
        let metadata = json!({"name": "a", "uid": "1", "generation": 3, "annotations": {"x/y": "z"}});
        assert_eq!(after, json!({"metadata": metadata, "spec": {}}));
        for (metadata, expect) in [
            (json!({"labels": {"a": 1}}), "metadata.labels must be a map of strings"),
            (json!({"labels": {"-": "x"}}), "metadata.labels"),
            (json!({"annotations": []}), "metadata.annotations must be a map of strings"),
            (json!(1), "metadata is no object"),
        ] {
            let why = restore_metadata(&before, &mut json!({"metadata": metadata})).unwrap_err();
            assert!(why.contains(expect), "{why}");
        }
        assert_eq!(restore_metadata(&before, &mut json!({})).unwrap_err(), "missing metadata in converted object");
    }

    #[test]
    fn the_identity_of_an_object_may_not_change() {
        let before = json!({"metadata": {"name": "a", "namespace": "n", "uid": "1"}});
        let sound = json!({"apiVersion": "g/v2", "kind": "K", "metadata": before["metadata"]});
        assert_eq!(check(&before, &sound, "K", "g/v2"), Ok(()));
        for (pointer, expect) in [
            ("/apiVersion", "invalid groupVersion (expected g/v2, received x)"),
            ("/kind", "invalid kind (expected K, received x)"),
            ("/metadata/name", "must have the same name: a != x"),
            ("/metadata/namespace", "must have the same namespace: n != x"),
            ("/metadata/uid", "must have the same UID: 1 != x"),
        ] {
            let mut wrong = sound.clone();
            *wrong.pointer_mut(pointer).unwrap() = "x".into();
            assert_eq!(check(&before, &wrong, "K", "g/v2"), Err(expect.to_owned()));
        }
    }
}
