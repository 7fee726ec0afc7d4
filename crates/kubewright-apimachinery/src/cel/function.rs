//! Function calls. Functions on whole values and strings are evaluated here, without copies. All other library
//! functions are those of [`library`].

use std::sync::Arc;

use kube_cel::cel::{
    Value,
    objects::{Key, Map, Opaque},
};
use regex::Regex;

use super::{
    address, associative,
    authorizer::authorizer_value,
    conversion,
    cost::{Exceeded, Meter, of_match, tenth},
    evaluate::{Evaluation, LIST},
    expression::{Call, Expression},
    failure::{Evaluated, Failure},
    kind, library, list,
    macros::SORT,
    named_format, quantity, semver, string, time,
    value::{optional, optional_of},
};
use crate::{pattern, url::Url};

/// The cost of compiling a regular expression that is not a literal. cel-go doesn't charge for it.
const COMPILATION: u64 = 20_000;

/// The size limit of a compiled regular expression that is not a literal, in bytes. `COMPILATION` covers the time that
/// this takes.
const COMPILED: usize = 256 * 1024;

/// The number of bytes of text that are counted per unit. Counting takes much less time than other operations on text.
const COUNTED: usize = 256;

/// The cost of a permission check, which allows two per expression.
const CHECK: u64 = 350_000;

