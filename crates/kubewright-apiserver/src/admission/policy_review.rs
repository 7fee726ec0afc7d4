//! The review of one request by the matching policies.

use std::{collections::BTreeSet, sync::Arc};

use kubewright_apimachinery::{
    cel::{AccessCheck, AccessDecision, Authorize, PolicyEnvironment, PolicyInput},
    status::{Cause, Status},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    attributes::{Attributes, NAMESPACES},
    criteria::Objects,
    mutation, params,
    policies::PolicyMatch,
    policy::{Mutation, Policy, PolicyBinding},
    review::{Review, check_kind},
    validation::{self, Environments, Validated, Violation},
};
use crate::{auth, authorizer::Authorizer, meta, registry::Resource, storage::Key};

/// The fields of a namespace's metadata that policies don't see.
const HIDDEN: [&str; 3] = ["managedFields", "ownerReferences", "selfLink"];

/// The annotation of the audit log with a violation.
const VALIDATION_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The value of this annotation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

/// Answers the permission checks of expressions by the roles.
struct RequestAuthorizer {
    authorizer: Arc<Authorizer>,
    user: Arc<auth::UserInfo>,
}

impl Authorize for RequestAuthorizer {
    fn authorize(&self, check: &AccessCheck) -> AccessDecision {
        let account = check.service_account.as_ref();
        // Kubernetes checks a service account without the group of all authenticated users.
        let account = account.map(|(namespace, name)| {
            let groups = auth::user::service_account_groups(namespace);
            auth::UserInfo::new(auth::service_account_name(namespace, name), groups)
        });
        let attributes = auth::Attributes {
            verb: check.verb.clone(),
            group: check.group.clone(),
            resource: check.resource.clone(),
            subresource: check.subresource.clone(),
            namespace: check.namespace.clone(),
            name: check.name.clone(),
            path: check.path.clone(),
            fields: Vec::new(),
        };
        let decision = self.authorizer.authorize(account.as_ref().unwrap_or(&self.user), &attributes);
        AccessDecision { allowed: decision.allowed, reason: decision.reason }
    }
}

/// The invocations of mutating policies that may be repeated: policy, binding and parameter.
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// Those so far whose policies may be evaluated again.
    repeatable: BTreeSet<(String, String, String)>,
    /// Those to repeat, in the second round.
    second: Option<BTreeSet<(String, String, String)>>,
    required: bool,
}

impl Reinvocation {
    /// Records that the object has changed.
    pub(super) fn require(&mut self) {
        self.required = true;
    }

    /// Begins the second round, in which only repeated invocations are made. Returns false if nothing has changed: no
    /// second round is needed then.
    pub(super) fn begin_second_round(&mut self) -> bool {
        self.second = Some(std::mem::take(&mut self.repeatable));
        self.required
    }
}

/// Returns the binding of a denial in messages.
fn shown_binding(binding: Option<&PolicyBinding>) -> String {
    binding.map_or_else(String::new, |binding| format!(" with binding '{}'", binding.name))
}

/// A policy that denies a request.
struct Denial<'a> {
    policy: &'a Policy,
    binding: Option<&'a PolicyBinding>,
    violation: Violation,
}

/// A failure to find out whether a policy or a binding is for a request.
fn misconfigured<'a>(policy: &'a Policy, binding: Option<&'a PolicyBinding>, why: &str) -> Option<Denial<'a>> {
    let what = if binding.is_some() { "binding" } else { "policy" };
    let message = format!("failed to configure {what}: {why}");
    let violation = Violation { message, reason: None, always_denies: false, index: 0 };
    (!policy.ignores_failure).then_some(Denial { policy, binding, violation })
}

impl Review {
    /// Evaluates the validating policies.
    pub(super) async fn validate_by_policies(&self, objects: Objects<'_>) -> Result<(), Status> {
        let mut denials = Vec::new();
        for one in &self.validating_policies {
            self.validate_by_policy(one, objects, &mut denials).await?;
        }
        let Some(Denial { policy, binding, violation }) = denials.into_iter().next() else { return Ok(()) };
        let binding = shown_binding(binding);
        let message =
            format!("ValidatingAdmissionPolicy '{}'{binding} denied request: {}", policy.name, violation.message);
        let mut status = self.forbidden(objects.new, &message);
        let reason = violation.reason.as_deref().unwrap_or("Invalid");
        status.code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        reason.clone_into(&mut status.reason);
        status.details.get_or_insert_default().causes.push(Cause::new("", "", message));
        Err(self.denied(status))
    }

