//! Limits of numbers, as the library of Kubernetes checks them (`validate` in `k8s.io/kube-openapi`).

use serde_json::{Number, Value};

use super::{NO_FIELD, invalid};
use crate::{
    field_path::FieldPath,
    go_json::MAX_EXACT,
    schema::{Kind, Schema},
    status::Cause,
};

/// What a limit is for.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    MultipleOf,
    Minimum { exclusive: bool },
    Maximum { exclusive: bool },
}

impl Limit {
    /// The name in the message about a limit that isn't of the schema's type.
    fn name(self) -> &'static str {
        match self {
            Self::MultipleOf => "MultipleOf",
            Self::Minimum { .. } => "Minimum boundary",
            Self::Maximum { .. } => "Maximum boundary",
        }
    }

    fn of_integers(self, value: i64, limit: i64) -> Result<(), String> {
        let holds = match self {
            Self::MultipleOf => value.checked_rem(limit).is_none_or(|rest| rest == 0),
            Self::Minimum { exclusive } => value > limit || (value == limit && !exclusive),
            Self::Maximum { exclusive } => value < limit || (value == limit && !exclusive),
        };
        if holds { Ok(()) } else { Err(format!("{} {limit}", self.rule())) }
    }

    fn of_floats(self, value: f64, limit: f64, is_float: bool) -> Result<(), String> {
        let holds = match self {
            Self::MultipleOf => is_multiple(value, limit, is_float),
            Self::Minimum { exclusive } => value > limit || (value == limit && !exclusive),
            Self::Maximum { exclusive } => value < limit || (value == limit && !exclusive),
        };
        if holds { Ok(()) } else { Err(format!("{} {limit}", self.rule())) }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::MultipleOf => "should be a multiple of",
            Self::Minimum { exclusive: true } => "should be greater than",
            Self::Minimum { exclusive: false } => "should be greater than or equal to",
            Self::Maximum { exclusive: true } => "should be less than",
            Self::Maximum { exclusive: false } => "should be less than or equal to",
        }
    }
}

/// Checks a number.
pub(super) fn check(schema: &Schema, number: &Number, path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    check_range(schema, number, "Checked", path, causes);
    let limits = &schema.limits;
    let all = [
        (Limit::MultipleOf, limits.multiple_of),
        (Limit::Minimum { exclusive: limits.exclusive_minimum }, limits.minimum),
        (Limit::Maximum { exclusive: limits.exclusive_maximum }, limits.maximum),
    ];
    for (limit, bound) in all {
        let Some(bound) = bound else { continue };
        let fits = Number::from_f64(bound).is_none_or(|bound| check_range(schema, &bound, limit.name(), path, causes));
        // An integer is compared with the whole part of a limit.
        let integer = number.as_i64().filter(|_| fits);
        let bound = if integer.is_some() { bound.trunc() } else { bound };
        if limit == Limit::MultipleOf && bound <= 0.0 {
            let why = format!("factor MultipleOf declared for {path} must be positive: {bound}");
            causes.push(Cause::new("FieldValueInvalid", path.to_string(), invalid(&shown(bound), &why)));
            continue;
        }
        let checked = match integer {
            Some(value) => limit.of_integers(value, bound as i64),
            None => limit.of_floats(number.as_f64().unwrap_or_default(), bound, number.is_f64()),
        };
        if let Err(why) = checked {
            let why = format!("{path} in body {why}");
            let value = Value::Number(number.clone());
            causes.push(Cause::new("FieldValueInvalid", path.to_string(), invalid(&value, &why)));
        }
    }
}

/// Returns a number as Go shows it: without a point if it is whole.
fn shown(number: f64) -> Value {
    if number.fract() == 0.0 { Value::from(number as i64) } else { Value::from(number) }
}

/// Returns whether a number is a multiple of a positive factor. A float is one only if the quotient is an integer that
/// floats represent exactly (`IsFloat64AJSONInteger` in `swag`). Decimal fractions are not exact, so a small error is
/// allowed.
fn is_multiple(value: f64, factor: f64, is_float: bool) -> bool {
    let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
    let is_too_large = is_float && quotient.abs() > MAX_EXACT;
    !is_too_large && (quotient - quotient.round()).abs() <= f64::EPSILON * quotient.abs().max(1.0) * 4.0
}

/// Checks that a number is in the range of the schema's type and format. Returns whether it is.
fn check_range(schema: &Schema, number: &Number, what: &str, path: &FieldPath<'_>, causes: &mut Vec<Cause>) -> bool {
    let format = schema.format.as_deref();
    let fits = match (schema.kind, format) {
        (Some(Kind::Integer), Some("int32")) => in_range(number, i32::MIN.into(), i32::MAX.into()),
        // Kubernetes ignores formats that it doesn't know, such as `uint32`.
        (Some(Kind::Integer), _) => in_range(number, i64::MIN.into(), i64::MAX.into()),
        (Some(Kind::Number), Some("float" | "float32")) => {
            number.as_f64().is_some_and(|number| number.abs() <= f32::MAX.into())
        }
        _ => true,
    };
    if !fits {
        let kind = schema.kind.map_or("", Kind::as_str);
        let format = format.map_or_else(|| "(default format)".into(), |format| format!("with format {format}"));
        let why = format!("{what} value must be of type {kind} {format} in {path}");
        causes.push(Cause::invalid(NO_FIELD, &"".into(), &why));
    }
    fits
}

fn in_range(number: &Number, min: i128, max: i128) -> bool {
    let exact = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match exact {
        Some(number) => (min..=max).contains(&number),
        None => number
            .as_f64()
            .is_some_and(|number| number.fract() == 0.0 && number >= min as f64 && number < (max + 1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{Definitions, Node, parse::from_openapi, validate::validate};

    #[track_caller]
    fn check(limits: Value, value: Value, expect: &[&str]) {
        let schema = from_openapi(&json!({"type": "object", "properties": {"x": limits}}));
        let definitions = Definitions::default();
        let causes = validate(Node::new(&schema, &definitions), &json!({"x": value}), None);
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn integers_are_compared_with_whole_limits() {
        check(json!({"type": "number", "minimum": 0.5}), json!(0), &[]);
        check(
            json!({"type": "number", "minimum": 0.5}),
            json!(0.25),
            &["x: Invalid value: 0.25: x in body should be greater than or equal to 0.5"],
        );
        check(
            json!({"type": "number", "maximum": 9.5}),
            json!(10),
            &["x: Invalid value: 10: x in body should be less than or equal to 9"],
        );
    }

    #[test]
    fn limits_of_integers_are_integers() {
        let wrong = "<nil>: Invalid value: \"\": Minimum boundary value must be of type integer (default format) in x";
        let low = "x: Invalid value: 1: x in body should be greater than or equal to 2.5";
        check(json!({"type": "integer", "minimum": 2.5}), json!(1), &[wrong, low]);
        check(json!({"type": "integer", "minimum": 2.5}), json!(3), &[wrong]);
    }

    #[test]
    fn factors_are_positive() {
        let negative = "x: Invalid value: -1: factor MultipleOf declared for x must be positive: -1";
        check(json!({"type": "integer", "multipleOf": -1}), json!(2), &[negative]);
        let zero = "x: Invalid value: 0: factor MultipleOf declared for x must be positive: 0";
        check(json!({"type": "number", "multipleOf": 0.5}), json!(2), &[zero]);
        check(json!({"type": "number", "multipleOf": 0.5}), json!(2.5), &[]);
    }
}
