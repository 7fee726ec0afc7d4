//! Asking the webhooks that want a request, and doing what they say.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use kubewright_apimachinery::{patch::json, status::Status};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Attributes, NAMESPACES, Operation,
    answer::{self, Allowed, Refusal},
    rule::Match,
};
use crate::{convert, handlers, meta, registry::Resource, schema_rules, server::Inner, storage::Key};

/// How long a request may wait for all its webhooks together, as in Kubernetes any request may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The characters that all warnings of a request may have together, and each one if that is too much.
const WARNINGS: (usize, usize) = (4096, 256);

/// One request and the webhooks that want it.
#[derive(Debug)]
pub(crate) struct Review {
    server: Arc<Inner>,
    attributes: Attributes,
    mutating: Vec<Match>,
    validating: Vec<Match>,
    warnings: Mutex<Vec<String>>,
    /// When the time is up that all webhooks have together.
    deadline: Duration,
}

/// The state of an object that a request is about; a creation has no old one, a deletion no new one.
#[derive(Clone, Copy, Debug)]
struct Objects<'a> {
    new: Option<&'a Value>,
    old: Option<&'a Value>,
}

#[derive(Serialize)]
struct AdmissionReview<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    request: Asked<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    #[serde(flatten)]
    request: &'a Value,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

impl Review {
    pub(super) fn new(
        server: Arc<Inner>,
        attributes: Attributes,
        mutating: Vec<Match>,
        validating: Vec<Match>,
    ) -> Self {
        let deadline = server.clock.monotonic().saturating_add(PATIENCE);
        Self { server, attributes, mutating, validating, warnings: Mutex::default(), deadline }
    }

    /// What the webhooks want the client to be warned of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut *self.warnings.lock());
        let mut seen = BTreeSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        let (all, each) = WARNINGS;
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

    /// The object as the mutating webhooks make it, one after the other. Whoever wants it is asked once more if others
    /// changed the object after it. `None` is for a deletion, of which there is nothing to change.
    pub(crate) async fn mutate(&self, object: Option<Value>, old: Option<&Value>) -> Result<Option<Value>, Status> {
        if self.mutating.is_empty() {
            return Ok(object);
        }
        let mut object = object;
        if let Some(object) = &mut object {
            self.settle(object)?;
        }
        let mut asked = Vec::new();
        let mut again = BTreeSet::new();
        for (index, one) in self.mutating.iter().enumerate() {
            let Some(changed) = self.mutate_by(one, &mut object, old).await? else { continue };
            if changed {
                again.extend(asked.iter().copied());
            }
            if one.webhook.again {
                asked.push(index);
            }
        }
        for index in again {
            self.mutate_by(&self.mutating[index], &mut object, old).await?;
        }
        Ok(object)
    }

    /// Lets one webhook change the object, and tells whether it did; `None` if it was not concerned.
    async fn mutate_by(
        &self,
        one: &Match,
        object: &mut Option<Value>,
        old: Option<&Value>,
    ) -> Result<Option<bool>, Status> {
        let Some(Allowed { patch, warnings }) = self.ask(one, Objects { new: object.as_ref(), old }).await? else {
            return Ok(None);
        };
        self.warnings.lock().extend(warnings);
        let Some(patch) = patch.filter(|patch| patch.as_array().is_none_or(|operations| !operations.is_empty())) else {
            return Ok(Some(false));
        };
        let name = &one.webhook.name;
        let broken =
            |why: String| Status::internal(format!("admission webhook {name:?} made an unusable patch: {why}"));
        let Some(before) = object.as_ref() else {
            let why = "attempted to modify the object, which is not supported for this operation";
            return Err(Status::internal(format!("admission webhook {name:?} {why}")));
        };
        let shown = self.to_face(one, before).await?;
        let patched = json::apply(&shown, &patch).map_err(|error| broken(error.to_string()))?;
        self.check_identity(&shown, &patched).map_err(broken)?;
        let mut after = self.convert(&one.face, &self.attributes.resource, patched).await?;
        self.settle(&mut after).map_err(|status| broken(status.message))?;
        let changed = *before != after;
        *object = Some(after);
        Ok(Some(changed))
    }

    /// Asks the validating webhooks, all at once. Of several refusals the first in order counts.
    pub(crate) async fn validate(&self, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        let asked = self.validating.iter().map(|one| self.ask(one, Objects { new: object, old }));
        for answer in join_all(asked).await {
            if let Some(allowed) = answer? {
                self.warnings.lock().extend(allowed.warnings);
            }
        }
        Ok(())
    }

    /// Asks one webhook; `None` if it does not want this object, or could not be asked and need not be.
    async fn ask(&self, one: &Match, objects: Objects<'_>) -> Result<Option<Allowed>, Status> {
        let name = &one.webhook.name;
        if !self.selects(one, objects)? {
            return Ok(None);
        }
        let (mut new, mut old) = (None, None);
        for (face, object) in [(&mut new, objects.new), (&mut old, objects.old)] {
            if let Some(object) = object {
                *face = Some(self.to_face(one, object).await?);
            }
        }
        let request = self.request(one);
        let conditions = [
            ("object", new.as_ref().unwrap_or(&Value::Null)),
            ("oldObject", old.as_ref().unwrap_or(&Value::Null)),
            ("request", &request),
        ];
        let answered = match one.webhook.conditions.hold(&conditions).await {
            Ok(false) => return Ok(None),
            Ok(true) if self.attributes.dry_run && !one.webhook.rehearses => {
                return Err(Status::bad_request(format!("admission webhook {name:?} does not support dry run")));
            }
            Ok(true) => self.exchange(one, &request, new.as_ref(), old.as_ref()).await,
            Err(why) => Err(Refusal::Failed(why)),
        };
        match answered {
            Ok(allowed) => Ok(Some(allowed)),
            Err(Refusal::Denied { status, warnings }) => {
                self.warnings.lock().extend(warnings);
                self.attributes.warnings.lock().extend(self.warnings());
                Err(status)
            }
            Err(Refusal::Failed(why)) if one.webhook.optional => {
                tracing::warn!(webhook = name, why, "a webhook failed and is passed over");
                Ok(None)
            }
            Err(Refusal::Failed(why)) => Err(Status::internal(format!("failed calling webhook {name:?}: {why}"))),
        }
    }

