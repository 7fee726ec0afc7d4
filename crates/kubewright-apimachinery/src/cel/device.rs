//! Expressions that select devices: claims and device classes
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>).

use std::{collections::BTreeMap, sync::Arc};

use super::{
    check::{Environment, Fields, Type},
    estimate::SizeLimits,
    program,
};

/// The greatest cost of an expression.
const MAX_COST: u64 = 1_000_000;
/// The greatest length of the name of a driver, and of the value of an attribute.
const MAX_DRIVER: u64 = 63;
const MAX_VALUE: u64 = 64;
/// The greatest lengths of the domain and of the rest of the name of an attribute or a capacity.
const MAX_DOMAIN: u64 = 63;
const MAX_ID: u64 = 32;
/// The greatest number of attributes and capacities.
const MAX_ENTRIES: u64 = 32;

/// The reason why Kubernetes refuses the expression of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorRefusal {
    /// The expression can't be parsed, or has parts of wrong types.
    Invalid(String),
    /// No program can be made of the expression.
    Program(String),
    /// The evaluation could be too expensive.
    TooComplex,
}

/// Checks an expression about the variable `device`.
///
/// # Errors
/// The reason why Kubernetes refuses it.
pub fn check_device_selector(expression: &str) -> Result<(), SelectorRefusal> {
    let environment = Environment { binds: true, ..Environment::default() }.with("device", device());
    let checked = program::check_rule(expression, &environment, &limits());
    let checked = checked.map_err(|why| {
        // Nothing is at the first character of an empty text.
        let why = if expression.is_empty() { why.replacen("<input>:1:1:", "<input>:1:0:", 1) } else { why };
        SelectorRefusal::Invalid(format!("compilation failed: {why}"))
    })?;
    if !matches!(checked.of, Type::Bool) && !checked.of.is_open() {
        let why = format!("must evaluate to bool or the unknown type, not {}", checked.of);
        return Err(SelectorRefusal::Invalid(why));
    }
    if let Some(why) = checked.invalid_literal {
        return Err(SelectorRefusal::Program(format!("program instantiation failed: {why}")));
    }
    if checked.cost > MAX_COST { Err(SelectorRefusal::TooComplex) } else { Ok(()) }
}

fn object(fields: [(&str, Type); 4]) -> Type {
    let fields = fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
    Type::Object(Arc::new(Fields { name: "kubernetes.DRADevice", fields }))
}

/// The type of a device.
fn device() -> Type {
    let by_domain = |values: Type| Type::map(Type::String, Type::map(Type::String, values));
    object([
        ("driver", Type::String),
        ("attributes", by_domain(Type::Dyn)),
        ("capacity", by_domain(Type::Opaque("kubernetes.Quantity"))),
        ("allowMultipleAllocations", Type::Bool),
    ])
}

/// The greatest sizes of a device.
fn limits() -> SizeLimits {
    let leaf = |greatest: u64| SizeLimits { greatest, ..SizeLimits::default() };
    let entries = |key: u64, values: SizeLimits| SizeLimits {
        greatest: MAX_ENTRIES,
        items: Some(Box::new(values)),
        keys: Some(Box::new(leaf(key))),
        ..SizeLimits::default()
    };
    let mut attributes = entries(MAX_ID, leaf(MAX_VALUE));
    attributes.entries = Some(Box::new(leaf(MAX_VALUE)));
    let fields = [
        ("driver", leaf(MAX_DRIVER)),
        ("attributes", entries(MAX_DOMAIN, attributes)),
        ("capacity", entries(MAX_DOMAIN, entries(MAX_ID, leaf(0)))),
        ("allowMultipleAllocations", leaf(0)),
    ];
    let fields: BTreeMap<_, _> = fields.into_iter().map(|(name, limits)| (name.to_owned(), limits)).collect();
    SizeLimits { fields, ..SizeLimits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers are those of Kubernetes 1.36.3.
    #[test]
    fn selectors_are_checked() {
        let first = |text: &str| match check_device_selector(text) {
            Err(SelectorRefusal::Invalid(why) | SelectorRefusal::Program(why)) => {
                why.lines().next().unwrap_or_default().to_owned()
            }
            other => format!("{other:?}"),
        };
        let failed = |why: &str| format!("compilation failed: ERROR: <input>:{why}");
        for text in [
            "device.driver == 'x.io'",
            "device.attributes['a.io'].x",
            "device.attributes['a.io'].x == 'y'",
            "device.capacity['a.io'].mem.isGreaterThan(quantity('1'))",
            "device.attributes['a.io'].v.isGreaterThan(semver('1.0.0'))",
            "cel.bind(d, device.attributes['a.io'], d.x == 1)",
            "cel.bind(x, device.driver, cel.bind(y, x, x == y))",
            "cel.bind(x, device.attributes, x['a'].b == 1)",
            "'a' in device.attributes['b'] && device.allowMultipleAllocations == true",
            "device.attributes['a'].?x.orValue(1) == 1",
            "device.attributes['a'].x == semver('1.0.0')",
        ] {
            assert_eq!(check_device_selector(text), Ok(()), "{text}");
        }
        assert_eq!(first("device.driver"), "must evaluate to bool or the unknown type, not string");
        assert_eq!(first("device"), "must evaluate to bool or the unknown type, not kubernetes.DRADevice");
        assert_eq!(first("device.foo == 1"), failed("1:7: undefined field 'foo'"));
        assert_eq!(first("self == 1"), failed("1:1: undeclared reference to 'self' (in container '')"));
        assert_eq!(first("device.driver.matches('[')"), failed("1:23: invalid matches argument"));
        assert_eq!(
            first("device.capacity['a'].m > 1"),
            failed("1:24: found no matching overload for '_>_' applied to '(kubernetes.Quantity, int)'")
        );
        assert!(first("").starts_with(&failed("1:0: Syntax error: mismatched input '<EOF>'")));
        assert_eq!(
            first("cel.bind(x, 1, x == \"a\")"),
            failed("1:18: found no matching overload for '_==_' applied to '(int, string)'")
        );
        assert_eq!(first("cel.bind(x, device.driver, x)"), "must evaluate to bool or the unknown type, not string");
        assert_eq!(first("cel.bind(x, device.nope, true)"), failed("1:19: undefined field 'nope'"));
        assert_eq!(first("cel.bind(x, 1, y == 2)"), failed("1:16: undeclared reference to 'y' (in container '')"));
        let all = |name: &str, inner: &str| format!("device.attributes.all({name}, {inner})");
        let nested = all("k", &all("l", &all("m", &all("n", "k == n"))));
        assert_eq!(check_device_selector(&nested), Err(SelectorRefusal::TooComplex));
        // The sizes of keys count.
        let thrice = |inner: &str| all("k", &all("l", &all("m", inner)));
        for (text, expect) in [
            (thrice("k == l"), Ok(())),
            (thrice("k.contains('aaaaaaaaaa')"), Ok(())),
            (thrice("k.contains(m)"), Err(SelectorRefusal::TooComplex)),
            (
                all("k", &all("l", "device.capacity.all(m, k.matches('aaaaaaaaaaaaaaaaaaaa'))")),
                Err(SelectorRefusal::TooComplex),
            ),
            (
                all("k", "device.attributes[k].all(l, device.attributes.all(m, l.contains(m)))"),
                Err(SelectorRefusal::TooComplex),
            ),
            (all("k", "device.attributes[k].all(l, device.capacity[k].all(m, l.contains(m)))"), Ok(())),
        ] {
            assert_eq!(check_device_selector(&text), expect, "{text}");
        }
    }
}
