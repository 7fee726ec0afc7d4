//! The checks and changes common to all kinds when an object is created or updated.
//!
//! A body is processed in these steps: kind, name and namespace; unknown fields; defaults; fields that the server sets;
//! validation; field ownership. The kind-specific rules come from the registry entry.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::Method;
use kubewright_apimachinery::{
    apply,
    status::{Cause, Status},
};
use serde_json::{Value, json};

use super::{
    call::Call,
    decode::{self, Decoded, Format},
    field_validation,
    part::Part,
    query::FieldValidation,
    type_meta,
};
use crate::{
    admission::NAMESPACES,
    codec, decoding,
    group_version::group_version,
    managed_fields::Manager,
    meta, object_meta,
    object_type::ObjectType,
    registry::{
        PART_METADATA, Resource,
        builtin::{admin_access, drop_disabled_fields, forbidden_admin_access, other_versions},
    },
    schema_rules,
    storage::{Key, Store},
    strconv,
};

/// The time for which the creation of an object waits for another one that a controller creates: the usual time of ten
/// attempts by Kubernetes.
const CONTROLLERS_PATIENCE: Duration = Duration::from_millis(1350);

/// The time for which the creation of an object waits for its namespace, as in Kubernetes.
const NAMESPACE_PATIENCE: Duration = Duration::from_millis(50);

/// A body in the form of its kind, and what is wrong with its fields.
#[derive(Debug)]
pub(super) struct ReadBody {
    object: Value,
    /// The paths of the fields that the kind doesn't declare, which were removed.
    pub(super) unknown: Vec<String>,
    duplicates: Vec<String>,
}

/// The object of a body, with warnings for the client.
#[derive(Debug)]
pub(super) struct DecodedBody {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

impl Call {
    /// Decodes a body by the kind of the path, and checks its kind, name and namespace.
    pub(super) fn receive(&self, decoded: Decoded, validation: FieldValidation) -> Result<DecodedBody, Status> {
        let mut read = self.read(decoded)?;
        schema_rules::drop_nulls(&self.resource, &mut read.object);
        self.accept(read, validation)
    }

    /// Decodes a body by the kind of the path.
    pub(super) fn read(&self, decoded: Decoded) -> Result<ReadBody, Status> {
        let Decoded { value: mut object, duplicates } = decoded;
        self.check_kind(&mut object)?;
        let decoded = decoding::decode(&self.resource, &mut object, self.json_text())?;
        self.has_empty.store(decoded.has_empty, Ordering::Relaxed);
        Ok(ReadBody { object, unknown: decoded.unknown, duplicates })
    }

    /// Checks the name and namespace of a body, and its fields as the client asks for.
    pub(super) fn accept(&self, read: ReadBody, validation: FieldValidation) -> Result<DecodedBody, Status> {
        let ReadBody { mut object, unknown, duplicates } = read;
        meta::edit(&mut object, |_| {});
        self.check_name_and_namespace(&mut object)?;
        // A custom object is parsed before it is pruned.
        let text = self.json_text().filter(|_| !self.resource.schema.custom);
        let fields = field_validation::validate(&unknown, duplicates, text, validation);
        let mut problems = fields.map_err(|why| schema_rules::unreadable(&self.resource, &why))?;
        // A patch is checked with the object that it results in.
        let patched = self.parts.method == Method::PATCH;
        problems.extend(object_meta::deduplicate_owners(&mut object, patched));
        self.keep_warnings(&problems);
        Ok(DecodedBody { object, warnings: problems })
    }

    fn check_kind(&self, object: &mut Value) -> Result<(), Status> {
        let Resource { group, version, kind, .. } = &*self.resource;
        let expected = group_version(group, version);
        let Some(fields) = object.as_object() else {
            return Err(Status::bad_request(schema_rules::not_an_object(object).unwrap_or_default()));
        };
        let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
        if let Some(why) = type_meta::unreadable(object) {
            return Err(decode::unrecognized(kind, &why, &self.body));
        }
        let (sent_version, sent_kind) = (type_meta::version(object), text("kind"));
        if self.resource.schema.custom && sent_kind.is_empty() {
            let why = format!("Object 'Kind' is missing in '{}'", shortened(object));
            return Err(match self.parts.method {
                Method::PATCH => Status::bad_request(why),
                _ => decode::unrecognized(kind, &why, &self.body),
            });
        }
        if !sent_kind.is_empty() && sent_kind != &**kind && !self.resource.schema.custom {
            return Err(self.another_kind((group, version, kind), sent_version, sent_kind));
        }
        if !sent_version.is_empty() && sent_version != expected && !self.resource.schema.custom {
            let sent_kind = if sent_kind.is_empty() { kind } else { sent_kind };
            return Err(self.another_kind((group, version, kind), sent_version, sent_kind));
        }
        if self.resource.schema.custom {
            self.check_custom_kind(&expected, sent_version, sent_kind, meta::text(object, "name"))?;
        }
        codec::set_type(object, group, version, kind);
        Ok(())
    }

