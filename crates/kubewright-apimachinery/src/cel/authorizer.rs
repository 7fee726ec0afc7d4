//! The variable `authorizer`, with which expressions check permissions
//! (<https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library>).

use std::{fmt, sync::Arc};

use kube_cel::cel::{Value, objects::Opaque};

use super::failure::{Evaluated, Failure};
use crate::name;

/// Answers the permission checks of expressions.
pub trait Authorize: Send + Sync {
    /// Decides about one check.
    fn authorize(&self, check: &AccessCheck) -> AccessDecision;
}

/// A permission check, of a resource or of a non-resource path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessCheck {
    /// The namespace and name of the service account to check. `None` is the user of the request.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The non-resource path; empty for resources.
    pub path: String,
    /// The API group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The object's name, or empty.
    pub name: String,
}

/// The decision about a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// True if the access is allowed.
    pub allowed: bool,
    /// The reason, which may be empty.
    pub reason: String,
}

/// A value of one of the library's types.
#[derive(Clone)]
pub(super) struct AuthorizerValue {
    authorize: Arc<dyn Authorize>,
    /// The resource of the request.
    request: Arc<AccessCheck>,
    check: AccessCheck,
    stage: Stage,
}

/// The type of an [`AuthorizerValue`].
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision(AccessDecision),
}

impl AuthorizerValue {
    /// Returns the variable `authorizer` of a request for this resource.
    pub(super) fn variable(authorize: Arc<dyn Authorize>, request: AccessCheck) -> Value {
        let value =
            Self { authorize, request: Arc::new(request), check: AccessCheck::default(), stage: Stage::Authorizer };
        Value::Opaque(Arc::new(value))
    }

    /// Returns the field `requestResource`.
    pub(super) fn field(&self, name: &str) -> Option<Value> {
        (self.stage == Stage::Authorizer && name == "requestResource")
            .then(|| self.next(Stage::Resource, (*self.request).clone()))
    }

    fn next(&self, stage: Stage, check: AccessCheck) -> Value {
        let (authorize, request) = (self.authorize.clone(), self.request.clone());
        Value::Opaque(Arc::new(Self { authorize, request, check, stage }))
    }

    /// Calls a method.
    pub(super) fn call(&self, method: &str, arguments: &[Value]) -> Evaluated {
        let mut check = self.check.clone();
        let texts: Option<Vec<&str>> =
            arguments.iter().map(|it| if let Value::String(text) = it { Some(text.as_str()) } else { None }).collect();
        let texts = texts.ok_or_else(Failure::no_such_overload)?;
        match (&self.stage, method, texts.as_slice()) {
            (Stage::Authorizer, "path", [path]) => {
                check.path = required(path, "path must not be empty")?;
                Ok(self.next(Stage::Path, check))
            }
            (Stage::Authorizer, "group", [group]) => {
                check.group = (*group).to_owned();
                Ok(self.next(Stage::Group, check))
            }
            (Stage::Authorizer, "serviceAccount", [namespace, account]) => {
                if !name::dns1123_subdomain(account).is_empty() {
                    return Err(Failure::error("Invalid service account name"));
                }
                if !name::dns1123_label(namespace).is_empty() {
                    return Err(Failure::error("Invalid service account namespace"));
                }
                check.service_account = Some(((*namespace).to_owned(), (*account).to_owned()));
                Ok(self.next(Stage::Authorizer, check))
            }
            (Stage::Group, "resource", [resource]) => {
                check.resource = required(resource, "resource must not be empty")?;
                Ok(self.next(Stage::Resource, check))
            }
            // Role-based access control doesn't distinguish by selectors.
            (Stage::Resource, "fieldSelector" | "labelSelector", [_]) => Ok(self.next(Stage::Resource, check)),
            (Stage::Resource, "subresource" | "namespace" | "name", [text]) => {
                let field = match method {
                    "subresource" => &mut check.subresource,
                    "namespace" => &mut check.namespace,
                    _ => &mut check.name,
                };
                *field = (*text).to_owned();
                Ok(self.next(Stage::Resource, check))
            }
            (Stage::Resource | Stage::Path, "check", [verb]) => {
                check.verb = (*verb).to_owned();
                let decision = self.authorize.authorize(&check);
                Ok(self.next(Stage::Decision(decision), check))
            }
            (Stage::Decision(decision), "allowed", []) => Ok(decision.allowed.into()),
            (Stage::Decision(decision), "reason", []) => Ok(decision.reason.as_str().into()),
            (Stage::Decision(_), "errored", []) => Ok(false.into()),
            (Stage::Decision(_), "error", []) => Ok("".into()),
            _ => Err(Failure::no_such_overload()),
        }
    }

    fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
            Stage::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

fn required(text: &str, why: &str) -> Result<String, Failure> {
    if text.trim().is_empty() { Err(Failure::error(why)) } else { Ok(text.to_owned()) }
}

/// Returns a value of the library, or `None` for other values.
pub(super) fn authorizer_value(value: &Value) -> Option<&AuthorizerValue> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref(),
        _ => None,
    }
}

impl fmt::Debug for AuthorizerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.type_name()).field("check", &self.check).finish_non_exhaustive()
    }
}

impl PartialEq for AuthorizerValue {
    fn eq(&self, other: &Self) -> bool {
        self.stage == other.stage && self.check == other.check
    }
}

impl Eq for AuthorizerValue {}

impl Opaque for AuthorizerValue {
    fn runtime_type_name(&self) -> &str {
        self.type_name()
    }
}
