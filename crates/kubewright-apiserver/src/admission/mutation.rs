//! The evaluation of a mutation of a mutating admission policy.

use kubewright_apimachinery::{
    apply,
    cel::{PolicyEnvironment, PolicyExpression, PolicyOutput},
    patch::{PatchError, json},
    status::Status,
    types::json_type,
};
use serde_json::Value;

use super::policy::{Mutation, Policy, text};
use crate::{object_type::ObjectType, registry::Resource};

/// The failure of a mutation.
#[derive(Debug)]
pub(super) enum Failure {
    /// The policy denies the request, unless it ignores failures.
    Denial(String),
    /// The request fails, whatever the policy says.
    Status(Status),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Denial(why)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Returns the object as a mutation changes it. The error has kube-apiserver's wording.
pub(super) async fn mutate(
    policy: &Policy,
    mutation: &Mutation,
    environment: &PolicyEnvironment,
    resource: &Resource,
    object: &Value,
) -> Result<Value, Failure> {
    match mutation {
        Mutation::ApplyConfiguration(expression) => {
            let mut config = evaluate(policy, expression, environment).await?.to_apply_configuration()?;
            for field in ["apiVersion", "kind"] {
                config[field] = object[field].clone();
            }
            let merged = apply::merge_configuration(resource.schema.node(), object, &config);
            Ok(merged.map_err(|why| format!("error applying patch: {why}"))?)
        }
        Mutation::JsonPatch(expression) => {
            let patch = evaluate(policy, expression, environment).await?.to_json_patch()?;
            match json::apply(object, &patch) {
                Ok(patched) => Ok(read(resource, object, patched)?),
                Err(PatchError::TestFailed(_)) => Ok(object.clone()),
                Err(error) => Err(format!("JSON Patch: {error}").into()),
            }
        }
    }
}

/// Reads a patched object as the kind of the original one, strictly if it is a built-in kind.
fn read(resource: &Resource, before: &Value, mut patched: Value) -> Result<Value, Status> {
    const EXPECTED: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                            \"json:\\\"kind,omitempty\\\"\" }";
    let begin = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    if !patched.is_object() {
        let found = json_type(&patched);
        return Err(Status::internal(format!("{begin} {found} into Go value of type {EXPECTED}")));
    }
    for field in ["apiVersion", "kind"] {
        let is_empty = match &patched[field] {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            other => {
                let found = json_type(other);
                return Err(Status::internal(format!("{begin} {found} into Go struct field .{field} of type string")));
            }
        };
        if is_empty && resource.schema.custom {
            return Err(Status::internal(format!("Object 'Kind' is missing in '{patched}'")));
        }
        if is_empty {
            patched[field] = before[field].clone();
        }
    }
    let (version, kind) = (text(&patched, "apiVersion"), text(&patched, "kind"));
    if version.split('/').count() > 2 {
        return Err(Status::internal(format!("unexpected GroupVersion string: {version}")));
    }
    if resource.schema.served.is_some() && kind != text(before, "kind") && ObjectType::of_object(&patched).is_some() {
        return Err(unconvertible(before, &patched));
    }
    let ty = match resource.schema.served.filter(|_| text(before, "kind") == &*resource.kind) {
        Some(ty) if version == text(before, "apiVersion") && kind == text(before, "kind") => ty,
        _ if !resource.schema.custom => ObjectType::of_object(&patched).ok_or_else(|| {
            Status::internal(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            ))
        })?,
        _ => return Ok(patched),
    };
    // The conversion removes empty fields, which the caller does, too.
    let decoded = ty.decode(&mut patched).map_err(Status::internal)?;
    if decoded.unknown.is_empty() {
        return Ok(patched);
    }
    let unknown: Vec<_> = decoded.unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    Err(Status::internal(format!("strict decoding error: {}", unknown.join(", "))))
}

/// Returns the error for a patched object of another kind, by the names of both types.
fn unconvertible(before: &Value, after: &Value) -> Status {
    let (group, _) = text(before, "apiVersion").split_once('/').unwrap_or(("core", ""));
    let package = group.split('.').next().unwrap_or_default();
    let version = text(after, "apiVersion").rsplit('/').next().unwrap_or_default();
    let (old, new) = (text(before, "kind"), text(after, "kind"));
    Status::internal(format!(
        "failed to convert object: converting ({version}.{new}) to ({package}.{old}): unknown conversion"
    ))
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
