//! The evaluation of a mutation of a mutating admission policy.

use kubewright_apimachinery::{
    apply,
    cel::{PolicyEnvironment, PolicyExpression, PolicyOutput},
    patch::{PatchError, json},
};
use serde_json::Value;

use super::policy::{Mutation, Policy};
use crate::registry::Resource;

/// Returns the object as a mutation changes it. The error has kube-apiserver's wording.
pub(super) async fn mutate(
    policy: &Policy,
    mutation: &Mutation,
    environment: &PolicyEnvironment,
    resource: &Resource,
    object: &Value,
) -> Result<Value, String> {
    match mutation {
        Mutation::ApplyConfiguration(expression) => {
            let mut config = evaluate(policy, expression, environment).await?.to_apply_configuration()?;
            for field in ["apiVersion", "kind"] {
                config[field] = object[field].clone();
            }
            let merged = apply::merge_configuration(resource.schema.node(), object, &config);
            merged.map_err(|why| format!("error applying patch: {why}"))
        }
        Mutation::JsonPatch(expression) => {
            let patch = evaluate(policy, expression, environment).await?.to_json_patch()?;
            match json::apply(object, &patch) {
                Ok(patched) => Ok(patched),
                Err(PatchError::TestFailed(_)) => Ok(object.clone()),
                Err(error) => Err(format!("JSON Patch: {error}")),
            }
        }
    }
}

async fn evaluate(
    policy: &Policy,
    expression: &PolicyExpression,
    environment: &PolicyEnvironment,
) -> Result<PolicyOutput, String> {
    if let Some(why) = expression.compile_error() {
        return Err(why);
    }
    let mut session = environment.session(&policy.composition, None);
    session.evaluate(expression).await.map_err(|error| error.to_string())?
}
