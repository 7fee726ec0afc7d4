//! Macros that the parser leaves as calls, and their expansion: comprehensions with two variables, macros of optional
//! values, and `sortBy`.
//!
//! The expansions are cel-go's (`ext/comprehensions.go`, `ext/lists.go`, `cel/library.go`), since costs count their
//! parts. The checker sees the calls, because only these are in the text.

use std::borrow::Cow;

use kube_cel::cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, operators},
};

use super::{expression::ACCUMULATOR, positions::Tokens};

/// The function that inserts into the accumulator of a comprehension that makes a map.
pub(super) const INSERT: &str = "cel.@mapInsert";
/// The function that sorts a list by the keys of another one.
pub(super) const SORT: &str = "@sortByAssociatedKeys";
/// The variable of a comprehension that only declares its accumulator.
const UNUSED: &str = "#unused";
/// The variable that holds the list of `sortBy`.
const SORTED: &str = "@__sortBy_input__";

/// The namespace and the name of the macro that declares a variable.
pub(super) const CEL: &str = "cel";
pub(super) const BIND: &str = "bind";
/// The error about its first argument.
pub(super) const BIND_NAME_EXPECTED: &str = "cel.bind() variable names must be simple identifiers";

/// A macro of two variables, which the parser knows with one, too.
const EXISTS_ONE: &str = "existsOne";
/// The name under which the parser doesn't know it, of the same length.
const UNKNOWN_EXISTS_ONE: &str = "existsOn_";

/// The greatest number of parts of an expression after its expansion. `optMap` doubles its target.
const PARTS: usize = 20_000;
/// The greatest depth to which macros contain macros. Each adds several levels to the tree.
const NESTING: usize = 24;

/// A macro that the parser leaves as a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptionalMap,
    OptionalFlatMap,
    SortBy,
}

impl Macro {
    /// Returns the macro that a call uses, with its target. A call with another number of arguments is one of a
    /// function.
    pub(super) fn of(call: &CallExpr) -> Option<(Self, &IdedExpr)> {
        let found = match (call.func_name.as_str(), call.args.len()) {
            ("all", 3) => Self::All,
            ("exists", 3) => Self::Exists,
            (UNKNOWN_EXISTS_ONE | "exists_one", 3) => Self::ExistsOne,
            ("transformList", 3 | 4) => Self::TransformList,
            ("transformMap", 3 | 4) => Self::TransformMap,
            ("transformMapEntry", 3 | 4) => Self::TransformMapEntry,
            ("optMap", 2) => Self::OptionalMap,
            ("optFlatMap", 2) => Self::OptionalFlatMap,
            ("sortBy", 2) => Self::SortBy,
            _ => return None,
        };
        Some((found, call.target.as_deref()?))
    }

    /// Returns the number of arguments that declare variables.
    pub(super) fn variables(self) -> usize {
        match self {
            Self::OptionalMap | Self::OptionalFlatMap | Self::SortBy => 1,
            _ => 2,
        }
    }

    /// Returns why an argument that isn't a name can't declare a variable.
    pub(super) fn name_expected(self) -> &'static str {
        match self {
            Self::OptionalMap => "optMap() variable name must be a simple identifier",
            Self::OptionalFlatMap => "optFlatMap() variable name must be a simple identifier",
            Self::SortBy => "argument is not an identifier",
            _ => "argument must be a simple name",
        }
    }
}

/// Returns an expression in which what only the parser takes for a macro has another name of the same length:
/// `existsOne` with one variable.
pub(super) fn without_parsers_own(text: &str) -> Cow<'_, str> {
    if !text.contains(EXISTS_ONE) {
        return text.into();
    }
    let (mut renamed, mut rest) = (String::with_capacity(text.len()), text);
    for at in Tokens::new(text).calls_of(EXISTS_ONE) {
        let (before, after) = rest.split_at(at + rest.len() - text.len());
        renamed += before;
        renamed += UNKNOWN_EXISTS_ONE;
        rest = &after[EXISTS_ONE.len()..];
    }
    (renamed + rest).into()
}

/// Returns a message of the parser as cel-go has it, with the names of the original expression.
pub(super) fn with_parsers_own(message: &str) -> String {
    let message = message.replace(UNKNOWN_EXISTS_ONE, EXISTS_ONE).replace("\n| ", "\n | ");
    message.replace("argument must be a simple name", "argument is not an identifier")
}

/// Returns the name of a function in the text of an expression.
pub(super) fn name_in_text(function: &str) -> &str {
    if function == UNKNOWN_EXISTS_ONE { EXISTS_ONE } else { function }
}

