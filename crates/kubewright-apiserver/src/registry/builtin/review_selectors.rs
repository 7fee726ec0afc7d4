//! The selectors of access reviews: those of the list or watch that a review asks about
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/>). The roles don't depend on them; what
//! nodes may do depends on fields.

use kubewright_apimachinery::{
    name,
    selector::{FieldSelector, LabelSelector, Operator, Requirement},
};
use serde_json::Value;

use super::validation::{Errors, Path, field, items, string, strings, validate_label_name};

/// The operators of requirements. Others are for newer servers, so that they aren't errors.
const OPERATORS: [(&str, Operator); 4] = [
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
];

/// Checks the selectors of `spec.resourceAttributes`.
pub(super) fn validate(attributes: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, is_label) in [("fieldSelector", false), ("labelSelector", true)] {
        let Some(selector) = field(attributes, name) else { continue };
        let path = path.child(name);
        let (raw, requirements) = (string(selector, "rawSelector"), items(selector, "requirements"));
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => {
                errors.invalid(&path.child("rawSelector"), raw, "may not specified at the same time as requirements");
            }
            (true, true) => {
                let why = format!("when {path} is specified, requirements or rawSelector is required");
                errors.required(&path.child("requirements"), &why);
            }
            _ => {}
        }
        let at = path.child("requirements");
        for (index, requirement) in requirements.iter().enumerate() {
            validate_requirement(requirement, is_label, &at.index(index), errors);
        }
    }
}

fn validate_requirement(requirement: &Value, is_label: bool, path: &Path<'_>, errors: &mut Errors) {
    let key = string(requirement, "key");
    if !is_label && key.is_empty() {
        errors.required(&path.child("key"), "must be specified");
    }
    let at = path.child("values");
    match (string(requirement, "operator"), items(requirement, "values").is_empty()) {
        ("In" | "NotIn", true) => errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'"),
        ("Exists" | "DoesNotExist", false) => {
            errors.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        _ => {}
    }
    if is_label {
        validate_label_name(key, &path.child("key"), errors);
        for (index, value) in strings(requirement, "values").enumerate() {
            errors.invalid_text(&at.index(index), value, &name::label_value(value));
        }
    }
}

/// Returns the fields that the selector requires to have certain values, as far as it can be evaluated.
pub(super) fn exact_fields(attributes: &Value) -> Vec<(String, String)> {
    let selector = &attributes["fieldSelector"];
    let requirements = items(selector, "requirements");
    if requirements.is_empty() {
        let selector = FieldSelector::parse(string(selector, "rawSelector")).unwrap_or_default();
        let exact = selector.requirements().iter().filter(|one| !one.negated);
        return exact.map(|one| (one.field.clone(), one.value.clone())).collect();
    }
    let exact = requirements.iter().filter(|one| string(one, "operator") == "In" && is_understood(one, false));
    let pairs = exact.flat_map(|one| strings(one, "values").map(move |value| (string(one, "key"), value)));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Returns the error about the selectors that can't be evaluated, if any.
pub(super) fn evaluation_error(attributes: &Value) -> Option<String> {
    let mut all = Vec::new();
    for (name, is_label) in [("fieldSelector", false), ("labelSelector", true)] {
        let (raw, requirements) = (string(&attributes[name], "rawSelector"), items(&attributes[name], "requirements"));
        let is_raw = match is_label {
            true => LabelSelector::parse(raw).is_ok(),
            false => FieldSelector::parse(raw).is_ok(),
        };
        let understood = requirements.iter().filter(|one| is_understood(one, is_label)).count();
        let how = match understood {
            // Requirements precede the text.
            _ if requirements.is_empty() && is_raw || !requirements.is_empty() && understood == requirements.len() => {
                continue;
            }
            0 => "ignored",
            _ => "partially ignored",
        };
        all.push(format!("spec.resourceAttributes.{name} {how} due to parse error"));
    }
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns whether a requirement can be evaluated. Fields are only compared with one value.
fn is_understood(requirement: &Value, is_label: bool) -> bool {
    let (key, operator) = (string(requirement, "key"), string(requirement, "operator"));
    let operator = OPERATORS.iter().find(|(name, _)| *name == operator).map(|(_, operator)| *operator);
    let values: Vec<_> = strings(requirement, "values").map(str::to_owned).collect();
    match operator {
        Some(operator) if is_label => Requirement::new(key, operator, values).is_ok(),
        Some(Operator::In | Operator::NotIn) => values.len() == 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_of_reviews_are_checked() {
        let check = |attributes: Value, expect: &[&str]| {
            let found = Errors::collect(|errors| validate(&attributes, &Path::new("a"), errors));
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), expect.len(), "{found:?}");
            found.iter().zip(expect).for_each(|(text, expect)| assert!(text.starts_with(expect), "{text}"));
        };
        check(json!({"fieldSelector": {"rawSelector": "a=b"}, "labelSelector": {"rawSelector": "a=b"}}), &[]);
        check(
            json!({"fieldSelector": {}, "labelSelector": {"rawSelector": "a", "requirements": [{"operator": "Newer"}]}}),
            &[
                "a.fieldSelector.requirements: Required value: when a.fieldSelector is specified, requirements or raw",
                "a.labelSelector.rawSelector: Invalid value: \"a\": may not specified at the same time",
                "a.labelSelector.requirements[0].key: Invalid value: \"\": name part must be non-empty",
                "a.labelSelector.requirements[0].key: Invalid value: \"\": name part must consist of",
            ],
        );
        check(
            json!({"fieldSelector": {"requirements": [{"operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]}]}}),
            &[
                "a.fieldSelector.requirements[0].key: Required value: must be specified",
                "a.fieldSelector.requirements[0].values: Required value: must be specified when",
                "a.fieldSelector.requirements[1].values: Forbidden: may not be specified when",
            ],
        );
    }

    #[test]
    fn fields_with_one_value_are_read() {
        let check = |selector: Value, expect: &[(&str, &str)]| {
            let fields = exact_fields(&json!({"fieldSelector": selector}));
            let fields: Vec<_> = fields.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(fields, expect);
        };
        check(json!(null), &[]);
        check(json!({"rawSelector": "a=b,c!=d"}), &[("a", "b")]);
        let requirement = |operator: &str, values: &[&str]| json!({"key": "a", "operator": operator, "values": values});
        let requirements = [requirement("In", &["b"]), requirement("NotIn", &["c"]), requirement("In", &["d", "e"])];
        check(json!({"requirements": requirements}), &[("a", "b")]);
    }

    #[test]
    fn selectors_that_cannot_be_evaluated_are_reported() {
        let check = |attributes: Value, expect: Option<&str>| {
            assert_eq!(evaluation_error(&attributes).as_deref(), expect, "{attributes}");
        };
        check(json!({}), None);
        check(json!({"fieldSelector": {"rawSelector": "a=b"}, "labelSelector": {"rawSelector": "a in (b)"}}), None);
        let one = json!({"key": "a", "operator": "In", "values": ["b"]});
        check(json!({"fieldSelector": {"requirements": [one]}, "labelSelector": {"requirements": [one]}}), None);
        let ignored = "spec.resourceAttributes.fieldSelector ignored due to parse error";
        check(json!({"fieldSelector": {"requirements": [{"key": "a", "operator": "Exists"}]}}), Some(ignored));
        let partially = "spec.resourceAttributes.labelSelector partially ignored due to parse error";
        let newer = json!({"requirements": [one, {"key": "a", "operator": "Newer"}]});
        check(json!({"labelSelector": newer}), Some(partially));
    }
}
