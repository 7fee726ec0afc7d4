//! `x-kubernetes-validations`: the validation rules of custom resources, in CEL ([validation
//! rules](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules)).
//!
//! Lists of type set or map are compared in order. Rules inside `anyOf`, `oneOf` and `not` are ignored, as are those in
//! `allOf` below its top level.

mod check;
mod declare;
mod size;
mod value;

use std::{
    pin::pin,
    task::{Context, Waker},
};

use kube_cel::cel;
use serde_json::Value;

pub use self::{
    check::check,
    declare::{declare_object, declare_parameters},
};
use super::{Additional, Kind, Node, Rule, Schema, correlation::OldItems};
use crate::{
    cel::{Budget, Error, Pace, Program, items},
    field_path::FieldPath,
    status::Cause,
};

/// The field of causes that concern the whole object.
const NO_FIELD: &str = "<nil>";

/// The maximum size of a message that an expression computes, in bytes.
const MESSAGE_LIMIT: usize = 5120;

/// The rules that a value violates, with their messages.
#[derive(Debug, Default)]
pub struct Violations {
    /// The errors.
    pub causes: Vec<Cause>,
    /// The violations by values that did not change. They are only warned about.
    pub unchanged: Vec<Cause>,
}

/// Returns the rules that `value` violates.
///
/// A rule that mentions `oldSelf` is a transition rule. It applies only if the value has a counterpart in `old`, the
/// replaced value (the same field, or the item with the same keys), or if it sets `optionalOldSelf`. Violations of all
/// other rules by values that did not change are no errors.
///
/// The cost of evaluation is limited as in kube-apiserver. A rule that exceeds the limit counts as violated, and no
/// further rule is evaluated. The function yields to other tasks between rules.
pub async fn validate(node: Node<'_>, value: &Value, old: Option<&Value>) -> Violations {
    let mut validator = Validator { violations: Vec::new(), budget: Budget::of_object(), pace: Pace::default() };
    let old = old.map(|old| Seen { value: old, cel: None });
    validator.visit(node, true, Seen { value, cel: None }, old, &FieldPath::Root).await;
    let (unchanged, errors): (Vec<_>, Vec<_>) = validator.violations.into_iter().partition(|one| one.unchanged);
    let causes = |violations: Vec<Violation>| violations.into_iter().map(|violation| violation.cause).collect();
    Violations { causes: causes(errors), unchanged: causes(unchanged) }
}

/// Returns the rules that the default of a schema violates, before nested defaults are set. All defaults of a schema
/// share a budget.
pub(super) fn check_default(node: Node<'_>, value: &Value, budget: &mut Budget) -> Vec<Cause> {
    let left = std::mem::replace(budget, Budget::spent());
    let mut validator = Validator { violations: Vec::new(), budget: left, pace: Pace::steady() };
    {
        let visit = pin!(validator.visit(node, false, Seen { value, cel: None }, None, &FieldPath::Root));
        // It never waits.
        let _ready = visit.poll(&mut Context::from_waker(Waker::noop()));
    }
    *budget = validator.budget;
    validator.violations.into_iter().map(|violation| violation.cause).collect()
}

impl Rule {
    fn program(&self) -> Result<&Program, &str> {
        self.program.get(&self.rule)
    }

    /// Returns the name of the rule in errors.
    fn shown(&self) -> &str {
        self.message.as_deref().filter(|message| !message.is_empty()).unwrap_or(&self.rule).trim()
    }
}

/// A value, with its CEL form once a rule on it or on a value around it has been evaluated.
struct Seen<'v> {
    value: &'v Value,
    cel: Option<cel::Value>,
}

impl<'v> Seen<'v> {
    /// Returns the CEL form, which is created at most once.
    fn cel(&mut self, node: Node<'_>, resource: bool) -> &cel::Value {
        self.cel.get_or_insert_with(|| value::to_cel(node, resource, self.value))
    }

