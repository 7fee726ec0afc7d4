//! The check of rules when a CRD is stored: their types, whether they may use `oldSelf`, and their estimated costs
//! ([limits](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#resource-use-by-validation-functions)).

use std::{cmp::Reverse, sync::LazyLock};

use serde_json::Value;

use super::{
    declare,
    size::{Size, size_of},
};
use crate::{
    cel::{Checked, Environment, SizeLimits, Type, Typed, check_rule, type_of},
    field_path::FieldPath,
    schema::{Additional, Definitions, Kind, List, Node, Rule, Schema},
    status::Cause,
};

/// The definitions of schemas without references.
static NONE: LazyLock<Definitions> = LazyLock::new(Definitions::default);

/// The greatest estimated cost of one rule for all values of an object, and of all rules of a schema, in units.
const PER_RULE: u64 = 10_000_000;
const PER_SCHEMA: u64 = 100_000_000;
/// The number of rules that are named if all together cost too much.
const NAMED: usize = 4;

/// Returns errors for the rules of a CRD's schema: those that can't be parsed, whose types are wrong, that use
/// `oldSelf` where values have no counterpart, or that may cost too much. The causes' fields begin with the path of the
/// schema, `at`, and `openAPIV3Schema`.
///
/// A schema that is stored already, `is_known`, may have rules that cost too much by themselves.
pub fn check(schema: &Schema, at: &str, is_known: bool) -> Vec<Cause> {
    let root = FieldPath::Root;
    let at = if at.is_empty() { FieldPath::Root } else { root.field(at) };
    let path = at.field("openAPIV3Schema");
    let mut check = Check { causes: Vec::new(), is_known, total: 0, expensive: Vec::new() };
    let place = Place { resource: true, occurrences: Some(1), without_old: None };
    check.schema(schema, &place, &path);
    check.finish(&path)
}

/// Where a schema is.
#[derive(Clone)]
struct Place {
    /// True for the schema of a whole object.
    resource: bool,
    /// How often an object may have values of the schema, if the limits of lists and maps around it say so.
    occurrences: Option<u64>,
    /// The path of the schema around it whose values have no counterparts in the replaced object.
    without_old: Option<String>,
}

struct Check {
    causes: Vec<Cause>,
    is_known: bool,
    /// The estimated cost of all rules.
    total: u64,
    /// The rules with a cost that matters, by their fields.
    expensive: Vec<(u64, String)>,
}

impl Check {
    /// Checks the rules of a schema and below it.
    fn schema(&mut self, schema: &Schema, place: &Place, path: &FieldPath<'_>) {
        if !schema.rules.is_empty() {
            let resource = place.resource || schema.embedded_resource;
            match declare::type_of(Node::new(schema, &NONE), resource) {
                Some(this) => self.rules(&schema.rules, &this, size_of(schema, resource).as_ref(), place, path),
                None => self.causes.push(Cause::internal(
                    path.field("x-kubernetes-validations").to_string(),
                    "internal error: failed to construct type information for x-kubernetes-validations rules: unable \
                     to convert structural schema to CEL declarations",
                )),
            }
        }
        let below = |without_old: bool| Place {
            resource: false,
            occurrences: place.occurrences.zip(elements(schema)).map(|(around, here)| around.saturating_mul(here)),
            without_old: place.without_old.clone().or_else(|| without_old.then(|| path.to_string())),
        };
        let properties = path.field("properties");
        for (name, property) in &schema.properties {
            self.schema(property, &below(false), &properties.key(name));
        }
        if let Additional::Schema(additional) = &schema.additional {
            self.schema(additional, &below(false), &path.field("additionalProperties"));
        }
        if let Some(items) = &schema.items {
            self.schema(items, &below(!matches!(schema.list, List::Map(_))), &path.field("items"));
        }
        let all_of = path.field("allOf");
        for (index, one) in schema.logic.all_of.iter().enumerate() {
            // The type is that of the schema around it, which the rules of `allOf` can't be checked against here.
            self.rules(&one.rules, &Type::Unknown, None, place, &all_of.item(index));
        }
    }

