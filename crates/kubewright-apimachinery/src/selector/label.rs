//! Label selectors: `app=at,tier in (a, b),!canary`
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>).

use std::fmt;

use serde_json::Value;

use super::SelectorError;
use crate::{name, status::Cause};

/// A label selector. All its requirements must match. A selector without requirements matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// The values to compare with, sorted: none for existence, one for (in)equality and order, one or more for sets.
    pub values: Vec<String>,
}

/// The comparison of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operator {
    Equals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Requirement {
    /// Creates a requirement. Checks the key, the values and their number.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, SelectorError> {
        let mut causes = Vec::new();
        let wrong = name::label_key(key);
        if !wrong.is_empty() {
            causes.push(Cause::invalid("key", &Value::from(key), &wrong.join("; ")));
        }
        let number_is_wrong = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        causes.extend(number_is_wrong.map(|why| Cause::invalid("values", &Value::from(values.clone()), why)));
        for (index, value) in values.iter().enumerate() {
            let shown = Value::from(value.as_str());
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                causes.push(Cause::invalid(format!("values[{index}]"), &shown, why));
            }
            let wrong = name::label_value(value);
            if !wrong.is_empty() {
                causes.push(Cause::invalid(format!("values[{index}][{key}]"), &shown, &wrong.join("; ")));
            }
        }
        match causes.as_slice() {
            [] => {
                values.sort_unstable();
                values.dedup();
                Ok(Self { key: key.into(), operator, values })
            }
            [one] => Err(SelectorError(one.to_string())),
            many => {
                Err(SelectorError(format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))))
            }
        }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let is_listed = |label: &str| self.values.iter().any(|value| value == label);
        let order = |label: &str| {
            let (label, bound) = (label.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?);
            Some(label.cmp(&bound))
        };
        match self.operator {
            Operator::Equals | Operator::In => label.is_some_and(is_listed),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(is_listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => label.and_then(order).is_some_and(|order| order.is_gt()),
            Operator::LessThan => label.and_then(order).is_some_and(|order| order.is_lt()),
        }
    }
}

impl LabelSelector {
    /// Returns a selector that matches nothing, as an absent `LabelSelector` does.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Parses the `labelSelector` parameter of a request.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let requirements = Parser { tokens: scan(text), at: 0 }.requirements()?;
        Ok(Self::from_requirements(requirements))
    }

    /// Creates a selector from requirements.
    pub fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Converts a `LabelSelector` object: `matchLabels` and `matchExpressions`. Null matches nothing, an empty object
    /// everything.
    pub fn from_object(object: &Value) -> Result<Self, SelectorError> {
        if object.is_null() {
            return Ok(Self::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.into()])?);
        }
        for expression in object["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
            };
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(Requirement::new(expression["key"].as_str().unwrap_or_default(), operator, values)?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// Returns whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Returns the requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns whether the selector matches an object whose labels `lookup` returns.
    pub fn matches<S: AsRef<str>>(&self, lookup: impl Fn(&str) -> Option<S>) -> bool {
        let matches = |one: &Requirement| one.matches(lookup(&one.key).as_ref().map(AsRef::as_ref));
        !self.nothing && self.requirements.iter().all(matches)
    }

    /// Returns whether the selector matches an object with these `metadata.labels`. A value other than an object counts
    /// as no labels.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (key, values) = (&one.key, one.values.join(","));
            match one.operator {
                Operator::Equals => write!(f, "{comma}{key}={values}"),
                Operator::NotEquals => write!(f, "{comma}{key}!={values}"),
                Operator::In => write!(f, "{comma}{key} in ({values})"),
                Operator::NotIn => write!(f, "{comma}{key} notin ({values})"),
                Operator::Exists => write!(f, "{comma}{key}"),
                Operator::DoesNotExist => write!(f, "{comma}!{key}"),
                Operator::GreaterThan => write!(f, "{comma}{key}>{values}"),
                Operator::LessThan => write!(f, "{comma}{key}<{values}"),
            }?;
        }
        Ok(())
    }
}

