//! What is collected about a request while it is handled.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    AuditLog,
    event::{AuthenticationMetadata, Event, ObjectReference, timestamp},
    policy::{Level, Selection, Stage},
};
use crate::{
    auth::{Attributes, UserInfo, impersonation::Impersonated},
    meta,
};

/// The annotation with the decision of the authorization, and that with its reason.
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
/// The greatest length of a user agent in an event.
const MAX_USER_AGENT: usize = 1024;

/// A request that arrives.
#[derive(Debug)]
pub(crate) struct AuditedRequest<'a> {
    pub(crate) clock: SharedClock,
    pub(crate) id: String,
    pub(crate) uri: String,
    /// The user; `None` if the credentials are invalid.
    pub(crate) user: Option<Arc<UserInfo>>,
    pub(crate) user_agent: String,
    pub(crate) source_ips: Vec<String>,
    pub(crate) attributes: &'a Attributes,
    /// The API version of the resource.
    pub(crate) version: &'a str,
}

/// The record of a request in the audit log; empty if the log doesn't want it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditContext(Option<Arc<Record>>);

#[derive(Debug)]
struct Record {
    log: Arc<AuditLog>,
    clock: SharedClock,
    level: Level,
    omit_stages: BTreeSet<Stage>,
    omit_managed_fields: bool,
    id: String,
    uri: String,
    verb: String,
    user: Option<Arc<UserInfo>>,
    user_agent: String,
    source_ips: Vec<String>,
    received: String,
    collected: Mutex<Collected>,
}

#[derive(Debug, Default)]
struct Collected {
    impersonated: Option<Arc<UserInfo>>,
    /// What allowed the impersonation for this request only.
    constraint: Option<&'static str>,
    object: Option<ObjectReference>,
    request: Option<Value>,
    status: Option<Value>,
    response: Option<Value>,
    annotations: BTreeMap<String, String>,
}

/// Records the end of a response that lasts as long as the client wants, when it is dropped.
#[derive(Debug)]
pub(crate) struct EndOfResponse(AuditContext);

impl Drop for EndOfResponse {
    fn drop(&mut self) {
        self.0.write(Stage::ResponseComplete);
    }
}

impl AuditContext {
    /// Begins the record of a request, if the policy of the log selects it.
    pub(crate) fn begin(log: &Arc<AuditLog>, request: AuditedRequest<'_>) -> Self {
        let AuditedRequest { clock, id, uri, user, mut user_agent, source_ips, attributes, version } = request;
        let Selection { level, omit_stages, omit_managed_fields } = log.policy.select(user.as_deref(), attributes);
        if level == Level::None {
            return Self::default();
        }
        if user_agent.len() > MAX_USER_AGENT {
            user_agent.truncate(user_agent.floor_char_boundary(MAX_USER_AGENT));
            user_agent.push_str("...TRUNCATED");
        }
        let object = attributes.path.is_empty().then(|| ObjectReference {
            resource: attributes.resource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            api_group: attributes.group.clone(),
            api_version: version.to_owned(),
            subresource: attributes.subresource.clone(),
            ..ObjectReference::default()
        });
        let record = Record {
            received: timestamp(clock.now()),
            log: log.clone(),
            clock,
            level,
            omit_stages,
            omit_managed_fields,
            id,
            uri,
            verb: attributes.verb.clone(),
            user,
            user_agent,
            source_ips,
            collected: Mutex::new(Collected { object, ..Collected::default() }),
        };
        let context = Self(Some(Arc::new(record)));
        if context.is_authenticated() {
            context.write(Stage::RequestReceived);
        }
        context
    }

