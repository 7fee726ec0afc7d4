//! DELETE of an object or a collection.
//!
//! An object with finalizers, a grace period or a kind-specific reason to keep it isn't removed immediately. It gets a
//! `metadata.deletionTimestamp`, and is removed when nothing keeps it any more
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>).

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::{
    call::Call,
    commit::is_removable,
    decode::{self, Format},
    edit::{MAX_ATTEMPTS, is_same_state},
    list::{self, Listed},
    query,
    settle::settle_others,
};
use crate::{
    admission::Operation,
    codec, meta,
    object_type::ObjectType,
    registry::{Dependents, Resource},
    response::{self, Response},
    schema_rules,
    storage::{ChangeKind, Committed, Key, Mutation, Stored},
};

/// The finalizer that makes the garbage collector orphan the dependents.
const ORPHAN: &str = "orphan";
/// The finalizer that makes the garbage collector delete the dependents first.
const FOREGROUND: &str = "foregroundDeletion";

/// The deletion propagation policy, which determines the treatment of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    grace: Option<i64>,
    propagation: Option<Propagation>,
    /// The value of the deprecated option from which the propagation policy was read.
    orphan: Option<bool>,
    uid: Option<String>,
    /// The resource version that the object must have.
    pub(super) version: Option<String>,
    /// Whether nothing is deleted.
    pub(super) dry_run: bool,
}

impl DeleteOptions {
    /// Parses the options from the body, or from the query if there is no body.
    fn parse(call: &Call) -> Result<Self, Status> {
        if call.body.is_empty() {
            return Self::read(&Self::of_query(call)?);
        }
        let mut value = decode::decode(Format::of(&call.parts.headers)?, &call.body)?.value;
        if !matches!(value["kind"].as_str(), None | Some("" | "DeleteOptions")) {
            let version = value["apiVersion"].as_str().unwrap_or_default();
            return Err(Status::bad_request(schema_rules::unregistered(&value["kind"], version)));
        }
        if let Some(ty) = ObjectType::of("meta.k8s.io", "v1", "DeleteOptions") {
            // Unknown fields are dropped, whatever the request says about field validation, as in Kubernetes.
            ty.decode_text(&mut value, call.json_text()).map_err(Status::bad_request)?;
        }
        Self::read(&value)
    }

    /// Returns the parameters of the query as a `DeleteOptions` object.
    fn of_query(call: &Call) -> Result<Value, Status> {
        let query = &call.query;
        Ok(json!({
            "gracePeriodSeconds": query.number("gracePeriodSeconds")?,
            "propagationPolicy": query.get("propagationPolicy"),
            "orphanDependents": query.flag("orphanDependents"),
            "dryRun": query.values("dryRun"),
            "preconditions": {"uid": query.get("uid"), "resourceVersion": query.get("resourceVersion")},
        }))
    }

