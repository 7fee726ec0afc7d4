//! Configurations of admission webhooks
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-configuration>).

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Uri;
use kubewright_apimachinery::{cel::MatchConditions, name, selector::LabelSelector, status::Cause};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use super::{
    check::{one_of, positive_port},
    columns::{age, count, integer},
};
use crate::{
    admission::{Phase, Webhook, Webhooks},
    fields::{each, fill, has, list, text},
    registry::{Column, Strategy},
};

/// The only supported version of admission reviews.
const REVIEWS: &str = "v1";
/// The maximum number of match conditions of a webhook.
const MAX_CONDITIONS: usize = 64;

/// The strategy of webhook configurations. It maintains the list of webhooks.
#[derive(Debug)]
pub(super) struct WebhookStrategy {
    pub(super) phase: Phase,
    pub(super) webhooks: Arc<Webhooks>,
}

impl Strategy for WebhookStrategy {
    fn default(&self, object: &mut Value) {
        for webhook in each(object, "webhooks") {
            fill(webhook, "failurePolicy", "Fail");
            fill(webhook, "matchPolicy", "Equivalent");
            fill(webhook, "namespaceSelector", json!({}));
            fill(webhook, "objectSelector", json!({}));
            fill(webhook, "timeoutSeconds", 10);
            if self.phase == Phase::Mutating {
                fill(webhook, "reinvocationPolicy", "Never");
            }
            for rule in each(webhook, "rules") {
                fill(rule, "scope", "*");
            }
            if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
                fill(service, "port", 443);
            }
        }
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let mut names = Vec::new();
        for (index, webhook) in list(new, "/webhooks").iter().enumerate() {
            let path = format!("webhooks[{index}]");
            let name = text(webhook, "/name");
            if names.contains(&name) {
                causes.push(Cause::duplicate(format!("{path}.name"), &name.into()));
            }
            names.push(name);
            check(webhook, &path, &mut causes);
        }
        causes
    }

    fn is_admitted(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        let Some(configuration) = after.or(before) else { return };
        if before.map(|before| &before["webhooks"]) == after.map(|after| &after["webhooks"]) {
            return;
        }
        let webhooks = after.map(|after| list(after, "/webhooks")).unwrap_or_default();
        let webhooks = webhooks.iter().map(Webhook::new).collect();
        self.webhooks.replace(self.phase, text(configuration, "/metadata/name"), webhooks);
    }
}

fn check(webhook: &Value, path: &str, causes: &mut Vec<Cause>) {
    let name = text(webhook, "/name");
    let wrong = name::dns1123_subdomain(name);
    causes.extend(wrong.iter().map(|why| Cause::invalid(format!("{path}.name"), &name.into(), why)));
    if wrong.is_empty() && name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        causes.push(Cause::invalid(format!("{path}.name"), &name.into(), why));
    }
    let versions = list(webhook, "/admissionReviewVersions");
    if versions.is_empty() {
        let why = format!("must specify one of {REVIEWS}");
        causes.push(Cause::required(format!("{path}.admissionReviewVersions"), &why));
    } else if !versions.iter().any(|version| version == REVIEWS) {
        let why = format!("must include at least one of {REVIEWS}");
        causes.push(Cause::invalid(format!("{path}.admissionReviewVersions"), &versions.into(), &why));
    }
    if has(webhook, "/sideEffects") {
        one_of(webhook, path, "sideEffects", &["None", "NoneOnDryRun"], causes);
    } else {
        let why = "must specify one of None, NoneOnDryRun";
        causes.push(Cause::required(format!("{path}.sideEffects"), why));
    }
    one_of(webhook, path, "failurePolicy", &["Fail", "Ignore"], causes);
    one_of(webhook, path, "matchPolicy", &["Equivalent", "Exact"], causes);
    one_of(webhook, path, "reinvocationPolicy", &["IfNeeded", "Never"], causes);
    let timeout = &webhook["timeoutSeconds"];
    if timeout.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(format!("{path}.timeoutSeconds"), timeout, why));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if let Err(why) = LabelSelector::from_object(&webhook[field]) {
            causes.push(Cause::invalid(format!("{path}.{field}"), &webhook[field], &why.to_string()));
        }
    }
    for (index, rule) in list(webhook, "/rules").iter().enumerate() {
        check_rule(rule, &format!("{path}.rules[{index}]"), causes);
    }
    check_conditions(list(webhook, "/matchConditions"), &format!("{path}.matchConditions"), causes);
    check_client(&webhook["clientConfig"], &format!("{path}.clientConfig"), causes);
}

