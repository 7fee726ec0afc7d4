//! The parts of a ClusterServiceVersion that follow from rendered objects.

use serde_json::{Value, json};

use super::{items, text};
use crate::installer::manager;

/// The directory of the certificates that OLM mounts.
const CERTIFICATES: &str = "/tmp/k8s-webhook-server/serving-certs";

fn is(object: &Value, kind: &str) -> bool {
    object["kind"] == kind
}

/// Returns the Deployments for the strategy. OLM manages the certificates of webhooks.
pub(super) fn deployments(objects: &[Value], has_webhooks: bool) -> Vec<Value> {
    let install = |object: &Value| {
        let mut object = object.clone();
        if has_webhooks {
            certificates(&mut object);
        }
        let mut deployment = json!({"name": object["metadata"]["name"], "spec": object["spec"]});
        if let Some(labels) = object.pointer("/metadata/labels") {
            deployment["label"] = labels.clone();
        }
        deployment
    };
    objects.iter().filter(|object| is(object, "Deployment")).map(install).collect()
}

/// Lets the operator serve its webhooks with the certificate of OLM, which is mounted without a volume of the
/// Deployment.
fn certificates(deployment: &mut Value) {
    let Some(container) = manager(deployment) else { return };
    let argument = format!("--webhook-cert-path={CERTIFICATES}");
    if let Some(arguments) = container.get_mut("args").and_then(Value::as_array_mut) {
        arguments.retain(|there| !there.as_str().is_some_and(|there| there.starts_with("--webhook-cert-path")));
        arguments.push(argument.into());
    } else {
        container["args"] = json!([argument]);
    }
    let is_own = |item: &Value| item["name"] == "webhook-certs";
    if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
        mounts.retain(|mount| !is_own(mount));
    }
    if let Some(volumes) = deployment.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| !is_own(volume));
    }
}

/// Returns the service accounts of the Deployments.
pub(super) fn accounts(objects: &[Value]) -> Vec<String> {
    let account = |object: &Value| text(object, "/spec/template/spec/serviceAccountName").to_owned();
    let mut accounts: Vec<_> = objects.iter().filter(|object| is(object, "Deployment")).map(account).collect();
    accounts.retain(|account| !account.is_empty());
    accounts.sort();
    accounts.dedup();
    accounts
}

/// Returns whether a binding is for one of the accounts.
fn binds(binding: &Value, account: &str) -> bool {
    let is_it = |subject: &Value| subject["kind"] == "ServiceAccount" && subject["name"] == account;
    items(binding, "/subjects").iter().any(is_it)
}

/// Returns whether OLM makes an object from the ClusterServiceVersion.
pub(super) fn is_included(object: &Value, objects: &[Value], accounts: &[String]) -> bool {
    let of_an_account = |binding: &Value| accounts.iter().any(|account| binds(binding, account));
    match object["kind"].as_str().unwrap_or_default() {
        "Namespace" | "Deployment" | "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => true,
        // OLM issues the certificates of webhooks.
        "Certificate" | "Issuer" => true,
        "ServiceAccount" => accounts.iter().any(|account| object["metadata"]["name"] == account.as_str()),
        "RoleBinding" | "ClusterRoleBinding" => of_an_account(object),
        kind @ ("Role" | "ClusterRole") => {
            let refers = |binding: &&Value| {
                binding["roleRef"]["kind"] == kind
                    && binding["roleRef"]["name"] == object["metadata"]["name"]
                    && of_an_account(binding)
            };
            objects
                .iter()
                .filter(|other| is(other, "RoleBinding") || is(other, "ClusterRoleBinding"))
                .any(|other| refers(&other))
        }
        "Service" => is_webhook_service(object, objects),
        _ => false,
    }
}

