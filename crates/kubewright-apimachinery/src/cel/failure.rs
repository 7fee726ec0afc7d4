//! The reasons why an expression has no value, in the words of cel-go and Kubernetes.

use std::fmt;

use kube_cel::cel::{ExecutionError, Value};

use super::cost::Exceeded;

/// The reason why a step has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// An error, in Kubernetes' wording where that exists.
    Error(String),
    /// A cost limit is exceeded.
    Exceeded,
}

impl Failure {
    pub(super) fn error(why: impl Into<String>) -> Self {
        Self::Error(why.into())
    }

    pub(super) fn no_such_overload() -> Self {
        Self::error("no such overload")
    }
}

impl From<Exceeded> for Failure {
    fn from(_: Exceeded) -> Self {
        Self::Exceeded
    }
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        Self::Error(match error {
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            ExecutionError::UndeclaredReference(name) => undeclared(&name),
            ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
            ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
            ExecutionError::Overflow(..) => "integer overflow".to_owned(),
            ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
            // Other errors print the operands, which may be large.
            _ => "no such overload".to_owned(),
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(why) => f.write_str(why),
            Self::Exceeded => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

/// Returns the error about a variable that isn't declared.
pub(super) fn undeclared(name: &str) -> String {
    format!("rule compile error: undeclared reference to '{name}' (in container '')")
}

/// The result of a step.
pub(super) type Evaluated = Result<Value, Failure>;
