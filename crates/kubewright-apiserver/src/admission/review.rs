//! The review of one request by the matching webhooks and policies.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use kubewright_apimachinery::{cel::Composition, patch::json, status::Status};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    attributes::{Attributes, Operation},
    chain::Admission,
    criteria::Objects,
    policies::PolicyMatch,
    policy_review::Reinvocation,
    response::{self, Allowed, CallError},
    webhook_audit::WebhookAudit,
    webhooks::{Match, Phase},
};
use crate::{codec, decoding, meta, registry::Resource, schema_rules};

/// The time limit for all webhooks of a request together, equal to Kubernetes' limit for any request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum length in characters of all warnings of a request together, and of each one if they exceed that.
const MAX_WARNINGS: (usize, usize) = (4096, 256);

/// The review of one request by the matching webhooks and policies.
#[derive(Debug)]
pub(crate) struct Review {
    pub(super) admission: Arc<Admission>,
    pub(super) attributes: Attributes,
    mutating: Vec<Match>,
    validating: Vec<Match>,
    pub(super) mutating_policies: Vec<PolicyMatch>,
    pub(super) validating_policies: Vec<PolicyMatch>,
    pub(super) warnings: Mutex<Vec<String>>,
    /// The monotonic time of the deadline for the webhooks.
    deadline: Duration,
}

/// The webhooks that may be called again, by their place among the mutating ones.
#[derive(Debug, Default)]
struct ReinvokedWebhooks {
    /// Those that were called since the object has last changed.
    called: BTreeSet<usize>,
    /// Those to call in the second round, because the object has changed after them.
    required: BTreeSet<usize>,
}

impl ReinvokedWebhooks {
    /// Records that the object has changed.
    fn require_called(&mut self) {
        self.required.append(&mut self.called);
    }
}

/// What a webhook is sent: the request, and the objects in the version that it reads.
struct Call {
    request: Value,
    new: Option<Value>,
    old: Option<Value>,
}

#[derive(Serialize)]
struct AdmissionReview<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    request: AdmissionRequest<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionRequest<'a> {
    #[serde(flatten)]
    request: &'a Value,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

impl Review {
    /// Returns the review of a request by the webhooks and policies whose rules match it, or `None` if there are none.
    pub(crate) fn new(admission: &Arc<Admission>, attributes: Attributes) -> Option<Self> {
        let Admission { webhooks, policies, registry, client, .. } = &**admission;
        let all = registry.all();
        let mutating = webhooks.matching(Phase::Mutating, &attributes, &all);
        let validating = webhooks.matching(Phase::Validating, &attributes, &all);
        let mutating_policies = policies.matching(Phase::Mutating, &attributes, &all);
        let validating_policies = policies.matching(Phase::Validating, &attributes, &all);
        if mutating.is_empty()
            && validating.is_empty()
            && mutating_policies.is_empty()
            && validating_policies.is_empty()
        {
            return None;
        }
        let deadline = client.clock.monotonic().saturating_add(REQUEST_TIMEOUT);
        let (admission, warnings) = (admission.clone(), Mutex::default());
        Some(Self {
            admission,
            attributes,
            mutating,
            validating,
            mutating_policies,
            validating_policies,
            warnings,
            deadline,
        })
    }

    /// Sets the options of the request, which the state of the object may complete.
    pub(crate) fn set_options(&mut self, options: Value) {
        self.attributes.options = options;
    }

