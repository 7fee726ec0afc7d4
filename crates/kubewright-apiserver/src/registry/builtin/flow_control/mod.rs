//! Flow schemas and priority levels (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>).

mod defaults;
mod validate;

use std::sync::Arc;

use kubewright_apimachinery::status::Cause;
use serde_json::{Value, json};

pub(super) use self::defaults::{default_levels, default_schemas};
use super::{
    columns::{NONE, age, string, value_or},
    validation::Errors,
};
use crate::{
    fields::{fill, fill_zero, has, int, list, present, text, within},
    flow_control::FlowControl,
    registry::{Column, Settled, Strategy},
};

/// The field manager of the condition of flow schemas.
const CONTROLLER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The strategy of flow schemas.
#[derive(Debug)]
pub(super) struct FlowSchemaStrategy {
    /// The schemas, which this strategy keeps up to date, and the levels that they refer to.
    pub(super) flow_control: Arc<FlowControl>,
}

impl Strategy for FlowSchemaStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| fill_zero(spec, "matchingPrecedence", 1000));
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_flow_schema(new, errors))
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_conditions(new, errors))
    }

    fn settles(&self) -> bool {
        true
    }

    /// Says whether the priority level of the schema exists.
    fn settled(&self, object: &Value) -> Option<Settled> {
        let level = text(object, "/spec/priorityLevelConfiguration/name");
        let (status, reason, words) = if self.flow_control.has_level(level) {
            ("False", "Found", "and it exists")
        } else {
            ("True", "NotFound", "but there is no such object")
        };
        let conditions = list(object, "/status/conditions");
        let old = conditions.iter().find(|condition| text(condition, "/type") == "Dangling");
        let message =
            format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {words}");
        let same = |old: &&Value| text(old, "/status") == status;
        if old.filter(same).is_some_and(|old| text(old, "/message") == message) {
            return None;
        }
        let time = old.filter(same).map_or(&object["metadata"]["creationTimestamp"], |old| &old["lastTransitionTime"]);
        let condition = json!({
            "type": "Dangling", "status": status, "lastTransitionTime": time, "reason": reason, "message": message,
        });
        Some(Settled::Apply(
            CONTROLLER,
            json!({
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
                "metadata": {"name": object["metadata"]["name"]}, "status": {"conditions": [condition]},
            }),
        ))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.flow_control.schema_changed(before, after);
    }
}

pub(super) fn flow_schema_columns() -> Vec<Column> {
    vec![
        string("PriorityLevel", |object, _| text(object, "/spec/priorityLevelConfiguration/name").into()),
        string("MatchingPrecedence", |object, _| int(object, "/spec/matchingPrecedence").into()),
        string("DistinguisherMethod", |object, _| value_or(object, "/spec/distinguisherMethod/type", NONE)),
        age(),
        string("MissingPL", |object, _| {
            let dangling =
                list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == "Dangling");
            dangling.map_or("?", |condition| text(condition, "/status")).into()
        }),
    ]
}

/// The strategy of priority levels.
#[derive(Debug)]
pub(super) struct PriorityLevelStrategy {
    /// The levels, which this strategy keeps up to date.
    pub(super) flow_control: Arc<FlowControl>,
}

impl Strategy for PriorityLevelStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            present(spec, "exempt", |exempt| {
                fill(exempt, "nominalConcurrencyShares", 0);
                fill(exempt, "lendablePercent", 0);
            });
            present(spec, "limited", |limited| {
                fill(limited, "nominalConcurrencyShares", 30);
                fill(limited, "lendablePercent", 0);
                present(limited, "limitResponse", |response| {
                    present(response, "queuing", |queuing| {
                        fill_zero(queuing, "handSize", 8);
                        fill_zero(queuing, "queues", 64);
                        fill_zero(queuing, "queueLengthLimit", 50);
                    });
                });
            });
        });
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_priority_level(new, errors))
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_conditions(new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    /// Schemas say whether their level exists.
    fn settles(&self) -> bool {
        true
    }

    fn unsettled(&self) -> Vec<String> {
        self.flow_control.schema_names()
    }

    fn unsettled_kind(&self) -> Option<(&'static str, &'static str)> {
        Some(("flowcontrol.apiserver.k8s.io", "flowschemas"))
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.flow_control.level_changed(before, after);
    }
}