    /// Checks the kind and the version of a custom object. As in Kubernetes, the result of a patch is refused by the
    /// validation.
    fn check_custom_kind(&self, expected: &str, version: &str, kind: &str, name: &str) -> Result<(), Status> {
        let mut causes = Vec::new();
        if kind != &*self.resource.kind {
            causes.push(Cause::invalid("kind", &json!(kind), &format!("must be {}", self.resource.kind)));
        }
        if version != expected {
            if self.parts.method != Method::PATCH {
                return Err(other_version(version, expected));
            }
            if version.is_empty() {
                return Err(Status::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
            }
            causes.push(Cause::invalid("apiVersion", &json!(version), &format!("must be {expected}")));
        }
        if causes.is_empty() {
            return Ok(());
        }
        let group = version.split_once('/').map_or("", |(group, _)| group);
        Err(Status::invalid(group, kind, name, causes))
    }

    /// Returns 400: the body is of another kind than this one, which Kubernetes can't convert.
    pub(super) fn another_kind(
        &self,
        (group, version, kind): (&str, &str, &str),
        sent_version: &str,
        sent_kind: &str,
    ) -> Status {
        let expected = group_version(group, version);
        let sent_version = if sent_version.is_empty() { &expected } else { sent_version };
        let (sent_group, number) = sent_version.rsplit_once('/').unwrap_or(("", sent_version));
        // Only the scale of a custom object has a built-in type, and Kubernetes decodes it by a scheme that has no
        // others.
        let custom = self.resource.schema.custom;
        if custom && self.parts.method != Method::PATCH {
            return Status::bad_request(schema_rules::unregistered_type(version, kind));
        }
        let is_decoded = other_versions::is_decoded(sent_kind, sent_version);
        if is_decoded && sent_kind == kind && !custom && self.parts.method != Method::PATCH {
            return other_version(sent_version, &expected);
        }
        let why = if custom || !is_decoded && ObjectType::registered(sent_group, number, sent_kind).is_none() {
            schema_rules::unregistered(&json!(sent_kind), sent_version)
        } else {
            // The packages of Go's types are named after the groups.
            let package = group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
            format!("converting ({number}.{sent_kind}) to ({package}.{kind}): unknown conversion")
        };
        Status::bad_request(format!("{sent_kind} in version {number:?} cannot be handled as a {kind}: {why}"))
    }

    /// Checks that the name and namespace of the body match the path. Adds a missing namespace, and removes that of an
    /// object of the cluster.
    pub(super) fn check_name_and_namespace(&self, object: &mut Value) -> Result<(), Status> {
        self.match_namespace(object)?;
        let sent = meta::text(object, "name");
        let name = &self.name;
        if !name.is_empty() && sent.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if !name.is_empty() && sent != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({name})"
            )));
        }
        Ok(())
    }

    /// Checks that the namespace of an object matches the path. Adds a missing one, and removes that of an object of
    /// the cluster.
    pub(super) fn match_namespace(&self, object: &mut Value) -> Result<(), Status> {
        let sent = meta::text(object, "namespace");
        if self.resource.namespaced && !sent.is_empty() && sent != self.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta::set(object, "namespace", self.resource.namespaced.then(|| json!(self.namespace)));
        Ok(())
    }

    /// Waits for the namespace of a new object, as Kubernetes does for one that someone is creating.
    pub(super) async fn await_namespace(&self) {
        let place = Key::new("", &self.namespace);
        self.await_store(NAMESPACE_PATIENCE, |store| {
            !self.resource.namespaced || store.get(NAMESPACES, &place).is_some()
        })
        .await;
    }

    /// Checks that the namespace of a new object exists and isn't being deleted.
    pub(super) fn check_namespace(&self, object: &Value) -> Result<(), Status> {
        if !self.resource.namespaced {
            return Ok(());
        }
        let place = Key::new("", &self.namespace);
        let namespace = self.state.store.get(NAMESPACES, &place);
        let namespace = namespace.ok_or_else(|| Status::not_found("", "namespaces", &self.namespace))?;
        if !meta::is_terminating(&namespace.outline()) {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {} because it is being terminated", self.namespace);
        // Before its name is generated, an object is identified by the name's prefix.
        let name = ["name", "generateName"].map(|field| meta::text(object, field));
        let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        let mut status = Status::forbidden(&self.resource.group, &self.resource.plural, name, &why);
        let message = format!("namespace {} is being terminated", self.namespace);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause::new("NamespaceTerminating", "metadata.namespace", message));
        }
        Err(status)
    }

    /// Sets the defaults of a received object, which is new or replaces `old`, and records the owners of its fields.
    /// Fields that admission or the server sets after this have no owner. All objects are in served form.
    pub(super) fn complete(&self, old: Option<&Value>, mut object: Value, manager: &Manager<'_>) -> Value {
        let resource = &*self.resource;
        if old.is_none() {
            drop_new_status(resource, &mut object);
            object_meta::wipe(&mut object);
        }
        object_meta::drop_empty(&mut object);
        schema_rules::default(resource, &mut object);
        let is_stored_form = codec::is_stored_form(resource);
        if !is_stored_form {
            codec::to_stored(resource, &mut object);
        }
        resource.strategy.default(&mut object);
        resource.strategy.default_times(&mut object, self.state.clock.now());
        decoding::complete(resource, &mut object);
        if !is_stored_form {
            object = Arc::unwrap_or_clone(codec::to_served(resource, &Arc::new(object)));
        }
        self.record(&object);
        manager.track(resource, old, object)
    }

    /// Records the object of a request in the audit log, as it was sent, with its defaults.
    fn record(&self, object: &Value) {
        if !self.audit.wants_request() || self.parts.method == Method::PATCH {
            return;
        }
        let mut object = object.clone();
        let sent = Format::of(&self.parts.headers).and_then(|format| decode::decode(format, &self.body));
        if sent.is_ok_and(|sent| meta::text(&sent.value, "namespace").is_empty()) {
            meta::set(&mut object, "namespace", None);
        }
        self.audit.request(object);
    }

    /// Prepares a new, [completed](Self::complete) object with a name for the store, converting it from served to
    /// stored form.
    pub(super) async fn prepare_create(&self, mut object: Value) -> Result<Value, Status> {
        let resource = &*self.resource;
        drop_new_status(resource, &mut object);
        let now = self.state.clock.now();
        object_meta::drop_empty(&mut object);
        // As in Kubernetes, a time of deletion that admission sets is kept.
        meta::edit(&mut object, |metadata| {
            metadata.remove("resourceVersion");
            metadata.remove("selfLink");
            metadata.insert("uid".into(), self.state.random.uuid().into());
            metadata.insert("creationTimestamp".into(), meta::time(now));
            if resource.strategy.has_generation() {
                metadata.insert("generation".into(), 1.into());
            }
        });
        let mut causes = object_meta::check_name(resource, &object);
        causes.extend(object_meta::check_syntax(resource, &object));
        schema_rules::validate(resource, &object, None, false, &mut causes, &mut Vec::new()).await;
        schema_rules::drop_nulls(resource, &mut object);
        codec::to_stored(resource, &mut object);
        let early = resource.strategy.warnings_of_new(&object);
        resource.strategy.attribute(&mut object, &self.user);
        drop_disabled_fields(&resource.group, &resource.plural, &mut object);
        resource.strategy.prepare_create(&mut object);
        decoding::complete_stored(resource, &mut object);
        causes.extend(self.check_admin_access(None, &object));
        causes.extend(resource.strategy.validate(None, &object));
        self.check_causes(&object, causes)?;
        self.advise(early, None, &object);
        resource.strategy.check_access(&self.requester(), None, &object)?;
        let warnings = self.check_pod_security(Part::Main, None, &object)?;
        self.advice.lock().extend(warnings);
        Ok(object)
    }

    /// Changes an object as the mutating admission plugins of Kubernetes do, which precede policies and webhooks, and
    /// follow them if those changed the object. `old` is in stored form, the object in served form.
    pub(super) fn admit(&self, old: Option<&Value>, mut object: Value) -> Result<Value, Status> {
        let resource = &*self.resource;
        codec::to_stored(resource, &mut object);
        resource.strategy.admit(old, &mut object).map_err(|why| self.forbidden(&object, &why))?;
        Ok(self.served(object))
    }

    /// Like [`Self::admit`], for an update of a part of the object.
    pub(super) fn admit_part(&self, subresource: &str, old: &Value, mut object: Value) -> Value {
        let resource = &*self.resource;
        codec::to_stored(resource, &mut object);
        resource.strategy.admit_subresource(subresource, Some(old), &mut object);
        self.served(object)
    }

    /// Returns the served form of an object in stored form.
    fn served(&self, object: Value) -> Value {
        let resource = &*self.resource;
        if codec::is_stored_form(resource) {
            return object;
        }
        Arc::unwrap_or_clone(codec::to_served(resource, &Arc::new(object)))
    }

    /// Waits for what a controller is about to create, and a new object needs.
    pub(super) async fn await_controllers(&self, object: &Value) {
        self.await_store(CONTROLLERS_PATIENCE, |_| !self.resource.strategy.is_early(object)).await;
    }

    /// Waits until a condition on what is stored holds, or for some time. If it doesn't, the request is refused later.
    async fn await_store(&self, patience: Duration, holds: impl Fn(&Store) -> bool) {
        let store = &self.state.store;
        // It holds for almost all objects. Only the others need the future and its timer.
        if holds(store) {
            return;
        }
        let ready = async {
            loop {
                let next = store.revision() + 1;
                if holds(store) {
                    return;
                }
                store.reached(next).await;
            }
        };
        let _elapsed = tokio::time::timeout(patience, ready).await;
    }

    /// Prepares an updated, [completed](Self::complete) object for the store. `sent` and `old_served` are in served
    /// form; `old` and the result are in stored form.
    pub(super) async fn prepare_update(
        &self,
        part: Part,
        old: &Value,
        old_served: &Value,
        sent: Value,
    ) -> Result<Value, Status> {
        let resource = &*self.resource;
        self.check_version(old, &sent)?;
        let mut object = match part {
            Part::Main => keep_status(resource, old_served, sent),
            Part::Status if resource.schema.custom => only_status(old_served, sent),
            Part::Status | Part::Approval => keep_content(resource, old_served, sent),
            Part::Finalizers => keep_status(resource, old_served, sent),
            Part::Other(_) => {
                let mut object = keep_status(resource, old_served, sent);
                object_meta::keep_for_status(old_served, &mut object, PART_METADATA);
                object
            }
        };
        object_meta::drop_empty(&mut object);
        object_meta::restore(old, &mut object);
        let mut causes = object_meta::check_syntax(resource, &object);
        causes.extend(object_meta::check_changed_prefix(resource, &object));
        causes.extend(object_meta::check_update(old, &object));
        let mut warnings = Vec::new();
        let status_only = part == Part::Status;
        schema_rules::validate(resource, &object, Some(old_served), status_only, &mut causes, &mut warnings).await;
        // Those of an applied configuration and of webhooks are validated, but not stored.
        schema_rules::drop_nulls(resource, &mut object);
        codec::to_stored(resource, &mut object);
        drop_disabled_fields(&resource.group, &resource.plural, &mut object);
        if part == Part::Main {
            resource.strategy.prepare_update(old, &mut object);
        }
        if let Part::Other(subresource) = part {
            resource.strategy.prepare_part(subresource, old, &mut object);
        }
        let is_status = matches!(part, Part::Status | Part::Approval);
        if is_status {
            let now = meta::time(self.state.clock.now());
            resource.strategy.prepare_status(part.subresource(), old, &mut object, &now);
        }
        decoding::complete_stored(resource, &mut object);
        if part == Part::Status {
            causes.extend(self.check_admin_access(Some(old), &object));
        }
        causes.extend(match part {
            Part::Main | Part::Finalizers => resource.strategy.validate(Some(old), &object),
            Part::Status => resource.strategy.validate_status(old, &object),
            Part::Other(subresource) => resource.strategy.validate_part(subresource, old, &object),
            Part::Approval => resource.strategy.validate_part(part.subresource(), old, &object),
        });
        self.check_causes(&object, causes)?;
        if part == Part::Main {
            self.advise(warnings, Some(old), &object);
        } else {
            *self.advice.lock() = warnings;
        }
        let requester = self.requester();
        match part {
            Part::Status | Part::Approval => {
                resource.strategy.check_status_access(&requester, part.subresource(), old, &object)?;
            }
            Part::Other(subresource) => {
                resource.strategy.check_part_access(&requester, subresource, old, &object)?;
                if subresource == "resize" && old["spec"] != object["spec"] {
                    self.check_node(&object)?;
                }
            }
            Part::Main | Part::Finalizers => resource.strategy.check_access(&requester, Some(old), &object)?,
        }
        let warnings = self.check_pod_security(part, Some(old), &object)?;
        self.advice.lock().extend(warnings);
        let has_empty = self.has_empty.load(Ordering::Relaxed) && part == Part::Main;
        set_generation(resource, part, old, &mut object, has_empty);
        // Detecting whether the write changes nothing is expensive, so it is done only if the content is equal.
        Ok(if same_content(old, &object, |_| true) { apply::ignore_timestamps(old, object) } else { object })
    }

    /// Returns the error about access of administrators to devices in a namespace that doesn't allow it.
    fn check_admin_access(&self, old: Option<&Value>, new: &Value) -> Option<Cause> {
        let field = admin_access(&self.resource.group, &self.resource.plural, old, new)?;
        let namespace = self.state.store.get(NAMESPACES, &Key::new("", &self.namespace))?;
        forbidden_admin_access(field, &namespace.value())
    }

    /// Checks that the node of a pod to be resized exists and has what the pod requests.
    fn check_node(&self, pod: &Value) -> Result<(), Status> {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Ok(());
        }
        match self.state.store.get("/nodes", &Key::new("", node)) {
            Some(stored) => self.resource.strategy.check_node(pod, &stored.value()),
            None => Err(self.forbidden(pod, &format!("node {node:?} not found"))),
        }
    }

    /// Determines the warnings about a valid object that is new or replaces `old`, which follow earlier ones.
    fn advise(&self, mut warnings: Vec<String>, old: Option<&Value>, object: &Value) {
        warnings.extend(if self.resource.schema.custom {
            object_meta::finalizer_warnings(old, object)
        } else {
            self.resource.strategy.warnings(old, object)
        });
        *self.advice.lock() = warnings;
    }

    /// Returns 403 for an object that a rule of its kind doesn't admit. Before its name is generated, an object is
    /// identified by the name's prefix.
    fn forbidden(&self, object: &Value, why: &str) -> Status {
        let names = ["name", "generateName"].map(|field| meta::text(object, field));
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        Status::forbidden(&self.resource.group, &self.resource.plural, name, why)
    }

    fn check_causes(&self, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
        if causes.is_empty() {
            return Ok(());
        }
        let Resource { schema, strategy, .. } = &*self.resource;
        let complete = schema.custom || strategy.has_own_validation();
        let causes = if complete { causes } else { without_repetitions(causes) };
        let name = meta::text(object, "name");
        // Kubernetes' errors name the group in which an object is stored.
        let group = match self.resource.storage.split_once('/') {
            Some((group, _)) if !schema.custom => group,
            _ => &self.resource.group,
        };
        Err(Status::invalid(group, &self.resource.kind, name, causes))
    }

    /// Checks the resource version that the client sent (optimistic concurrency).
    fn check_version(&self, old: &Value, sent: &Value) -> Result<(), Status> {
        let Resource { group, plural, lifecycle, .. } = &*self.resource;
        let name = meta::text(old, "name");
        let number = |text: &str| match text {
            "" => Ok(0),
            text => text.parse::<u64>().map_err(|_| Status::unknown(strconv::parse_uint(text))),
        };
        match number(meta::text(sent, "resourceVersion"))? {
            0 if lifecycle.unconditional_update => Ok(()),
            0 => {
                let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
                Err(Status::invalid(group, plural, name, vec![cause]))
            }
            version if number(meta::text(old, "resourceVersion"))? == version => Ok(()),
            _ => Err(Status::stale(group, plural, name)),
        }
    }

    /// Checks the UID of a replacing object, which must be that of the object that it replaces.
    pub(super) fn check_uid(&self, old: &Value, sent: &Value) -> Result<(), Status> {
        let (sent, uid) = (meta::text(sent, "uid"), meta::text(old, "uid"));
        if sent.is_empty() || sent == uid {
            return Ok(());
        }
        let Resource { group, plural, lifecycle, .. } = &*self.resource;
        let key = [&*lifecycle.registry_path, &self.namespace, &self.name];
        let key: Vec<_> = key.into_iter().filter(|part| !part.is_empty()).collect();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}",
            key.join("/")
        );
        Err(Status::conflict(group, plural, &self.name, &why))
    }
}

