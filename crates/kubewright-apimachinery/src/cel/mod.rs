//! The Common Expression Language as Kubernetes uses it: validation rules of custom resources, match conditions, and
//! admission policies (<https://kubernetes.io/docs/reference/using-api/cel/>).
//!
//! The parser is that of the `cel` crate, and the function library is `kube-cel`. The evaluator is implemented here for
//! two reasons: it charges every step by the sizes of its operands and stops at the limits of kube-apiserver, and it
//! shares values instead of copying them. The costs are those of cel-go and of Kubernetes' library. A function that
//! would build a result larger than that cost covers is charged for the result before it runs.

mod address;
mod arithmetic;
mod associative;
mod authentication;
mod authorizer;
mod check;
mod conversion;
mod cost;
mod declarations;
mod device;
mod domains;
mod estimate;
mod evaluate;
mod expression;
mod failure;
mod format;
mod function;
mod identifier;
mod kind;
mod library;
mod list;
mod literal;
mod macros;
mod malformed;
mod match_conditions;
mod message;
mod named_format;
mod negation;
mod nesting;
mod policy;
mod positions;
mod program;
mod quantity;
mod semver;
mod string;
#[cfg(test)]
mod tests;
mod time;
pub(crate) mod value;

pub(crate) use self::{
    associative::{Associative, items},
    check::{Environment, Fields, Type},
    cost::{Budget, Pace},
    estimate::SizeLimits,
    identifier::{escape, is_alias},
    library::convert,
    program::{Checked, Error, LazyProgram, Program, Typed, check_rule, type_of},
    time::{duration, timestamp},
};
pub use self::{
    authentication::selects,
    authorizer::{AccessCheck, AccessDecision, Authorize},
    check::Expected,
    declarations::{PolicyDeclarations, Refusal},
    device::{DeviceSelector, SelectorRefusal, check_device_selector},
    match_conditions::MatchConditions,
    policy::{Composition, OutOfBudget, PolicyEnvironment, PolicyExpression, PolicyInput, PolicyOutput, PolicySession},
};