    async fn exchange(
        &self,
        one: &Match,
        request: &Value,
        object: Option<&Value>,
        old_object: Option<&Value>,
    ) -> Result<Allowed, Refusal> {
        let review = AdmissionReview {
            kind: "AdmissionReview",
            api_version: answer::VERSION,
            request: Asked { request, object, old_object },
        };
        let body = serde_json::to_vec(&review).map_err(|error| Refusal::Failed(error.to_string()))?;
        let left = self.deadline.saturating_sub(self.server.clock.monotonic());
        let timeout = one.webhook.timeout.min(left);
        let answered =
            one.webhook.endpoint.post(&self.server.store, &self.server.clock, Bytes::from(body), timeout).await;
        let body = answered.map_err(|why| Refusal::Failed(format!("failed to call webhook: {why}")))?;
        answer::read(&one.webhook.name, request["uid"].as_str().unwrap_or_default(), &body)
    }

    /// The facts of the request beside the objects.
    fn request(&self, one: &Match) -> Value {
        let Attributes { resource, subresource, exchanges, namespace, name, options, user, .. } = &self.attributes;
        let kind = |face: &Resource| match exchanges {
            Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
            None => json!({"group": &*face.group, "version": &*face.version, "kind": &*face.kind}),
        };
        let place =
            |face: &Resource| json!({"group": &*face.group, "version": &*face.version, "resource": &*face.plural});
        let mut request = json!({
            "uid": self.server.random.uuid(),
            "kind": kind(&one.face),
            "resource": place(&one.face),
            "requestKind": kind(resource),
            "requestResource": place(resource),
            "operation": self.attributes.operation.as_str(),
            "userInfo": user.to_value(),
            "dryRun": self.attributes.dry_run,
            "options": options,
        });
        for (field, text) in [
            ("name", name),
            ("namespace", namespace),
            ("subResource", subresource),
            ("requestSubResource", subresource),
        ] {
            if !text.is_empty() {
                request[field] = text.as_str().into();
            }
        }
        request
    }

    /// Whether the selectors of a webhook mean this request.
    fn selects(&self, one: &Match, objects: Objects<'_>) -> Result<bool, Status> {
        let by_labels = |selector: &kubewright_apimachinery::selector::LabelSelector| {
            let mut states = [objects.new, objects.old].into_iter().flatten();
            selector.is_empty() || states.any(|state| selector.matches_labels(&state["metadata"]["labels"]))
        };
        let Attributes { resource, namespace, .. } = &self.attributes;
        let namespaces = &one.webhook.namespaces;
        let in_place = if namespaces.is_empty() {
            true
        } else if &*resource.storage == NAMESPACES {
            by_labels(namespaces)
        } else if namespace.is_empty() {
            true
        } else {
            let stored = self.server.store.get(NAMESPACES, &Key::new("", namespace));
            let stored = stored.ok_or_else(|| Status::not_found("", "namespaces", namespace))?;
            namespaces.matches(|key| stored.label(key))
        };
        Ok(in_place && by_labels(&one.webhook.objects))
    }

    /// The object in the version that a webhook wants.
    async fn to_face(&self, one: &Match, object: &Value) -> Result<Value, Status> {
        self.convert(&self.attributes.resource, &one.face, object.clone()).await
    }

    /// What can't be converted can't be shown, whatever the webhook's policy.
    async fn convert(&self, from: &Arc<Resource>, to: &Arc<Resource>, object: Value) -> Result<Value, Status> {
        if Arc::ptr_eq(from, to) || self.attributes.exchanges.is_some() {
            return Ok(object);
        }
        convert::between(&self.server, from, to, object).await
    }

    /// A patch may not make another object of it. A name that is not there yet may be given.
    fn check_identity(&self, before: &Value, after: &Value) -> Result<(), String> {
        for (field, before, after) in [
            ("apiVersion", &before["apiVersion"], &after["apiVersion"]),
            ("kind", &before["kind"], &after["kind"]),
            ("metadata.name", &before["metadata"]["name"], &after["metadata"]["name"]),
            ("metadata.namespace", &before["metadata"]["namespace"], &after["metadata"]["namespace"]),
        ] {
            let given = field == "metadata.name" && matches!(before.as_str(), None | Some(""));
            if before != after && !given {
                return Err(format!("{field} may not be changed from {before} to {after}"));
            }
        }
        Ok(())
    }

    /// Brings an object that webhooks see into the form that its schema wants: nothing unknown, all defaults.
    fn settle(&self, object: &mut Value) -> Result<(), Status> {
        if self.attributes.exchanges.is_some() {
            return Ok(());
        }
        let resource = &*self.attributes.resource;
        if !object.is_object() {
            return Err(Status::bad_request("it is no object"));
        }
        schema_rules::check_readable(resource, object)?;
        handlers::check_metadata_types(resource, object)?;
        meta::edit(object, |_| {});
        schema_rules::prune(resource, object);
        schema_rules::default(resource, object);
        if convert::is_stored_form(resource) && self.attributes.operation != Operation::Delete {
            resource.strategy.default(object);
        }
        Ok(())
    }
}