fn check_rule(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in ["operations", "apiGroups", "apiVersions", "resources"] {
        let items = list(rule, &format!("/{field}"));
        if items.is_empty() {
            causes.push(Cause::required(format!("{path}.{field}"), ""));
        }
        if field != "resources" && items.len() > 1 && items.iter().any(|item| item == "*") {
            let why = "if '*' is present, must not specify other values";
            causes.push(Cause::invalid(format!("{path}.{field}"), &items.into(), why));
        }
        for (index, item) in items.iter().enumerate() {
            let item_path = format!("{path}.{field}[{index}]");
            let supported = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
            if field == "operations" && !supported.iter().any(|known| item == known) {
                causes.push(Cause::not_supported(item_path, item, &supported));
            } else if matches!(field, "apiVersions" | "resources") && item == "" {
                causes.push(Cause::required(item_path, ""));
            }
        }
    }
    one_of(rule, path, "scope", &["*", "Cluster", "Namespaced"], causes);
}

fn check_conditions(conditions: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if conditions.len() > MAX_CONDITIONS {
        let why = format!("Too many: {}: must have at most {MAX_CONDITIONS} items", conditions.len());
        causes.push(Cause::new("FieldValueTooMany", path, why));
        return;
    }
    for (index, condition) in conditions.iter().enumerate() {
        let (name, expression) = (text(condition, "/name"), text(condition, "/expression"));
        let field = |field: &str| format!("{path}[{index}].{field}");
        if name.is_empty() {
            causes.push(Cause::required(field("name"), ""));
        } else if conditions[..index].iter().any(|other| text(other, "/name") == name) {
            causes.push(Cause::duplicate(field("name"), &name.into()));
        }
        if expression.trim().is_empty() {
            causes.push(Cause::required(field("expression"), ""));
        } else if let Err(why) = MatchConditions::check(expression) {
            causes.push(Cause::invalid(field("expression"), &expression.into(), &why));
        }
    }
}

/// Checks the client configuration of an admission or conversion webhook.
pub(super) fn check_client(config: &Value, path: &str, causes: &mut Vec<Cause>) {
    match (has(config, "/url"), has(config, "/service")) {
        (true, false) => check_url(text(config, "/url"), &format!("{path}.url"), causes),
        (false, true) => check_service(&config["service"], &format!("{path}.service"), causes),
        _ => causes.push(Cause::required(path, "exactly one of url or service is required")),
    }
    let bundle = text(config, "/caBundle");
    let readable = || {
        let bytes = STANDARD.decode(bundle).ok()?;
        CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>().ok().filter(|all| !all.is_empty())
    };
    if !bundle.is_empty() && readable().is_none() {
        let why = "unable to load root certificates: unable to parse bytes as PEM block";
        causes.push(Cause::invalid(format!("{path}.caBundle"), &json!("<bytes>"), why));
    }
}

fn check_url(url: &str, path: &str, causes: &mut Vec<Cause>) {
    let form = "; desired format: https://host[/path]";
    let parsed: Option<Uri> = url.parse().ok();
    let why = match &parsed {
        None => "url must be a valid URL",
        Some(parsed) if parsed.scheme_str() != Some("https") => "'https' is the only allowed URL scheme",
        Some(parsed) if parsed.host().is_none_or(str::is_empty) => "host must be specified",
        Some(parsed) if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
            "user information is not permitted in the URL"
        }
        Some(_) if url.contains('#') => "fragments are not permitted in the URL",
        Some(parsed) if parsed.query().is_some() => "query parameters are not permitted in the URL",
        Some(_) => return,
    };
    causes.push(Cause::invalid(path, &url.into(), &format!("{why}{form}")));
}

