//! The types of expressions, checked before they are evaluated
//! (<https://github.com/google/cel-spec/blob/master/doc/langdef.md#gradual-type-checking>).
//!
//! What Kubernetes refuses is refused with its words. Where the checker can't tell a type, it accepts every use of it,
//! so that nothing is refused that Kubernetes accepts, such as messages.

mod environment;
mod overloads;
mod types;

use std::sync::Arc;

use kube_cel::cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr, StructExpr,
        operators,
    },
};

pub use self::environment::Expected;
pub(crate) use self::{
    environment::Environment,
    types::{Fields, Type},
};
pub(in crate::cel) use self::{
    environment::{ACCESS_REVIEW, NAMESPACE, REQUEST, USER},
    overloads::resolve,
};
use self::{overloads::NoOverload, types::Bindings};
use super::{
    expression::{ACCUMULATOR, NAMESPACES},
    format::{self, Verb},
    kind,
    macros::{self, INSERT, Macro, SORT, name_in_text},
    message::JSON_PATCH,
    positions::Tokens,
    time,
};
use crate::pattern;

/// The greatest number of errors that are reported for one expression, as in cel-go.
const MAX_ERRORS: usize = 100;

/// The error about a target of `sortBy`.
const UNSORTABLE: &str = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";

/// The first segments of qualified names of types.
const PACKAGES: [&str; 4] = ["google", "kubernetes", "net", "optional_type"];

/// Namespaces of functions that the evaluator has, but Kubernetes doesn't.
const UNAVAILABLE: [&str; 2] = ["base64", "math"];

/// Returns the type of an expression. The error is cel-go's.
pub(super) fn check(tree: &IdedExpr, text: &str, environment: &Environment) -> Result<Type, String> {
    let mut checker = Checker {
        tokens: Tokens::new(text),
        environment,
        locals: Vec::new(),
        syntax: Vec::new(),
        errors: Vec::new(),
        literals: Vec::new(),
        templates: 0,
    };
    // The parser knows the syntax, but Kubernetes doesn't enable it.
    let quoted: Vec<_> = checker.tokens.quoted_names().collect();
    checker.syntax.extend(quoted.into_iter().map(|at| (at, "unsupported syntax: '`'".to_owned())));
    let (found, _) = checker.expression(tree);
    if checker.errors.is_empty() {
        checker.errors = std::mem::take(&mut checker.literals);
    }
    if !checker.syntax.is_empty() {
        checker.errors = std::mem::take(&mut checker.syntax);
    }
    if checker.errors.is_empty() {
        return Ok(found);
    }
    let mut errors = checker.errors;
    errors.sort_by_key(|(at, _)| *at);
    let shown: Vec<_> = errors.iter().take(MAX_ERRORS).map(|(at, why)| checker.tokens.error(*at, why)).collect();
    Err(shown.join("\n"))
}

struct Checker<'e, 't> {
    tokens: Tokens<'t>,
    environment: &'e Environment,
    /// The variables of the enclosing loops.
    locals: Vec<(&'e str, Type)>,
    /// Macros that can't be expanded. If there are any, nothing else is reported, as in cel-go.
    syntax: Vec<(usize, String)>,
    errors: Vec<(usize, String)>,
    /// Literals that are invalid as arguments, or whose elements have several types. They are only reported if nothing
    /// else is wrong, as in cel-go.
    literals: Vec<(usize, String)>,
    /// How many calls of `format` enclose the current part. The elements of literals in them may have several types.
    templates: usize,
}

/// The type of a part, and where it is in the text.
type Found = (Type, usize);

impl<'e> Checker<'e, '_> {
    fn error(&mut self, at: usize, why: String) -> Type {
        self.errors.push((at, why));
        Type::Unknown
    }

