//! Field selectors: `metadata.name=at-1,status.phase!=Running`
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/>).

use std::fmt;

use super::SelectorError;

/// A field selector. All its requirements must match. A selector without requirements matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

/// A comparison of one field with one value. An absent field equals the empty string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field's path, such as `status.phase`.
    pub field: String,
    /// True if the field must differ from `value`.
    pub negated: bool,
    /// The value to compare with.
    pub value: String,
}

impl FieldSelector {
    /// Parses `a=b`, `a==b` and `a!=b`, separated by commas. In a value, `\` escapes `\`, `,` and `=`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        // As in Kubernetes, the first of several errors is that of the first term in alphabetical order.
        let mut terms = split_at_commas(text);
        terms.sort_unstable();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, operator, value)) = split_at_operator(term) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            let value = unescape(value)?;
            requirements.push(FieldRequirement { field: field.into(), negated: operator == "!=", value });
        }
        Ok(Self(requirements))
    }

    /// Returns whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the requirements, so that callers can check that the kind supports each field.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// Returns the value that `field` must have, if the selector requires a specific one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|one| one.field == field && !one.negated).map(|one| one.value.as_str())
    }

    /// Returns whether the selector matches an object whose fields `lookup` returns.
    pub fn matches<S: AsRef<str>>(&self, lookup: impl Fn(&str) -> Option<S>) -> bool {
        self.0.iter().all(|one| {
            let equal = lookup(&one.field).map_or(one.value.is_empty(), |value| value.as_ref() == one.value);
            equal != one.negated
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if one.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}", one.field)?;
            for c in one.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

fn split_at_commas(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_at_operator(term: &str) -> Option<(&str, &str, &str)> {
    term.char_indices().find_map(|(at, _)| {
        let rest = &term[at..];
        let operator = ["!=", "==", "="].into_iter().find(|operator| rest.starts_with(operator))?;
        Some((&term[..at], operator, &rest[operator.len()..]))
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let bad_escape =
        |sequence: &str| SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => return Err(bad_escape(&format!("\\{next}"))),
                None => return Err(bad_escape("\\")),
            },
            ',' | '=' => {
                // Go writes the number of the character.
                let why = format!("invalid field selector: unescaped character in value: {}", u32::from(c));
                return Err(SelectorError(why));
            }
            _ => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(field: &str) -> Option<&'static str> {
        match field {
            "metadata.name" => Some("at-1"),
            "odd" => Some("a,b=c\\d"),
            _ => None,
        }
    }

    #[track_caller]
    fn check(text: &str, expect: bool) {
        let selector = FieldSelector::parse(text).unwrap();
        assert_eq!(selector.matches(lookup), expect, "{text}");
        assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector, "{text} must survive printing");
    }

    #[test]
    fn matching() {
        check("", true);
        check("metadata.name=at-1", true);
        check("metadata.name==at-1,,absent=", true);
        check("metadata.name!=at-1", false);
        check("metadata.name=at-1,metadata.name=at-2", false);
        check("absent!=x", true);
        check("absent!=", false);
        check(r"odd=a\,b\=c\\d", true);
    }

    #[test]
    fn exact_value() {
        let selector = FieldSelector::parse("a!=b,metadata.name=at-1").unwrap();
        assert_eq!((selector.exact("metadata.name"), selector.exact("a")), (Some("at-1"), None));
    }

    #[track_caller]
    fn check_error(text: &str, expect: &str) {
        assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), expect);
    }

    #[test]
    fn errors() {
        check_error("a", "invalid selector: 'a'; can't understand 'a'");
        check_error("x=y,a", "invalid selector: 'x=y,a'; can't understand 'a'");
        check_error("a=b=c", "invalid field selector: unescaped character in value: 61");
        check_error("z,a", "invalid selector: 'z,a'; can't understand 'a'");
        check_error(r"a=\b", r"invalid field selector: invalid escape sequence: \b");
        check_error(r"a=b\", r"invalid field selector: invalid escape sequence: \");
    }
}
