//! The evaluation of a validating admission policy.

use kubewright_apimachinery::cel::PolicyEnvironment;

use super::policy::{Policy, Validation};

/// The greatest size of a message that an expression computes, in bytes.
const MAX_MESSAGE: usize = 5 << 10;

/// The variables of a policy's expressions.
#[derive(Debug)]
pub(super) struct Environments {
    /// Those of match conditions.
    pub(super) conditions: PolicyEnvironment,
    /// Those of validations and mutations.
    pub(super) expressions: PolicyEnvironment,
    /// Those of messages and annotations, which can't use the authorizer.
    pub(super) texts: PolicyEnvironment,
}

/// A violated validation, or a failure to evaluate the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) message: String,
    pub(super) reason: Option<String>,
    /// True for an audit annotation that can't be evaluated. The request is denied whatever the binding's actions are.
    pub(super) always_denies: bool,
    /// The position of the validation in the policy.
    pub(super) index: usize,
}

impl Violation {
    fn failure(message: String) -> Self {
        Self { message, reason: None, always_denies: false, index: 0 }
    }
}

/// The result of a policy: what it violates, and its audit annotations.
#[derive(Debug, Default)]
pub(super) struct Validated {
    pub(super) violations: Vec<Violation>,
    pub(super) annotations: Vec<(String, String)>,
}

/// Evaluates a policy.
pub(super) async fn validate(policy: &Policy, environments: &Environments) -> Validated {
    match try_validate(policy, environments).await {
        Ok(validated) => validated,
        // The whole policy counts as one failed decision.
        Err(_) if policy.ignores_failure => Validated::default(),
        Err(why) => Validated { violations: vec![Violation::failure(why)], ..Validated::default() },
    }
}

async fn try_validate(policy: &Policy, environments: &Environments) -> Result<Validated, String> {
    let Policy { composition, conditions, ignores_failure, .. } = policy;
    if !conditions.is_empty() && !conditions.hold(&environments.conditions, composition).await? {
        return Ok(Validated::default());
    }
    let mut session = environments.expressions.session(composition, None);
    let mut results = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        results.push(session.evaluate(&validation.expression).await.map_err(|error| error.to_string())?);
    }
    let messages = messages(policy, &environments.texts, session.left()).await;
    let mut validated = Validated::default();
    for (index, (validation, result)) in policy.validations.iter().zip(results).enumerate() {
        let violation = match (result, &messages) {
            (Err(why), _) => Some(Violation::failure(why)).filter(|_| !ignores_failure),
            (Ok(_), Err(why)) => {
                Some(Violation::failure(format!("failed messageExpression: {why}"))).filter(|_| !ignores_failure)
            }
            (Ok(output), _) if output.as_bool() == Some(true) => None,
            (Ok(_), Ok(messages)) => Some(violated(validation, messages.get(index).and_then(Option::as_deref))),
        };
        validated.violations.extend(violation.map(|violation| Violation { index, ..violation }));
    }
    annotate(policy, &environments.texts, &mut validated).await?;
    Ok(validated)
}

/// Evaluates the expressions of messages, with what is left of the budget. The error is that the budget is used up.
async fn messages(policy: &Policy, environment: &PolicyEnvironment, left: u64) -> Result<Vec<Option<String>>, String> {
    let mut session = environment.session(&policy.composition, Some(left));
    let mut messages = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        let Some(expression) = &validation.message_expression else {
            messages.push(None);
            continue;
        };
        let result = session.evaluate(expression).await.map_err(|error| error.to_string())?;
        let text = result.ok().and_then(|output| output.as_str().map(|text| text.trim().to_owned()));
        messages.push(text.filter(|text| text.len() <= MAX_MESSAGE && !text.contains('\n')));
    }
    Ok(messages)
}

fn violated(validation: &Validation, message: Option<&str>) -> Violation {
    let message = match (message.unwrap_or_default(), validation.message.as_str()) {
        ("", "") => format!("failed expression: {}", validation.expression.text().trim()),
        ("", message) | (message, _) => message.to_owned(),
    };
    Violation { message, reason: validation.reason.clone(), always_denies: false, index: 0 }
}

/// Evaluates the audit annotations.
async fn annotate(policy: &Policy, environment: &PolicyEnvironment, validated: &mut Validated) -> Result<(), String> {
    let mut session = environment.session(&policy.composition, None);
    for annotation in &policy.annotations {
        let result = session.evaluate(&annotation.value).await.map_err(|error| error.to_string())?;
        let why = match result {
            Ok(output) if output.is_null() => continue,
            Ok(output) => match output.as_str().map(str::trim) {
                Some("") => continue,
                Some(text) => {
                    validated.annotations.push((format!("{}/{}", policy.name, annotation.key), text.to_owned()));
                    continue;
                }
                None => format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or \
                     null.",
                    annotation.value.text(),
                    output.type_name()
                ),
            },
            Err(_) if policy.ignores_failure => continue,
            Err(why) => why,
        };
        validated.violations.push(Violation { message: why, reason: None, always_denies: true, index: 0 });
    }
    Ok(())
}