    fn expression(&mut self, tree: &'e IdedExpr) -> Found {
        match &tree.expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(tree, select),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(message) => self.message(message),
            Expr::Unspecified => (Type::Unknown, 0),
        }
    }

    fn literal(&mut self, literal: &LiteralValue) -> Found {
        let found = match literal {
            LiteralValue::Boolean(_) => Type::Bool,
            LiteralValue::Bytes(_) => Type::Bytes,
            LiteralValue::Double(_) => Type::Double,
            LiteralValue::Int(_) => Type::Int,
            LiteralValue::Null => Type::Null,
            LiteralValue::String(_) => Type::String,
            LiteralValue::UInt(_) => Type::Uint,
        };
        (found, self.tokens.after_literal())
    }

    /// Returns the type of a variable, if it is declared.
    fn declared(&self, name: &str) -> Option<Type> {
        let local = self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, found)| found.clone());
        local.or_else(|| self.environment.variable(name))
    }

    fn variable(&mut self, name: &str) -> Found {
        let at = self.tokens.after(name);
        if let Some(found) = self.declared(name) {
            return (found, at);
        }
        let message = || Type::message(name).filter(|_| self.environment.has_messages());
        if let Some(of) = Type::named(name).or_else(message) {
            return (Type::Meta(Arc::new(of)), at);
        }
        if PACKAGES.contains(&name) || name.contains(['.', '@']) {
            return (Type::Unknown, at);
        }
        (self.error(at, format!("undeclared reference to '{name}' (in container '')")), at)
    }

    fn select(&mut self, tree: &'e IdedExpr, select: &'e SelectExpr) -> Found {
        if let Some(of) = kind::qualified(tree).and_then(|name| Type::named(&name)) {
            let (_, at) = self.expression(&select.operand);
            self.tokens.after(".");
            self.tokens.after(&select.field);
            return (Type::Meta(Arc::new(of)), at);
        }
        if let Some(found) = self.qualified(select) {
            let (_, at) = self.expression(&select.operand);
            self.tokens.after(".");
            self.tokens.after(&select.field);
            return (found, at);
        }
        let test = select.test.then(|| {
            self.tokens.after("has");
            self.tokens.after("(")
        });
        let (operand, _) = self.expression(&select.operand);
        let dot = self.tokens.after(".");
        self.tokens.after(&select.field);
        let at = test.unwrap_or(dot);
        let found = self.field(&operand, &select.field, at);
        (if select.test { Type::Bool } else { found }, at)
    }

    /// Returns the type of a variable whose name has a dot, if an expression selects it. One without a dot of a loop
    /// hides it.
    fn qualified(&self, select: &SelectExpr) -> Option<Type> {
        let Expr::Ident(name) = &select.operand.expr else { return None };
        let is_hidden = self.locals.iter().any(|(local, _)| local == name);
        if is_hidden || select.test { None } else { self.environment.variable(&format!("{name}.{}", select.field)) }
    }

    /// Returns the type of a field.
    fn field(&mut self, operand: &Type, field: &str, at: usize) -> Type {
        match operand {
            Type::Unknown | Type::Parameter(_) | Type::Opaque("") => Type::Unknown,
            // Kubernetes declares its own types as objects, whose fields it doesn't know.
            Type::Opaque(name) if name.starts_with("kubernetes.") => {
                self.error(at, format!("unexpected failed resolution of '{name}'"))
            }
            Type::Dyn => Type::Dyn,
            Type::Map(entry) => entry[1].clone(),
            Type::Optional(value) => match self.field(value, field, at) {
                Type::Unknown => Type::Unknown,
                found => Type::optional(found),
            },
            // The fields of an apply configuration are checked when it is applied.
            Type::Message(_) => Type::Dyn,
            Type::Meta(of) if matches!(**of, Type::Message(_)) => {
                Type::message(&format!("{of}.{field}")).map_or(Type::Unknown, |of| Type::Meta(Arc::new(of)))
            }
            Type::Object(object) => match object.fields.get(field) {
                Some(found) => found.clone(),
                // As in Kubernetes, an undeclared field has a type without a name.
                None if object.name == JSON_PATCH => Type::Opaque(""),
                None => self.error(at, format!("undefined field '{field}'")),
            },
            other => self.error(at, format!("type '{other}' does not support field selection")),
        }
    }

    fn list(&mut self, list: &'e ListExpr) -> Found {
        let at = self.tokens.after("[");
        let mut items = Elements::default();
        for (place, element) in list.elements.iter().enumerate() {
            let optional = list.optional_indices.binary_search(&place).is_ok();
            let element = self.expression(element);
            self.join(&mut items, element, optional);
        }
        self.tokens.after("]");
        (Type::list(items.found()), at)
    }

    /// Adds an element to a literal, whose elements must have one type. The first that has another is reported.
    fn join(&mut self, elements: &mut Elements, (found, at): Found, optional: bool) {
        let found = if optional { unwrapped(found) } else { found };
        let Some(first) = &elements.0 else {
            elements.0 = Some(found);
            return;
        };
        if first.is_exactly(&found) {
            return;
        }
        let types_differ = matches!((first, &found), (Type::Meta(_), Type::Meta(_)));
        let fits = |wanted: &Type, given: &Type| Bindings::default().accept(wanted, given);
        if self.templates == 0 && (types_differ || !fits(first, &found) && !fits(&found, first)) {
            self.literals.push((at, format!("expected type '{first}' but found '{found}'")));
        }
        elements.0 = Some(Type::Unknown);
    }

    /// Checks the arguments of a template. If it is a literal, each has to fit its place.
    fn template(&mut self, template: Option<&str>, arguments: &'e ListExpr, at: usize) -> Type {
        self.tokens.after("[");
        let found: Vec<_> = arguments.elements.iter().map(|argument| self.expression(argument)).collect();
        self.tokens.after("]");
        if let Some(template) = template {
            let mut place_of_error = at;
            let filled = format::fill(template, found.len(), |verb, place| {
                let (of, at) = &found[place];
                place_of_error = *at;
                fits(verb, unshowable(&arguments.elements[place], of).unwrap_or(of)).map(|()| String::new())
            });
            match filled {
                Ok((_, places)) if places < found.len() => {
                    let given = found.len();
                    let why = format!("too many arguments supplied to string.format (expected {places}, got {given})");
                    self.literals.push((at, why));
                }
                Ok(_) => {}
                Err(why) if why.starts_with("error during formatting") => self.literals.push((place_of_error, why)),
                Err(why) => self.literals.push((at, why)),
            }
        }
        Type::list(Type::Unknown)
    }

    fn map(&mut self, map: &'e MapExpr) -> Found {
        let at = self.tokens.after("{");
        let (mut keys, mut values) = (Elements::default(), Elements::default());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { return (Type::Unknown, at) };
            let key = self.expression(&entry.key);
            self.join(&mut keys, key, false);
            let value = self.expression(&entry.value);
            self.join(&mut values, value, entry.optional);
        }
        self.tokens.after("}");
        (Type::map(keys.found(), values.found()), at)
    }

    fn message(&mut self, message: &'e StructExpr) -> Found {
        let at = self.tokens.after("{");
        let name = message.type_name.as_str();
        let Some(of) = Type::message(name).filter(|_| self.environment.has_messages()) else {
            return (self.error(at, format!("undeclared reference to '{name}' (in container '')")), at);
        };
        for entry in &message.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let name = &field.field;
            self.tokens.after(name);
            let at = self.tokens.after(":");
            let (given, _) = self.expression(&field.value);
            let given = if field.optional { unwrapped(given) } else { given };
            let wanted = self.field(&of, name, at);
            if !Bindings::default().accept(&wanted, &given) {
                self.error(at, format!("expected type of field '{name}' is '{wanted}' but provided type is '{given}'"));
            }
        }
        self.tokens.after("}");
        (of, at)
    }

    fn call(&mut self, call: &'e CallExpr) -> Found {
        match (call.func_name.as_str(), call.args.as_slice(), &call.target) {
            (operators::CONDITIONAL, [condition, yes, no], None) => {
                let (condition, _) = self.expression(condition);
                let at = self.tokens.after("?");
                let (yes, _) = self.expression(yes);
                self.tokens.after(":");
                let (no, _) = self.expression(no);
                (self.overload(operators::CONDITIONAL, false, &[condition, yes, no], at), at)
            }
            (name @ (operators::LOGICAL_NOT | operators::NEGATE), [operand], None) => {
                let at = self.tokens.after(if name == operators::NEGATE { "-" } else { "!" });
                let (operand, _) = self.expression(operand);
                (self.overload(name, false, &[operand], at), at)
            }
            (operators::OPT_SELECT, [operand, field], None) => self.optional_select(operand, field),
            (name @ (operators::INDEX | operators::OPT_INDEX), [operand, index], None) => {
                let (operand, _) = self.expression(operand);
                let at = self.tokens.after("[");
                let (index, _) = self.expression(index);
                self.tokens.after("]");
                (self.index(name, operand, index, at), at)
            }
            (operators::LOGICAL_AND | operators::LOGICAL_OR, operands, None) => {
                let token = token(&call.func_name).unwrap_or_default();
                let mut at = 0;
                for (place, operand) in operands.iter().enumerate() {
                    if place > 0 {
                        at = self.tokens.after(token);
                    }
                    self.condition(operand);
                }
                (Type::Bool, at)
            }
            (name, [left, right], None) => match token(name) {
                Some(token) => {
                    let (left, _) = self.expression(left);
                    let at = self.tokens.after(token);
                    let (right, _) = self.expression(right);
                    (self.overload(name, false, &[left, right], at), at)
                }
                None => self.function(call),
            },
            _ => self.function(call),
        }
    }

    /// Checks an operand that must be a boolean.
    fn condition(&mut self, operand: &'e IdedExpr) {
        let (found, at) = self.expression(operand);
        if !Bindings::default().accept(&Type::Bool, &found) {
            self.error(at, format!("expected type 'bool' but found '{found}'"));
        }
    }

    fn index(&mut self, name: &str, operand: Type, index: Type, at: usize) -> Type {
        match (&operand, name) {
            (Type::Unknown, _) | (Type::Dyn, operators::OPT_INDEX) => Type::Unknown,
            (Type::Dyn, _) => Type::Dyn,
            // Entries of a map can have any type of number as key.
            (Type::Map(entry), operators::INDEX) if entry[0].is_open() => entry[1].clone(),
            _ => self.overload(name, false, &[operand, index], at),
        }
    }

    fn optional_select(&mut self, operand: &'e IdedExpr, field: &IdedExpr) -> Found {
        let (operand, _) = self.expression(operand);
        let at = self.tokens.after(".");
        let Expr::Literal(LiteralValue::String(name)) = &field.expr else { return (Type::Unknown, at) };
        self.tokens.after(name.inner());
        let found = match self.field(&operand, name.inner(), at) {
            Type::Unknown => Type::Unknown,
            Type::Optional(value) if matches!(operand, Type::Optional(_)) => Type::Optional(value),
            found => Type::optional(found),
        };
        (found, at)
    }

    fn function(&mut self, call: &'e CallExpr) -> Found {
        if let Some((found, target)) = Macro::of(call) {
            return self.macro_call(found, target, call);
        }
        if let Some(arguments) = macros::binding(call).filter(|_| self.environment.binds) {
            return self.binding(arguments);
        }
        let mut name = name_in_text(&call.func_name).to_owned();
        let mut arguments = Vec::with_capacity(call.args.len() + 1);
        let mut method = false;
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(namespace)
                    if NAMESPACES.contains(&namespace.as_str())
                        && !UNAVAILABLE.contains(&namespace.as_str())
                        && (namespace != "jsonpatch" || self.environment.has_messages())
                        && self.declared(namespace).is_none() =>
                {
                    self.tokens.after(namespace);
                    name = format!("{namespace}.{name}");
                }
                _ => {
                    arguments.push(self.expression(target).0);
                    method = true;
                }
            }
        }
        self.tokens.after(name_in_text(&call.func_name));
        let at = self.tokens.after("(");
        let is_format = method && name == "format";
        self.templates += usize::from(is_format);
        for (place, argument) in call.args.iter().enumerate() {
            arguments.push(match &argument.expr {
                Expr::List(list) if is_format => {
                    let template = call.target.as_ref().and_then(|target| match &target.expr {
                        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
                        _ => None,
                    });
                    self.template(template, list, at)
                }
                Expr::Literal(literal) if place == 0 && !is_valid(&name, literal) => {
                    let (found, at) = self.expression(argument);
                    self.literals.push((at, format!("invalid {name} argument")));
                    found
                }
                _ => self.expression(argument).0,
            });
        }
        self.templates -= usize::from(is_format);
        (self.overload(&name, method, &arguments, at), at)
    }

    /// Checks `cel.bind`, whose variable has the type of its value.
    fn binding(&mut self, [variable, value, result]: &'e [IdedExpr; 3]) -> Found {
        self.tokens.after(macros::CEL);
        self.tokens.after(macros::BIND);
        let at = self.tokens.after("(");
        let Expr::Ident(name) = &variable.expr else {
            let (_, at) = self.expression(variable);
            self.syntax.push((at, macros::BIND_NAME_EXPECTED.to_owned()));
            return (Type::Unknown, at);
        };
        self.tokens.after(name);
        let (of, _) = self.expression(value);
        self.locals.push((name, of));
        let (found, _) = self.expression(result);
        self.locals.pop();
        (found, at)
    }

    /// Checks a macro that the parser left as a call. Its expansion isn't in the text.
    fn macro_call(&mut self, found: Macro, target: &'e IdedExpr, call: &'e CallExpr) -> Found {
        let (range, range_at) = self.expression(target);
        self.tokens.after(&call.func_name);
        let at = self.tokens.after("(");
        let [first, second] = match found {
            Macro::OptionalMap | Macro::OptionalFlatMap => [self.content(&range, at), Type::Unknown],
            Macro::SortBy => [self.item(&range, at), Type::Unknown],
            _ => self.entry(&range, range_at),
        };
        if found == Macro::SortBy && matches!(target.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_)) {
            self.syntax.push((range_at, UNSORTABLE.to_owned()));
        }
        let outer = self.locals.len();
        let (names, rest) = call.args.split_at(found.variables());
        for (argument, of) in names.iter().zip([first.clone(), second]) {
            let Expr::Ident(name) = &argument.expr else {
                let (_, at) = self.expression(argument);
                self.syntax.push((at, found.name_expected().to_owned()));
                continue;
            };
            let at = self.tokens.after(name);
            if self.locals[outer..].iter().any(|(local, _)| local == name) {
                self.syntax.push((at, format!("duplicate variable name: {name}")));
            }
            self.locals.push((name, of));
        }
        let of = self.macro_result(found, [&range, &first], rest, at);
        self.locals.truncate(outer);
        (of, at)
    }

    /// Returns the type of a macro's result, by the types of its target and of its first variable. Its variables are
    /// declared.
    fn macro_result(&mut self, found: Macro, [range, first]: [&Type; 2], arguments: &'e [IdedExpr], at: usize) -> Type {
        let filter = match arguments {
            [filter, _] => Some(self.expression(filter).0),
            _ => None,
        };
        let Some(last) = arguments.last() else { return Type::Unknown };
        if matches!(found, Macro::All | Macro::Exists) {
            self.condition(last);
            return Type::Bool;
        }
        let (last, _) = self.expression(last);
        match found {
            Macro::ExistsOne => {
                self.overload(operators::CONDITIONAL, false, &[last, Type::Int, Type::Int], at);
                Type::Bool
            }
            Macro::OptionalMap => Type::optional(last),
            Macro::OptionalFlatMap => {
                let none = Type::optional(Type::Unknown);
                self.overload(operators::CONDITIONAL, false, &[Type::Bool, last, none], at)
            }
            Macro::SortBy => self.overload(SORT, true, &[range.clone(), Type::list(last)], at),
            _ => {
                let made = match found {
                    Macro::TransformMap => Type::map(first.clone(), last),
                    Macro::TransformMapEntry => {
                        let empty = Type::map(Type::Unknown, Type::Unknown);
                        self.overload(INSERT, false, &[empty, last], at)
                    }
                    _ => Type::list(last),
                };
                if let Some(filter) = filter {
                    self.overload(operators::CONDITIONAL, false, &[filter, made.clone(), made.clone()], at);
                }
                made
            }
        }
    }

    /// Returns the type of the value in an optional.
    fn content(&mut self, of: &Type, at: usize) -> Type {
        match of {
            Type::Optional(value) => (**value).clone(),
            Type::Dyn => Type::Dyn,
            Type::Unknown | Type::Parameter(_) => Type::Unknown,
            other => {
                for name in ["hasValue", "value"] {
                    self.error(at, format!("found no matching overload for '{name}' applied to '{other}.()'"));
                }
                Type::Unknown
            }
        }
    }

    /// Returns the type of what a comprehension with one variable iterates over: the items of a list, or the keys of a
    /// map.
    fn item(&mut self, range: &Type, at: usize) -> Type {
        let [key, value] = self.entry(range, at);
        if matches!(range, Type::Map(_)) { key } else { value }
    }

    /// Returns the types of the indexes and items of a list, or of the keys and values of a map.
    fn entry(&mut self, range: &Type, at: usize) -> [Type; 2] {
        match range {
            Type::List(items) => [Type::Int, (**items).clone()],
            Type::Map(entry) => (**entry).clone(),
            Type::Dyn => [Type::Dyn, Type::Dyn],
            Type::Unknown | Type::Parameter(_) => [Type::Unknown, Type::Unknown],
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                [Type::Unknown, self.error(at, why)]
            }
        }
    }

    /// Returns the type of a call's result.
    fn overload(&mut self, name: &str, method: bool, arguments: &[Type], at: usize) -> Type {
        match resolve(name, method, arguments) {
            Ok(found) => found,
            Err(NoOverload::Undeclared) => {
                self.error(at, format!("undeclared reference to '{name}' (in container '')"))
            }
            Err(NoOverload::NoMatch) => {
                let (target, rest) = if method { arguments.split_at(1) } else { (&[][..], arguments) };
                let target: String = target.iter().map(|target| format!("{target}.")).collect();
                let rest: Vec<_> = rest.iter().map(ToString::to_string).collect();
                let rest = rest.join(", ");
                self.error(at, format!("found no matching overload for '{name}' applied to '{target}({rest})'"))
            }
        }
    }

    /// Returns the type of an expanded macro.
    fn comprehension(&mut self, tree: &'e ComprehensionExpr) -> Found {
        let (range, range_at) = self.expression(&tree.iter_range);
        self.tokens.after(".");
        let at = self.tokens.after("(");
        self.tokens.after(&tree.iter_var);
        self.tokens.after(",");
        let item = self.item(&range, range_at);
        self.locals.push((&tree.iter_var, item));
        let found = self.step(&tree.loop_step, at);
        self.locals.pop();
        (found, at)
    }

    /// Returns the type of a macro's result by one iteration. Its parts that aren't in the text refer to the
    /// accumulator.
    fn step(&mut self, step: &'e IdedExpr, at: usize) -> Type {
        let Expr::Call(call) = &step.expr else { return Type::Unknown };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [accumulator, condition])
                if is_accumulator(accumulator) =>
            {
                self.condition(condition);
                Type::Bool
            }
            (operators::ADD, [accumulator, item]) if is_accumulator(accumulator) => self.appended(item),
            (operators::CONDITIONAL, [condition, then, accumulator]) if is_accumulator(accumulator) => {
                let (condition, _) = self.expression(condition);
                let Expr::Call(CallExpr { args, .. }) = &then.expr else { return Type::Unknown };
                let (result, sum) = match args.as_slice() {
                    [_, one] if matches!(one.expr, Expr::Literal(_)) => (Type::Bool, Type::Int),
                    [_, item] => {
                        let list = self.appended(item);
                        (list.clone(), list)
                    }
                    _ => return Type::Unknown,
                };
                self.overload(operators::CONDITIONAL, false, &[condition, sum.clone(), sum], at);
                result
            }
            _ => Type::Unknown,
        }
    }

    /// Returns the type of the list to which a macro appends an item. That of `filter` isn't in the text.
    fn appended(&mut self, item: &'e IdedExpr) -> Type {
        let Expr::List(ListExpr { elements, .. }) = &item.expr else { return Type::Unknown };
        let [element] = elements.as_slice() else { return Type::Unknown };
        Type::list(match (&element.expr, self.locals.last()) {
            (Expr::Ident(name), Some((local, found))) if name == local => found.clone(),
            _ => self.expression(element).0,
        })
    }
}