fn check_service(service: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in ["name", "namespace"] {
        let value = text(service, &format!("/{field}"));
        if value.is_empty() {
            causes.push(Cause::required(format!("{path}.{field}"), &format!("service {field} is required")));
            continue;
        }
        let wrong = name::dns1123_label(value);
        causes.extend(wrong.iter().map(|why| Cause::invalid(format!("{path}.{field}"), &value.into(), why)));
    }
    let service_path = text(service, "/path");
    if !service_path.is_empty() && (!service_path.starts_with('/') || service_path.parse::<Uri>().is_err()) {
        let why = "must start with a '/' and be a valid path";
        causes.push(Cause::invalid(format!("{path}.path"), &service_path.into(), why));
    }
    if service_path.contains(['?', '#']) {
        let why = "segment may not contain a query or a fragment";
        causes.push(Cause::invalid(format!("{path}.path"), &service_path.into(), why));
    }
    positive_port(&service["port"], &format!("{path}.port"), causes);
}

pub(super) fn columns() -> Vec<Column> {
    vec![integer("Webhooks", |object, _| count(object, &["/webhooks"])), age()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strategy() -> WebhookStrategy {
        WebhookStrategy { phase: Phase::Mutating, webhooks: Arc::default() }
    }

    fn valid() -> Value {
        let mut object = json!({"kind": "MutatingWebhookConfiguration", "webhooks": [{
            "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/mutate"}},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods/*"]}],
        }]});
        strategy().default(&mut object);
        object
    }

    #[test]
    fn webhooks_get_their_published_defaults() {
        let object = valid();
        let webhook = &object["webhooks"][0];
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["reinvocationPolicy"], "Never");
        assert_eq!(webhook["clientConfig"]["service"]["port"], 443);
        assert_eq!(webhook["rules"][0]["scope"], "*");
        assert_eq!(strategy().validate(None, &object), Vec::new());
    }

    #[test]
    fn webhooks_that_could_never_be_called_are_refused() {
        let check = |pointer: &str, value: Value, field: &str, why: &str| {
            let mut object = valid();
            *object.pointer_mut(pointer).unwrap() = value;
            let causes = strategy().validate(None, &object);
            let found = causes.iter().any(|cause| cause.field == field && cause.message.contains(why));
            assert!(found, "{field}: {why}: {causes:?}");
        };
        let w = "/webhooks/0";
        let at = |rest: &str| format!("{w}{rest}");
        check(&at("/name"), json!("short"), "webhooks[0].name", "at least three segments");
        check(&at("/sideEffects"), json!("Some"), "webhooks[0].sideEffects", "supported values");
        check(
            &at("/admissionReviewVersions"),
            json!(["v1beta1"]),
            "webhooks[0].admissionReviewVersions",
            "must include at least one of v1",
        );
        check(&at("/timeoutSeconds"), json!(31), "webhooks[0].timeoutSeconds", "between 1 and 30 seconds");
        check(&at("/rules/0/operations"), json!(["READ"]), "webhooks[0].rules[0].operations[0]", "supported values");
        check(&at("/rules/0/resources"), json!([]), "webhooks[0].rules[0].resources", "Required value");
        let client = "webhooks[0].clientConfig";
        check(&at("/clientConfig"), json!({}), client, "exactly one of url or service is required");
        let url = format!("{client}.url");
        for (bad, why) in [
            ("http://a", "'https' is the only allowed URL scheme"),
            ("https://u@a/", "user information is not permitted"),
            ("https://a/?b", "query parameters are not permitted"),
            ("https://a/#b", "fragments are not permitted"),
            ("https://a b", "valid URL"),
        ] {
            check(&at("/clientConfig"), json!({"url": bad}), &url, why);
        }
        let bundle = json!({"url": "https://a", "caBundle": "bm90IGEgY2VydGlmaWNhdGU="});
        check(&at("/clientConfig"), bundle, &format!("{client}.caBundle"), "unable to parse bytes as PEM block");
        let conditions = json!([{"name": "a", "expression": "object."}]);
        let mut object = valid();
        object["webhooks"][0]["matchConditions"] = conditions;
        let causes = strategy().validate(None, &object);
        assert_eq!(causes[0].field, "webhooks[0].matchConditions[0].expression");
    }
}
