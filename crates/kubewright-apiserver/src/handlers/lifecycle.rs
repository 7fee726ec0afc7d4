//! The checks and changes common to all kinds when an object is created or updated.
//!
//! A body is processed in these steps: kind, name and namespace; unknown fields; defaults; fields that the server sets;
//! validation; field ownership. The kind-specific rules come from the registry entry.

use kubewright_apimachinery::{
    apply,
    status::{Cause, Status},
};
use serde_json::{Value, json};

use super::{call::Call, decode::Decoded, part::Part, query::FieldValidation};
use crate::{
    codec, group_version::group_version, managed_fields::Manager, meta, object_meta, registry::Resource, schema_rules,
    storage::Key,
};

/// The object of a body, with warnings for the client.
#[derive(Debug)]
pub(super) struct DecodedBody {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

impl Call {
    /// Checks a body against the kind, name and namespace of the path, and prunes fields that aren't in the schema.
    pub(super) fn receive(&self, decoded: Decoded, validation: FieldValidation) -> Result<DecodedBody, Status> {
        let Decoded { value: mut object, duplicates: mut problems } = decoded;
        self.check_kind(&mut object)?;
        object_meta::check_types(&self.resource, &object)?;
        meta::edit(&mut object, |_| {});
        self.check_name_and_namespace(&mut object)?;
        problems.extend(
            schema_rules::prune(&self.resource, &mut object).iter().map(|path| format!("unknown field \"{path}\"")),
        );
        match validation {
            FieldValidation::Strict if !problems.is_empty() => {
                let why = format!("strict decoding error: {}", problems.join(", "));
                Err(if self.resource.schema.custom {
                    Status::bad_request(why)
                } else {
                    schema_rules::unreadable(&self.resource, &why)
                })
            }
            FieldValidation::Ignore => Ok(DecodedBody { object, warnings: Vec::new() }),
            _ => Ok(DecodedBody { object, warnings: problems }),
        }
    }

    fn check_kind(&self, object: &mut Value) -> Result<(), Status> {
        let Resource { group, version, kind, .. } = &*self.resource;
        let expected = group_version(group, version);
        let Some(fields) = object.as_object() else {
            let message =
                format!("couldn't get version/kind; json parse error: the body is not an object, but {kind} is");
            return Err(Status::bad_request(message));
        };
        let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
        let (sent_version, sent_kind) = (text("apiVersion"), text("kind"));
        if self.resource.schema.custom && sent_kind.is_empty() {
            return Err(Status::bad_request(format!("Object 'Kind' is missing in '{}'", shortened(object))));
        }
        if !sent_version.is_empty() && sent_version != expected {
            return Err(Status::bad_request(format!(
                "the API version in the data ({sent_version}) does not match the expected API version ({expected})"
            )));
        }
        if !sent_kind.is_empty() && sent_kind != &**kind {
            let why = format!("the body is of kind {sent_kind:?}");
            return Err(schema_rules::unreadable(&self.resource, &why));
        }
        codec::set_type(object, group, version, kind);
        Ok(())
    }

    /// Checks that the name and namespace of the body match the path. Adds a missing namespace.
    fn check_name_and_namespace(&self, object: &mut Value) -> Result<(), Status> {
        let sent = meta::text(object, "namespace");
        if !sent.is_empty() && sent != self.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let namespace = self.resource.namespaced.then(|| json!(self.namespace));
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
        meta::set(object, "namespace", namespace);
        Ok(())
    }