    /// Parses the options from a `DeleteOptions` object.
    pub(super) fn read(body: &Value) -> Result<Self, Status> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let mut causes = Vec::new();
        let propagation = text(&body["propagationPolicy"]);
        let orphan = body["orphanDependents"].as_bool();
        if propagation.is_some() && orphan.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &json!(propagation), why));
        }
        let propagation = match propagation.as_deref() {
            None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(Cause::not_supported("propagationPolicy", &json!(other), &supported));
                None
            }
        };
        let dry: Vec<_> = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let dry_run = query::dry_run(&dry, &mut causes);
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes));
        }
        let grace = match &body["gracePeriodSeconds"] {
            Value::Null => None,
            value => Some(value.as_i64().ok_or_else(|| Status::bad_request("gracePeriodSeconds must be a number"))?),
        };
        Ok(Self {
            // As in Kubernetes, a negative period is a second.
            grace: grace.map(|grace| if grace < 0 { 1 } else { grace }),
            propagation,
            orphan,
            uid: text(&body["preconditions"]["uid"]),
            version: text(&body["preconditions"]["resourceVersion"]),
            dry_run,
        })
    }

    /// Returns the options for the deletion of an object in this state.
    pub(super) fn at_version(&self, object: &Value) -> Self {
        Self { version: Some(meta::text(object, "resourceVersion").to_owned()), ..self.clone() }
    }

    /// Returns the options with what the state of the object adds to them before admission.
    fn completed(&self, resource: &Resource, object: &Value) -> Self {
        let grace =
            if meta::is_terminating(object) { None } else { resource.strategy.grace_period(object, self.grace) };
        let uid = resource.lifecycle.removed_by_controller.then(|| meta::text(object, "uid").to_owned());
        Self { grace: grace.or(self.grace), uid: self.uid.clone().or(uid), ..self.clone() }
    }

    /// Returns the options as an object, for webhooks.
    fn to_value(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(grace) = self.grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        if let Some(propagation) = self.propagation {
            options["propagationPolicy"] = format!("{propagation:?}").into();
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        for (field, value) in [("uid", &self.uid), ("resourceVersion", &self.version)] {
            if let Some(value) = value {
                options["preconditions"][field] = value.as_str().into();
            }
        }
        options
    }

    /// Checks the preconditions.
    pub(super) fn check(&self, resource: &Resource, object: &Value) -> Result<(), Status> {
        let name = meta::text(object, "name");
        let (uid, version) = (meta::text(object, "uid"), meta::text(object, "resourceVersion"));
        let differs = |wanted: &Option<String>, found: &str| wanted.clone().filter(|wanted| wanted != found);
        // Kinds that a controller removes check the preconditions in their own storage, with other words.
        if resource.lifecycle.removed_by_controller {
            let refuse = |field: &str, wanted: String, found: &str| {
                let why =
                    format!("Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}");
                Err(Status::conflict(&resource.group, &resource.plural, name, &why))
            };
            return match (differs(&self.uid, uid), differs(&self.version, version)) {
                (Some(wanted), _) => refuse("UID", wanted, uid),
                (None, Some(wanted)) => refuse("ResourceVersion", wanted, version),
                (None, None) => Ok(()),
            };
        }
        let refuse = |why: String| Err(Status::conflict(&resource.group, &resource.kind, name, &why));
        if let Some(wanted) = differs(&self.uid, uid) {
            return refuse(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
                 been deleted and then recreated"
            ));
        }
        if let Some(wanted) = differs(&self.version, version) {
            return refuse(format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            ));
        }
        Ok(())
    }

    /// Returns the warning about a missing propagation policy.
    fn warning(&self, resource: &Resource) -> Option<String> {
        let warning = resource.lifecycle.propagation_warning.filter(|_| self.propagation.is_none());
        warning.map(str::to_owned)
    }
}

/// Deletes one object.
pub(super) async fn delete(call: &Call) -> Result<Response, Status> {
    let options = DeleteOptions::parse(call)?;
    call.advice.lock().extend(options.warning(&call.resource));
    let mut warnings = Vec::new();
    let committed = remove(call, &call.key(), &options, &mut warnings).await?;
    let object = committed.object.ok_or_else(|| call.not_found())?;
    let removed = committed.change == Some(ChangeKind::Deleted);
    if !removed || call.resource.lifecycle.returns_deleted {
        let code = if !removed && options.orphan == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
        let object = call.load(object).await?;
        return Ok(call.object(code, &object, &warnings));
    }
    let mut response = response::value(StatusCode::OK, call.accept.encoding, &success(&call.resource, &object.value()));
    response::add_warnings(&mut response, &warnings);
    Ok(response)
}

