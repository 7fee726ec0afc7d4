//! Evaluation: walks the expression tree, and charges each step before taking it.
//!
//! `&&`, `||` and the macros can absorb errors of a step, as the language specifies. An exceeded limit is never
//! absorbed.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, hash_map::Entry},
    sync::Arc,
};

use chrono::TimeDelta;
use kube_cel::cel::{
    Value,
    objects::{Key, KeyRef, Map},
};
use regex::Regex;

use super::{
    arithmetic,
    associative::{self, Associative, items},
    authorizer::authorizer_value,
    conversion,
    cost::Meter,
    domains::{Domains, entries},
    expression::{ACCUMULATOR, Element, Expression, Index, Loop, Operator, Select},
    failure::{Evaluated, Failure, undeclared},
    kind,
    message::{Message, message},
    policy::Composed,
    quantity, time,
    value::{optional, optional_of},
};

/// The cost of creating a list, in addition to its elements.
pub(super) const LIST: u64 = 10;
/// The cost of creating a map, in addition to its entries.
const MAP: u64 = 30;
/// The cost of creating a message.
const MESSAGE: u64 = 40;

/// The evaluation of one expression.
pub(super) struct Evaluation<'e> {
    variables: &'e [(&'e str, Value)],
    composed: Option<&'e Composed<'e>>,
    /// The variables of the enclosing loops, innermost last. The accumulator of a loop may be an error, which a later
    /// iteration may absorb.
    locals: Vec<(&'e str, Result<Value, String>)>,
    pub(super) meter: &'e mut Meter,
    /// Compiled regular expressions that are not literals, cached for this evaluation.
    pub(super) patterns: BTreeMap<Arc<String>, Result<Arc<Regex>, String>>,
}