impl<'e> Evaluation<'e> {
    pub(super) fn call(&mut self, call: &'e Call) -> Evaluated {
        let mut values = Vec::with_capacity(call.arguments.len());
        for (place, argument) in call.arguments.iter().enumerate() {
            // The alternative of an optional is evaluated only if it is needed.
            if place == 1
                && let ("or" | "orValue", Some(Some(present))) = (call.function.as_str(), optional(&values[0]))
            {
                self.meter.charge(1)?;
                let keep = if call.function == "or" { values[0].clone() } else { present.clone() };
                return Ok(keep);
            }
            let value = self.evaluate(argument)?;
            // Only functions that return an argument as it is keep its kind of list.
            values.push(if is_transparent(&call.function) { value } else { associative::plain(value) });
        }
        if call.method
            && let Some((authorizer, arguments)) =
                values.split_first().and_then(|(target, rest)| Some((authorizer_value(target)?, rest)))
        {
            self.meter.charge(if call.function == "check" { CHECK } else { 1 })?;
            return authorizer.call(&call.function, arguments);
        }
        charge(self.meter, &call.function, &values)?;
        match (call.function.as_str(), values.as_slice()) {
            ("size", [value]) => size(value),
            ("type", [value]) => Ok(kind::named(&kind::name(value))),
            ("startsWith", [Value::String(text), Value::String(start)]) => Ok(text.starts_with(&**start).into()),
            ("endsWith", [Value::String(text), Value::String(end)]) => Ok(text.ends_with(&**end).into()),
            ("contains", [Value::String(text), Value::String(part)]) => Ok(text.contains(&**part).into()),
            ("join", [Value::List(items), rest @ ..]) => join(items, rest),
            ("matches", [Value::String(text), Value::String(pattern)]) => {
                Ok(self.pattern(call, pattern)?.is_match(text).into())
            }
            ("find", [Value::String(text), Value::String(pattern)]) => {
                let found = self.pattern(call, pattern)?.find(text).map_or("", |found| found.as_str());
                Ok(found.into())
            }
            ("findAll", [Value::String(text), Value::String(pattern), rest @ ..]) => {
                let limit = match rest {
                    [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                    _ => usize::MAX,
                };
                let pattern = self.pattern(call, pattern)?;
                let found = pattern.find_iter(text).take(limit).map(|found| Value::from(found.as_str()));
                Ok(Value::List(Arc::new(found.collect())))
            }
            ("optional.none", []) => Ok(optional_of(None)),
            ("optional.of", [value]) => Ok(optional_of(Some(value.clone()))),
            ("optional.ofNonZeroValue", [value]) => Ok(optional_of(Some(value.clone()).filter(|it| !it.is_zero()))),
            ("hasValue", [value]) => {
                optional(value).map(|inner| inner.is_some().into()).ok_or_else(Failure::no_such_overload)
            }
            ("value", [value]) => match optional(value) {
                Some(Some(inner)) => Ok(inner.clone()),
                Some(None) => Err(Failure::error("optional.none() dereference")),
                None => Err(Failure::no_such_overload()),
            },
            ("url", [Value::String(text)]) if !call.method => match Url::parse(text) {
                Ok(url) => Ok(Value::Opaque(Arc::new(url))),
                Err(why) => Err(Failure::error(format!("URL parse error during conversion from string: {why}"))),
            },
            ("isURL", [Value::String(text)]) if !call.method => Ok(Url::parse(text).is_ok().into()),
            (name, [Value::Opaque(url)])
                if call.method
                    && let Some(url) = url.downcast_ref::<Url>() =>
            {
                of_url(name, url)
            }
            (SORT, [Value::List(items), Value::List(keys)]) => list::sorted(items, keys),
            ("or" | "orValue", [value, other]) if optional(value).is_some() => Ok(other.clone()),
            (name, known) => match own(name, call.method, known) {
                Some(result) => result,
                None => call_library(name, call.method, values),
            },
        }
    }

    /// Returns the compiled form of a pattern.
    fn pattern(&mut self, call: &'e Call, pattern: &Arc<String>) -> Result<Arc<Regex>, Failure> {
        let compile = |limit| pattern::compile(pattern, limit).map(Arc::new);
        let compiled = if let Some(Expression::Constant(_)) = call.arguments.get(1) {
            call.pattern.get_or_init(|| compile(None)).clone()
        } else if let Some(known) = self.patterns.get(pattern) {
            known.clone()
        } else {
            self.meter.charge(COMPILATION)?;
            let compiled = compile(Some(COMPILED));
            self.patterns.insert(pattern.clone(), compiled.clone());
            compiled
        };
        compiled.map_err(|why| match &*call.function {
            "matches" => Failure::Error(why),
            _ => Failure::Error(format!("Illegal regex: {why}")),
        })
    }
}

/// Returns whether a function returns its argument, perhaps as an optional.
fn is_transparent(function: &str) -> bool {
    matches!(function, "dyn" | "optional.of" | "or" | "orValue")
}

/// Calls a function that `kube-cel` lacks, or that has another result there. `None` if it is another one, or has no
/// overload for these values.
fn own(name: &str, method: bool, values: &[Value]) -> Option<Evaluated> {
    let known = quantity::call(name, values).or_else(|| address::call(name, values));
    known.or_else(|| match values {
        [value] if !method => conversion::convert(name, value)
            .or_else(|| list::call(name, method, values))
            .or_else(|| named_format::call(name, values)),
        _ if !method => list::call(name, method, values)
            .or_else(|| named_format::call(name, values))
            .or_else(|| semver::call(name, values)),
        _ => string::call(name, values)
            .or_else(|| named_format::call(name, values))
            .or_else(|| list::call(name, method, values))
            .or_else(|| time::part(name, values)),
    })
}

/// Calls a function of the library. Its error about the types of the arguments names them.
fn call_library(name: &str, method: bool, values: Vec<Value>) -> Evaluated {
    let names: Vec<_> = values.iter().map(kind::name).collect();
    library::call(name, method, values).map_err(|error| match Failure::from(error) {
        failure if failure == Failure::no_such_overload() => {
            Failure::error(format!("no such overload: {name}({})", names.join(", ")))
        }
        failure => failure,
    })
}

/// Charges for a call by the sizes of its arguments and of its result.
fn charge(meter: &mut Meter, function: &str, values: &[Value]) -> Result<(), Exceeded> {
    let traverse = |meter: &mut Meter| values.iter().try_for_each(|value| meter.charge_traversal(value));
    match (function, values) {
        ("size", [Value::String(text)]) => meter.charge((text.len() / COUNTED + 1) as u64),
        ("size" | "type" | "value" | "hasValue" | "or" | "orValue", _) => meter.charge(1),
        (name, _) if name.starts_with("optional.") => meter.charge(1),
        ("startsWith" | "endsWith", [_, Value::String(part)]) => meter.charge(tenth(part.len()).max(1)),
        ("contains" | "indexOf" | "lastIndexOf", [Value::String(text), Value::String(part), ..]) => {
            meter.charge(tenth(text.len()).max(1).saturating_mul(tenth(part.len()).max(1)))
        }
        ("matches" | "find", [Value::String(text), Value::String(pattern)]) => {
            meter.charge(of_match(text.len(), pattern.len()))
        }
        ("findAll", [Value::String(text), Value::String(pattern), ..]) => {
            // In the worst case, each character matches.
            meter.charge(of_match(text.len(), pattern.len()).saturating_add(text.len() as u64))
        }
        ("replace", [Value::String(text), Value::String(part), Value::String(by), ..]) => {
            meter.charge(2 * tenth(text.len()))?;
            let places = text.matches(&**part).count();
            meter.charge_bytes(places.saturating_mul(by.len()))
        }
        ("split", [Value::String(text), Value::String(separator), ..]) => {
            meter.charge(2 * tenth(text.len()))?;
            meter.charge(text.matches(&**separator).count() as u64)
        }
        ("join", [Value::List(items), rest @ ..]) => {
            meter.charge(items.len() as u64)?;
            let separator = if let [Value::String(separator)] = rest { separator.len() } else { 0 };
            let texts = items.iter().map(|item| if let Value::String(text) = item { text.len() } else { 0 });
            meter.charge_bytes(texts.fold(separator.saturating_mul(items.len()), usize::saturating_add))
        }
        ("format", [Value::String(template), _]) => {
            meter.charge_bytes(template.len())?;
            meter.charge_bytes(precisions(template))?;
            traverse(meter)
        }
        ("lists.range", [Value::Int(length)]) => meter.charge(u64::try_from(*length).unwrap_or_default().max(1)),
        ("distinct" | "sort", [Value::List(items)]) => {
            traverse(meter)?;
            // In the worst case, each item is compared with all preceding ones.
            let length = items.len() as u64;
            meter.charge(if function == "sort" { length } else { length.saturating_mul(length) / 2 })
        }
        (SORT, [_, Value::List(keys)]) => {
            // In the worst case, each key is compared with all others.
            let pairs = (keys.len() as u64).saturating_mul(keys.len() as u64).saturating_mul(2);
            let is_text = matches!(keys.first(), Some(Value::String(_) | Value::Bytes(_)));
            meter.charge(LIST + 1)?;
            meter.charge(pairs.saturating_add(if is_text { pairs.div_ceil(20) } else { 0 }))
        }
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [Value::List(left), Value::List(right)]) => {
            traverse(meter)?;
            let pairs = (left.len() as u64).saturating_mul(right.len() as u64);
            meter.charge(if function == "sets.equivalent" { pairs.saturating_mul(2) } else { pairs })
        }
        _ => traverse(meter).and_then(|()| if values.is_empty() { meter.charge(1) } else { Ok(()) }),
    }
}