/// Returns the `Status` of a successful deletion.
pub(super) fn success(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({
        "name": meta::text(object, "name"), "kind": &*resource.plural, "uid": meta::text(object, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = (*resource.group).into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes the objects that a list with the same parameters contains, and answers this list.
pub(super) async fn delete_collection(call: &Call) -> Result<Response, Status> {
    // Kubernetes deletes page by page, so the version of the list is exact as in a list with a limit.
    let (items, page) = match list::select_page(call, true).await? {
        Listed::Items(items, page) => (items, page),
        Listed::Expired(response) => return Ok(response),
    };
    let options = DeleteOptions::parse(call)?;
    let mut warnings: Vec<_> = options.warning(&call.resource).into_iter().collect();
    for stored in &items {
        let object = stored.value();
        let key = Key::new(meta::text(&object, "namespace"), meta::text(&object, "name"));
        match remove(call, &key, &options, &mut warnings).await {
            // Another client may have deleted the object first.
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    let mut response = list::respond(call, items, &page)?;
    response::add_warnings(&mut response, &warnings);
    Ok(response)
}

/// Deletes an object or marks it for deletion, with admission by webhooks.
pub(super) async fn remove(
    call: &Call,
    key: &Key,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<Committed, Status> {
    let resource = &*call.resource;
    // Reviews of the objects of a collection have no name.
    let review = call.review(Operation::Delete, &call.name, "", None, || options.to_value(), options.dry_run);
    let gone = || Status::not_found(&resource.group, &resource.plural, &key.name);
    let present = || call.state.store.get(&resource.storage, key).ok_or_else(gone);
    let Some(mut review) = review else {
        // As in Kubernetes, an object that can't be converted can't be deleted.
        let present = call.load(present()?).await?;
        if call.is_restricted() {
            call.restrict(Operation::Delete, "", Some(&codec::to_served(resource, &present.value())), None)?;
        }
        return remove_directly(call, key, options, |_| true);
    };
    for _ in 0..MAX_ATTEMPTS {
        let present = call.load(present()?).await?.value();
        options.check(resource, &present)?;
        review.set_options(options.completed(resource, &present).to_value());
        let served = codec::to_served(resource, &present);
        call.restrict(Operation::Delete, "", Some(&served), None)?;
        review.mutate(None, Some(&served), Ok).await?;
        review.validate(None, Some(&served)).await?;
        let mut conflict = false;
        let committed = remove_directly(call, key, options, |now| {
            conflict = !is_same_state(now, &present);
            !conflict
        });
        if !conflict {
            warnings.extend(review.warnings());
            return committed;
        }
    }
    Err(Status::stale(&resource.group, &resource.plural, &key.name))
}

/// Deletes an object or marks it for deletion, if `accepts` approves its current state.
pub(super) fn remove_directly(
    call: &Call,
    key: &Key,
    options: &DeleteOptions,
    mut accepts: impl FnMut(&Value) -> bool,
) -> Result<Committed, Status> {
    let resource = &*call.resource;
    let mut decide = |present: Option<&Arc<Value>>| {
        let present = present.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, &key.name))?;
        if !accepts(present) {
            return Err(Status::stale(&resource.group, &resource.plural, &key.name));
        }
        // As in Kubernetes, these are deleted with the whole collection: only the deletion by name is overridden.
        let is_named = !call.name.is_empty();
        if let Some(why) = resource.strategy.forbids_deletion(present).filter(|_| is_named) {
            return Err(Status::forbidden(&resource.group, &resource.plural, &key.name, why));
        }
        options.check(resource, present)?;
        Ok(begin(resource, options, call.state.clock.now(), present))
    };
    if options.dry_run {
        let present = call.state.store.get(&resource.storage, key);
        return Ok(match decide(present.as_ref().map(|stored| stored.value()).as_ref())? {
            Mutation::Keep => Committed { object: present, change: None },
            Mutation::Put(object) if !is_removable(resource, &object) => {
                Committed { object: Some(Arc::new(Stored::unsaved(object))), change: None }
            }
            Mutation::Remove(object) | Mutation::Put(object) => {
                let object = Some(Arc::new(Stored::unsaved(object)));
                Committed { object, change: Some(ChangeKind::Deleted) }
            }
        });
    }
    let marked = call.commit(key, decide)?;
    if marked.change == Some(ChangeKind::Deleted) && resource.strategy.settles() {
        settle_others(&call.state, resource)?;
    }
    let is_over = |object: &Stored| is_removable(resource, &object.value());
    if marked.change == Some(ChangeKind::Deleted) || !marked.object.as_deref().is_some_and(is_over) {
        return Ok(marked);
    }
    // As in Kubernetes, watchers see the end of a grace period before the object is gone, even if it had none.
    let removed = call.commit(key, |present| {
        Ok(match present {
            Some(present) if is_removable(resource, present) => Mutation::Remove(Value::clone(present)),
            _ => Mutation::Keep,
        })
    })?;
    // Someone else may have removed it meanwhile.
    let is_done = removed.change == Some(ChangeKind::Deleted);
    Ok(if is_done { removed } else { Committed { change: Some(ChangeKind::Deleted), ..marked } })
}

/// Returns the first step of a deletion: the removal of the object, or a mark that makes others remove it.
fn begin(resource: &Resource, options: &DeleteOptions, now: Timestamp, present: &Value) -> Mutation {
    let first = !meta::is_terminating(present);
    if resource.lifecycle.removed_by_controller && !first && resource.strategy.is_held(present) {
        return Mutation::Keep;
    }
    let mut object = present.clone();
    let graceful = match begin_gracefully(resource, options, now, &mut object) {
        Grace::Pending => return Mutation::Keep,
        Grace::Begun => true,
        Grace::None => false,
    };
    set_propagation(resource, options, &mut object);
    let held = resource.lifecycle.removed_by_controller || !meta::finalizers(&object).is_empty();
    if !graceful && !held {
        return Mutation::Remove(object);
    }
    if resource.lifecycle.removed_by_controller && first {
        // Their storage sets only the time.
        meta::set(&mut object, "deletionTimestamp", Some(meta::time(now)));
    } else if !graceful {
        mark(now, &mut object);
    }
    if first {
        if !resource.lifecycle.removed_by_controller {
            increment_generation(&mut object);
        }
        resource.strategy.prepare_delete(&mut object);
    }
    if !graceful && is_removable(resource, &object) {
        Mutation::Remove(object)
    } else if object == *present {
        Mutation::Keep
    } else {
        Mutation::Put(object)
    }
}

/// The state of a graceful deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    /// The object isn't deleted gracefully, or its grace period has ended.
    None,
    /// The grace period has begun, or has been shortened.
    Begun,
    /// The grace period began earlier and isn't shortened.
    Pending,
}

/// Sets the time and the grace period of the deletion, for kinds that are deleted gracefully.
fn begin_gracefully(resource: &Resource, options: &DeleteOptions, now: Timestamp, object: &mut Value) -> Grace {
    let Some(grace) = resource.strategy.grace_period(object, options.grace) else { return Grace::None };
    let second = SignedDuration::from_secs;
    let end = meta::parse_time(&object["metadata"]["deletionTimestamp"]);
    let (end, grace) = match end {
        None => (now.saturating_add(second(grace)).unwrap_or(Timestamp::MAX), grace),
        Some(end) => match (object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0), options.grace) {
            (0, _) => return Grace::None,
            (before, Some(grace)) if grace < before => {
                let end = end.saturating_sub(second(before - grace)).unwrap_or(now);
                // A period that has passed ends at the next second, so that the node still acts on it.
                if end < now { (now, grace.min(1)) } else { (end, grace) }
            }
            _ => return Grace::Pending,
        },
    };
    meta::edit(object, |metadata| {
        metadata.insert("deletionTimestamp".into(), meta::time(end));
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    });
    Grace::Begun
}

/// Marks an object for a deletion without a grace period.
fn mark(now: Timestamp, object: &mut Value) {
    let marked = meta::parse_time(&object["metadata"]["deletionTimestamp"]);
    meta::edit(object, |metadata| {
        if marked.is_none_or(|marked| marked > now) {
            metadata.insert("deletionTimestamp".into(), meta::time(now));
        }
        metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
    });
}

/// The generation also counts the mark for deletion.
fn increment_generation(object: &mut Value) {
    meta::edit(object, |metadata| {
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|number| *number > 0) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    });
}

/// Sets the finalizers of the garbage collector. Without a policy, those of the object remain, or the kind determines
/// them.
fn set_propagation(resource: &Resource, options: &DeleteOptions, object: &mut Value) {
    let present = meta::finalizers(object);
    let has = |finalizer| present.contains(&finalizer);
    let propagation = match (resource.lifecycle.dependents, options.propagation) {
        (Dependents::Unsupported, _) => Propagation::Background,
        (_, Some(propagation)) => propagation,
        (_, None) if has(ORPHAN) => Propagation::Orphan,
        (_, None) if has(FOREGROUND) => Propagation::Foreground,
        (Dependents::Orphan, None) => Propagation::Orphan,
        (Dependents::Delete, None) => Propagation::Background,
    };
    let mut finalizers: Vec<String> = present.into_iter().map(str::to_owned).collect();
    finalizers.retain(|name| name != ORPHAN && name != FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
    }
    meta::set(object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
}
