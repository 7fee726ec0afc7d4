//! The cost of an expression before it is evaluated, by the greatest sizes that the schema of its variables allows.
//!
//! The estimate is that of kube-apiserver (`cel-go/checker/cost.go`, `k8s.io/apiserver/pkg/cel/library/cost.go`), since
//! it decides which rules may be stored.

mod function;
mod span;

use std::collections::BTreeMap;

use kube_cel::cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
    },
};

use self::span::Span;
use super::{
    check::{Environment, Type, resolve},
    expression::NAMESPACES,
    kind, macros,
};

/// The units for a list, a map, or a message that an expression creates.
const LIST: Span = Span::exactly(10);
const MAP: Span = Span::exactly(30);
const MESSAGE: Span = Span::exactly(40);

/// The greatest sizes of a value and of those in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SizeLimits {
    /// The greatest number of characters, bytes, items or entries; 0 for what has no size.
    pub(crate) greatest: u64,
    /// The fields of an object, by their identifiers.
    pub(crate) fields: BTreeMap<String, SizeLimits>,
    /// The items of a list, or the values of a map.
    pub(crate) items: Option<Box<SizeLimits>>,
    /// The keys of a map. Without limits of their own, they count as empty.
    pub(crate) keys: Option<Box<SizeLimits>>,
    /// The entries of a map that an expression selects as fields, if they are known.
    pub(crate) entries: Option<Box<SizeLimits>>,
}

/// Returns the greatest cost of an expression in units. `limits` are those of `self` and `oldSelf`, whose types the
/// environment declares.
pub(crate) fn greatest_cost(tree: &IdedExpr, environment: &Environment, limits: &SizeLimits) -> u64 {
    Estimator { environment, root: limits, locals: Vec::new() }.part(tree).cost.max
}

/// Where a value is in those that the schema describes.
#[derive(Clone, Copy, Debug)]
enum Place<'l> {
    /// It isn't in them.
    Outside,
    /// The schema doesn't describe it.
    Undescribed,
    At(&'l SizeLimits),
}

/// The sizes of the keys or indexes, and of the values of a list or a map that an expression creates.
#[derive(Clone, Copy, Debug)]
struct Entries {
    is_list: bool,
    key: Span,
    value: Span,
}

impl Entries {
    fn or(self, other: Self) -> Self {
        Self { is_list: self.is_list, key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

/// What is known about a part of an expression.
#[derive(Clone, Debug)]
struct Part<'l> {
    cost: Span,
    of: Type,
    /// The size, if it follows from the expression.
    size: Option<Span>,
    place: Place<'l>,
    entries: Option<Entries>,
    /// The value of a literal number.
    number: Option<u64>,
}

impl Part<'_> {
    fn new(cost: Span, of: Type) -> Self {
        Self { cost, of, size: None, place: Place::Outside, entries: None, number: None }
    }

    fn known_size(&self) -> Option<Span> {
        self.size.or(match self.place {
            Place::At(limits) => Some(Span::up_to(limits.greatest)),
            _ => is_scalar(&self.of).then_some(Span::ONE),
        })
    }

    fn size(&self) -> Span {
        self.known_size().unwrap_or(Span::UNKNOWN)
    }
}

/// Returns whether all values of a type have the same size.
fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Timestamp | Type::Duration => true,
        Type::Optional(value) => is_scalar(value),
        _ => false,
    }
}

/// A variable of a macro.
struct Local<'t, 'l> {
    name: &'t str,
    part: Part<'l>,
    /// The size that counts if the schema says nothing.
    fallback: Option<Span>,
}

struct Estimator<'t, 'l> {
    environment: &'t Environment,
    root: &'l SizeLimits,
    locals: Vec<Local<'t, 'l>>,
}

impl<'t, 'l> Estimator<'t, 'l> {
    fn part(&mut self, tree: &'t IdedExpr) -> Part<'l> {
        match &tree.expr {
            Expr::Literal(literal) => of_literal(literal),
            Expr::Ident(name) => self.variable(name),
            // A type is compared by its name alone.
            Expr::Select(_) if kind::qualified(tree).is_some() => {
                Part { size: Some(Span::ONE), ..Part::new(Span::ONE, Type::Unknown) }
            }
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(message) => {
                let fields = message.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::StructField(field) => Some(&field.value),
                    EntryExpr::MapEntry(_) => None,
                });
                let cost = fields.fold(MESSAGE, |sum, field| sum.plus(self.part(field).cost));
                Part::new(cost, Type::Unknown)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Unspecified => Part::new(Span::ZERO, Type::Unknown),
        }
    }