    fn field(&self, node: Node<'_>, name: &str) -> Option<Seen<'v>> {
        let field = self.value.get(name)?;
        Some(Seen { value: field, cel: self.cel.as_ref().and_then(|cel| value::field_of(node, cel, name)) })
    }

    fn item(&self, index: usize, item: &'v Value) -> Seen<'v> {
        let cel = self.cel.as_ref().and_then(items).and_then(|items| items.get(index).cloned());
        Seen { value: item, cel }
    }
}

/// A rule that a value violates.
struct Violation {
    cause: Cause,
    /// True for a transition rule.
    transition: bool,
    /// True if the value, or one around it, did not change.
    unchanged: bool,
}

struct Validator {
    violations: Vec<Violation>,
    budget: Budget,
    pace: Pace,
}

impl Validator {
    /// Evaluates the rules on a value and on all values in it. `resource` is true for a whole object, with the fields
    /// that all objects have.
    async fn visit(
        &mut self,
        node: Node<'_>,
        resource: bool,
        mut value: Seen<'_>,
        old: Option<Seen<'_>>,
        path: &FieldPath<'_>,
    ) {
        if node.is_anything() || value.value.is_null() || self.budget.is_spent() {
            return;
        }
        let before = self.violations.len();
        let mut old = old.filter(|old| !old.value.is_null());
        let schema = node.schema();
        let resource = resource || schema.embedded_resource;
        for rule in schema.rules.iter().chain(schema.logic.all_of.iter().flat_map(|one| &one.rules)) {
            if self.budget.is_spent() {
                return;
            }
            let left = self.budget.left();
            let old = old.as_mut().map(|old| old.cel(node, resource).clone());
            let json = value.value;
            self.check_rule(node, rule, (json, value.cel(node, resource)), old, path);
            self.pace.spent(left.saturating_sub(self.budget.left())).await;
        }
        match value.value {
            Value::Object(map) => {
                for name in map.keys() {
                    let (Some(below), Some(field)) = (node.field(name), value.field(node, name)) else { continue };
                    let path = if schema.properties.contains_key(name) { path.field(name) } else { path.key(name) };
                    let old = old.as_ref().and_then(|old| old.field(node, name));
                    Box::pin(self.visit(below, false, field, old, &path)).await;
                }
            }
            Value::Array(items) if !node.items().is_anything() => {
                let mut old_items = OldItems::of(&schema.list, old.as_ref().map(|old| old.value));
                for (index, item) in items.iter().enumerate() {
                    let counterpart = old_items.as_mut().and_then(|old| old.counterpart(index, item));
                    let old = old.as_ref().zip(counterpart).map(|(old, (index, item))| old.item(index, item));
                    Box::pin(self.visit(node.items(), false, value.item(index, item), old, &path.item(index))).await;
                }
            }
            _ => {}
        }
        if self.violations.len() > before && old.is_some_and(|old| old.value == value.value) {
            for violation in &mut self.violations[before..] {
                violation.unchanged = !violation.transition;
            }
        }
    }

    fn check_rule(
        &mut self,
        node: Node<'_>,
        rule: &Rule,
        (json, this): (&Value, &cel::Value),
        old: Option<cel::Value>,
        path: &FieldPath<'_>,
    ) {
        let kind =
            Value::from(if node.schema().int_or_string { "" } else { node.schema().kind.map_or("", Kind::as_str) });
        let mut fail = |transition, cause| self.violations.push(Violation { cause, transition, unchanged: false });
        let program = match rule.program() {
            Ok(program) => program,
            Err(why) => {
                let why = format!("rule compile error: compilation failed: {why}");
                return fail(true, Cause::invalid(field(path), &kind, &why));
            }
        };
        let optional = rule.optional_old_self == Some(true);
        if program.mentions_old && old.is_none() && !optional {
            return;
        }
        let mut variables = vec![("self", this.clone())];
        match old {
            old if optional => variables.push(("oldSelf", value::optional(old))),
            Some(old) => variables.push(("oldSelf", old)),
            None => {}
        }
        let shown = rule.shown();
        let holds = match program.evaluate(&variables, &mut self.budget, Some(shown)) {
            Ok(cel::Value::Bool(holds)) => holds,
            Ok(_) => {
                let why = format!("rule compile error: must evaluate to a bool evaluating rule: {shown}");
                return fail(true, Cause::invalid(field(path), &kind, &why));
            }
            Err(Error::OutOfBudget(why)) => return fail(true, Cause::invalid(field(path), &kind, &why)),
            Err(Error::Failed(why)) => {
                return fail(true, Cause::invalid(field(path), &kind, &unevaluated(&why, shown)));
            }
        };
        if !holds {
            let message = message(rule, &variables, &mut self.budget);
            // Kubernetes leaves objects and lists out of the messages about violated rules.
            let is_left_out = matches!(node.schema().kind, Some(Kind::Object | Kind::Array));
            let value = Some(json).filter(|_| !is_left_out);
            fail(program.mentions_old, cause(rule, field_of(rule, node, path), value, &message));
        }
    }
}

/// Returns the message about a rule that has no value. Wrong types are found only in values of unknown types.
fn unevaluated(why: &str, rule: &str) -> String {
    if why.starts_with("no such overload") {
        let hint = "call arguments did not match a supported operator, function or macro signature";
        return format!("'{why}': {hint} for rule: {rule}");
    }
    format!("{why} evaluating rule: {rule}")
}

fn field(path: &FieldPath<'_>) -> String {
    if matches!(path, FieldPath::Root) { NO_FIELD.to_owned() } else { path.to_string() }
}

/// Returns the field at which a violation is reported: the value, or the field below it that the rule's `fieldPath`
/// names.
fn field_of(rule: &Rule, node: Node<'_>, path: &FieldPath<'_>) -> String {
    let Some(below) = rule.field_path.as_deref().filter(|below| !below.is_empty()) else { return field(path) };
    let mut field = path.to_string();
    let mut node = Some(node);
    for step in below.replace("['", ".").replace("']", "").split('.').filter(|step| !step.is_empty()) {
        let named = node.is_none_or(|node| node.schema().properties.contains_key(step));
        field += &match (named, field.is_empty()) {
            (true, true) => step.to_owned(),
            (true, false) => format!(".{step}"),
            (false, _) => format!("[{step}]"),
        };
        node = node.and_then(|node| node.field(step));
    }
    field
}

/// Returns the message of a violated rule: the result of its message expression, its message, or the rule itself.
fn message(rule: &Rule, variables: &[(&str, cel::Value)], budget: &mut Budget) -> String {
    let computed = rule.message_expression.as_deref().and_then(|text| {
        let program = rule.message_program.get(text).ok()?;
        program.evaluate(variables, budget, Some(rule.shown())).ok()
    });
    match computed {
        Some(cel::Value::String(text))
            if !text.trim().is_empty() && !text.contains('\n') && text.trim().len() <= MESSAGE_LIMIT =>
        {
            text.trim().to_owned()
        }
        _ => match rule.message.as_deref().filter(|message| !message.is_empty()) {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.rule.trim()),
        },
    }
}

/// Returns the error about a violated rule. As in Kubernetes, that about a duplicate has no message.
fn cause(rule: &Rule, field: String, value: Option<&Value>, message: &str) -> Cause {
    match (rule.reason.as_deref(), value) {
        (Some("FieldValueForbidden"), _) => Cause::forbidden(field, message),
        (Some("FieldValueRequired"), _) => Cause::required(field, message),
        (Some("FieldValueDuplicate"), Some(value)) => Cause::duplicate(field, value),
        (Some(reason @ "FieldValueDuplicate"), None) => Cause::new(reason, field, "Duplicate value"),
        (_, Some(value)) => Cause::invalid(field, value, message),
        (_, None) => Cause::new("FieldValueInvalid", field, format!("Invalid value: {message}")),
    }
}

/// Returns whether a schema, or one below it, has validation rules.
#[must_use]
pub fn any(schema: &Schema) -> bool {
    let additional = match &schema.additional {
        Additional::Schema(additional) => Some(&**additional),
        _ => None,
    };
    let below = schema.properties.values().chain(additional).chain(schema.items.as_deref());
    !schema.rules.is_empty()
        || schema.logic.all_of.iter().any(|one| !one.rules.is_empty())
        || below.into_iter().any(any)
}

#[cfg(test)]
mod tests;
