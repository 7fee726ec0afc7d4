//! Match conditions of webhooks and policies
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>).

use super::policy::{Composition, PolicyEnvironment, PolicyExpression};

/// The conditions of one webhook or policy, which must all hold.
#[derive(Debug, Default)]
pub struct MatchConditions(Vec<PolicyExpression>);

impl MatchConditions {
    /// Compiles conditions, given by their expressions.
    pub fn new<'t>(conditions: impl IntoIterator<Item = &'t str>) -> Self {
        Self(conditions.into_iter().map(PolicyExpression::new).collect())
    }

    /// Returns whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether all conditions hold.
    ///
    /// A condition that doesn't hold determines the result, even if another can't be evaluated. As in Kubernetes, the
    /// evaluations share one cost budget. They yield to other tasks in between.
    ///
    /// # Errors
    /// If no condition is false but one can't be evaluated: a field is absent, the result is not a boolean, or the
    /// budget is used up.
    pub async fn hold(&self, environment: &PolicyEnvironment, composition: &Composition) -> Result<bool, String> {
        let mut session = environment.conditions(composition);
        let mut errors: Vec<String> = Vec::new();
        let mut holds = true;
        for condition in &self.0 {
            match session.evaluate(condition).await.map_err(|error| error.to_string())? {
                Ok(output) => match output.as_bool() {
                    Some(value) => holds &= value,
                    None => errors.push(format!("expression '{}' must evaluate to bool", condition.text())),
                },
                Err(error) if errors.contains(&error) => {}
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            _ if !holds => Ok(false),
            [] => Ok(true),
            [error] => Err(error.clone()),
            errors => Err(format!("[{}]", errors.join(", "))),
        }
    }
}