pub(super) fn priority_level_columns() -> Vec<Column> {
    const QUEUING: &str = "/spec/limited/limitResponse/queuing";
    fn queuing(object: &Value, field: &str) -> Value {
        if has(object, QUEUING) { int(object, &format!("{QUEUING}/{field}")).into() } else { NONE.into() }
    }
    vec![
        string("Type", |object, _| text(object, "/spec/type").into()),
        string("NominalConcurrencyShares", |object, _| {
            value_or(object, "/spec/limited/nominalConcurrencyShares", NONE)
        }),
        string("Queues", |object, _| queuing(object, "queues")),
        string("HandSize", |object, _| queuing(object, "handSize")),
        string("QueueLengthLimit", |object, _| queuing(object, "queueLengthLimit")),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::auth::{Attributes, UserInfo};

    fn strategies() -> (FlowSchemaStrategy, PriorityLevelStrategy) {
        let flow_control = Arc::new(FlowControl::default());
        (FlowSchemaStrategy { flow_control: flow_control.clone() }, PriorityLevelStrategy { flow_control })
    }

    #[test]
    fn the_default_objects_are_valid_and_fit_together() {
        let (schemas, levels) = strategies();
        for mut level in default_levels() {
            levels.default(&mut level);
            assert_eq!(levels.validate(None, &level), [], "{level}");
            levels.committed(None, Some(&level));
        }
        for schema in default_schemas() {
            let mut complete = schema.clone();
            schemas.default(&mut complete);
            assert_eq!(complete, schema);
            assert_eq!(schemas.validate(None, &schema), [], "{schema}");
            let Some(Settled::Apply(_, settled)) = schemas.settled(&schema) else { panic!("{schema}") };
            assert_eq!(settled["status"]["conditions"][0]["status"], "False");
            let settled = json!({"metadata": schema["metadata"], "spec": schema["spec"], "status": settled["status"]});
            assert_eq!(schemas.settled(&settled), None);
        }
    }

    #[test]
    fn requests_are_classified_by_the_default_objects() {
        let (schemas, levels) = strategies();
        let named = |mut object: Value| {
            object["metadata"]["uid"] = object["metadata"]["name"].clone();
            object
        };
        default_levels().map(named).for_each(|level| levels.committed(None, Some(&level)));
        default_schemas().into_iter().map(named).for_each(|schema| schemas.committed(None, Some(&schema)));
        let check = |user: UserInfo, request: Attributes, expect: &str| {
            let mut headers = HeaderMap::new();
            schemas.flow_control.classify(&user, Some(&request)).add_headers(&mut headers);
            assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], expect, "{user:?} {request:?}");
        };
        let get = |group: &str, resource: &str| Attributes {
            verb: "get".into(),
            group: group.into(),
            resource: resource.into(),
            namespace: "default".into(),
            ..Attributes::default()
        };
        let of_cluster = |resource: &str| Attributes { namespace: String::new(), ..get("", resource) };
        let path = |path: &str| Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
        let lease = || get("coordination.k8s.io", "leases");
        let node = || UserInfo::new("system:node:a", ["system:nodes", "system:authenticated"]);
        let manager = || UserInfo::new("system:kube-controller-manager", ["system:authenticated"]);
        let account = |namespace: &str| UserInfo::service_account(namespace, "a");
        check(UserInfo::admin(), get("", "pods"), "exempt");
        check(UserInfo::anonymous(), path("/livez"), "probes");
        check(UserInfo::anonymous(), path("/livez/ping"), "probes");
        check(UserInfo::anonymous(), path("/version"), "global-default");
        check(manager(), lease(), "system-leader-election");
        check(manager(), get("", "pods"), "kube-controller-manager");
        check(node(), lease(), "system-node-high");
        check(node(), of_cluster("nodes"), "system-node-high");
        check(node(), Attributes { subresource: "status".into(), ..of_cluster("nodes") }, "system-node-high");
        check(node(), Attributes { subresource: "proxy".into(), ..of_cluster("nodes") }, "system-nodes");
        check(node(), get("", "pods"), "system-nodes");
        check(account("kube-system"), lease(), "system-leader-election");
        check(account("kube-system"), get("", "pods"), "kube-system-service-accounts");
        check(account("default"), get("", "pods"), "service-accounts");
        check(UserInfo::new("jane", ["system:authenticated"]), get("", "pods"), "global-default");
        check(UserInfo::new("jane", ["dev"]), get("", "pods"), "catch-all");
    }

    #[test]
    fn a_schema_without_its_level_dangles() {
        let (schemas, _) = strategies();
        let schema = json!({"spec": {"priorityLevelConfiguration": {"name": "x"}}});
        let Some(Settled::Apply(_, settled)) = schemas.settled(&schema) else { panic!("{schema}") };
        let condition = &settled["status"]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("NotFound")));
    }
}
