//! Configurations of admission webhooks
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-configuration>).

mod client;
mod validate;

use std::sync::Arc;

use kubewright_apimachinery::status::Cause;
use serde_json::{Value, json};

use self::validate::validate_webhooks;
pub(super) use self::{
    client::validate_client_config,
    validate::{validate_enum, validate_match_conditions, validate_rule_with_operations},
};
use super::{
    columns::{age, count, integer},
    validation::Errors,
};
use crate::{
    admission::{Phase, Webhook, Webhooks},
    fields::{each, fill, list, text},
    registry::{Column, Strategy},
};

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
        Errors::collect(|errors| validate_webhooks(new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn counts_empty_as_change(&self) -> bool {
        true
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
        let field = "webhooks[0].admissionReviewVersions";
        check(&at("/admissionReviewVersions"), json!(["v2"]), field, "must include at least one of v1, v1beta1");
        check(&at("/timeoutSeconds"), json!(31), "webhooks[0].timeoutSeconds", "between 1 and 30 seconds");
        check(&at("/rules/0/operations"), json!(["READ"]), "webhooks[0].rules[0].operations[0]", "supported values");
        check(&at("/rules/0/resources"), json!([]), "webhooks[0].rules[0].resources", "Required value");
        let client = "webhooks[0].clientConfig";
        check(&at("/clientConfig"), json!({}), client, "exactly one of url or service is required");
        let conditions = json!([{"name": "a", "expression": "object."}]);
        let mut object = valid();
        object["webhooks"][0]["matchConditions"] = conditions;
        let causes = strategy().validate(None, &object);
        assert_eq!(causes[0].field, "webhooks[0].matchConditions[0].expression");
    }
}