    /// Returns the warnings of the webhooks and policies so far.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut *self.warnings.lock());
        let mut seen = BTreeSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        let (all, each) = MAX_WARNINGS;
        if warnings.iter().map(String::len).sum::<usize>() > all {
            let mut left = all;
            warnings = warnings.iter().map(|warning| warning.chars().take(each).collect()).collect();
            warnings.retain(|warning: &String| match left.checked_sub(warning.len()) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            });
        }
        warnings
    }

    /// Evaluates the mutating policies and calls the mutating webhooks, one after the other, and returns the changed
    /// object. A deletion has no object.
    ///
    /// If the object was changed, there is a second round, as in Kubernetes: `plugins`, which the caller has already
    /// run once, and then the policies and webhooks with a reinvocation policy if the object has changed after them.
    pub(crate) async fn mutate(
        &self,
        object: Option<Value>,
        old: Option<&Value>,
        plugins: impl Fn(Value) -> Result<Value, Status>,
    ) -> Result<Option<Value>, Status> {
        if self.mutating.is_empty() && self.mutating_policies.is_empty() {
            return Ok(object);
        }
        let mut object = object;
        if let Some(object) = &mut object {
            self.normalize(object)?;
        }
        let mut policies = Reinvocation::default();
        Box::pin(self.mutate_by_policies(&mut object, old, &mut policies)).await?;
        let mut webhooks = ReinvokedWebhooks::default();
        for index in 0..self.mutating.len() {
            if Box::pin(self.mutate_in_round(0, index, &mut object, old, &mut webhooks)).await? {
                policies.require();
            }
        }
        if !policies.begin_second_round() {
            return Ok(object);
        }
        let first = object.clone();
        if let Some(admitted) = object.take() {
            let mut admitted = plugins(admitted)?;
            self.normalize(&mut admitted)?;
            object = Some(admitted);
        }
        Box::pin(self.mutate_by_policies(&mut object, old, &mut policies)).await?;
        if object != first {
            webhooks.require_called();
        }
        for index in 0..self.mutating.len() {
            if webhooks.required.contains(&index) {
                Box::pin(self.mutate_in_round(1, index, &mut object, old, &mut webhooks)).await?;
            }
        }
        Ok(object)
    }

    /// Calls one mutating webhook. If it changes the object, those that were called before it are required again.
    /// Returns whether it changed the object.
    async fn mutate_in_round(
        &self,
        round: usize,
        index: usize,
        object: &mut Option<Value>,
        old: Option<&Value>,
        webhooks: &mut ReinvokedWebhooks,
    ) -> Result<bool, Status> {
        let one = &self.mutating[index];
        let Some(call) = self.prepare_call(one, Objects { new: object.as_ref(), old }).await? else { return Ok(false) };
        let audit = WebhookAudit::new(&self.attributes.audit, one, round);
        let result = self.mutate_by(one, &call, object, audit).await;
        audit.called(*result.as_ref().unwrap_or(&false));
        let is_changed = result?;
        if is_changed {
            webhooks.require_called();
        }
        if one.webhook.reinvoked {
            webhooks.called.insert(index);
        }
        Ok(is_changed)
    }

    /// Calls one mutating webhook. Returns whether it changed the object.
    async fn mutate_by(
        &self,
        one: &Match,
        call: &Call,
        object: &mut Option<Value>,
        audit: WebhookAudit<'_>,
    ) -> Result<bool, Status> {
        let Some(Allowed { patch, warnings, .. }) = self.call(Phase::Mutating, one, call).await? else {
            audit.mutation_failed_open();
            return Ok(false);
        };
        self.warnings.lock().extend(warnings);
        let Some(patch) = patch else { return Ok(false) };
        let name = &one.webhook.name;
        let Some(before) = object.as_ref() else {
            let why = "attempted to modify the object, which is not supported for this operation";
            return Err(Status::internal(format!("admission webhook {name:?} {why}")));
        };
        let sent = self.convert_for(&one.resource, before).await?;
        let patched = json::apply(&sent, &patch).map_err(|error| Status::internal(error.to_string()))?;
        check_kind(&sent, &patched).map_err(Status::internal)?;
        let mut after = self.convert(&one.resource, &self.attributes.resource, patched).await?;
        self.normalize(&mut after).map_err(|status| self.unreadable(&status))?;
        audit.patched(&patch);
        let changed = *before != after;
        *object = Some(after);
        Ok(changed)
    }

    /// Evaluates the validating policies, and then calls the validating webhooks concurrently. If several deny the
    /// request, returns the denial of the first in their order.
    pub(crate) async fn validate(&self, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        Box::pin(self.validate_by_policies(Objects { new: object, old })).await?;
        let mut calls = Vec::new();
        for one in &self.validating {
            let call = self.prepare_call(one, Objects { new: object, old }).await?;
            calls.extend(call.map(|call| (one, call)));
        }
        let responses = join_all(calls.iter().map(|(one, call)| self.call(Phase::Validating, one, call))).await;
        for (index, ((one, _), response)) in calls.iter().zip(&responses).enumerate() {
            if let Ok(None) = response {
                WebhookAudit::new(&self.attributes.audit, one, 0).validation_failed_open(index);
            }
        }
        for response in responses {
            if let Some(allowed) = response? {
                self.warnings.lock().extend(allowed.warnings);
            }
        }
        Ok(())
    }

    /// Returns what one webhook is sent, or `None` if its selectors or conditions exclude the object.
    async fn prepare_call(&self, one: &Match, objects: Objects<'_>) -> Result<Option<Call>, Status> {
        let name = &one.webhook.name;
        if !one.webhook.criteria.selects(&self.admission.client.store, &self.attributes, objects)? {
            return Ok(None);
        }
        let (new, old) = self.convert_both(&one.resource, objects).await?;
        let request = self.request(&one.resource, &self.admission.client.random.uuid(), new.as_ref());
        match self.meets_conditions(one, &request, new.as_ref(), old.as_ref()).await {
            Ok(true) => Ok(Some(Call { request, new, old })),
            Ok(false) => Ok(None),
            Err(why) if one.webhook.ignores_failure => {
                tracing::warn!(webhook = name, why, "the failure of a match condition was ignored");
                Ok(None)
            }
            Err(why) => {
                let Attributes { resource, name, .. } = &self.attributes;
                Err(Status::forbidden(&resource.group, &resource.plural, name, &why))
            }
        }
    }

    /// Calls one webhook. Returns `None` if the call failed and its failure policy is `Ignore`.
    async fn call(&self, phase: Phase, one: &Match, call: &Call) -> Result<Option<Allowed>, Status> {
        let name = &one.webhook.name;
        if self.attributes.dry_run && !one.webhook.supports_dry_run {
            return Err(Status::bad_request(format!("admission webhook {name:?} does not support dry run")));
        }
        match self.send(phase, one, call).await {
            Ok(mut allowed) => {
                self.annotate(std::mem::take(&mut allowed.annotations));
                Ok(Some(allowed))
            }
            Err(CallError::Denied { status, warnings, annotations }) => {
                self.annotate(annotations);
                self.warnings.lock().extend(warnings);
                Err(self.denied(status))
            }
            Err(CallError::Failed(why)) if one.webhook.ignores_failure => {
                tracing::warn!(webhook = name, why, "the failure of a webhook was ignored");
                Ok(None)
            }
            Err(CallError::Failed(why)) => Err(Status::internal(format!("failed calling webhook {name:?}: {why}"))),
        }
    }

    fn annotate(&self, annotations: Vec<(String, String)>) {
        for (key, value) in annotations {
            self.attributes.audit.annotate(&key, &value);
        }
    }

    /// Keeps the warnings so far for the response that denies the request.
    pub(super) fn denied(&self, status: Status) -> Status {
        self.attributes.warnings.lock().extend(self.warnings());
        status
    }

    /// Returns whether the match conditions of a webhook hold.
    async fn meets_conditions(
        &self,
        one: &Match,
        request: &Value,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<bool, String> {
        let conditions = &one.webhook.conditions;
        if conditions.is_empty() {
            return Ok(true);
        }
        let variables = self.condition_variables(request, object, old);
        conditions.hold(&variables, &Composition::default()).await
    }

    async fn send(&self, phase: Phase, one: &Match, call: &Call) -> Result<Allowed, CallError> {
        let Call { request, new, old } = call;
        let review = AdmissionReview {
            kind: "AdmissionReview",
            api_version: one.webhook.review_version,
            request: AdmissionRequest { request, object: new.as_ref(), old_object: old.as_ref() },
        };
        let body = serde_json::to_vec(&review).map_err(|error| CallError::Failed(error.to_string()))?;
        let left = self.deadline.saturating_sub(self.admission.client.clock.monotonic());
        let timeout = one.webhook.timeout.min(left);
        let result = one.webhook.endpoint.post(&self.admission.client, Bytes::from(body), timeout).await;
        let body = result.map_err(|why| CallError::Failed(format!("failed to call webhook: {why}")))?;
        response::read(
            &one.webhook.name,
            one.webhook.review_version,
            request["uid"].as_str().unwrap_or_default(),
            phase,
            &body,
        )
    }

    /// Returns the request of the review, without the objects. A generated name is that of the new object.
    pub(super) fn request(&self, matched: &Resource, uid: &str, new: Option<&Value>) -> Value {
        let Attributes { resource, subresource, subresource_kind, namespace, name, options, user, .. } =
            &self.attributes;
        let kind = |resource: &Resource| match subresource_kind {
            Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
            None => json!({"group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind}),
        };
        let name_of = |resource: &Resource| json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural});
        let mut request = json!({
            "uid": uid,
            "kind": kind(matched),
            "resource": name_of(matched),
            "requestKind": kind(resource),
            "requestResource": name_of(resource),
            "operation": self.attributes.operation.as_str(),
            "userInfo": user.to_value(),
            "dryRun": self.attributes.dry_run,
            "options": options,
        });
        let name = if name.is_empty() { new.map_or("", |new| meta::text(new, "name")) } else { name };
        for (field, text) in [
            ("name", name),
            ("namespace", namespace),
            ("subResource", subresource),
            ("requestSubResource", subresource),
        ] {
            if !text.is_empty() {
                request[field] = text.into();
            }
        }
        request
    }

    /// Converts the object to the version that a webhook or policy expects.
    pub(super) async fn convert_for(&self, resource: &Arc<Resource>, object: &Value) -> Result<Value, Status> {
        self.convert(&self.attributes.resource, resource, object.clone()).await
    }

    /// Converts both states of the object to the version that a webhook or policy expects.
    pub(super) async fn convert_both(
        &self,
        resource: &Arc<Resource>,
        objects: Objects<'_>,
    ) -> Result<(Option<Value>, Option<Value>), Status> {
        let (mut new, mut old) = (None, None);
        for (converted, object) in [(&mut new, objects.new), (&mut old, objects.old)] {
            if let Some(object) = object {
                *converted = Some(self.convert_for(resource, object).await?);
            }
        }
        Ok((new, old))
    }

    /// Converts an object from one resource to another. Failures aren't subject to the webhook's failure policy.
    pub(super) async fn convert(
        &self,
        from: &Arc<Resource>,
        to: &Arc<Resource>,
        object: Value,
    ) -> Result<Value, Status> {
        if Arc::ptr_eq(from, to) || self.attributes.subresource_kind.is_some() {
            return Ok(object);
        }
        codec::between(&self.admission.client, from, to, object).await
    }

    /// Returns the error that a patched object can't be decoded.
    pub(super) fn unreadable(&self, status: &Status) -> Status {
        let reason = schema_rules::unreadable_reason(&self.attributes.resource.kind, status);
        Status::internal(reason.unwrap_or(&status.message))
    }

    /// Returns the error that an apply configuration makes an object that can't be decoded.
    pub(super) fn unconvertible(&self, status: &Status) -> String {
        let Resource { group, version, kind, .. } = &*self.attributes.resource;
        let why = schema_rules::unreadable_reason(kind, status).unwrap_or(&status.message);
        let why = schema_rules::unstructured_reason(why);
        format!("unable to convert unstructured object to {group}/{version}, Kind={kind}: {why}")
    }

    /// Decodes and defaults an object by its kind, before a webhook receives it and after one changed it.
    pub(super) fn normalize(&self, object: &mut Value) -> Result<(), Status> {
        if self.attributes.subresource_kind.is_some() {
            return Ok(());
        }
        let resource = &*self.attributes.resource;
        if !object.is_object() {
            return Err(Status::bad_request("the patched value is not an object"));
        }
        decoding::decode(resource, object, None)?;
        meta::edit(object, |_| {});
        schema_rules::default(resource, object);
        if codec::is_stored_form(resource) && self.attributes.operation != Operation::Delete {
            resource.strategy.default(object);
        }
        if let Some(ty) = resource.schema.served {
            ty.complete(object);
        }
        Ok(())
    }
}

/// Checks that a patched object is still of its kind.
pub(super) fn check_kind(before: &Value, after: &Value) -> Result<(), String> {
    match ["apiVersion", "kind"].into_iter().find(|field| before[field] != after[field]) {
        Some(field) => Err(format!("{field} may not be changed from {} to {}", before[field], after[field])),
        None => Ok(()),
    }
}