/// Returns whether a literal is valid as the first argument of a function: a time, a duration or a regular expression.
/// As in cel-go, the first argument of `matches` has to be a regular expression even if `matches` isn't called as a
/// method, although it is the text then.
fn is_valid(function: &str, literal: &LiteralValue) -> bool {
    match (function, literal) {
        ("duration", LiteralValue::String(text)) => time::duration(text.inner()).is_some(),
        ("duration", LiteralValue::Int(_)) => false,
        ("timestamp", LiteralValue::String(text)) => time::timestamp(text.inner()).is_some(),
        ("timestamp", LiteralValue::Int(seconds)) => time::from_seconds(*seconds.inner()).is_some(),
        ("matches", LiteralValue::String(text)) => pattern::compile(text.inner(), None).is_ok(),
        _ => true,
    }
}

/// Checks that a verb of a template can show the values of a type.
fn fits(verb: Verb, of: &Type) -> Result<(), String> {
    let fits = match (verb, of) {
        (_, Type::Dyn | Type::Unknown | Type::Parameter(_)) => true,
        (Verb::Text, of) => !matches!(of, Type::Optional(_) | Type::Opaque(_) | Type::Object(_)),
        (Verb::Decimal | Verb::Octal, of) => matches!(of, Type::Int | Type::Uint),
        (Verb::Fixed(_) | Verb::Scientific(_), of) => matches!(of, Type::Double | Type::String),
        (Verb::Binary, of) => matches!(of, Type::Int | Type::Uint | Type::Bool),
        (Verb::Hexadecimal { .. }, of) => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
    };
    if fits { Ok(()) } else { Err(verb.mismatch(&of.name())) }
}

