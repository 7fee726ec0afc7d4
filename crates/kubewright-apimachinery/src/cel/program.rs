//! Expressions that are parsed once and evaluated many times.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
};

use kube_cel::cel::{IdedExpr, Value, parser::Parser};

use super::{
    check::{self, Environment, Type},
    cost::{Budget, Meter},
    estimate::{self, SizeLimits},
    evaluate::Evaluation,
    expression::Expression,
    failure::{Evaluated, Failure},
    literal, macros, malformed, negation, nesting,
    policy::Composed,
};

/// The maximum number of parentheses and conditionals of an expression that is parsed on the caller's thread.
const SHALLOW: usize = 12;

/// The stack size of the thread that parses deeper expressions, in bytes. A debug build of the parser uses about 120 KB
/// per level.
const STACK: usize = 48 * 1024 * 1024;

const UNPARSABLE: &str = "the expression cannot be parsed";

/// The type of an expression.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) of: Type,
    /// The error about a literal that can't be converted, or that isn't a pattern although it is used as one.
    /// Kubernetes makes a program of an expression after it has checked its type, and only finds these errors then.
    pub(crate) invalid_literal: Option<String>,
}

/// Checks an expression, and returns its type.
pub(crate) fn type_of(text: &str, environment: &Environment) -> Result<Typed, String> {
    with_tree(text, |mut tree| {
        let of = check::check(&tree, text, environment)?;
        macros::expand(&mut tree)?;
        let invalid_literal = Expression::invalid_literal(&tree, environment.has_messages())?;
        Ok(Typed { of, invalid_literal })
    })
}

/// What is known about a rule before it is evaluated.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) of: Type,
    /// That of [`Typed`].
    pub(crate) invalid_literal: Option<String>,
    /// The greatest cost of an evaluation, in units.
    pub(crate) cost: u64,
    /// True if the rule mentions `oldSelf`.
    pub(crate) mentions_old: bool,
}

/// Checks an expression about values of these sizes.
pub(crate) fn check_rule(text: &str, environment: &Environment, limits: &SizeLimits) -> Result<Checked, String> {
    with_tree(text, |mut tree| {
        let of = check::check(&tree, text, environment)?;
        macros::expand(&mut tree)?;
        let invalid_literal = Expression::invalid_literal(&tree, environment.has_messages())?;
        let mentions_old = tree.references().has_variable("oldSelf");
        Ok(Checked { of, invalid_literal, cost: estimate::greatest_cost(&tree, environment, limits), mentions_old })
    })
}

/// Parses an expression, and does something with its tree.
pub(super) fn with_tree<R: Send>(text: &str, act: impl Fn(IdedExpr) -> Result<R, String> + Sync) -> Result<R, String> {
    let parse = || {
        // The parser is third-party code and the text is untrusted, so a panic is caught.
        let text = macros::without_parsers_own(text);
        let text = negation::simplify(&text);
        let text = literal::simplify(&text);
        let tree = catch_unwind(|| Parser::new().enable_optional_syntax(true).parse(&text))
            .map_err(|_| UNPARSABLE.to_owned())?
            .map_err(|errors| macros::with_parsers_own(errors.to_string().trim()))?;
        act(tree)
    };
    let depth = nesting::check(text)?;
    malformed::check(text)?;
    if depth <= SHALLOW {
        return parse();
    }
    std::thread::scope(|scope| {
        let parsing = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, parse);
        let parsed = parsing.ok().and_then(|parsing| parsing.join().ok());
        parsed.unwrap_or_else(|| Err(UNPARSABLE.to_owned()))
    })
}

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Program {
    expression: Expression,
    text: String,
    /// True if the expression mentions `oldSelf`, which makes it a transition rule.
    pub(crate) mentions_old: bool,
}

impl Program {
    /// Parses an expression. The error is the syntax error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_in(text, false)
    }

    /// Parses an expression that may construct messages.
    pub(super) fn parse_with_messages(text: &str) -> Result<Self, String> {
        Self::parse_in(text, true)
    }

    fn parse_in(text: &str, messages: bool) -> Result<Self, String> {
        with_tree(text, |mut tree| {
            macros::expand(&mut tree)?;
            let mentions_old = tree.references().has_variable("oldSelf");
            Ok(Self { expression: Expression::compile(&tree, messages)?, text: text.trim().to_owned(), mentions_old })
        })
    }

    /// Evaluates the expression with these variables. The error has Kubernetes' wording where that exists.
    ///
    /// `shown` names the expression in the error about a cost limit. Evaluation stops as soon as a limit is exceeded,
    /// which uses up the budget.
    pub(crate) fn evaluate(
        &self,
        variables: &[(&str, Value)],
        budget: &mut Budget,
        shown: Option<&str>,
    ) -> Result<Value, Error> {
        let mut meter = budget.meter();
        match self.run(variables, None, &mut meter) {
            Err(Failure::Exceeded) => Err(Error::OutOfBudget(budget.exhaust(shown.unwrap_or(&self.text)))),
            result => {
                budget.settle(&meter);
                result.map_err(|failure| Error::Failed(failure.to_string()))
            }
        }
    }

    /// Evaluates the expression with these variables and composed variables.
    pub(super) fn run(
        &self,
        variables: &[(&str, Value)],
        composed: Option<&Composed<'_>>,
        meter: &mut Meter,
    ) -> Evaluated {
        let run = || Evaluation::new(variables, composed, meter).run(&self.expression);
        // The library functions are third-party code, so a panic is caught.
        let evaluated = catch_unwind(AssertUnwindSafe(run));
        evaluated.unwrap_or_else(|_| Err(Failure::error("the expression cannot be evaluated")))
    }
}

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// A step failed, such as the selection of an absent field.
    Failed(String),
    /// A cost limit is exceeded.
    OutOfBudget(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::OutOfBudget(why)) = self;
        f.write_str(why)
    }
}

/// The program of a text that is stored elsewhere, parsed at its first evaluation. Clones share the program, and
/// comparisons ignore it.
#[derive(Clone, Default)]
pub(crate) struct LazyProgram(Arc<OnceLock<Result<Program, String>>>);

impl LazyProgram {
    /// Returns the program of `text`, which must be the same in every call.
    pub(crate) fn get(&self, text: &str) -> Result<&Program, &str> {
        self.0.get_or_init(|| Program::parse(text)).as_ref().map_err(String::as_str)
    }
}

impl fmt::Debug for LazyProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyProgram")
    }
}

impl PartialEq for LazyProgram {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
