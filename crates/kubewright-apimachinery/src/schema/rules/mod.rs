//! `x-kubernetes-validations`: a custom kind's own rules, in CEL
//! ([validation rules](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/)).
//!
//! The language and Kubernetes' function library are the `cel` and `kube-cel` crates'. They read a rule but don't check
//! its types, so a rule that Kubernetes would refuse with its definition may here fail only when it is evaluated. Not
//! there: `url`, the authoriser, `cel.bind`, `sortBy`, two-variable comprehensions, and lists of type set or map that
//! compare without order. Rules inside `anyOf`, `oneOf` and `not` are not read, and of `allOf` only those at its top.

mod condition;
mod cost;
mod program;
mod value;

use kube_cel::cel;
use serde_json::Value;

pub use self::condition::Condition;
use self::{
    cost::{Budget, Sizes},
    program::{Program, Scope},
};
use super::{Additional, Kind, List, Node, Rule, Schema};
use crate::{status::Cause, trail::Trail};

/// The field of causes that are about the whole object.
const NO_FIELD: &str = "<nil>";

/// The rules that `value` fails, with the messages that their authors gave them.
///
/// A rule that mentions `oldSelf` is about a change: it counts only where `old`, what `value` replaces, has a
/// counterpart (the same field, or the item with the same keys), or where it says `optionalOldSelf`. Any other rule is
/// not held against a value that did not change.
///
/// Evaluation is bounded: a rule that would be too costly on this value fails, and so do all after it.
pub fn validate(node: Node<'_>, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut walk = Walk { faults: Vec::new(), budget: Budget::of_object() };
    walk.visit(node, true, value, old, &Trail::Root);
    walk.faults.into_iter().map(|fault| fault.cause).collect()
}

/// The rules of a definition's schema that can't be read. The causes' fields begin with `openAPIV3Schema`.
pub fn check(schema: &Schema) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = Trail::Root;
    check_below(schema, &root.field("openAPIV3Schema"), &mut causes);
    causes
}

fn check_below(schema: &Schema, trail: &Trail<'_>, causes: &mut Vec<Cause>) {
    let rules = trail.field("x-kubernetes-validations");
    for (index, rule) in schema.rules.iter().enumerate() {
        let texts = [("rule", Some(&rule.rule)), ("messageExpression", rule.message_expression.as_ref())];
        for (name, text) in texts {
            if let Some(Err(why)) = text.map(|text| Program::of(text)) {
                let field = rules.item(index).field(name).to_string();
                causes.push(Cause::invalid(field, &text.cloned().into(), &format!("compilation failed: {why}")));
            }
        }
    }
    let properties = trail.field("properties");
    for (name, property) in &schema.properties {
        check_below(property, &properties.key(name), causes);
    }
    if let Additional::Schema(additional) = &schema.additional {
        check_below(additional, &trail.field("additionalProperties"), causes);
    }
    if let Some(items) = &schema.items {
        check_below(items, &trail.field("items"), causes);
    }
    let all_of = trail.field("allOf");
    for (index, one) in schema.logic.all_of.iter().enumerate() {
        check_below(one, &all_of.item(index), causes);
    }
}

/// A rule that a value failed.
struct Fault {
    cause: Cause,
    /// The rule is about a change.
    transition: bool,
}

struct Walk {
    faults: Vec<Fault>,
    budget: Budget,
}