/// Returns whether a Service is that of webhooks, which OLM makes itself.
fn is_webhook_service(service: &Value, objects: &[Value]) -> bool {
    let name = &service["metadata"]["name"];
    objects.iter().any(|object| {
        let webhooks = items(object, "/webhooks").iter().map(|webhook| &webhook["clientConfig"]["service"]["name"]);
        let conversion = object.pointer("/spec/conversion/webhook/clientConfig/service/name");
        webhooks.chain(conversion).any(|other| other == name)
    })
}

/// Returns the permissions of the accounts, by bindings of a kind.
pub(super) fn permissions(objects: &[Value], accounts: &[String], binding: &str) -> Vec<Value> {
    let rules = |account: &str| -> Vec<Value> {
        let bindings = objects.iter().filter(|object| is(object, binding) && binds(object, account));
        let roles = bindings.filter_map(|binding| {
            let is_it = |object: &&Value| {
                object["kind"] == binding["roleRef"]["kind"] && object["metadata"]["name"] == binding["roleRef"]["name"]
            };
            objects.iter().find(is_it)
        });
        roles.flat_map(|role| items(role, "/rules").to_vec()).collect()
    };
    let all = accounts.iter().map(|account| (account, rules(account))).filter(|(_, rules)| !rules.is_empty());
    all.map(|(account, rules)| json!({"serviceAccountName": account, "rules": rules})).collect()
}

/// Returns the webhooks, in the form of a ClusterServiceVersion.
pub(super) fn webhooks(objects: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for object in objects {
        let kind = match object["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => "MutatingAdmissionWebhook",
            Some("ValidatingWebhookConfiguration") => "ValidatingAdmissionWebhook",
            Some("CustomResourceDefinition") => {
                all.extend(conversion(object, objects));
                continue;
            }
            _ => continue,
        };
        for webhook in items(object, "/webhooks") {
            let service = &webhook["clientConfig"]["service"];
            let mut definition = json!({"type": kind, "generateName": webhook["name"], "webhookPath": service["path"]});
            for field in [
                "admissionReviewVersions",
                "failurePolicy",
                "matchPolicy",
                "objectSelector",
                "reinvocationPolicy",
                "rules",
                "sideEffects",
                "timeoutSeconds",
            ] {
                if let Some(value) = webhook.get(field) {
                    definition[field] = value.clone();
                }
            }
            address(&mut definition, service, objects);
            all.push(definition);
        }
    }
    all
}

/// Returns the conversion webhook of a definition.
fn conversion(definition: &Value, objects: &[Value]) -> Option<Value> {
    let webhook = definition.pointer("/spec/conversion/webhook")?;
    let service = &webhook["clientConfig"]["service"];
    let mut conversion = json!({
        "type": "ConversionWebhook",
        "generateName": format!("c{}.kb.io", text(definition, "/spec/names/plural")),
        "admissionReviewVersions": webhook["conversionReviewVersions"],
        "sideEffects": "None",
        "conversionCRDs": [definition["metadata"]["name"]],
        "webhookPath": service["path"],
    });
    address(&mut conversion, service, objects);
    Some(conversion)
}

/// Adds the Deployment behind a Service, and the ports.
fn address(webhook: &mut Value, reference: &Value, objects: &[Value]) {
    let service =
        objects.iter().find(|object| is(object, "Service") && object["metadata"]["name"] == reference["name"]);
    webhook["containerPort"] = reference["port"].as_u64().unwrap_or(443).into();
    if let Some(port) = service.and_then(|service| service.pointer("/spec/ports/0/targetPort")) {
        webhook["targetPort"] = port.clone();
    }
    let selector = service.and_then(|service| service.pointer("/spec/selector")).and_then(Value::as_object);
    let is_selected = |object: &&Value| {
        let labels = object.pointer("/spec/template/metadata/labels");
        is(object, "Deployment")
            && selector.is_some_and(|selector| {
                selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
            })
    };
    let deployment =
        objects.iter().find(is_selected).or_else(|| objects.iter().find(|object| is(object, "Deployment")));
    if let Some(deployment) = deployment {
        webhook["deploymentName"] = deployment["metadata"]["name"].clone();
    }
}