    fn variable(&self, name: &str) -> Part<'l> {
        if let Some(local) = self.locals.iter().rev().find(|local| local.name == name) {
            let mut part = Part { cost: Span::ONE, ..local.part.clone() };
            part.size = part.known_size().or(local.fallback);
            return part;
        }
        let of = self.environment.variable(name).unwrap_or(Type::Unknown);
        Part { place: Place::At(self.root), ..Part::new(Span::ONE, of) }
    }

    fn select(&mut self, select: &'t SelectExpr) -> Part<'l> {
        let operand = self.part(&select.operand);
        if select.test {
            return Part::new(operand.cost, Type::Bool);
        }
        let (of, has_cost) = match &operand.of {
            Type::Map(entry) => (entry[1].clone(), true),
            Type::Object(object) => (object.fields.get(&select.field).cloned().unwrap_or(Type::Unknown), true),
            Type::Dyn => (Type::Dyn, false),
            _ => (Type::Unknown, false),
        };
        let place = match operand.place {
            Place::Outside => Place::At(self.root),
            Place::Undescribed => Place::Undescribed,
            Place::At(limits) => {
                let entries = || limits.entries.as_deref();
                limits.fields.get(&select.field).or_else(entries).map_or(Place::Undescribed, Place::At)
            }
        };
        let cost = if has_cost { operand.cost.plus(Span::ONE) } else { operand.cost };
        Part { place, ..Part::new(cost, of) }
    }

    fn list(&mut self, list: &'t ListExpr) -> Part<'l> {
        let elements: Vec<_> = list.elements.iter().map(|element| self.part(element)).collect();
        let cost = elements.iter().fold(LIST, |sum, element| sum.plus(element.cost));
        let entries = Entries { is_list: true, key: Span::ONE, value: sizes(&elements) };
        let of = Type::list(common(&elements));
        Part { size: Some(count(elements.len())), entries: Some(entries), ..Part::new(cost, of) }
    }

    fn map(&mut self, map: &'t MapExpr) -> Part<'l> {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for entry in &map.entries {
            if let EntryExpr::MapEntry(entry) = &entry.expr {
                keys.push(self.part(&entry.key));
                values.push(self.part(&entry.value));
            }
        }
        let cost = keys.iter().chain(&values).fold(MAP, |sum, part| sum.plus(part.cost));
        let entries = Entries { is_list: false, key: sizes(&keys), value: sizes(&values) };
        let of = Type::map(common(&keys), common(&values));
        Part { size: Some(count(keys.len())), entries: Some(entries), ..Part::new(cost, of) }
    }

    fn call(&mut self, call: &'t CallExpr) -> Part<'l> {
        let mut name = call.func_name.clone();
        let mut target = None;
        if let Some(tree) = &call.target {
            match &tree.expr {
                Expr::Ident(namespace)
                    if NAMESPACES.contains(&namespace.as_str())
                        && self.environment.variable(namespace).is_none()
                        && !self.locals.iter().any(|local| local.name == namespace) =>
                {
                    name = format!("{namespace}.{name}");
                }
                _ => target = Some(self.part(tree)),
            }
        }
        let arguments: Vec<_> = call.args.iter().map(|argument| self.part(argument)).collect();
        match (name.as_str(), arguments.as_slice()) {
            ("dyn", [argument]) => {
                let cost = argument.cost.plus(Span::ONE);
                return Part {
                    cost,
                    of: Type::Dyn,
                    place: Place::Outside,
                    size: argument.known_size(),
                    ..argument.clone()
                };
            }
            (operators::INDEX, [operand, index]) => return self.index(operand, index),
            (operators::OPT_SELECT, [operand, field]) => {
                let of = Type::optional(optional_field(&operand.of, call.args.get(1)));
                return Part::new(operand.cost.plus(field.cost).plus(Span::ONE), of);
            }
            _ => {}
        }
        let types: Vec<_> = target.iter().chain(&arguments).map(|part| part.of.clone()).collect();
        let of = resolve(&name, target.is_some(), &types).unwrap_or(Type::Unknown);
        let mut result = function::called(&name, target.as_ref(), &arguments, of);
        result.cost = result.cost.plus(target.map_or(Span::ZERO, |target| target.cost));
        result
    }

    fn index(&self, operand: &Part<'l>, index: &Part<'l>) -> Part<'l> {
        let of = match &operand.of {
            Type::List(items) => (**items).clone(),
            Type::Map(entry) => entry[1].clone(),
            Type::Dyn => Type::Dyn,
            _ => Type::Unknown,
        };
        let cost = operand.cost.plus(index.cost).plus(Span::ONE);
        let size = operand.entries.map(|entries| entries.value);
        Part { size, place: self.inside(operand.place), ..Part::new(cost, of) }
    }

    /// Returns the place of the items of a value. As in cel-go, those of a value that the schema doesn't describe have
    /// the limits of the whole object.
    fn inside(&self, place: Place<'l>) -> Place<'l> {
        match place {
            Place::Outside => Place::At(self.root),
            Place::Undescribed => Place::Undescribed,
            Place::At(limits) => limits.items.as_deref().map_or(Place::Undescribed, Place::At),
        }
    }

    fn comprehension(&mut self, tree: &'t ComprehensionExpr) -> Part<'l> {
        let range = self.part(&tree.iter_range);
        let start = self.part(&tree.accu_init);
        let before = range.cost.plus(start.cost);
        if macros::is_binding(tree) {
            self.locals.push(Local { name: &tree.accu_var, part: start, fallback: None });
            let result = self.part(&tree.result);
            self.locals.pop();
            return Part { cost: before.plus(result.cost), ..result };
        }
        let accumulator = Part { place: Place::Outside, ..start.clone() };
        // Only its type and its entries are known while it grows.
        let is_collection = start.entries.is_some();
        let accumulator = if is_collection { Part { size: Some(Span::ZERO), ..accumulator } } else { accumulator };
        self.locals.push(Local { name: &tree.accu_var, part: accumulator, fallback: None });
        let outer = self.locals.len();
        match &tree.iter_var2 {
            None => {
                let variable = self.iteration(&range);
                self.locals.push(Local { name: &tree.iter_var, ..variable });
            }
            Some(second) => {
                let [key, value] = self.entry(&range);
                self.locals.push(Local { name: &tree.iter_var, ..key });
                self.locals.push(Local { name: second, ..value });
            }
        }
        let condition = self.part(&tree.loop_cond);
        let step = self.part(&tree.loop_step);
        self.locals.truncate(outer);
        let result = self.part(&tree.result);
        self.locals.pop();
        let count = range.size();
        let cost = before.plus(result.cost).plus(count.times(condition.cost.plus(step.cost)));
        let mut found = Part::new(cost, if is_collection { step.of } else { result.of });
        found.size = if is_collection { Some(count) } else { start.known_size() };
        found.entries = step.entries.filter(|_| is_collection);
        found
    }

    /// Returns the variable for the items of a list, or the keys of a map.
    fn iteration(&self, range: &Part<'l>) -> Local<'t, 'l> {
        let [key, value] = self.entry(range);
        if is_list(range) { value } else { key }
    }

    /// Returns the variables for the indexes and items of a list, or the keys and values of a map.
    fn entry(&self, range: &Part<'l>) -> [Local<'t, 'l>; 2] {
        let [key, value] = match &range.of {
            Type::List(items) => [Type::Int, (**items).clone()],
            Type::Map(entry) => (**entry).clone(),
            Type::Dyn => [Type::Dyn, Type::Dyn],
            _ => [Type::Unknown, Type::Unknown],
        };
        let key_place = match range.place {
            Place::At(limits) if !is_list(range) => {
                let keys = limits.keys.as_deref().unwrap_or(&NOTHING);
                limits.items.as_ref().map_or(Place::Undescribed, |_| Place::At(keys))
            }
            Place::At(_) => Place::Undescribed,
            place => self.inside(place),
        };
        let local =
            |of, place, fallback| Local { name: "", part: Part { place, ..Part::new(Span::ONE, of) }, fallback };
        [
            local(key, key_place, range.entries.map(|entries| entries.key)),
            local(value, self.inside(range.place), range.entries.map(|entries| entries.value)),
        ]
    }
}

/// Returns whether a comprehension iterates over a list.
fn is_list(range: &Part<'_>) -> bool {
    range.entries.map_or(matches!(range.of, Type::List(_)), |entries| entries.is_list)
}
static NOTHING: SizeLimits =
    SizeLimits { greatest: 0, fields: BTreeMap::new(), items: None, keys: None, entries: None };

fn count(number: usize) -> Span {
    Span::exactly(number as u64)
}

fn of_literal<'l>(literal: &LiteralValue) -> Part<'l> {
    let number = match literal {
        LiteralValue::Int(number) => u64::try_from(*number.inner()).ok(),
        _ => None,
    };
    let (of, size) = match literal {
        LiteralValue::Boolean(_) => (Type::Bool, 1),
        LiteralValue::Bytes(bytes) => (Type::Bytes, bytes.inner().len()),
        LiteralValue::Double(_) => (Type::Double, 1),
        LiteralValue::Int(_) => (Type::Int, 1),
        LiteralValue::Null => (Type::Null, 1),
        LiteralValue::String(text) => (Type::String, text.inner().chars().count()),
        LiteralValue::UInt(_) => (Type::Uint, 1),
    };
    Part { size: Some(count(size)), number, ..Part::new(Span::ZERO, of) }
}

/// Returns the type of a field that may be absent.
fn optional_field(of: &Type, name: Option<&IdedExpr>) -> Type {
    match (of, name.map(|name| &name.expr)) {
        (Type::Optional(value), _) => optional_field(value, name),
        (Type::Object(object), Some(Expr::Literal(LiteralValue::String(name)))) => {
            object.fields.get(name.inner()).cloned().unwrap_or(Type::Unknown)
        }
        (Type::Map(entry), _) => entry[1].clone(),
        _ => Type::Unknown,
    }
}

/// Returns the sizes of the elements of a literal.
fn sizes(parts: &[Part<'_>]) -> Span {
    parts.iter().map(Part::size).reduce(Span::or).unwrap_or(Span::ZERO)
}

/// Returns the type of the elements of a literal.
fn common(parts: &[Part<'_>]) -> Type {
    let first = parts.first().map(|part| part.of.clone());
    first.filter(|first| parts.iter().all(|part| part.of.is_exactly(first))).unwrap_or(Type::Unknown)
}
