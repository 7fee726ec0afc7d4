//! Rules as programs: read once, evaluated often.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};

use kube_cel::{
    KubeCelExt,
    cel::{
        self, Context, ExecutionError, IdedExpr,
        common::ast::{EntryExpr, Expr, MapExpr, StructExpr, operators},
        extractors::This,
        objects::{OptionalValue, ValueType},
        parser::Parser,
    },
};
use parking_lot::RwLock;

use super::cost::{self, Sizes};

/// Texts whose programs are kept. A server has far fewer rules; the bound is for one whose definitions come and go.
const KEPT: usize = 4096;

/// What a rule's text was read as, or why it could not be.
type Read = Result<Arc<Program>, String>;

static READ: LazyLock<RwLock<BTreeMap<String, Read>>> = LazyLock::new(RwLock::default);

thread_local! {
    /// The functions: a table too large to build for each rule, and not to be shared between threads.
    static LIBRARY: Context<'static> = library();
}

fn library() -> Context<'static> {
    let mut library = Context::default().with_all();
    // The interpreter has no types as values. Their names do, as rules only compare them: `type(self) == string`.
    for name in ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"] {
        library.add_variable_from_value(name, name);
    }
    library.add_function("type", |value: cel::Value| match value.type_of() {
        ValueType::Float => "double".to_owned(),
        ValueType::Null => "null_type".to_owned(),
        other => other.to_string(),
    });
    // The interpreter's counts a text's bytes, and the language its characters.
    library.add_function("size", |This(value): This<cel::Value>| match &value {
        cel::Value::String(text) => Ok(text.chars().count() as i64),
        cel::Value::Bytes(bytes) => Ok(bytes.len() as i64),
        cel::Value::List(items) => Ok(items.len() as i64),
        cel::Value::Map(map) => Ok(map.map.len() as i64),
        _ => Err(ExecutionError::NoSuchOverload),
    });
    library
}

/// A rule that has been read.
pub(super) struct Program {
    expression: IdedExpr,
    /// Whether it mentions `oldSelf`, and so is about a change.
    pub(super) mentions_old: bool,
}

/// The names that a rule may use.
pub(super) struct Scope<'a> {
    /// `self`
    pub(super) this: &'a cel::Value,
    /// `oldSelf`
    pub(super) old: Option<&'a cel::Value>,
    /// `oldSelf` is an optional value.
    pub(super) optional: bool,
}

impl Program {
    /// The program of a text; or, as the error, where it can't be read.
    pub(super) fn of(text: &str) -> Read {
        if let Some(known) = READ.read().get(text) {
            return known.clone();
        }
        let read = Self::read(text);
        let mut all = READ.write();
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(text.to_owned(), read.clone());
        read
    }

    fn read(text: &str) -> Read {
        // The parser is not ours, and the text is anyone's.
        let parse = || Parser::new().enable_optional_syntax(true).parse(text);
        let mut expression = catch_unwind(parse)
            .map_err(|_| "the rule can't be read".to_owned())?
            .map_err(|errors| errors.to_string().trim().to_owned())?;
        mend_optional_selection(&mut expression);
        let mentions_old = expression.references().has_variable("oldSelf");
        Ok(Arc::new(Self { expression, mentions_old }))
    }

    /// What an evaluation on a value of these sizes may cost at most.
    pub(super) fn cost(&self, sizes: &Sizes) -> u64 {
        cost::of(&self.expression, sizes)
    }

    /// Evaluates; the error is in Kubernetes' words where it has some.
    pub(super) fn evaluate(&self, scope: &Scope<'_>) -> Result<cel::Value, String> {
        self.evaluate_with(|context| {
            context.add_variable_from_value("self", scope.this.clone());
            if scope.optional {
                let old = scope.old.cloned().map_or_else(OptionalValue::none, OptionalValue::of);
                context.add_variable_from_value("oldSelf", cel::Value::Opaque(Arc::new(old)));
            } else if let Some(old) = scope.old {
                context.add_variable_from_value("oldSelf", old.clone());
            }
        })
    }

    /// Evaluates with the names that `bind` brings in.
    pub(super) fn evaluate_with(&self, bind: impl FnOnce(&mut Context<'_>)) -> Result<cel::Value, String> {
        let run = || {
            LIBRARY.with(|library| {
                let mut context = library.new_inner_scope();
                bind(&mut context);
                context.resolve(&self.expression)
            })
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result.map_err(|error| words(&error)),
            Err(_) => Err("the rule can't be evaluated".to_owned()),
        }
    }
}

/// Selects optional fields (`self.?field`) as optional entries (`self[?'field']`): the interpreter takes the former for
/// an error when the field is absent.
fn mend_optional_selection(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => mend_optional_selection(&mut select.operand),
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT {
                call.func_name = operators::OPT_INDEX.to_owned();
            }
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(mend_optional_selection);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(mend_optional_selection),
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => {
            for entry in entries {
                match &mut entry.expr {
                    EntryExpr::StructField(field) => mend_optional_selection(&mut field.value),
                    EntryExpr::MapEntry(entry) => {
                        mend_optional_selection(&mut entry.key);
                        mend_optional_selection(&mut entry.value);
                    }
                }
            }
        }
        Expr::Comprehension(comprehension) => {
            mend_optional_selection(&mut comprehension.iter_range);
            mend_optional_selection(&mut comprehension.accu_init);
            mend_optional_selection(&mut comprehension.loop_cond);
            mend_optional_selection(&mut comprehension.loop_step);
            mend_optional_selection(&mut comprehension.result);
        }
    }
}

/// A function of the library, applied to a text; `None` when it makes nothing of it.
pub(super) fn call(function: &str, argument: &str) -> Option<cel::Value> {
    let program = Program::of(&format!("{function}(self)")).ok()?;
    let this = cel::Value::String(Arc::new(argument.to_owned()));
    program.evaluate(&Scope { this: &this, old: None, optional: false }).ok()
}

fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::UndeclaredReference(name) => {
            format!("rule compile error: undeclared reference to '{name}' (in container '')")
        }
        ExecutionError::NoSuchOverload => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
        other => other.to_string(),
    }
}