    /// Checks that the namespace of a new object exists and isn't being deleted.
    pub(super) fn check_namespace(&self, object: &Value) -> Result<(), Status> {
        if !self.resource.namespaced {
            return Ok(());
        }
        let place = Key::new("", &self.namespace);
        let namespace = self.state.store.get("/namespaces", &place);
        let namespace = namespace.ok_or_else(|| Status::not_found("", "namespaces", &self.namespace))?;
        if !meta::is_terminating(&namespace.value()) {
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

    /// Prepares a new object with a name for the store, converting it from served to stored form.
    pub(super) async fn prepare_create(&self, mut object: Value, manager: &Manager<'_>) -> Result<Value, Status> {
        let resource = &*self.resource;
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if resource.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        let now = self.state.clock.now();
        object_meta::drop_empty(&mut object);
        meta::edit(&mut object, |metadata| {
            for field in
                ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"]
            {
                metadata.remove(field);
            }
            metadata.insert("uid".into(), self.state.random.uuid().into());
            metadata.insert("creationTimestamp".into(), meta::time(now));
            if resource.strategy.has_generation() {
                metadata.insert("generation".into(), 1.into());
            }
        });
        schema_rules::default(resource, &mut object);
        let mut causes = object_meta::check_name(resource, &object);
        causes.extend(schema_rules::validate(resource, &object, None).await?);
        codec::to_stored(resource, &mut object);
        resource.strategy.default(&mut object);
        // Fields that the server sets after this point, such as an address, have no owner.
        let mut object = manager.track(resource, None, object);
        resource.strategy.prepare_create(&mut object);
        causes.extend(object_meta::check_syntax(&object));
        causes.extend(resource.strategy.validate(None, &object));
        self.check_causes(&object, causes)?;
        resource.strategy.check_access(&self.requester(), None, &object)?;
        Ok(object)
    }

    /// Prepares an updated object for the store. `sent` and `old_served` are in served form; `old` and the result are in
    /// stored form.
    pub(super) async fn prepare_update(
        &self,
        part: Part,
        old: &Value,
        old_served: &Value,
        mut sent: Value,
        manager: &Manager<'_>,
    ) -> Result<Value, Status> {
        let resource = &*self.resource;
        self.check_versions(old, &mut sent)?;
        let mut object = match part {
            Part::Main => keep_status(resource, old_served, sent),
            Part::Status => only_status(old_served, sent),
            Part::Finalizers => only_finalizers(old_served, &sent),
        };
        object_meta::drop_empty(&mut object);
        schema_rules::default(resource, &mut object);
        let mut causes = schema_rules::validate(resource, &object, Some(old_served)).await?;
        codec::to_stored(resource, &mut object);
        resource.strategy.default(&mut object);
        if part == Part::Main {
            resource.strategy.prepare_update(old, &mut object);
        }
        causes.extend(object_meta::check_update(old, &mut object));
        if part == Part::Main {
            causes.extend(object_meta::check_syntax(&object));
        }
        causes.extend(resource.strategy.validate(Some(old), &object));
        self.check_causes(&object, causes)?;
        resource.strategy.check_access(&self.requester(), Some(old), &object)?;
        set_generation(resource, old, &mut object);
        let object = manager.track(resource, Some(old_served), object);
        // Detecting whether the write changes nothing is expensive, so it is done only if the content is equal.
        Ok(if same_content(old, &object, |_| true) { apply::ignore_timestamps(old, object) } else { object })
    }

    fn check_causes(&self, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
        if causes.is_empty() {
            return Ok(());
        }
        let name = meta::text(object, "name");
        Err(Status::invalid(&self.resource.group, &self.resource.kind, name, causes))
    }

    /// Checks the resource version and UID that the client sent (optimistic concurrency).
    fn check_versions(&self, old: &Value, sent: &mut Value) -> Result<(), Status> {
        let Resource { group, plural, kind, .. } = &*self.resource;
        let name = meta::text(old, "name");
        let (sent_uid, uid) = (meta::text(sent, "uid"), meta::text(old, "uid"));
        if !sent_uid.is_empty() && sent_uid != uid {
            let why = format!("Precondition failed: UID in precondition: {sent_uid}, UID in object meta: {uid}");
            return Err(Status::conflict(group, plural, name, &why));
        }
        match meta::text(sent, "resourceVersion") {
            "" | "0" if self.resource.schema.custom => {
                let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
                Err(Status::invalid(group, kind, name, vec![cause]))
            }
            "" | "0" => Ok(()),
            version if version == meta::text(old, "resourceVersion") => Ok(()),
            version if version.parse::<u64>().is_err() => {
                let why = "must be an unsigned integer in its decimal form";
                let cause = Cause::invalid("metadata.resourceVersion", &json!(version), why);
                Err(Status::invalid(group, kind, name, vec![cause]))
            }
            _ => Err(Status::stale(group, plural, name)),
        }
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
    let status = sent.get_mut("status").map(Value::take);
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

/// Returns the old object with the sent `spec.finalizers`.
fn only_finalizers(old: &Value, sent: &Value) -> Value {
    let mut object = old.clone();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        match sent["spec"].get("finalizers").filter(|value| !value.is_null()) {
            Some(finalizers) => spec.insert("finalizers".into(), finalizers.clone()),
            None => spec.remove("finalizers"),
        };
    }
    object
}

/// Increments the generation if anything but metadata and status has changed.
fn set_generation(resource: &Resource, old: &Value, object: &mut Value) {
    if !resource.strategy.has_generation() {
        return;
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    let changed = !same_content(old, object, |field| field != "status" || !resource.status);
    meta::set(object, "generation", Some((generation + i64::from(changed)).into()));
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
