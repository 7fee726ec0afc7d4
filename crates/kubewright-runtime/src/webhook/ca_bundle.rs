//! The `caBundle` of objects that refer to our webhooks, by which the API server verifies our certificate.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Returns the JSON patch that writes these authorities (PEM) into every client configuration of the object that refers
/// to the service; `None` if they are there already. The object is a webhook configuration, or a
/// CustomResourceDefinition with a conversion webhook.
///
/// The patch applies only to the version that was read.
pub(super) fn patch(object: &Value, namespace: &str, service: &str, authorities: &str) -> Option<Value> {
    let bundle = Value::from(STANDARD.encode(authorities));
    let mut operations = Vec::new();
    for (path, client) in clients(object) {
        let is_ours = client["service"]["namespace"] == namespace && client["service"]["name"] == service;
        if is_ours && client["caBundle"] != bundle {
            operations.push(json!({"op": "add", "path": format!("{path}/caBundle"), "value": bundle}));
        }
    }
    if operations.is_empty() {
        return None;
    }
    let version = &object["metadata"]["resourceVersion"];
    operations.insert(0, json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    Some(operations.into())
}

/// Returns whether a client configuration of the object refers to the service.
pub(super) fn refers_to(object: &Value, namespace: &str, service: &str) -> bool {
    clients(object)
        .iter()
        .any(|(_, client)| client["service"]["namespace"] == namespace && client["service"]["name"] == service)
}

/// Returns the authorities (PEM) of the client configurations of the object for which `is_ours` holds.
pub(super) fn authorities(object: &Value, is_ours: impl Fn(&Value) -> bool) -> String {
    let mut bundles: Vec<&str> = clients(object)
        .into_iter()
        .filter_map(|(_, client)| client["caBundle"].as_str().filter(|_| is_ours(client)))
        .collect();
    bundles.sort_unstable();
    bundles.dedup();
    let decoded = bundles.into_iter().filter_map(|bundle| STANDARD.decode(bundle).ok());
    decoded.map(|bundle| String::from_utf8_lossy(&bundle).into_owned() + "\n").collect()
}

/// Returns the client configurations of an object, each with its path.
fn clients(object: &Value) -> Vec<(String, &Value)> {
    let webhooks = object["webhooks"].as_array().into_iter().flatten().enumerate();
    let webhooks = webhooks.map(|(at, webhook)| (format!("/webhooks/{at}/clientConfig"), &webhook["clientConfig"]));
    let conversion = &object["spec"]["conversion"]["webhook"]["clientConfig"];
    webhooks.chain([("/spec/conversion/webhook/clientConfig".to_owned(), conversion)]).collect()
}

/// Returns whether `found` contains all of `wanted`. It may contain more, such as the API server's defaults.
pub(super) fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, value)| found.get(name).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        _ => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::patch::json as json_patch;

    use super::*;

    fn client(namespace: &str, name: &str) -> Value {
        json!({"service": {"namespace": namespace, "name": name, "path": "/x"}})
    }

    #[test]
    fn only_references_to_the_service_are_patched_and_only_once() {
        let object = json!({"metadata": {"resourceVersion": "7"}, "webhooks": [
            {"name": "a", "clientConfig": client("ns", "other")},
            {"name": "b", "clientConfig": client("ns", "ours")},
            {"name": "c", "clientConfig": {"url": "https://x"}},
            {"name": "d", "clientConfig": client("other", "ours")},
        ]});
        let operations = patch(&object, "ns", "ours", "PEM").unwrap();
        let changed = json_patch::apply(&object, &operations).unwrap();
        let bundles: Vec<_> = (0..4).map(|at| &changed["webhooks"][at]["clientConfig"]["caBundle"]).collect();
        assert_eq!(bundles, [&Value::Null, &json!("UEVN"), &Value::Null, &Value::Null]);
        assert_eq!(patch(&changed, "ns", "ours", "PEM"), None);
        assert_eq!(authorities(&changed, |client| client["service"]["name"] == "ours"), "PEM\n");
        assert_eq!(authorities(&changed, |client| client["service"]["name"] == "other"), "");
        assert!(patch(&changed, "ns", "ours", "PEM2").is_some());
        // Someone else wrote in between.
        let mut newer = object.clone();
        newer["metadata"]["resourceVersion"] = "8".into();
        assert!(json_patch::apply(&newer, &operations).is_err());
    }

    #[test]
    fn a_conversion_webhook_is_patched_too() {
        let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": client("ns", "ours")}});
        let object = json!({"metadata": {"resourceVersion": "7"}, "spec": {"conversion": conversion}});
        let changed = json_patch::apply(&object, &patch(&object, "ns", "ours", "PEM").unwrap()).unwrap();
        assert_eq!(changed["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], "UEVN");
        let without = json!({"metadata": {}, "spec": {"conversion": {"strategy": "None"}}});
        assert_eq!(patch(&without, "ns", "ours", "PEM"), None);
    }

    #[test]
    fn defaults_of_the_api_server_are_not_a_difference() {
        let found = json!({"a": {"b": 1, "defaulted": 2}, "c": [{"d": 1, "e": 2}]});
        assert!(contains(&found, &json!({"a": {"b": 1}, "c": [{"d": 1}]})));
        for other in [json!({"a": {"b": 2}}), json!({"x": 1}), json!({"c": []}), json!({"a": 1})] {
            assert!(!contains(&found, &other), "{other}");
        }
    }
}