/// Splits a text into tokens. The meaning of a token depends on its position, since `in` may also be a key or a value.
/// The list ends with an empty token.
fn scan(text: &str) -> Vec<&str> {
    const SPECIAL: &[char] = &['=', '!', '(', ')', ',', '>', '<'];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if rest.starts_with(SPECIAL) {
            1
        } else {
            rest.find(|c: char| c.is_whitespace() || SPECIAL.contains(&c)).unwrap_or(rest.len())
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

fn is_identifier(token: &str) -> bool {
    !matches!(token, "" | "=" | "==" | "!=" | "!" | "(" | ")" | "," | ">" | "<")
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                "" => return Ok(requirements),
                token if token == "!" || is_identifier(token) => {}
                token => return Err(found(token, ", expected: !, identifier, or 'end of string'")),
            }
            let requirement =
                self.requirement().map_err(|why| SelectorError(format!("unable to parse requirement: {why}")))?;
            requirements.push(requirement);
            match self.next() {
                "" => return Ok(requirements),
                "," => {
                    let token = self.peek();
                    if token != "!" && !is_identifier(token) {
                        return Err(found(token, ", expected: identifier after ','"));
                    }
                }
                token => return Err(found(token, ", expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.peek() == "!";
        if negated {
            self.at += 1;
        }
        let key = self.next();
        if !is_identifier(key) {
            return Err(found(key, ", expected: identifier"));
        }
        let wrong = name::label_key(key);
        if !wrong.is_empty() {
            // kube-apiserver has no field here, and prints Go's `<nil>`.
            return Err(SelectorError(Cause::invalid("<nil>", &Value::from(key), &wrong.join("; ")).to_string()));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), "" | ",") {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.next() {
            "=" | "==" => Operator::Equals,
            "!=" => Operator::NotEquals,
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            token => return Err(found(token, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => vec![self.value()?.to_owned()],
        };
        Requirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<&'a str, SelectorError> {
        match self.peek() {
            "" | "," => Ok(""),
            token if is_identifier(token) => Ok(self.next()),
            token => Err(found(token, ", expected: identifier")),
        }
    }

    /// Parses `(a, b)`. Nothing between two commas is the empty string.
    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.next();
        if open != "(" {
            return Err(found(open, " expected: '('"));
        }
        let mut values = Vec::new();
        let mut value = "";
        loop {
            match self.next() {
                "," => values.push(std::mem::take(&mut value).to_owned()),
                ")" => {
                    values.push(value.to_owned());
                    return Ok(values);
                }
                token if is_identifier(token) && value.is_empty() => value = token,
                token if !value.is_empty() => return Err(found(token, ", expected: ',' or ')'")),
                token => return Err(found(token, ", expected: ',', ')' or identifier")),
            }
        }
    }
}

fn found(token: &str, expected: &str) -> SelectorError {
    SelectorError(format!("found '{token}'{expected}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, labels: Value, expect: bool) {
        let selector = LabelSelector::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(selector.matches_labels(&labels), expect, "{text} on {labels}");
        let printed = selector.to_string();
        assert_eq!(LabelSelector::parse(&printed).unwrap(), selector, "{text} must survive printing as {printed}");
    }

    #[test]
    fn matching() {
        check("", json!(null), true);
        check("a=b", json!({"a": "b"}), true);
        check("a == b", json!({"a": "c"}), false);
        check("a!=b", json!({}), true);
        check("a!=b", json!({"a": "b"}), false);
        check("a in (b, c)", json!({"a": "c"}), true);
        check("a in (b,c)", json!({}), false);
        check("a notin (b,c)", json!({}), true);
        check("a notin (b,c)", json!({"a": "b"}), false);
        check("a,!b", json!({"a": ""}), true);
        check("a,!b", json!({"a": "", "b": ""}), false);
        check("a>1,a<10", json!({"a": "9"}), true);
        check("a>1", json!({"a": "x"}), false);
        check("x.y/z=,b", json!({"x.y/z": "", "b": "1"}), true);
        check("a in ()", json!({"a": ""}), true);
        check("a in (,b)", json!({"a": ""}), true);
        check("in in (in,notin),notin", json!({"in": "notin", "notin": "x"}), true);
    }

    #[test]
    fn objects() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"app": "at"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["x", "y"]},
                {"key": "canary", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert_eq!(selector.to_string(), "app=at,!canary,tier notin (x,y)");
        assert!(selector.matches_labels(&json!({"app": "at"})));
        assert!(!selector.matches_labels(&json!({"app": "at", "canary": ""})));
        assert!(LabelSelector::from_object(&json!({})).unwrap().is_empty());
        let nothing = LabelSelector::from_object(&Value::Null).unwrap();
        assert!(!nothing.is_empty() && !nothing.matches_labels(&json!({"a": "b"})));
        let error = LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]}));
        assert_eq!(error.unwrap_err().to_string(), r#""Gt" is not a valid label selector operator"#);
    }

    #[track_caller]
    fn check_error(text: &str, expect: &str) {
        let error = LabelSelector::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{text}: {error}");
    }

    #[test]
    fn errors() {
        check_error("a,", "found '', expected: identifier after ','");
        check_error(",a", "found ',', expected: !, identifier, or 'end of string'");
        check_error("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        check_error("a=b c", "found 'c', expected: ',' or 'end of string'");
        check_error("!", "unable to parse requirement: found '', expected: identifier");
        check_error("a in b", "unable to parse requirement: found 'b' expected: '('");
        check_error("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
        check_error("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier");
        check_error("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'");
        check_error("a==(b", "unable to parse requirement: found '(', expected: identifier");
        check_error("-a", r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of"#);
        check_error("a=-b", r#"unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be"#);
        check_error("a>b", r#"unable to parse requirement: values[0]: Invalid value: "b": for 'Gt', 'Lt' operators,"#);
    }
}
