//! Expressions of admission policies and of match conditions: a fixed set of variables for a request, composed
//! variables that are evaluated when they are first used, and one cost budget for several expressions.

use std::sync::{Arc, Mutex, PoisonError};

use kube_cel::cel;
use serde_json::Value;

use super::{
    authentication,
    authorizer::{AccessCheck, Authorize, AuthorizerValue},
    cost::{Budget, Meter, Pace},
    failure::{Evaluated, Failure},
    message,
    program::Program,
    value,
};

/// The greatest number of composed variables that are evaluated inside each other.
const MAX_DEPTH: usize = 64;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// An expression of a policy, compiled once.
#[derive(Debug)]
pub struct PolicyExpression {
    text: String,
    program: Result<Program, String>,
}

impl PolicyExpression {
    /// Compiles an expression. If it can't be parsed, each evaluation fails with the syntax error.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), program: Program::parse(text) }
    }

    /// Compiles an expression that may construct `Object{…}` and `JSONPatch{…}`.
    pub fn of_mutation(text: &str) -> Self {
        Self { text: text.to_owned(), program: Program::parse_with_messages(text) }
    }

    /// Returns the text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the error of an expression that can't be parsed.
    pub fn compile_error(&self) -> Option<String> {
        self.program.as_ref().err().map(|why| format!("compilation failed: {why}"))
    }
}

/// The composed variables of a policy, `variables.<name>`. Each may use those before it.
#[derive(Debug, Default)]
pub struct Composition(Vec<(String, PolicyExpression)>);

impl Composition {
    /// Compiles variables, given by name and expression.
    pub fn new<'t>(variables: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let compile = |(name, text): (&str, &str)| (name.to_owned(), PolicyExpression::new(text));
        Self(variables.into_iter().map(compile).collect())
    }
}

/// A variable's value, converted to CEL. Clones share it.
#[derive(Clone, Debug)]
pub struct PolicyInput(cel::Value);

impl PolicyInput {
    /// Converts a JSON value. An absent object is null.
    pub fn new(value: Option<&Value>) -> Self {
        Self(value.map_or(cel::Value::Null, value::from_json))
    }

    /// Converts the claims of a token, or a user. As in Kubernetes, all numbers are doubles, and a name that isn't an
    /// identifier is also there in its escaped form.
    pub fn claims(claims: &Value) -> Self {
        Self(authentication::to_cel(claims))
    }

    /// Returns the value of `authorizer`, for a request of this resource.
    pub fn authorizer(authorize: Arc<dyn Authorize>, request: AccessCheck) -> Self {
        Self(AuthorizerValue::variable(authorize, request))
    }
}

/// The result of an expression.
#[derive(Clone, Debug)]
pub struct PolicyOutput(cel::Value);

impl PolicyOutput {
    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        if let cel::Value::Bool(value) = self.0 { Some(value) } else { None }
    }

    /// Returns the value of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let cel::Value::String(text) = &self.0 { Some(text) } else { None }
    }

    /// Returns the texts of a string, of a list of strings, or of null, without empty ones.
    pub fn to_texts(&self) -> Option<Vec<String>> {
        let text = |value: &cel::Value| match value {
            cel::Value::String(text) => Some(text.to_string()),
            _ => None,
        };
        let mut texts = match &self.0 {
            cel::Value::Null => Vec::new(),
            cel::Value::List(items) => items.iter().map(text).collect::<Option<Vec<_>>>()?,
            other => vec![text(other)?],
        };
        texts.retain(|text| !text.is_empty());
        Some(texts)
    }

    /// Returns whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self.0, cel::Value::Null)
    }

    /// Returns the name of the value's type.
    pub fn type_name(&self) -> String {
        self.0.type_of().to_string()
    }

    /// Returns the apply configuration that the expression constructed.
    ///
    /// # Errors
    /// If the value isn't an `Object`, or contains messages whose types aren't the paths of their fields.
    pub fn to_apply_configuration(&self) -> Result<Value, String> {
        let root = message::message(&self.0).filter(|message| message.name != message::JSON_PATCH);
        if root.is_none() {
            return Err(format!("unsupported return type from ApplyConfiguration expression: {}", self.type_name()));
        }
        message::check_paths(&self.0, message::OBJECT).map_err(|why| format!("type mismatch: {why}"))?;
        message::to_json(&self.0)
    }

    /// Returns the operations of the JSON patch that the expression constructed.
    ///
    /// # Errors
    /// If the value isn't a list of `JSONPatch`, or contains values without a JSON form.
    pub fn to_json_patch(&self) -> Result<Value, String> {
        let mismatch = "type mismatch: JSONPatchType.expression should evaluate to array";
        let cel::Value::List(items) = &self.0 else { return Err(mismatch.to_owned()) };
        let operations = items.iter().map(|item| {
            let operation = message::message(item).filter(|message| message.name == message::JSON_PATCH);
            let fields = &operation.ok_or_else(|| format!("{mismatch} of JSONPatch"))?.fields;
            let mut shown = serde_json::Map::new();
            for name in ["op", "path", "from"] {
                match fields.get(name) {
                    Some(cel::Value::String(text)) if name != "from" || !text.is_empty() => {
                        shown.insert(name.to_owned(), text.as_str().into());
                    }
                    None if name != "from" => {
                        shown.insert(name.to_owned(), "".into());
                    }
                    _ => {}
                }
            }
            if let Some(value) = fields.get("value") {
                if let Some(object) = message::message(value) {
                    message::check_paths(value, &object.name).map_err(|why| format!("type mismatch: {why}"))?;
                }
                let unsupported = "JSONPath valueExpression evaluated to a type that could not marshal to JSON";
                shown.insert(
                    "value".to_owned(),
                    message::to_patch_value(value).map_err(|why| format!("{unsupported}: {why}"))?,
                );
            }
            Ok(Value::Object(shown))
        });
        operations.collect::<Result<Vec<_>, String>>().map(Value::from)
    }
}

