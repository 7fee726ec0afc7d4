//! The status of validating admission policies: what their expressions do with the fields of the kinds that they match
//! (<https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking>).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apimachinery::{
    cel::{Expected, PolicyDeclarations, Refusal},
    schema::rules,
};
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    reconcile::{Controller, Key, Plan, Step},
    value::{list, text},
};

/// The field manager of the status.
const MANAGER: &str = "validatingadmissionpolicy-status";

const POLICY: Kind = Kind {
    group: "admissionregistration.k8s.io",
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
};
/// The greatest number of kinds for which a policy is checked, as in Kubernetes.
const MAX_KINDS: usize = 10;

/// The controller of the status. Its keys have no namespace.
#[derive(Debug)]
pub(crate) struct PolicyStatuses {
    api: ApiServer,
    policies: BTreeMap<Key, Arc<Value>>,
}

impl PolicyStatuses {
    /// Creates the controller. The schemas are those of a server.
    pub(crate) fn new(api: ApiServer) -> Self {
        Self { api, policies: BTreeMap::new() }
    }

    /// Returns the warnings about a policy.
    fn warnings(&self, policy: &Value) -> Vec<Value> {
        let declared = self.declarations(policy);
        let mut warnings = Vec::new();
        for (index, validation) in list(policy, "/spec/validations").iter().enumerate() {
            for field in ["expression", "messageExpression"] {
                let expression = text(validation, &format!("/{field}"));
                let found = declared.iter().filter_map(|(kind, declarations)| {
                    let Err(Refusal::Expression(why)) = declarations.check(expression, Expected::Any) else {
                        return None;
                    };
                    let why = why.strip_prefix("compilation failed: ").unwrap_or(&why);
                    Some(format!("{kind}: {why}\n"))
                });
                let found: Vec<_> = if expression.is_empty() { Vec::new() } else { found.collect() };
                if !found.is_empty() {
                    let place = format!("spec.validations[{index}].{field}");
                    warnings.push(json!({"fieldRef": place, "warning": found.join("\n")}));
                }
            }
        }
        warnings
    }

    /// Returns the variables of a policy, with the type of its parameters.
    fn variables(&self, policy: &Value) -> PolicyDeclarations {
        let parameters = &policy["spec"]["paramKind"];
        let variables = PolicyDeclarations::of_policy(parameters.is_object());
        let (version, kind) = (text(parameters, "/apiVersion"), text(parameters, "/kind"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let mut entries = self.api.registry().all().into_iter();
        let found = entries.find(|entry| (&*entry.group, &*entry.version, &*entry.kind) == (group, version, kind));
        found.map_or(variables.clone(), |entry| rules::declare_parameters(&variables, entry.schema.node()))
    }

    /// Returns the variables of a policy for each kind that it names. Patterns with `*` name none.
    fn declarations(&self, policy: &Value) -> Vec<(String, PolicyDeclarations)> {
        let variables = self.variables(policy);
        let mut declared = BTreeMap::new();
        for rule in list(policy, "/spec/matchConstraints/resourceRules") {
            let named = |field: &str| -> Vec<&str> {
                let names: Vec<_> = list(rule, field).iter().filter_map(Value::as_str).collect();
                if names.contains(&"*") { Vec::new() } else { names }
            };
            for group in named("/apiGroups") {
                for version in named("/apiVersions") {
                    for plural in named("/resources").into_iter().filter(|name| !name.contains(['/', '*'])) {
                        let Some(resource) = self.api.registry().find(group, version, plural) else { continue };
                        let kind = format!("{group}/{version}, Kind={}", resource.kind);
                        if declared.len() < MAX_KINDS {
                            declared.insert(kind, rules::declare_object(&variables, resource.schema.node()));
                        }
                    }
                }
            }
        }
        for declarations in declared.values_mut() {
            for variable in list(policy, "/spec/variables") {
                // A wrong variable is reported where it is used.
                let _declared = declarations.declare(text(variable, "/name"), text(variable, "/expression"));
            }
        }
        declared.into_iter().collect()
    }
}

impl Controller for PolicyStatuses {
    fn reset(&mut self) {
        self.policies.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if !POLICY.is_of(change) {
            return Vec::new();
        }
        let key = Key { namespace: String::new(), name: text(change.object(), "/metadata/name").into() };
        if change.kind == ChangeKind::Deleted {
            self.policies.remove(&key);
            return Vec::new();
        }
        self.policies.insert(key.clone(), change.object().clone());
        vec![key]
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(policy) = self.policies.get(key) else { return Plan::default() };
        let generation = &policy["metadata"]["generation"];
        let mut plan = Plan::of(&POLICY, policy);
        if policy["status"]["observedGeneration"] == *generation {
            return plan;
        }
        let mut checked = json!({});
        let warnings = self.warnings(policy);
        if !warnings.is_empty() {
            checked["expressionWarnings"] = warnings.into();
        }
        let config = json!({
            "apiVersion": POLICY.api_version(), "kind": POLICY.kind, "metadata": {"name": key.name},
            "status": {"observedGeneration": generation, "typeChecking": checked},
        });
        plan.steps.push(Step::Apply(POLICY.address("", &key.name), "/status", MANAGER, config));
        plan
    }
}
