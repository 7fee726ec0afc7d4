//! Expressions in evaluable form: the parser's tree, with operators, constants and regular expressions resolved.

use std::sync::{Arc, OnceLock};

use kube_cel::cel::{
    IdedExpr, Value,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, StructExpr, operators,
    },
    objects::Key,
};
use regex::Regex;

use super::{conversion, kind, macros::INSERT, message};
use crate::pattern;

/// The first segments of the library's qualified names, such as `math` in `math.abs`.
pub(super) const NAMESPACES: [&str; 9] =
    ["base64", "format", "ip", "jsonpatch", "lists", "math", "optional", "sets", "strings"];

/// The variable in which the parser's macros accumulate their result.
pub(super) const ACCUMULATOR: &str = "@result";

#[derive(Debug)]
pub(super) enum Expression {
    Constant(Value),
    Variable(String),
    Select(Box<Select>),
    Index(Box<Index>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    /// True if a condition is true or can't be evaluated. Macros continue in both cases.
    NotStrictlyFalse(Box<Expression>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Conditional(Box<[Expression; 3]>),
    Binary(Operator, Box<[Expression; 2]>),
    List(Vec<Element>),
    Map(Vec<(Expression, Element)>),
    /// Appends an item to the accumulator of the enclosing loop. `map` and `filter` do so in each iteration.
    Append(Box<Expression>),
    /// Inserts a key and a value, or all entries of a map, into the accumulator of the enclosing loop. `transformMap`
    /// and `transformMapEntry` do so in each iteration.
    Insert(Vec<Expression>),
    Loop(Box<Loop>),
    Call(Box<Call>),
    /// A message: its type and fields.
    Message(String, Vec<(String, Element)>),
}

/// `operand.field`, `operand.?field`, or `has(operand.field)`.
#[derive(Debug)]
pub(super) struct Select {
    pub(super) operand: Expression,
    pub(super) field: Key,
    pub(super) test: bool,
}

/// `operand[index]` or `operand[?index]`.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) operand: Expression,
    pub(super) index: Expression,
    pub(super) optional: bool,
}

/// An element of a list or map. An optional element without a value is omitted.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) value: Expression,
    pub(super) optional: bool,
}

/// A comprehension, the expansion of `all`, `exists`, `map` and similar macros.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) range: Expression,
    /// The variable for the items of a list or the keys of a map.
    pub(super) item: String,
    /// The variable for the items or values, if there are two. The other one is for the indexes or keys then.
    pub(super) second: Option<String>,
    pub(super) accumulator: String,
    pub(super) initial: Expression,
    pub(super) condition: Expression,
    pub(super) step: Expression,
    pub(super) result: Expression,
}

/// A function call. The target of a method is the first argument.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: String,
    pub(super) method: bool,
    pub(super) arguments: Vec<Expression>,
    /// The regular expression, compiled once, if it is a literal.
    pub(super) pattern: OnceLock<Result<Arc<Regex>, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            operators::ADD => Self::Add,
            operators::SUBSTRACT => Self::Subtract,
            operators::MULTIPLY => Self::Multiply,
            operators::DIVIDE => Self::Divide,
            operators::MODULO => Self::Remainder,
            operators::EQUALS => Self::Equal,
            operators::NOT_EQUALS => Self::NotEqual,
            operators::LESS => Self::Less,
            operators::LESS_EQUALS => Self::LessOrEqual,
            operators::GREATER => Self::Greater,
            operators::GREATER_EQUALS => Self::GreaterOrEqual,
            operators::IN => Self::In,
            _ => return None,
        })
    }
}

impl Expression {
    /// Compiles the parser's tree. Messages (`Type{field: value}`) exist only where `messages` is set, in mutating
    /// admission policies.
    pub(super) fn compile(tree: &IdedExpr, messages: bool) -> Result<Self, String> {
        Compiler { locals: Vec::new(), messages, invalid: None }.expression(tree)
    }