    /// Checks the rules of one schema. Without sizes, no costs are estimated.
    fn rules(&mut self, rules: &[Rule], this: &Type, size: Option<&Size>, place: &Place, path: &FieldPath<'_>) {
        let path = path.field("x-kubernetes-validations");
        // One without an expression has an error of its own.
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.rule.trim().is_empty()) {
            let old = if rule.optional_old_self == Some(true) { Type::optional(this.clone()) } else { this.clone() };
            let environment = Environment::default().with("self", this.clone()).with("oldSelf", old);
            let field = |name: &str| path.item(index).field(name).to_string();
            let known = SizeLimits::default();
            let limits = size.map_or(&known, |size| &size.limits);
            let checked = check_rule(&rule.rule, &environment, limits);
            if let (Ok(checked @ Checked { of: Type::Bool, .. }), Some(size)) = (&checked, size) {
                let occurrences = place.occurrences.unwrap_or_else(|| size.occurrences());
                self.charge("estimated rule cost", checked.cost.saturating_mul(occurrences), field("rule"));
            }
            let wrong = match &checked {
                Err(why) => Some(format!("compilation failed: {why}")),
                Ok(Checked { of: Type::Bool | Type::Unknown, invalid_literal, .. }) => {
                    invalid_literal.as_ref().map(|why| format!("program instantiation failed: {why}"))
                }
                Ok(_) => Some("cel expression must evaluate to a bool".to_owned()),
            };
            match wrong {
                Some(why) => self.refuse(rule, field("rule"), &why),
                None => self.message_expression(rule, &environment, size, field("messageExpression")),
            }
            let mentions_old = checked.is_ok_and(|checked| checked.mentions_old);
            if let Some(around) = &place.without_old
                && mentions_old
            {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {around}");
                self.causes.push(Cause::invalid(field("rule"), &Value::from(&*rule.rule), &why));
            }
            if let Some(optional) = rule.optional_old_self.filter(|_| !mentions_old) {
                let why = "may not be set if oldSelf is not used in rule";
                self.causes.push(Cause::invalid(field("optionalOldSelf"), &optional.into(), why));
            }
        }
    }

    fn message_expression(&mut self, rule: &Rule, environment: &Environment, size: Option<&Size>, field: String) {
        let Some(text) = &rule.message_expression else { return };
        match type_of(text, environment) {
            Err(why) => self.refuse(rule, field, &format!("messageExpression compilation failed: {why}")),
            Ok(Typed { invalid_literal: Some(why), of: Type::String | Type::Unknown }) => {
                self.refuse(rule, field, &format!("messageExpression instantiation failed: {why}"));
            }
            Ok(Typed { of: Type::String | Type::Unknown, .. }) => {
                let checked = size.and_then(|size| check_rule(text, environment, &size.limits).ok());
                self.charge("estimated messageExpression cost", checked.map_or(0, |checked| checked.cost), field);
            }
            Ok(_) => self.refuse(rule, field, "messageExpression must evaluate to a string"),
        }
    }

    fn refuse(&mut self, rule: &Rule, field: String, why: &str) {
        let message = format!("Invalid value: {}: {why}", rule.shown_whole());
        self.causes.push(Cause::new("FieldValueInvalid", field, message));
    }

    /// Adds the cost of an expression.
    fn charge(&mut self, name: &str, cost: u64, field: String) {
        if cost > PER_RULE && !self.is_known {
            self.causes.push(Cause::forbidden(field.clone(), &exceeded(name, cost, PER_RULE)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= PER_SCHEMA / 100 {
            self.expensive.push((cost, field));
        }
    }

    fn finish(mut self, path: &FieldPath<'_>) -> Vec<Cause> {
        if self.total > PER_SCHEMA {
            self.expensive.sort_by_key(|(cost, _)| Reverse(*cost));
            for (_, field) in self.expensive.into_iter().take(NAMED) {
                let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
                self.causes.push(Cause::forbidden(field, why));
            }
            let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            self.causes.push(Cause::forbidden(path.to_string(), &exceeded(name, self.total, PER_SCHEMA)));
        }
        self.causes
    }
}

/// Returns how many values of the schemas below a schema one of its values has at most, if that is limited.
fn elements(schema: &Schema) -> Option<u64> {
    match schema.kind {
        Some(Kind::Object) if schema.additional != Additional::Unspecified => schema.limits.max_properties,
        Some(Kind::Array) => schema.limits.max_items,
        _ => Some(1),
    }
}

/// Returns the message about a cost that exceeds its limit.
#[expect(clippy::cast_precision_loss, reason = "the quotient is shown with a few digits")]
fn exceeded(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

impl Rule {
    /// Returns the rule as errors about a CRD show it, in the form of Kubernetes' internal type.
    fn shown_whole(&self) -> String {
        let text = |text: &Option<String>| Value::from(text.as_deref().unwrap_or_default());
        let fields = [
            ("Rule", Value::from(&*self.rule)),
            ("Message", text(&self.message)),
            ("MessageExpression", text(&self.message_expression)),
            ("Reason", self.reason.as_deref().into()),
            ("FieldPath", text(&self.field_path)),
            ("OptionalOldSelf", self.optional_old_self.into()),
        ];
        let fields = fields.map(|(name, value)| format!("{name:?}:{value}")).join(",");
        // Go's encoder escapes these characters.
        let fields = fields.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        format!("{{{fields}}}")
    }
}

#[cfg(test)]
mod tests;
