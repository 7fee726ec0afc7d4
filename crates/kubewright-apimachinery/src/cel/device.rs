//! Expressions that select devices: claims and device classes
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use kube_cel::cel::{
    self,
    objects::{Key, Map},
};
use serde_json::Value;

use super::{
    check::{Environment, Fields, Type},
    cost::Meter,
    domains::Domains,
    estimate::SizeLimits,
    kind, library, program,
    program::Program,
    quantity,
    value::{from_json, key},
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

/// An expression that selects devices, compiled once.
#[derive(Debug)]
pub struct DeviceSelector(Program);

impl DeviceSelector {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The syntax error.
    pub fn new(expression: &str) -> Result<Self, String> {
        Program::parse(expression).map(Self).map_err(|why| format!("compilation failed: {why}"))
    }

    /// Returns whether the expression selects a device of a driver, an item of `spec.devices` of a ResourceSlice.
    ///
    /// # Errors
    /// The reason why that can't be decided, in Kubernetes' wording.
    pub fn selects(&self, driver: &str, device: &Value) -> Result<bool, String> {
        let attributes = by_domain(driver, &device["attributes"], |name, value| {
            attribute(value).map_err(|why| format!("attribute {name}: {why}"))
        })?;
        let capacity = by_domain(driver, &device["capacity"], |_, value| {
            let amount = value["value"].as_str().and_then(quantity::parse);
            amount.ok_or_else(|| "unsupported capacity value".to_owned())
        })?;
        let shared = device["allowMultipleAllocations"] == true;
        let fields: [(&str, cel::Value); 4] = [
            ("driver", driver.into()),
            ("allowMultipleAllocations", shared.into()),
            ("attributes", attributes),
            ("capacity", capacity),
        ];
        let fields = fields.into_iter().map(|(name, value)| (key(name), value)).collect();
        let device = cel::Value::Map(Map { map: Arc::new(fields) });
        match self.0.run(&[("device", device)], None, &mut Meter::per_call()) {
            Ok(cel::Value::Bool(selects)) => Ok(selects),
            Ok(other) => Err(format!("CEL result of type {} could not be converted to bool", kind::name(&other))),
            Err(failure) => Err(failure.to_string()),
        }
    }
}

/// Converts a map whose names may have a domain; that of the others is the driver.
fn by_domain(
    driver: &str,
    values: &Value,
    convert: impl Fn(&str, &Value) -> Result<cel::Value, String>,
) -> Result<cel::Value, String> {
    let mut domains: HashMap<Key, HashMap<Key, cel::Value>> = HashMap::new();
    for (name, value) in values.as_object().into_iter().flatten() {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        domains.entry(key(domain)).or_default().insert(key(id), convert(name, value)?);
    }
    Ok(Domains::value(domains))
}

/// Converts an attribute, which has one of several types.
fn attribute(value: &Value) -> Result<cel::Value, String> {
    let typed = ["int", "bool", "string"].iter().find_map(|of| value.get(of));
    if let Some(typed) = typed {
        return Ok(from_json(typed));
    }
    let version = value["version"].as_str().ok_or("unsupported attribute value")?;
    library::convert("semver", version).ok_or_else(|| format!("parse semantic version: {version}"))
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
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_are_selected() {
        let device = json!({
            "name": "gpu-0",
            "attributes": {
                "model": {"string": "a100"}, "cores": {"int": 8}, "b.io/fast": {"bool": true},
                "version": {"version": "2.1.0"},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        });
        let check = |text: &str, expect: Result<bool, &str>| {
            assert_eq!(check_device_selector(text), Ok(()), "{text}");
            let selector = DeviceSelector::new(text).expect("an expression");
            assert_eq!(selector.selects("a.io", &device), expect.map_err(str::to_owned), "{text}");
        };
        check("device.driver == 'a.io'", Ok(true));
        check("device.attributes['a.io'].model == 'a100' && device.attributes['a.io'].cores >= 8", Ok(true));
        check("device.attributes['b.io'].fast", Ok(true));
        check("device.attributes['a.io'].version.isGreaterThan(semver('2.0.9'))", Ok(true));
        check("device.capacity['a.io'].memory.isLessThan(quantity('40Gi'))", Ok(false));
        check("device.capacity['a.io'].memory == quantity('40Gi')", Ok(true));
        check("device.allowMultipleAllocations", Ok(false));
        check("cel.bind(a, device.attributes['a.io'], a.cores == 8 && a.model.startsWith('a'))", Ok(true));
        // The map of another domain is empty.
        check("device.attributes['c.io'].model == 'a100'", Err("no such key: model"));
        check("has(device.attributes['c.io'].model)", Ok(false));
        check("device.attributes['c.io'].?model.orValue('') == ''", Ok(true));
        check("'c.io' in device.attributes || 'model' in device.attributes['c.io']", Ok(false));
        check("'b.io' in device.attributes && device.attributes.exists(d, 'fast' in device.attributes[d])", Ok(true));
        check("device.attributes.size() == 2", Ok(true));
        check("device.attributes['a.io'].model", Err("CEL result of type string could not be converted to bool"));
        let list = json!({"attributes": {"all": {"strings": ["a"]}}});
        let selected = DeviceSelector::new("true").expect("an expression").selects("a.io", &list);
        assert_eq!(selected, Err("attribute all: unsupported attribute value".to_owned()));
    }

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