/// The evaluation of several expressions with the same variables and one cost budget. Composed variables are evaluated
/// at most once.
#[derive(Debug)]
pub struct PolicySession<'a> {
    variables: &'a [(&'a str, cel::Value)],
    composition: &'a Composition,
    cells: Mutex<Cells>,
    budget: Budget,
    pace: Pace,
}

/// The variables of a policy for one request.
#[derive(Clone, Debug, Default)]
pub struct PolicyEnvironment(Vec<(&'static str, cel::Value)>);

impl PolicyEnvironment {
    /// Creates an environment.
    pub fn new(variables: impl IntoIterator<Item = (&'static str, PolicyInput)>) -> Self {
        Self(variables.into_iter().map(|(name, input)| (name, input.0)).collect())
    }

    /// Returns the environment with one more variable.
    #[must_use]
    pub fn with(mut self, name: &'static str, input: PolicyInput) -> Self {
        self.0.push((name, input.0));
        self
    }

    /// Begins the evaluation of expressions that share the budget of a binding, or what is `left` of it.
    pub fn session<'a>(&'a self, composition: &'a Composition, left: Option<u64>) -> PolicySession<'a> {
        self.begin(composition, left.map_or_else(Budget::of_object, Budget::of))
    }

    /// Begins the evaluation of match conditions.
    pub(super) fn conditions<'a>(&'a self, composition: &'a Composition) -> PolicySession<'a> {
        self.begin(composition, Budget::of_match_conditions())
    }

    fn begin<'a>(&'a self, composition: &'a Composition, budget: Budget) -> PolicySession<'a> {
        let cells = Cells { values: vec![None; composition.0.len()], spent: 0 };
        let (cells, pace) = (Mutex::new(cells), Pace::default());
        PolicySession { variables: &self.0, composition, cells, budget, pace }
    }
}

/// The values of composed variables, and what their evaluation has cost.
#[derive(Debug)]
struct Cells {
    values: Vec<Option<Result<cel::Value, String>>>,
    spent: u64,
}

/// The error that the budget is used up. Its text is kube-apiserver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(OUT_OF_BUDGET)
    }
}

impl std::error::Error for OutOfBudget {}

impl PolicySession<'_> {
    /// Evaluates an expression. The inner error has kube-apiserver's wording.
    ///
    /// Yields to other tasks between costly expressions.
    ///
    /// # Errors
    /// If the budget is used up. No further expression must be evaluated.
    pub async fn evaluate(
        &mut self,
        expression: &PolicyExpression,
    ) -> Result<Result<PolicyOutput, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: compilation failed: {why}"))),
        };
        let before = self.budget.left();
        let evaluated = self.run(program);
        self.pace.spent(before.saturating_sub(self.budget.left())).await;
        let shown = |failure: Failure| format!("expression '{}' resulted in error: {failure}", expression.text);
        Ok(evaluated?.map(PolicyOutput).map_err(shown))
    }

    fn run(&mut self, program: &Program) -> Result<Evaluated, OutOfBudget> {
        let mut meter = Meter::per_call();
        let composed = Composed { variables: &self.composition.0, cells: &self.cells, depth: 0 };
        let evaluated = program.run(self.variables, Some(&composed), &mut meter);
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = std::mem::take(&mut cells.spent).saturating_add(meter.spent());
        if self.budget.spend(spent) { Ok(evaluated) } else { Err(OutOfBudget) }
    }

    /// Returns the remaining units.
    pub fn left(&self) -> u64 {
        self.budget.left()
    }
}

/// The composed variables that an expression can use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Composed<'e> {
    variables: &'e [(String, PolicyExpression)],
    cells: &'e Mutex<Cells>,
    depth: usize,
}

impl Composed<'_> {
    /// Returns the value of a composed variable, which is evaluated at its first use. `None` if there is no such
    /// variable. The cost isn't part of that of the expression that uses it, but of the session's.
    pub(super) fn value(&self, variables: &[(&str, cel::Value)], name: &str) -> Option<Evaluated> {
        let index = self.variables.iter().rposition(|(known, _)| known == name)?;
        let lock = || self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().values.get(index).cloned().flatten() {
            return Some(known.map_err(Failure::Error));
        }
        let value = match &self.variables[index].1.program {
            Err(why) => Err(format!("composited variable {name:?} fails to compile: compilation failed: {why}")),
            Ok(_) if self.depth >= MAX_DEPTH => Err(format!("composited variable {name:?} is nested too deeply")),
            Ok(program) => {
                let mut meter = Meter::per_call();
                let inner = Composed { variables: &self.variables[..index], depth: self.depth + 1, ..*self };
                let evaluated = program.run(variables, Some(&inner), &mut meter);
                let mut cells = lock();
                cells.spent = cells.spent.saturating_add(meter.spent());
                evaluated.map_err(|why| format!("composited variable {name:?} fails to evaluate: {why}"))
            }
        };
        if let Some(cell) = lock().values.get_mut(index) {
            *cell = Some(value.clone());
        }
        Some(value.map_err(Failure::Error))
    }
}