/// Returns the arguments of `cel.bind`: the variable, its value, and the expression that it is for. The evaluator knows
/// it everywhere, the checker where it is enabled.
pub(super) fn binding(call: &CallExpr) -> Option<&[IdedExpr; 3]> {
    let is_cel = matches!(call.target.as_deref(), Some(IdedExpr { expr: Expr::Ident(name), .. }) if name == CEL);
    if is_cel && call.func_name == BIND { call.args.as_array() } else { None }
}

/// Expands all macros in a tree.
pub(super) fn expand(tree: &mut IdedExpr) -> Result<(), String> {
    Expander { parts: 0, nesting: 0 }.expand(tree)
}

struct Expander {
    parts: usize,
    nesting: usize,
}

impl Expander {
    fn expand(&mut self, tree: &mut IdedExpr) -> Result<(), String> {
        self.count(1)?;
        let expanded = match &mut tree.expr {
            Expr::Call(call) => {
                let is_macro = Macro::of(call).is_some() || binding(call).is_some();
                self.nesting += usize::from(is_macro);
                if self.nesting > NESTING {
                    return Err(format!("macros are nested more than {NESTING} levels deep"));
                }
                let parts = call.target.as_deref_mut().into_iter().chain(&mut call.args);
                parts.into_iter().try_for_each(|part| self.expand(part))?;
                self.nesting -= usize::from(is_macro);
                self.expansion(call)?
            }
            Expr::Select(select) => return self.expand(&mut select.operand),
            Expr::List(list) => return list.elements.iter_mut().try_for_each(|element| self.expand(element)),
            Expr::Map(MapExpr { entries }) => return self.entries(entries.iter_mut().map(|entry| &mut entry.expr)),
            Expr::Struct(message) => return self.entries(message.entries.iter_mut().map(|entry| &mut entry.expr)),
            Expr::Comprehension(parts) => {
                let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } = &mut **parts;
                let parts = [iter_range, accu_init, loop_cond, loop_step, result];
                return parts.into_iter().try_for_each(|part| self.expand(part));
            }
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => None,
        };
        if let Some(expanded) = expanded {
            tree.expr = expanded;
        }
        Ok(())
    }

    fn entries<'e>(&mut self, mut entries: impl Iterator<Item = &'e mut EntryExpr>) -> Result<(), String> {
        entries.try_for_each(|entry| match entry {
            EntryExpr::StructField(field) => self.expand(&mut field.value),
            EntryExpr::MapEntry(entry) => {
                self.expand(&mut entry.key)?;
                self.expand(&mut entry.value)
            }
        })
    }

    fn count(&mut self, parts: usize) -> Result<(), String> {
        self.parts = self.parts.saturating_add(parts);
        if self.parts > PARTS { Err(format!("the expression has more than {PARTS} parts")) } else { Ok(()) }
    }

    /// Returns what a call stands for, if it uses a macro. Its arguments have been expanded.
    fn expansion(&mut self, call: &mut CallExpr) -> Result<Option<Expr>, String> {
        if let Some([variable, value, result]) = binding(call) {
            return match &variable.expr {
                Expr::Ident(name) => Ok(Some(bound(name.clone(), value.clone(), result.clone()).expr)),
                _ => Err(BIND_NAME_EXPECTED.to_owned()),
            };
        }
        let Some((found, _)) = Macro::of(call) else { return Ok(None) };
        let Some(target) = call.target.take() else { return Ok(None) };
        let mut arguments = std::mem::take(&mut call.args);
        let rest = arguments.split_off(found.variables());
        let names = arguments.into_iter().map(|argument| match argument.expr {
            Expr::Ident(name) if name != ACCUMULATOR => Ok(name),
            _ => Err(found.name_expected().to_owned()),
        });
        let mut names = names.collect::<Result<Vec<_>, _>>()?.into_iter();
        let first = names.next().unwrap_or_default();
        let second = names.next();
        if second.as_ref() == Some(&first) {
            return Err(format!("duplicate variable name: {first}"));
        }
        Ok(Some(match found {
            Macro::OptionalMap | Macro::OptionalFlatMap => {
                self.count(size(&target))?;
                optional(found, *target, first, rest)
            }
            Macro::SortBy => sorted(*target, first, rest),
            _ => comprehension(found, *target, first, second, rest),
        }))
    }
}

/// Returns the number of parts of a tree without macros.
fn size(tree: &IdedExpr) -> usize {
    1 + match &tree.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).map(size).sum(),
        Expr::Select(select) => size(&select.operand),
        Expr::List(list) => list.elements.iter().map(size).sum(),
        Expr::Map(map) => map.entries.iter().map(|entry| of_entry(&entry.expr)).sum(),
        Expr::Struct(message) => message.entries.iter().map(|entry| of_entry(&entry.expr)).sum(),
        Expr::Comprehension(parts) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } = &**parts;
            [iter_range, accu_init, loop_cond, loop_step, result].into_iter().map(size).sum()
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => 0,
    }
}