/// Returns 400: the body is of another version of the kind.
fn other_version(version: &str, expected: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({version}) does not match the expected API version ({expected})"
    ))
}

/// Removes errors about missing fields for which a later error exists. The rules of a kind are more precise than those
/// of its type.
fn without_repetitions(causes: Vec<Cause>) -> Vec<Cause> {
    let is_repeated = |place: usize| {
        let Cause { reason, field, .. } = &causes[place];
        reason == "FieldValueRequired" && causes[place + 1..].iter().any(|other| other.field == *field)
    };
    let kept: Vec<_> = (0..causes.len()).map(|place| !is_repeated(place)).collect();
    causes.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(cause, _)| cause).collect()
}

/// Removes the status of a new object, for kinds with a status subresource.
fn drop_new_status(resource: &Resource, object: &mut Value) {
    if resource.status
        && !resource.strategy.keeps_new_status()
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
}

/// Returns the sent object with the old status, for kinds with a status subresource.
fn keep_status(resource: &Resource, old: &Value, mut sent: Value) -> Value {
    if resource.status
        && let Some(fields) = sent.as_object_mut()
    {
        match old.get("status") {
            Some(status) => fields.insert("status".into(), status.clone()),
            None => fields.remove("status"),
        };
    }
    sent
}

/// Returns the old object with the sent status and managed fields.
fn only_status(old: &Value, mut sent: Value) -> Value {
    let mut object = old.clone();
    // As in Kubernetes, a null that an apply has left in place of a status is refused.
    let has_status = old.get("status").is_some();
    let status = sent.get_mut("status").map(Value::take).filter(|status| has_status || !status.is_null());
    let managed = sent["metadata"].get_mut("managedFields").map(Value::take);
    if let Some(fields) = object.as_object_mut() {
        match status {
            Some(status) => fields.insert("status".into(), status),
            None => fields.remove("status"),
        };
    }
    meta::set(&mut object, "managedFields", managed);
    object
}