impl Walk {
    /// `resource` says that the value is a whole object, with the fields that all objects have.
    fn visit(&mut self, node: Node<'_>, resource: bool, value: &Value, old: Option<&Value>, trail: &Trail<'_>) {
        if node.is_anything() || value.is_null() || self.budget.is_spent() {
            return;
        }
        let before = self.faults.len();
        let old = old.filter(|old| !old.is_null());
        let resource = resource || node.schema().embedded_resource;
        self.check_rules(node, resource, value, old, trail);
        match value {
            Value::Object(map) => {
                for (name, field) in map {
                    let Some(below) = node.field(name) else { continue };
                    let named = node.schema().properties.contains_key(name);
                    let trail = if named { trail.field(name) } else { trail.key(name) };
                    self.visit(below, false, field, old.and_then(|old| old.get(name)), &trail);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| counterpart(node.schema(), old, item));
                    self.visit(node.items(), false, item, old, &trail.item(index));
                }
            }
            _ => {}
        }
        if self.faults.len() > before && old == Some(value) {
            let mut place = 0;
            self.faults.retain(|fault| {
                place += 1;
                place <= before || fault.transition
            });
        }
    }

    fn check_rules(&mut self, node: Node<'_>, resource: bool, value: &Value, old: Option<&Value>, trail: &Trail<'_>) {
        let schema = node.schema();
        let mut rules = schema.rules.iter().chain(schema.logic.all_of.iter().flat_map(|one| &one.rules)).peekable();
        if rules.peek().is_none() {
            return;
        }
        let this = value::to_cel(node, resource, value);
        let old = old.map(|old| value::to_cel(node, resource, old));
        let sizes = Sizes::of(value);
        for rule in rules {
            if self.budget.is_spent() {
                return;
            }
            self.check_rule(node, rule, &this, old.as_ref(), &sizes, trail);
        }
    }

    fn check_rule(
        &mut self,
        node: Node<'_>,
        rule: &Rule,
        this: &cel::Value,
        old: Option<&cel::Value>,
        sizes: &Sizes,
        trail: &Trail<'_>,
    ) {
        let kind =
            Value::from(if node.schema().int_or_string { "" } else { node.schema().kind.map_or("", Kind::as_str) });
        let mut fail = |transition, cause| self.faults.push(Fault { cause, transition });
        let program = match Program::of(&rule.rule) {
            Ok(program) => program,
            Err(why) => {
                let why = format!("rule compile error: compilation failed: {why}");
                return fail(true, Cause::invalid(field(trail), &kind, &why));
            }
        };
        let optional = rule.optional_old_self == Some(true);
        if program.mentions_old && old.is_none() && !optional {
            return;
        }
        if let Err(why) = self.budget.spend(program.cost(sizes), shown(rule)) {
            return fail(true, Cause::invalid(field(trail), &kind, &why));
        }
        let scope = Scope { this, old, optional };
        let holds = match program.evaluate(&scope) {
            Ok(cel::Value::Bool(holds)) => holds,
            Ok(_) => {
                let why = format!("rule compile error: must evaluate to a bool evaluating rule: {}", shown(rule));
                return fail(true, Cause::invalid(field(trail), &kind, &why));
            }
            Err(why) => {
                let why = format!("{why} evaluating rule: {}", shown(rule));
                return fail(true, Cause::invalid(field(trail), &kind, &why));
            }
        };
        if !holds {
            let message = message(rule, &scope);
            fail(program.mentions_old, cause(rule, field_of(rule, node, trail), &kind, &message));
        }
    }
}

fn field(trail: &Trail<'_>) -> String {
    if matches!(trail, Trail::Root) { NO_FIELD.to_owned() } else { trail.to_string() }
}

/// Where a rule's failure is told: at the value, or at what its `fieldPath` names below it.
fn field_of(rule: &Rule, node: Node<'_>, trail: &Trail<'_>) -> String {
    let Some(path) = rule.field_path.as_deref().filter(|path| !path.is_empty()) else { return field(trail) };
    let mut field = trail.to_string();
    let mut node = Some(node);
    for step in path.replace("['", ".").replace("']", "").split('.').filter(|step| !step.is_empty()) {
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

/// What a rule is called when it can't be evaluated.
fn shown(rule: &Rule) -> &str {
    rule.message.as_deref().filter(|message| !message.is_empty()).unwrap_or(&rule.rule).trim()
}

fn message(rule: &Rule, scope: &Scope<'_>) -> String {
    const LONGEST: usize = 5120;
    let computed = rule.message_expression.as_deref().and_then(|text| Program::of(text).ok()?.evaluate(scope).ok());
    match computed {
        Some(cel::Value::String(text))
            if !text.trim().is_empty() && !text.contains('\n') && text.trim().len() <= LONGEST =>
        {
            text.trim().to_owned()
        }
        _ => match rule.message.as_deref().filter(|message| !message.is_empty()) {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.rule.trim()),
        },
    }
}

fn cause(rule: &Rule, field: String, kind: &Value, message: &str) -> Cause {
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, message),
        Some("FieldValueRequired") => Cause::required(field, message),
        Some("FieldValueDuplicate") => {
            Cause::new("FieldValueDuplicate", field, format!("Duplicate value: {kind}: {message}"))
        }
        _ => Cause::invalid(field, kind, message),
    }
}

/// What an item of a list was before; only the items of list maps can be told apart.
fn counterpart<'v>(schema: &Schema, old: &'v Value, item: &Value) -> Option<&'v Value> {
    let List::Map(keys) = &schema.list else { return None };
    old.as_array()?.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

#[cfg(test)]
mod tests;
