//! Admission policies and their bindings, compiled when they are stored.

use kubewright_apimachinery::{
    cel::{Composition, MatchConditions, PolicyExpression},
    selector::LabelSelector,
};
use serde_json::Value;

use super::{criteria::Criteria, webhooks::Phase};

/// A compiled policy.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(super) name: String,
    pub(super) criteria: Criteria,
    /// `failurePolicy: Ignore`: the request continues if the policy can't be evaluated.
    pub(super) ignores_failure: bool,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) composition: Composition,
    pub(super) conditions: MatchConditions,
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`: the policy is evaluated again if others changed the object after it.
    pub(super) reinvoked: bool,
}

/// The kind of a policy's parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParamKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

/// A validation of a policy.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: PolicyExpression,
    pub(super) message: String,
    pub(super) message_expression: Option<PolicyExpression>,
    pub(super) reason: Option<String>,
}

/// An audit annotation of a policy.
#[derive(Debug)]
pub(super) struct Annotation {
    pub(super) key: String,
    pub(super) value: PolicyExpression,
}

/// A mutation of a policy.
#[derive(Debug)]
pub(super) enum Mutation {
    ApplyConfiguration(PolicyExpression),
    JsonPatch(PolicyExpression),
}

/// A compiled binding.
#[derive(Debug)]
pub(crate) struct PolicyBinding {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) criteria: Option<Criteria>,
    pub(super) params: Option<ParamReference>,
    pub(super) actions: Vec<String>,
}

/// A reference to the parameters of a binding.
#[derive(Debug)]
pub(super) struct ParamReference {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) selector: Option<LabelSelector>,
    /// `parameterNotFoundAction: Deny`.
    pub(super) required: bool,
}

pub(super) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().into_iter().flatten()
}

impl Policy {
    /// Compiles a valid, defaulted policy.
    pub(crate) fn new(phase: Phase, policy: &Value) -> Self {
        let spec = &policy["spec"];
        let variables = list(spec, "variables").map(|variable| (text(variable, "name"), text(variable, "expression")));
        let validations = list(spec, "validations").map(|validation| Validation {
            expression: PolicyExpression::new(text(validation, "expression")),
            message: text(validation, "message").trim().to_owned(),
            message_expression: Some(text(validation, "messageExpression"))
                .filter(|expression| !expression.is_empty())
                .map(PolicyExpression::new),
            reason: validation["reason"].as_str().map(str::to_owned),
        });
        let annotations = list(spec, "auditAnnotations").map(|annotation| Annotation {
            key: text(annotation, "key").to_owned(),
            value: PolicyExpression::new(text(annotation, "valueExpression")),
        });
        let is_mutating = phase == Phase::Mutating;
        let mutations = list(spec, "mutations").filter(|_| is_mutating).map(|mutation| {
            let expression = |field: &str| PolicyExpression::of_mutation(text(&mutation[field], "expression"));
            match text(mutation, "patchType") {
                "JSONPatch" => Mutation::JsonPatch(expression("jsonPatch")),
                _ => Mutation::ApplyConfiguration(expression("applyConfiguration")),
            }
        });
        Self {
            name: text(&policy["metadata"], "name").to_owned(),
            criteria: Criteria::of_match_resources(&spec["matchConstraints"]),
            ignores_failure: spec["failurePolicy"] == "Ignore",
            param_kind: spec.get("paramKind").filter(|kind| !kind.is_null()).map(ParamKind::new),
            composition: Composition::new(variables),
            conditions: MatchConditions::new(list(spec, "matchConditions").map(|one| text(one, "expression"))),
            validations: validations.collect(),
            annotations: annotations.collect(),
            mutations: mutations.collect(),
            reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
        }
    }
}

impl ParamKind {
    fn new(kind: &Value) -> Self {
        let (group, version) = text(kind, "apiVersion").split_once('/').unwrap_or(("", text(kind, "apiVersion")));
        Self { group: group.to_owned(), version: version.to_owned(), kind: text(kind, "kind").to_owned() }
    }
}

impl PolicyBinding {
    /// Compiles a valid, defaulted binding.
    pub(crate) fn new(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let present = |field: &str| spec.get(field).filter(|value| !value.is_null());
        Self {
            name: text(&binding["metadata"], "name").to_owned(),
            policy: text(spec, "policyName").to_owned(),
            criteria: present("matchResources").map(Criteria::of_match_resources),
            params: present("paramRef").map(ParamReference::new),
            actions: list(spec, "validationActions").filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }
}

impl ParamReference {
    fn new(reference: &Value) -> Self {
        let selector = reference.get("selector").filter(|selector| !selector.is_null());
        Self {
            name: text(reference, "name").to_owned(),
            namespace: text(reference, "namespace").to_owned(),
            selector: selector
                .map(|selector| LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing())),
            required: reference["parameterNotFoundAction"] == "Deny",
        }
    }
}