impl<'e> Evaluation<'e> {
    pub(super) fn new(
        variables: &'e [(&'e str, Value)],
        composed: Option<&'e Composed<'e>>,
        meter: &'e mut Meter,
    ) -> Self {
        Self { variables, composed, locals: Vec::new(), meter, patterns: BTreeMap::new() }
    }

    pub(super) fn run(mut self, expression: &'e Expression) -> Evaluated {
        self.evaluate(expression)
    }

    pub(super) fn evaluate(&mut self, expression: &'e Expression) -> Evaluated {
        match expression {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Variable(name) => self.variable(name),
            Expression::Select(select) => self.select(select),
            Expression::Index(index) => self.index(index),
            Expression::Not(operand) => {
                self.meter.charge(1)?;
                self.boolean(operand).map(|value| Value::Bool(!value))
            }
            Expression::Negate(operand) => self.negate(operand),
            Expression::NotStrictlyFalse(operand) => {
                self.meter.charge(1)?;
                match self.boolean(operand) {
                    Err(Failure::Error(_)) => Ok(Value::Bool(true)),
                    evaluated => evaluated.map(Value::Bool),
                }
            }
            Expression::And(operands) => self.logic(operands, false),
            Expression::Or(operands) => self.logic(operands, true),
            Expression::Conditional(branches) => {
                let [condition, yes, no] = &**branches;
                if self.boolean(condition)? { self.evaluate(yes) } else { self.evaluate(no) }
            }
            Expression::Binary(operator, operands) => self.binary(*operator, operands),
            Expression::List(elements) => self.list(elements),
            Expression::Map(entries) => self.map(entries),
            Expression::Append(item) => self.append(item),
            Expression::Insert(inserted) => self.insert(inserted),
            Expression::Loop(parts) => self.run_loop(parts),
            Expression::Call(call) => self.call(call),
            Expression::Message(name, fields) => self.message(name, fields),
        }
    }

    fn variable(&mut self, name: &str) -> Evaluated {
        self.meter.charge(1)?;
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return value.clone().map_err(Failure::Error);
        }
        let found = self.variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| Failure::error(undeclared(name)))
    }

    fn boolean(&mut self, expression: &'e Expression) -> Result<bool, Failure> {
        match self.evaluate(expression)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Failure::no_such_overload()),
        }
    }

    /// Evaluates `&&` or `||`. An operand with the value `decisive` determines the result, even if the other can't be
    /// evaluated.
    fn logic(&mut self, operands: &'e [Expression; 2], decisive: bool) -> Evaluated {
        let left = match self.boolean(&operands[0]) {
            Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
            Err(Failure::Exceeded) => return Err(Failure::Exceeded),
            left => left,
        };
        match (left, self.boolean(&operands[1])) {
            (_, Ok(value)) if value == decisive => Ok(Value::Bool(decisive)),
            (_, Err(Failure::Exceeded)) => Err(Failure::Exceeded),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    fn negate(&mut self, operand: &'e Expression) -> Evaluated {
        let value = self.evaluate(operand)?;
        self.meter.charge(1)?;
        match value {
            Value::Int(value) => value.checked_neg().map(Value::Int).ok_or_else(|| Failure::error("integer overflow")),
            Value::Float(value) => Ok(Value::Float(-value)),
            Value::Duration(value) => time::checked_duration(TimeDelta::zero().checked_sub(&value)),
            _ => Err(Failure::no_such_overload()),
        }
    }

    fn select(&mut self, select: &'e Select) -> Evaluated {
        if let Some(composed) = self.composed_variable(select) {
            self.meter.charge(2)?;
            return if select.test { Ok(true.into()) } else { composed };
        }
        let operand = self.evaluate(&select.operand)?;
        self.meter.charge(1)?;
        let present = match optional(&operand) {
            Some(inner) => inner.map(|inner| entry(inner, &select.field)).transpose()?.flatten(),
            None => entry(&operand, &select.field)?,
        };
        if select.test {
            return Ok(Value::Bool(present.is_some()));
        }
        if optional(&operand).is_some() {
            return Ok(optional_of(present));
        }
        present.ok_or_else(|| Failure::error(format!("no such key: {}", select.field)))
    }

    /// Returns the composed variable that `variables.<name>` selects.
    fn composed_variable(&self, select: &Select) -> Option<Evaluated> {
        let composed = self.composed?;
        let (Expression::Variable(operand), Key::String(name)) = (&select.operand, &select.field) else { return None };
        let is_shadowed = self.locals.iter().any(|(local, _)| *local == "variables");
        if operand == "variables" && !is_shadowed { composed.value(self.variables, name) } else { None }
    }

    fn message(&mut self, name: &str, fields: &'e [(String, Element)]) -> Evaluated {
        self.meter.charge(MESSAGE)?;
        let mut evaluated = BTreeMap::new();
        for (field, element) in fields {
            if let Some(value) = self.element_value(element)? {
                evaluated.insert(field.clone(), value);
            }
        }
        Ok(Value::Opaque(Arc::new(Message { name: name.to_owned(), fields: evaluated })))
    }

    fn index(&mut self, index: &'e Index) -> Evaluated {
        let operand = self.evaluate(&index.operand)?;
        let key = self.evaluate(&index.index)?;
        self.meter.charge(1)?;
        let Some(inner) = optional(&operand) else {
            let found = element(&operand, &key);
            return if index.optional { Ok(optional_of(found.ok())) } else { found };
        };
        Ok(optional_of(inner.and_then(|inner| element(inner, &key).ok())))
    }

    fn binary(&mut self, operator: Operator, operands: &'e [Expression; 2]) -> Evaluated {
        let left = self.evaluate(&operands[0])?;
        let right = self.evaluate(&operands[1])?;
        match operator {
            Operator::Equal | Operator::NotEqual if quantity::is_computed(&right) => Err(Failure::no_such_overload()),
            Operator::Equal => Ok(Value::Bool(self.meter.equal(&left, &right)?)),
            Operator::NotEqual => Ok(Value::Bool(!self.meter.equal(&left, &right)?)),
            Operator::In => self.contains(&right, &left).map(Value::Bool),
            Operator::Less => self.compare(&left, &right).map(|order| Value::Bool(order.is_lt())),
            Operator::LessOrEqual => self.compare(&left, &right).map(|order| Value::Bool(order.is_le())),
            Operator::Greater => self.compare(&left, &right).map(|order| Value::Bool(order.is_gt())),
            Operator::GreaterOrEqual => self.compare(&left, &right).map(|order| Value::Bool(order.is_ge())),
            Operator::Add => self.add(left, right),
            operator => {
                self.meter.charge(1)?;
                arithmetic::calculate(operator, &left, &right)
            }
        }
    }

    /// Adds numbers and times, and concatenates strings and lists. Concatenation is charged by size.
    fn add(&mut self, left: Value, right: Value) -> Evaluated {
        match (&left, &right) {
            (Value::String(left), Value::String(right)) => {
                self.meter.charge_bytes(left.len().saturating_add(right.len()))?;
            }
            (Value::Bytes(left), Value::Bytes(right)) => {
                self.meter.charge_bytes(left.len().saturating_add(right.len()))?;
                return Ok(Value::Bytes(Arc::new([left.as_slice(), right.as_slice()].concat())));
            }
            (left, right) if let (Some(items), Some(more)) = (items(left), items(right)) => {
                self.meter.charge((items.len() as u64).saturating_add(more.len() as u64).max(1))?;
                if let Some(list) = Associative::of(left) {
                    return Ok(list.with(more));
                }
            }
            (left, right) => {
                self.meter.charge(1)?;
                return arithmetic::calculate(Operator::Add, left, right);
            }
        }
        Ok((left + associative::plain(right))?)
    }

    fn compare(&mut self, left: &Value, right: &Value) -> Result<Ordering, Failure> {
        match (left, right) {
            (Value::String(left), Value::String(right)) => self.meter.charge_bytes(left.len().min(right.len()))?,
            (Value::Bytes(left), Value::Bytes(right)) => self.meter.charge_bytes(left.len().min(right.len()))?,
            _ => self.meter.charge(1)?,
        }
        ordering(left, right)
    }

    fn contains(&mut self, container: &Value, wanted: &Value) -> Result<bool, Failure> {
        match container {
            container if let Some(items) = items(container) => {
                self.meter.charge(items.len() as u64)?;
                for item in items.iter() {
                    if self.meter.equal(item, wanted)? && !quantity::is_computed(item) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            container if let Some(map) = entries(container) => {
                self.meter.charge(1)?;
                Ok(lookup(map, wanted).is_some())
            }
            _ => Err(Failure::no_such_overload()),
        }
    }

    fn element_value(&mut self, element: &'e Element) -> Result<Option<Value>, Failure> {
        let value = self.evaluate(&element.value)?;
        if !element.optional {
            return Ok(Some(value));
        }
        optional(&value).map(|inner| inner.cloned()).ok_or_else(Failure::no_such_overload)
    }

    fn list(&mut self, elements: &'e [Element]) -> Evaluated {
        self.meter.charge(LIST)?;
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            items.extend(self.element_value(element)?);
        }
        Ok(Value::List(Arc::new(items)))
    }

    fn map(&mut self, entries: &'e [(Expression, Element)]) -> Evaluated {
        self.meter.charge(MAP)?;
        let mut map = std::collections::HashMap::with_capacity(entries.len());
        for (key, element) in entries {
            let key = key_of(&self.evaluate(key)?)?;
            if let Some(value) = self.element_value(element)? {
                map.insert(key, value);
            }
        }
        Ok(Value::Map(Map { map: Arc::new(map) }))
    }

    /// Returns the accumulator of the innermost loop with one more item. The accumulator itself is left empty, so that
    /// the list is extended in place; the loop then stores the result in it.
    fn append(&mut self, item: &'e Expression) -> Evaluated {
        let item = self.evaluate(item)?;
        self.meter.charge(LIST + 2)?;
        match self.take_accumulator()? {
            Value::List(mut items) => {
                Arc::make_mut(&mut items).push(item);
                Ok(Value::List(items))
            }
            _ => Err(Failure::no_such_overload()),
        }
    }

    /// Returns the accumulator of the innermost loop, and leaves it empty.
    fn take_accumulator(&mut self) -> Evaluated {
        let accumulator = self.locals.iter_mut().rev().find(|(name, _)| *name == ACCUMULATOR);
        let (_, value) = accumulator.ok_or_else(Failure::no_such_overload)?;
        std::mem::replace(value, Ok(Value::Null)).map_err(Failure::Error)
    }

    /// Returns the accumulator of the innermost loop with more entries, in place as [`Self::append`]. No key may be in
    /// it yet.
    fn insert(&mut self, inserted: &'e [Expression]) -> Evaluated {
        let inserted = inserted.iter().map(|part| self.evaluate(part)).collect::<Result<Vec<_>, _>>()?;
        // The accumulator and the call.
        self.meter.charge(2)?;
        let Value::Map(Map { map: mut entries }) = self.take_accumulator()? else {
            return Err(Failure::no_such_overload());
        };
        let place = Arc::make_mut(&mut entries);
        let mut insert = |key: Key, value: &Value| match place.entry(key) {
            Entry::Occupied(known) => Err(Failure::error(format!("insert failed: key {} already exists", known.key()))),
            Entry::Vacant(place) => {
                place.insert(value.clone());
                Ok(())
            }
        };
        match inserted.as_slice() {
            [key, value] => insert(key_of(key)?, value)?,
            [Value::Map(more)] => {
                let mut more: Vec<_> = more.map.iter().collect();
                more.sort_unstable_by_key(|(key, _)| *key);
                more.into_iter().try_for_each(|(key, value)| insert(key.clone(), value))?;
            }
            _ => return Err(Failure::no_such_overload()),
        }
        Ok(Value::Map(Map { map: entries }))
    }

    fn run_loop(&mut self, parts: &'e Loop) -> Evaluated {
        let range = self.evaluate(&parts.range)?;
        let map = entries(&range);
        let items = match &range {
            range if let Some(items) = items(range) => items.clone(),
            range if let Some(map) = entries(range) => {
                // Iterates in order, so that the same object always has the same result.
                self.meter.charge(map.map.len() as u64)?;
                let mut keys: Vec<&Key> = map.map.keys().collect();
                keys.sort_unstable();
                Arc::new(keys.into_iter().map(Value::from).collect())
            }
            other => {
                return Err(Failure::error(format!("got 'types.{}', expected iterable type", kind::go_name(other))));
            }
        };
        let initial = self.evaluate(&parts.initial)?;
        let outer = self.locals.len();
        self.locals.push((&parts.accumulator, Ok(initial)));
        let result = self.rounds(parts, &items, map);
        self.locals.truncate(outer);
        result
    }

    /// Iterates over the items of a list, or over the keys of a map.
    fn rounds(&mut self, parts: &'e Loop, items: &[Value], map: Option<&Map>) -> Evaluated {
        let place = self.locals.len();
        for (index, item) in (0_i64..).zip(items) {
            if !self.boolean(&parts.condition)? {
                break;
            }
            match (&parts.second, map) {
                (None, _) => self.locals.push((&parts.item, Ok(item.clone()))),
                (Some(second), None) => {
                    self.locals.push((&parts.item, Ok(Value::Int(index))));
                    self.locals.push((second, Ok(item.clone())));
                }
                (Some(second), Some(map)) => {
                    let value = KeyRef::try_from(item).ok().and_then(|key| map.get(&key)).cloned();
                    self.locals.push((&parts.item, Ok(item.clone())));
                    self.locals.push((second, Ok(value.unwrap_or(Value::Null))));
                }
            }
            let accumulated = match self.evaluate(&parts.step) {
                Err(Failure::Exceeded) => return Err(Failure::Exceeded),
                Err(Failure::Error(error)) => Err(error),
                Ok(value) => Ok(value),
            };
            self.locals.truncate(place);
            if let Some((_, accumulator)) = self.locals.last_mut() {
                *accumulator = accumulated;
            }
        }
        self.evaluate(&parts.result)
    }
}

/// Returns an entry of a map.
fn entry(map: &Value, key: &Key) -> Result<Option<Value>, Failure> {
    match (map, key) {
        (Value::Map(map), _) => Ok(map.get(key).cloned()),
        (_, Key::String(name)) => {
            if let Some(domains) = Domains::of(map) {
                return Ok(Some(domains.get(&Value::String(name.clone()))));
            }
            let authorizer = authorizer_value(map).map(|authorizer| authorizer.field(name));
            let field = || message(map).map(|message| message.fields.get(name.as_str()).cloned());
            Ok(authorizer.or_else(field).flatten())
        }
        _ => Ok(None),
    }
}

fn key_of(value: &Value) -> Result<Key, Failure> {
    value.clone().try_into().map_err(|_| Failure::error("unsupported key type"))
}

/// Returns the order of two values that can be compared.
pub(super) fn ordering(left: &Value, right: &Value) -> Result<Ordering, Failure> {
    let is_nan = |value: &Value| matches!(value, Value::Float(number) if number.is_nan());
    match (left, right) {
        (Value::Bytes(left), Value::Bytes(right)) => Ok(left.cmp(right)),
        _ => left.partial_cmp(right).ok_or_else(|| {
            if is_nan(left) || is_nan(right) {
                Failure::error("NaN values cannot be ordered")
            } else {
                Failure::no_such_overload()
            }
        }),
    }
}

/// Returns the integer that a number is, whatever its type.
fn integer(value: &Value) -> Option<Key> {
    match value {
        Value::Int(number) => Some(Key::Int(*number)),
        Value::UInt(number) => Some(Key::Uint(*number)),
        Value::Float(number) if number.fract() == 0.0 => match conversion::convert("int", value)?.ok()? {
            Value::Int(number) => Some(Key::Int(number)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a map's entry. A number finds the key of its value, whatever their types.
fn lookup<'m>(map: &'m Map, key: &Value) -> Option<&'m Value> {
    match key {
        Value::Float(_) => map.get(&integer(key)?),
        _ => map.get(&KeyRef::try_from(key).ok()?),
    }
}

/// Returns a list's item or a map's entry, which must exist.
fn element(container: &Value, key: &Value) -> Evaluated {
    let shown = |key: &Value| match conversion::string(key) {
        Some(Ok(Value::String(text))) => text.as_str().to_owned(),
        _ => kind::name(key),
    };
    if let Some(items) = items(container) {
        let place = integer(key).ok_or_else(|| match key {
            Value::Float(_) => Failure::error(format!("unsupported index value {} in list", shown(key))),
            key => Failure::error(format!("unsupported index type '{}' in list", kind::name(key))),
        })?;
        let index = match place {
            Key::Int(place) => usize::try_from(place).ok(),
            Key::Uint(place) => usize::try_from(place).ok(),
            _ => None,
        };
        let item = index.and_then(|index| items.get(index)).cloned();
        return item.ok_or_else(|| Failure::error(format!("index out of bounds: {place}")));
    }
    if let Some(domains) = Domains::of(container) {
        return Ok(domains.get(key));
    }
    let found = match container {
        Value::Map(map) => lookup(map, key),
        _ => None,
    };
    found.cloned().ok_or_else(|| Failure::error(format!("no such key: {}", shown(key))))
}