    /// Returns whether the request is recorded.
    pub(crate) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether the object of the request is recorded, and is missing.
    pub(crate) fn wants_request(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|record| record.level >= Level::Request && record.collected.lock().request.is_none())
    }

    /// Returns whether objects of requests are recorded.
    pub(crate) fn records_requests(&self) -> bool {
        self.0.as_ref().is_some_and(|record| record.level >= Level::Request)
    }

    /// Returns whether the object of the response is recorded.
    pub(crate) fn wants_response(&self) -> bool {
        self.0.as_ref().is_some_and(|record| record.level >= Level::RequestResponse)
    }

    /// Returns whether the credentials of the request are valid.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.0.as_ref().is_none_or(|record| record.user.is_some())
    }

    /// Records the user as which the request acts.
    pub(crate) fn impersonate(&self, acting: &Impersonated) {
        self.with(|collected| {
            collected.impersonated = Some(acting.user.clone());
            collected.constraint = acting.constraint;
        });
    }

    /// Records the decision of the authorization.
    pub(crate) fn decide(&self, is_allowed: bool, reason: &str) {
        self.annotate(DECISION, if is_allowed { "allow" } else { "forbid" });
        self.annotate(REASON, reason);
    }

    /// Adds an annotation, unless there is one of the key.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        self.with(|collected| {
            collected.annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        });
    }

    /// Adds to the annotation of a key, after a comma, unless it has the value.
    pub(crate) fn append(&self, key: &str, value: &str) {
        self.with(|collected| {
            let present = collected.annotations.entry(key.to_owned()).or_default();
            if present.is_empty() {
                value.clone_into(present);
            } else if !present.split(", ").any(|one| one == value) {
                present.push_str(", ");
                present.push_str(value);
            }
        });
    }

    /// Records the object that is sent to be created or to replace another one, with its defaults.
    pub(crate) fn request(&self, object: Value) {
        let Some(record) = &self.0 else { return };
        let mut collected = record.collected.lock();
        if let Some(reference) = &mut collected.object {
            for (field, text) in [
                (&mut reference.namespace, "namespace"),
                (&mut reference.name, "name"),
                (&mut reference.uid, "uid"),
                (&mut reference.resource_version, "resourceVersion"),
            ] {
                if field.is_empty() {
                    meta::text(&object, text).clone_into(field);
                }
            }
        }
        drop(collected);
        self.request_body(object);
    }

    /// Records the body of a request that is no object: a patch, or options.
    pub(crate) fn request_body(&self, body: Value) {
        if self.wants_request() {
            self.with(|collected| collected.request = Some(body));
        }
    }

    /// Records a response, with its body at the level `RequestResponse`. The body of an error is always needed.
    pub(crate) fn respond(&self, code: u16, body: Option<Value>) {
        let wants_response = self.wants_response();
        self.with(|collected| {
            let mut status = json!({"metadata": {}, "code": code});
            let body = body.filter(|body| body.get("kind").is_some());
            if let Some(body) = body.as_ref().filter(|body| body["kind"] == "Status") {
                for field in ["status", "message", "reason", "details"] {
                    if let Some(value) = body.get(field) {
                        status[field] = value.clone();
                    }
                }
            }
            collected.status = Some(status);
            collected.response = body.filter(|_| wants_response);
        });
    }

    /// Records a response that is complete.
    pub(crate) fn complete(&self) {
        self.write(if self.is_authenticated() { Stage::ResponseComplete } else { Stage::ResponseStarted });
    }

    /// Records that the handler of the request has panicked.
    pub(crate) fn panicked(&self, message: &str) {
        self.with(|collected| {
            let message = format!("APIServer panic'd: {message}");
            let status = json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500});
            collected.status = Some(status);
        });
        self.write(Stage::Panic);
    }

    /// Records that a response has begun which lasts as long as the client wants. Its end is recorded when the result
    /// is dropped.
    pub(crate) fn start_response(self) -> EndOfResponse {
        self.write(Stage::ResponseStarted);
        EndOfResponse(self)
    }

    fn with(&self, change: impl FnOnce(&mut Collected)) {
        if let Some(record) = &self.0 {
            change(&mut record.collected.lock());
        }
    }

    fn write(&self, stage: Stage) {
        let Some(record) = self.0.as_ref().filter(|record| !record.omit_stages.contains(&stage)) else { return };
        let mut collected = record.collected.lock();
        if record.omit_managed_fields {
            let Collected { request, response, .. } = &mut *collected;
            [request, response].into_iter().flatten().for_each(remove_managed_fields);
        }
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: record.level,
            audit_id: &record.id,
            stage,
            request_uri: &record.uri,
            verb: &record.verb,
            user: record.user.as_deref().map(Into::into).unwrap_or_default(),
            impersonated_user: collected.impersonated.as_deref().map(Into::into),
            authentication_metadata: collected.constraint.map(AuthenticationMetadata::constrained),
            source_ips: &record.source_ips,
            user_agent: &record.user_agent,
            object_ref: collected.object.as_ref(),
            response_status: collected.status.as_ref(),
            request_object: collected.request.as_ref(),
            response_object: collected.response.as_ref(),
            request_received_timestamp: record.received.clone(),
            stage_timestamp: timestamp(record.clock.now()),
            annotations: &collected.annotations,
        };
        match serde_json::to_vec(&event) {
            Ok(event) => record.log.write(&event),
            Err(error) => tracing::error!(%error, "an event couldn't be encoded for the audit log"),
        }
    }
}

/// Removes the managed fields of an object, or of those in a list.
fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        remove_managed_fields(item);
    }
}