    /// Returns the error about the first literal in a tree that can't be converted, or that is used as a pattern and
    /// isn't one.
    pub(super) fn invalid_literal(tree: &IdedExpr, messages: bool) -> Result<Option<String>, String> {
        let mut compiler = Compiler { locals: Vec::new(), messages, invalid: None };
        compiler.expression(tree)?;
        Ok(compiler.invalid)
    }

    fn constant(&self) -> Option<&Value> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }
}

/// Compiles a tree, and tracks the variable names of the enclosing loops.
struct Compiler<'t> {
    locals: Vec<&'t str>,
    messages: bool,
    /// The error about the first invalid literal.
    invalid: Option<String>,
}

impl<'t> Compiler<'t> {
    fn expression(&mut self, tree: &'t IdedExpr) -> Result<Expression, String> {
        Ok(match &tree.expr {
            Expr::Literal(literal) => Expression::Constant(constant(literal)),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => match self.qualified_type(tree) {
                Some(name) => Expression::Constant(kind::named(&name)),
                None => Expression::Select(Box::new(Select {
                    operand: self.expression(&select.operand)?,
                    field: Key::from(select.field.as_str()),
                    test: select.test,
                })),
            },
            Expr::List(list) => self.list(list)?,
            Expr::Map(map) => self.map(map)?,
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(comprehension) => self.comprehension(comprehension)?,
            Expr::Struct(message) if self.messages && message::is_known(&message.type_name) => self.message(message)?,
            Expr::Struct(message) => return Err(format!("undeclared reference to '{}'", message.type_name)),
            Expr::Unspecified => return Err("the expression is incomplete".to_owned()),
        })
    }

    fn boxed(&mut self, tree: &'t IdedExpr) -> Result<Box<Expression>, String> {
        self.expression(tree).map(Box::new)
    }

    fn variable(&self, name: &str) -> Expression {
        if kind::TYPES.contains(&name) && !self.locals.contains(&name) {
            return Expression::Constant(kind::named(name));
        }
        Expression::Variable(name.to_owned())
    }

    /// Returns the type that a selection such as `google.protobuf.Duration` names.
    fn qualified_type(&self, tree: &IdedExpr) -> Option<String> {
        let name = kind::qualified(tree)?;
        let first = name.split('.').next().unwrap_or_default();
        (!self.locals.contains(&first)).then_some(name)
    }

    fn list(&mut self, list: &'t ListExpr) -> Result<Expression, String> {
        let mut elements = Vec::with_capacity(list.elements.len());
        for (place, element) in list.elements.iter().enumerate() {
            let optional = list.optional_indices.binary_search(&place).is_ok();
            elements.push(Element { value: self.expression(element)?, optional });
        }
        let constants = elements.iter().map(|element| element.value.constant().filter(|_| !element.optional).cloned());
        Ok(match constants.collect::<Option<Vec<_>>>() {
            Some(constants) => Expression::Constant(Value::List(Arc::new(constants))),
            None => Expression::List(elements),
        })
    }