fn of_entry(entry: &EntryExpr) -> usize {
    match entry {
        EntryExpr::StructField(field) => size(&field.value),
        EntryExpr::MapEntry(entry) => size(&entry.key) + size(&entry.value),
    }
}

/// A comprehension with two variables: the index and the item of a list, or the key and the value of a map. With one,
/// it has the item of a list or the key of a map.
fn comprehension(
    found: Macro,
    range: IdedExpr,
    first: String,
    second: Option<String>,
    mut arguments: Vec<IdedExpr>,
) -> Expr {
    let accumulator = || name(ACCUMULATOR);
    let last = arguments.pop().unwrap_or_default();
    let (initial, condition, step, result) = match found {
        Macro::All => {
            let condition = call(operators::NOT_STRICTLY_FALSE, vec![accumulator()]);
            (boolean(true), condition, call(operators::LOGICAL_AND, vec![accumulator(), last]), accumulator())
        }
        Macro::Exists => {
            let not = call(operators::LOGICAL_NOT, vec![accumulator()]);
            let condition = call(operators::NOT_STRICTLY_FALSE, vec![not]);
            (boolean(false), condition, call(operators::LOGICAL_OR, vec![accumulator(), last]), accumulator())
        }
        Macro::ExistsOne => {
            let sum = call(operators::ADD, vec![accumulator(), integer(1)]);
            let step = call(operators::CONDITIONAL, vec![last, sum, accumulator()]);
            (integer(0), boolean(true), step, call(operators::EQUALS, vec![accumulator(), integer(1)]))
        }
        _ => {
            let (initial, step) = match found {
                Macro::TransformMap => {
                    let key = name(&first);
                    (node(Expr::Map(MapExpr::default())), call(INSERT, vec![accumulator(), key, last]))
                }
                Macro::TransformMapEntry => {
                    (node(Expr::Map(MapExpr::default())), call(INSERT, vec![accumulator(), last]))
                }
                _ => (list(vec![]), call(operators::ADD, vec![accumulator(), list(vec![last])])),
            };
            let step = match arguments.pop() {
                Some(filter) => call(operators::CONDITIONAL, vec![filter, step, accumulator()]),
                None => step,
            };
            (initial, boolean(true), step, accumulator())
        }
    };
    Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: range,
        iter_var: first,
        iter_var2: second,
        accu_var: ACCUMULATOR.to_owned(),
        accu_init: initial,
        loop_cond: condition,
        loop_step: step,
        result,
    }))
}

/// `target.hasValue() ? optional.of(<bound>) : optional.none()`. `optFlatMap` has the bound expression in place of
/// `optional.of`.
fn optional(found: Macro, target: IdedExpr, variable: String, mut arguments: Vec<IdedExpr>) -> Expr {
    let value = method(target.clone(), "value", vec![]);
    let bound = bound(variable, value, arguments.pop().unwrap_or_default());
    let optional = |function, arguments| method(name("optional"), function, arguments);
    let some = if found == Macro::OptionalMap { optional("of", vec![bound]) } else { bound };
    call(operators::CONDITIONAL, vec![method(target, "hasValue", vec![]), some, optional("none", vec![])]).expr
}

/// The list, sorted by the values of the argument for its items.
fn sorted(target: IdedExpr, variable: String, arguments: Vec<IdedExpr>) -> Expr {
    let keys = node(comprehension(Macro::TransformList, name(SORTED), variable, None, arguments));
    bound(SORTED.to_owned(), target, method(name(SORTED), SORT, vec![keys])).expr
}

/// An expression with a variable: a comprehension without iterations, whose accumulator is the variable.
fn bound(variable: String, value: IdedExpr, result: IdedExpr) -> IdedExpr {
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: list(vec![]),
        iter_var: UNUSED.to_owned(),
        iter_var2: None,
        loop_cond: boolean(false),
        loop_step: name(&variable),
        accu_var: variable,
        accu_init: value,
        result,
    })))
}

/// Returns whether a comprehension only declares its accumulator.
pub(super) fn is_binding(comprehension: &ComprehensionExpr) -> bool {
    comprehension.iter_var == UNUSED
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn name(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

fn list(elements: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::List(ListExpr::new(elements)))
}

fn boolean(value: bool) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn integer(value: i64) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Int(value.into())))
}

fn call(function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }))
}

fn method(target: IdedExpr, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr { func_name: function.to_owned(), target: Some(Box::new(target)), args }))
}