/// Returns the sum of the precisions in a template, such as 3 for `%.3f`: the number of digits that they produce.
fn precisions(template: &str) -> usize {
    let digits = template.split("%.").skip(1).map(|rest| {
        let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 { 0 } else { rest[..end].parse().unwrap_or(usize::MAX) }
    });
    digits.fold(0, usize::saturating_add)
}

/// Returns the size as the language defines it: characters, bytes, items or entries.
fn size(value: &Value) -> Evaluated {
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.map.len(),
        _ => return Err(Failure::no_such_overload()),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn join(items: &[Value], rest: &[Value]) -> Evaluated {
    let separator = match rest {
        [] => "",
        [Value::String(separator)] => separator.as_str(),
        _ => return Err(Failure::no_such_overload()),
    };
    let texts = items.iter().map(|item| match item {
        Value::String(text) => Ok(text.as_str()),
        _ => Err(Failure::no_such_overload()),
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join(separator).into())
}

/// Calls a method of a URL.
fn of_url(method: &str, url: &Url) -> Evaluated {
    Ok(match method {
        "getScheme" => url.scheme.as_str().into(),
        "getHost" => url.host.as_str().into(),
        "getHostname" => url.host_name().into(),
        "getPort" => url.port().into(),
        "getEscapedPath" => url.escaped_path().into(),
        "getQuery" => {
            let texts = |texts: Vec<String>| Value::List(Arc::new(texts.into_iter().map(Value::from).collect()));
            let entries = url.query().into_iter().map(|(key, values)| (Key::from(key), texts(values)));
            Value::Map(Map { map: Arc::new(entries.collect()) })
        }
        _ => return Err(Failure::no_such_overload()),
    })
}

/// The methods of URLs are those of the expression language.
impl Opaque for Url {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}