    fn map(&mut self, map: &'t MapExpr) -> Result<Expression, String> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err("a map cannot have the fields of a message".to_owned());
            };
            let value = Element { value: self.expression(&entry.value)?, optional: entry.optional };
            entries.push((self.expression(&entry.key)?, value));
        }
        Ok(Expression::Map(entries))
    }

    fn message(&mut self, message: &'t StructExpr) -> Result<Expression, String> {
        const OPERATION: [&str; 4] = ["op", "path", "from", "value"];
        let mut fields = Vec::with_capacity(message.entries.len());
        for entry in &message.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                return Err("a message cannot have the entries of a map".to_owned());
            };
            if message.type_name == message::JSON_PATCH && !OPERATION.contains(&field.field.as_str()) {
                return Err(format!("undefined field '{}'", field.field));
            }
            let value = Element { value: self.expression(&field.value)?, optional: field.optional };
            fields.push((field.field.clone(), value));
        }
        Ok(Expression::Message(message.type_name.clone(), fields))
    }

    fn comprehension(&mut self, tree: &'t ComprehensionExpr) -> Result<Expression, String> {
        let range = self.expression(&tree.iter_range)?;
        let initial = self.expression(&tree.accu_init)?;
        let outer = self.locals.len();
        self.locals.push(&tree.accu_var);
        self.locals.push(&tree.iter_var);
        self.locals.extend(tree.iter_var2.as_deref());
        let parts = [&tree.loop_cond, &tree.loop_step].map(|part| self.expression(part));
        self.locals.truncate(outer + 1);
        let result = self.expression(&tree.result);
        self.locals.truncate(outer);
        let [condition, step] = parts;
        Ok(Expression::Loop(Box::new(Loop {
            range,
            item: tree.iter_var.clone(),
            second: tree.iter_var2.clone(),
            accumulator: tree.accu_var.clone(),
            initial,
            condition: condition?,
            step: step?,
            result: result?,
        })))
    }

    fn call(&mut self, call: &'t CallExpr) -> Result<Expression, String> {
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let branches = [self.expression(condition)?, self.expression(yes)?, self.expression(no)?];
                return Ok(Expression::Conditional(Box::new(branches)));
            }
            (operators::LOGICAL_NOT, [operand]) => return Ok(Expression::Not(self.boxed(operand)?)),
            (operators::NEGATE, [operand]) => return Ok(Expression::Negate(self.boxed(operand)?)),
            (operators::NOT_STRICTLY_FALSE, [operand]) => {
                return Ok(Expression::NotStrictlyFalse(self.boxed(operand)?));
            }
            (operators::ADD, [accumulator, item]) if accumulator.expr == Expr::Ident(ACCUMULATOR.to_owned()) => {
                if let Expr::List(ListExpr { elements, optional_indices }) = &item.expr
                    && let ([element], []) = (elements.as_slice(), optional_indices.as_slice())
                {
                    return Ok(Expression::Append(self.boxed(element)?));
                }
            }
            (INSERT, [_, inserted @ ..]) => {
                let inserted = inserted.iter().map(|part| self.expression(part));
                return Ok(Expression::Insert(inserted.collect::<Result<_, _>>()?));
            }
            _ => {}
        }
        if let [left, right] = call.args.as_slice() {
            let mut both = || Ok::<_, String>(Box::new([self.expression(left)?, self.expression(right)?]));
            match name {
                operators::LOGICAL_AND => return Ok(Expression::And(both()?)),
                operators::LOGICAL_OR => return Ok(Expression::Or(both()?)),
                operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => {
                    let [operand, index] = *both()?;
                    let optional = name != operators::INDEX;
                    return Ok(Expression::Index(Box::new(Index { operand, index, optional })));
                }
                _ => {
                    if let Some(operator) = Operator::of(name) {
                        return Ok(Expression::Binary(operator, both()?));
                    }
                }
            }
        }
        self.function(call)
    }

    fn function(&mut self, call: &'t CallExpr) -> Result<Expression, String> {
        let mut function = call.func_name.clone();
        let mut target = call.target.as_deref();
        if let Some(Expr::Ident(namespace)) = target.map(|target| &target.expr)
            && NAMESPACES.contains(&namespace.as_str())
            && !self.locals.contains(&namespace.as_str())
        {
            function = format!("{namespace}.{function}");
            target = None;
        }
        let method = target.is_some();
        let arguments = target.into_iter().chain(&call.args).map(|argument| self.expression(argument));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        if let ("matches" | "find" | "findAll", Some(Expression::Constant(Value::String(pattern)))) =
            (&*function, arguments.get(1))
        {
            self.invalid = self.invalid.take().or_else(|| pattern::check(pattern).err());
        }
        if let ([Expression::Constant(value)], false) = (arguments.as_slice(), method)
            && let Some(converted) = conversion::of_literal(&function, value)
        {
            match converted {
                Ok(value) => return Ok(Expression::Constant(value)),
                Err(why) => self.invalid = self.invalid.take().or(Some(why)),
            }
        }
        Ok(Expression::Call(Box::new(Call { function, method, arguments, pattern: OnceLock::new() })))
    }
}

fn constant(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(Arc::new(value.inner().to_vec())),
        LiteralValue::Double(value) => Value::Float(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::String(Arc::new(value.inner().to_owned())),
        LiteralValue::UInt(value) => Value::UInt(*value.inner()),
    }
}