    async fn validate_by_policy<'r>(
        &'r self,
        one: &'r PolicyMatch,
        objects: Objects<'_>,
        denials: &mut Vec<Denial<'r>>,
    ) -> Result<(), Status> {
        let policy = &*one.policy;
        let param_resource = match self.prepare(one, objects) {
            Ok(Some(resource)) => resource,
            Ok(None) => return Ok(()),
            Err(why) => {
                denials.extend(misconfigured(policy, None, &why));
                return Ok(());
            }
        };
        let mut variables = None;
        for binding in &one.bindings {
            let params = match self.parameters(policy, binding, param_resource.as_deref(), objects).await {
                Ok(params) => params,
                Err(why) => {
                    denials.extend(misconfigured(policy, Some(binding), &why));
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            if variables.is_none() {
                variables = Some(self.environments(one, objects).await?);
            }
            let Some(variables) = &variables else { continue };
            for param in params {
                let environments = with_param(policy, variables, param.as_deref());
                let validated = validation::validate(policy, &environments).await;
                self.act(policy, binding, validated, denials);
            }
        }
        Ok(())
    }

    /// Performs the actions of a binding.
    fn act<'r>(
        &self,
        policy: &'r Policy,
        binding: &'r PolicyBinding,
        validated: Validated,
        denials: &mut Vec<Denial<'r>>,
    ) {
        for violation in validated.violations {
            let has = |action: &str| binding.actions.iter().any(|known| known == action);
            if has("Warn") && !violation.always_denies {
                let warning = format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, violation.message
                );
                self.warnings.lock().push(warning);
            }
            if has("Audit") && !violation.always_denies {
                self.record_failure(policy, binding, &violation);
            }
            if has("Deny") || violation.always_denies {
                denials.push(Denial { policy, binding: Some(binding), violation });
            }
        }
        for (key, value) in validated.annotations {
            self.attributes.audit.append(&key, &value);
        }
    }

    /// Records a violation in the audit log; of several, the first.
    fn record_failure(&self, policy: &Policy, binding: &PolicyBinding, violation: &Violation) {
        if !self.attributes.audit.is_enabled() {
            return;
        }
        let failure = ValidationFailure {
            message: &violation.message,
            policy: &policy.name,
            binding: &binding.name,
            expression_index: violation.index,
            validation_actions: &binding.actions,
        };
        let text = serde_json::to_string(&[failure]).unwrap_or_default();
        self.attributes.audit.annotate(VALIDATION_FAILURE, &text);
    }

    /// Returns the resource of a policy's parameters, if it has any. The outer `None` means that the selectors of the
    /// policy exclude the request.
    #[allow(clippy::option_option, reason = "the policy may not apply, and may have no parameters")]
    fn prepare(&self, one: &PolicyMatch, objects: Objects<'_>) -> Result<Option<Option<Arc<Resource>>>, String> {
        let selects = one.policy.criteria.selects(&self.admission.client.store, &self.attributes, objects);
        if !selects.map_err(|status| status.message)? {
            return Ok(None);
        }
        let kind = one.policy.param_kind.as_ref();
        kind.map(|kind| kind.resource(&self.admission.registry)).transpose().map(Some)
    }

    /// Returns the parameters of a binding, or none if its selectors exclude the request.
    async fn parameters(
        &self,
        policy: &Policy,
        binding: &PolicyBinding,
        resource: Option<&Resource>,
        objects: Objects<'_>,
    ) -> Result<Vec<Option<Arc<Value>>>, String> {
        let client = &self.admission.client;
        if let Some(criteria) = &binding.criteria
            && !criteria.selects(&client.store, &self.attributes, objects).map_err(|status| status.message)?
        {
            return Ok(Vec::new());
        }
        params::collect(client, resource, policy, binding, &self.attributes).await
    }

    /// Returns the variables of a policy's expressions, except for the parameters.
    async fn environments(&self, one: &PolicyMatch, objects: Objects<'_>) -> Result<Environments, Status> {
        let (new, old) = self.convert_both(&one.resource, objects).await?;
        let request = self.request(&one.resource, "", new.as_ref());
        let conditions = self.condition_variables(&request, new.as_ref(), old.as_ref());
        let namespace = PolicyInput::new(self.namespace()?.as_ref());
        let texts = PolicyEnvironment::new([
            ("object", PolicyInput::new(new.as_ref())),
            ("oldObject", PolicyInput::new(old.as_ref())),
            ("request", PolicyInput::new(Some(&request))),
            ("namespaceObject", namespace),
        ]);
        let expressions = texts.clone().with("authorizer", self.authorizer_variable());
        Ok(Environments { conditions, expressions, texts })
    }

    /// Returns the variables of match conditions. They don't see the namespace.
    pub(super) fn condition_variables(
        &self,
        request: &Value,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> PolicyEnvironment {
        PolicyEnvironment::new([
            ("object", PolicyInput::new(object)),
            ("oldObject", PolicyInput::new(old)),
            ("request", PolicyInput::new(Some(request))),
            ("namespaceObject", PolicyInput::new(None)),
            ("authorizer", self.authorizer_variable()),
        ])
    }

    fn authorizer_variable(&self) -> PolicyInput {
        let Attributes { resource, subresource, namespace, name, user, .. } = &self.attributes;
        let request = AccessCheck {
            group: resource.group.to_string(),
            resource: resource.plural.to_string(),
            subresource: subresource.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            ..AccessCheck::default()
        };
        let authorizer = self.admission.authorizer.clone();
        PolicyInput::authorizer(Arc::new(RequestAuthorizer { authorizer, user: user.clone() }), request)
    }

    /// Returns the namespace of the request as policies see it. A request for a namespace itself has none.
    fn namespace(&self) -> Result<Option<Value>, Status> {
        let Attributes { resource, namespace, .. } = &self.attributes;
        if namespace.is_empty() || &*resource.storage == NAMESPACES {
            return Ok(None);
        }
        let stored = self.admission.client.store.get(NAMESPACES, &Key::new("", namespace));
        let stored = stored.ok_or_else(|| Status::not_found("", "namespaces", namespace))?.value();
        let mut shown = json!({"metadata": stored["metadata"], "spec": stored["spec"], "status": stored["status"]});
        for field in HIDDEN {
            meta::set(&mut shown, field, None);
        }
        Ok(Some(shown))
    }

    fn forbidden(&self, object: Option<&Value>, message: &str) -> Status {
        let Attributes { resource, name, .. } = &self.attributes;
        let object = object.unwrap_or(&Value::Null);
        let names = [name.as_str(), meta::text(object, "name"), meta::text(object, "generateName"), "Unknown"];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Status::forbidden(&resource.group, &resource.plural, name, message)
    }

    /// Evaluates the mutating policies one after the other.
    pub(super) async fn mutate_by_policies(
        &self,
        object: &mut Option<Value>,
        old: Option<&Value>,
        reinvocation: &mut Reinvocation,
    ) -> Result<(), Status> {
        let Some(before) = object.clone() else { return Ok(()) };
        let mut denials = Vec::new();
        let objects = Objects { new: Some(&before), old };
        for one in &self.mutating_policies {
            let policy = &*one.policy;
            let param_resource = match self.prepare(one, objects) {
                Ok(Some(resource)) => resource,
                Ok(None) => continue,
                Err(why) => {
                    denials.extend(misconfigured(policy, None, &why));
                    continue;
                }
            };
            for binding in &one.bindings {
                let params = match self.parameters(policy, binding, param_resource.as_deref(), objects).await {
                    Ok(params) => params,
                    Err(why) => {
                        denials.extend(misconfigured(policy, Some(binding), &why));
                        continue;
                    }
                };
                for param in params {
                    let invocation = (one, &**binding, param.as_deref());
                    self.mutate_by_policy(invocation, object, old, reinvocation, &mut denials).await?;
                }
            }
        }
        if denials.is_empty() { Ok(()) } else { Err(self.denied_by_mutation(&before, &denials)) }
    }

    /// Evaluates one mutating policy for a parameter.
    async fn mutate_by_policy<'r>(
        &'r self,
        (one, binding, param): (&'r PolicyMatch, &'r PolicyBinding, Option<&Value>),
        object: &mut Option<Value>,
        old: Option<&Value>,
        reinvocation: &mut Reinvocation,
        denials: &mut Vec<Denial<'r>>,
    ) -> Result<(), Status> {
        let policy = &*one.policy;
        let name = param.map_or_else(String::new, |param| {
            format!("{}/{}", meta::text(param, "namespace"), meta::text(param, "name"))
        });
        let key = (policy.name.clone(), binding.name.clone(), name);
        let mut fail = |why: String| {
            let violation =
                Violation { message: why, reason: Some("Invalid".to_owned()), always_denies: false, index: 0 };
            denials.extend((!policy.ignores_failure).then_some(Denial { policy, binding: Some(binding), violation }));
        };
        let current = Objects { new: object.as_ref(), old };
        let mut environments = with_param(policy, &self.environments(one, current).await?, param);
        let conditions = &policy.conditions;
        match conditions.is_empty() || {
            match conditions.hold(&environments.conditions, &policy.composition).await {
                Ok(hold) => hold,
                Err(why) => {
                    fail(why);
                    return Ok(());
                }
            }
        } {
            true if reinvocation.second.as_ref().is_none_or(|second| second.contains(&key)) => {}
            _ => return Ok(()),
        }
        for mutation in &policy.mutations {
            let Some(before) = object.as_ref() else { continue };
            let sent = self.convert_for(&one.resource, before).await?;
            if let Err(why) = self.has_type(mutation) {
                fail(why);
                continue;
            }
            let mutated = mutation::mutate(policy, mutation, &environments.expressions, &one.resource, &sent).await;
            let mutated = mutated.and_then(|mutated| Ok(check_kind(&sent, &mutated).map(|()| mutated)?));
            let mutated = match mutated {
                Ok(mutated) => mutated,
                Err(mutation::Failure::Status(status)) => return Err(status),
                Err(mutation::Failure::Denial(why)) => {
                    fail(why);
                    continue;
                }
            };
            if let Some(why) = self.unconverted(&one.resource) {
                fail(why);
                continue;
            }
            let mut after = self.convert(&one.resource, &self.attributes.resource, mutated).await?;
            if let Err(status) = self.normalize(&mut after) {
                fail(self.unconvertible(&status));
                continue;
            }
            *object = Some(after);
            reinvocation.require();
            let current = Objects { new: object.as_ref(), old };
            environments = with_param(policy, &self.environments(one, current).await?, param);
        }
        if policy.reinvoked {
            reinvocation.repeatable.insert(key);
        }
        Ok(())
    }

    /// Checks that the schema of the object is known, as an apply configuration needs. Kubernetes doesn't know those of
    /// objects that only subresources take.
    fn has_type(&self, mutation: &Mutation) -> Result<(), String> {
        let (Mutation::ApplyConfiguration(_), Some((group, version, kind))) =
            (mutation, &self.attributes.subresource_kind)
        else {
            return Ok(());
        };
        let is_it = |it: &Resource| *it.group == **group && *it.version == **version && *it.kind == **kind;
        if self.admission.registry.first(is_it).is_some() {
            return Ok(());
        }
        Err(format!(
            "error applying patch: failed to convert patch object to typed object: no corresponding type for \
             {group}/{version}, Kind={kind}"
        ))
    }

    /// Returns the error about a built-in kind that was patched in another version than the request's, which Kubernetes
    /// can't convert.
    fn unconverted(&self, patched: &Resource) -> Option<String> {
        let Resource { group, version, kind, .. } = &*self.attributes.resource;
        if patched.schema.custom || (&patched.group, &patched.version) == (group, version) {
            return None;
        }
        let from = format!("{}.{}", patched.version, patched.kind);
        Some(if patched.group == *group {
            format!("converting ({from}) to ({version}.{kind}): unknown conversion")
        } else {
            let to = format!("{group}/{version}");
            let to = to.trim_start_matches('/');
            format!("{from} is not suitable for converting to {to:?} in scheme \"pkg/runtime/scheme.go:111\"")
        })
    }

    /// Returns the response that mutating policies deny the request.
    fn denied_by_mutation(&self, object: &Value, denials: &[Denial<'_>]) -> Status {
        let mut status = self.forbidden(Some(object), "");
        status.message.clear();
        for Denial { policy, binding, violation } in denials {
            let message = match binding {
                Some(binding) => {
                    format!(
                        "policy '{}' with binding '{}' denied request: {}",
                        policy.name, binding.name, violation.message
                    )
                }
                None => format!("policy {:?} denied request: {}", policy.name, violation.message),
            };
            if status.message.is_empty() {
                status.message.clone_from(&message);
                if let Some(reason) = &violation.reason {
                    status.reason.clone_from(reason);
                }
            }
            status.details.get_or_insert_default().causes.push(Cause::new("", "", message));
        }
        self.denied(status)
    }
}

/// Returns the variables with a parameter, which is null if the binding refers to none.
fn with_param(policy: &Policy, environments: &Environments, param: Option<&Value>) -> Environments {
    let Environments { conditions, expressions, texts } = environments;
    let input = policy.param_kind.as_ref().map(|_| PolicyInput::new(param));
    let with = |environment: &PolicyEnvironment| match &input {
        Some(input) => environment.clone().with("params", input.clone()),
        None => environment.clone(),
    };
    Environments { conditions: with(conditions), expressions: with(expressions), texts: with(texts) }
}
