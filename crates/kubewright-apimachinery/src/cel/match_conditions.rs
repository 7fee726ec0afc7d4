//! Match conditions of webhooks
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>).

use std::fmt;

use kube_cel::cel;
use serde_json::Value;

use super::{
    cost::{Budget, Pace},
    program::{Error, Program},
    value,
};

/// The conditions of one webhook, which must all hold.
#[derive(Default)]
pub struct MatchConditions(Vec<(String, Program)>);

impl MatchConditions {
    /// Checks that an expression can be parsed. The error is the syntax error.
    pub fn check(expression: &str) -> Result<(), String> {
        Program::parse(expression).map(drop).map_err(|why| format!("compilation failed: {why}"))
    }

    /// Parses conditions, given by name and expression. Omits those that [`MatchConditions::check`] rejects.
    pub fn new<'t>(conditions: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let read = |(name, expression): (&str, &str)| Some((name.to_owned(), Program::parse(expression).ok()?));
        Self(conditions.into_iter().filter_map(read).collect())
    }

    /// Returns whether all conditions hold for the given variables.
    ///
    /// A condition that doesn't hold determines the result, even if another can't be evaluated. As in Kubernetes, the
    /// evaluations share one cost budget. They yield to other tasks in between.
    ///
    /// # Errors
    /// If no condition is false but one can't be evaluated: a field is absent, the result is not a boolean, or the
    /// budget is used up. The error names the condition.
    pub async fn hold(&self, values: &[(&str, &Value)]) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let variables: Vec<_> = values.iter().map(|(name, value)| (*name, value::from_json(value))).collect();
        let (mut budget, mut pace) = (Budget::of_match_conditions(), Pace::default());
        let mut first_error = None;
        for (name, program) in &self.0 {
            let before = budget.left();
            let evaluated = program.evaluate(&variables, &mut budget, None);
            pace.spent(before.saturating_sub(budget.left())).await;
            let error = match evaluated {
                Ok(cel::Value::Bool(true)) => continue,
                Ok(cel::Value::Bool(false)) => return Ok(false),
                Ok(_) => "must evaluate to a bool".to_owned(),
                Err(error @ Error::OutOfBudget(_)) => return Err(in_condition(name, &error.to_string())),
                Err(error) => error.to_string(),
            };
            first_error = first_error.or_else(|| Some(in_condition(name, &error)));
        }
        first_error.map_or(Ok(true), Err)
    }
}

fn in_condition(name: &str, why: &str) -> String {
    format!("matchCondition {name:?} cannot be evaluated: {why}")
}

impl fmt::Debug for MatchConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}