/// Returns the first type in a literal that has no text.
fn unshowable<'p>(tree: &IdedExpr, of: &'p Type) -> Option<&'p Type> {
    match (&tree.expr, of) {
        (Expr::List(list), Type::List(items)) => list.elements.iter().find_map(|item| unshowable(item, items)),
        (Expr::Map(map), Type::Map(entry)) => map.entries.iter().find_map(|found| match &found.expr {
            EntryExpr::MapEntry(found) => unshowable(&found.value, &entry[1]),
            EntryExpr::StructField(_) => None,
        }),
        (_, of) => fits(Verb::Text, of).is_err().then_some(of),
    }
}

fn is_accumulator(tree: &IdedExpr) -> bool {
    matches!(&tree.expr, Expr::Ident(name) if name == ACCUMULATOR)
}

/// Returns the token of a binary operator.
fn token(name: &str) -> Option<&'static str> {
    Some(match name {
        operators::ADD => "+",
        operators::SUBSTRACT => "-",
        operators::MULTIPLY => "*",
        operators::DIVIDE => "/",
        operators::MODULO => "%",
        operators::EQUALS => "==",
        operators::NOT_EQUALS => "!=",
        operators::LESS => "<",
        operators::LESS_EQUALS => "<=",
        operators::GREATER => ">",
        operators::GREATER_EQUALS => ">=",
        operators::IN => "in",
        operators::LOGICAL_AND => "&&",
        operators::LOGICAL_OR => "||",
        _ => return None,
    })
}

fn unwrapped(found: Type) -> Type {
    match found {
        Type::Optional(value) => (*value).clone(),
        _ => Type::Unknown,
    }
}

/// The common type of the elements of a literal.
#[derive(Default)]
struct Elements(Option<Type>);

impl Elements {
    fn found(self) -> Type {
        self.0.unwrap_or(Type::Unknown)
    }
}

#[cfg(test)]
mod tests;