/// Returns the sent object with the old content: all but the status, and the metadata that a status update may change.
fn keep_content(resource: &Resource, old: &Value, mut sent: Value) -> Value {
    let keeps = |field: &str| matches!(field, "apiVersion" | "kind" | "metadata" | "status");
    if let (Some(old), Some(fields)) = (old.as_object(), sent.as_object_mut()) {
        fields.retain(|field, _| keeps(field));
        let content = old.iter().filter(|(field, _)| !keeps(field));
        fields.extend(content.map(|(field, value)| (field.clone(), value.clone())));
    }
    object_meta::keep_for_status(old, &mut sent, resource.lifecycle.status_keeps);
    sent
}

/// Increments the generation if an update of a part has changed anything but metadata and status. `has_empty` tells
/// whether an empty list or map was sent.
fn set_generation(resource: &Resource, part: Part, old: &Value, object: &mut Value, has_empty: bool) {
    if !resource.strategy.has_generation() {
        return;
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    let changed = has_empty && resource.strategy.counts_empty_as_change()
        || !same_content(old, object, |field| field != "status" || !resource.status);
    let changed = match part {
        Part::Main => resource.strategy.increments_generation(old, object, changed),
        _ => changed,
    };
    let generation = generation + i64::from(changed);
    meta::set(object, "generation", (generation != 0).then(|| generation.into()));
}

/// Returns whether two objects are equal in the relevant fields, except for metadata.
fn same_content(one: &Value, other: &Value, counts: impl Fn(&str) -> bool) -> bool {
    let kept = |object| {
        let fields = Value::as_object(object).into_iter().flatten();
        fields.filter(|(field, _)| *field != "metadata" && counts(field))
    };
    kept(one).count() == kept(other).count() && kept(one).all(|(field, value)| other.get(field) == Some(value))
}

fn shortened(object: &Value) -> String {
    object.to_string().chars().take(512).collect()
}
