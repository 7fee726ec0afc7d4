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
    list, query,
};
use crate::{
    admission::Operation,
    codec, meta,
    registry::Resource,
    response::{self, Response},
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
    uid: Option<String>,
    version: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    /// Parses the options from the body, if there is one, and from the query.
    fn parse(call: &Call) -> Result<Self, Status> {
        let body = if call.body.is_empty() {
            Value::Null
        } else {
            let value = decode::decode(Format::of(&call.parts.headers)?, &call.body)?.value;
            if !matches!(value["kind"].as_str(), None | Some("" | "DeleteOptions")) {
                let kind = &value["kind"];
                return Err(Status::bad_request(format!("the body must be DeleteOptions, but its kind is {kind}")));
            }
            value
        };
        Self::read(&body, call)
    }

    /// Parses the options from a `DeleteOptions` object, and missing ones from the query.
    pub(super) fn read(body: &Value, call: &Call) -> Result<Self, Status> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let mut causes = Vec::new();
        let propagation = text(&body["propagationPolicy"]).or(call.query.get("propagationPolicy").map(str::to_owned));
        let orphan = body["orphanDependents"].as_bool().or(call.query.flag("orphanDependents"));
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
        let dry = body["dryRun"].as_array().and_then(|all| all.first()).and_then(Value::as_str);
        let dry_run = query::dry_run(dry.or(call.query.get("dryRun")), &mut causes);
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes));
        }
        let grace = match &body["gracePeriodSeconds"] {
            Value::Null => call.query.number("gracePeriodSeconds")?,
            value => Some(value.as_i64().ok_or_else(|| Status::bad_request("gracePeriodSeconds must be a number"))?),
        };
        Ok(Self {
            grace,
            propagation,
            uid: text(&body["preconditions"]["uid"]),
            version: text(&body["preconditions"]["resourceVersion"]),
            dry_run,
        })
    }

    /// Returns whether the deletion is a dry run.
    pub(super) fn dry_run(&self) -> bool {
        self.dry_run
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

    fn check(&self, resource: &Resource, object: &Value) -> Result<(), Status> {
        let name = meta::text(object, "name");
        let refuse = |why: String| Err(Status::conflict(&resource.group, &resource.plural, name, &why));
        let (uid, version) = (meta::text(object, "uid"), meta::text(object, "resourceVersion"));
        if let Some(wanted) = self.uid.as_deref().filter(|wanted| *wanted != uid) {
            return refuse(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
                 been deleted and then recreated"
            ));
        }
        if let Some(wanted) = self.version.as_deref().filter(|wanted| *wanted != version) {
            return refuse(format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            ));
        }
        Ok(())
    }
}

/// Deletes one object.
pub(super) async fn delete(call: &Call) -> Result<Response, Status> {
    let options = DeleteOptions::parse(call)?;
    let mut warnings = Vec::new();
    let committed = remove(call, &call.key(), &options, &mut warnings).await?;
    respond(call, committed, &warnings).await
}

async fn respond(call: &Call, committed: Committed, warnings: &[String]) -> Result<Response, Status> {
    let object = committed.object.ok_or_else(|| call.not_found())?;
    if committed.change != Some(ChangeKind::Deleted) {
        let object = call.load(object).await?;
        return Ok(call.object(StatusCode::OK, &object, warnings));
    }
    let mut response = response::value(StatusCode::OK, call.accept.text, &success(&call.resource, &object.value()));
    response::add_warnings(&mut response, warnings);
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

/// Deletes every object that matches the selectors.
pub(super) async fn delete_collection(call: &Call) -> Result<Response, Status> {
    let options = DeleteOptions::parse(call)?;
    let selection = list::selection(call)?;
    let snapshot =
        list::convert_for_selection(call, call.state.store.snapshot(&call.resource.storage), &selection).await?;
    let (mut deleted, mut warnings) = (Vec::new(), Vec::new());
    for (key, stored) in list::range(&snapshot.objects, selection.namespace(), None) {
        if !selection.matches(key, stored) {
            continue;
        }
        match remove(call, key, &options, &mut warnings).await {
            Ok(committed) => deleted.extend(committed.object),
            // Another client deleted the object first.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let metadata = json!({"resourceVersion": call.state.store.revision().to_string()});
    let deleted = codec::load(&call.state.webhook_client, &call.resource, deleted).await?;
    let mut response = response::value(StatusCode::OK, call.accept.text, &call.present_list(&deleted, &metadata)?);
    warnings.dedup();
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
    let options_value = || options.to_value();
    let review = call.review(Operation::Delete, &key.name, "", None, options_value, options.dry_run);
    let gone = || Status::not_found(&resource.group, &resource.plural, &key.name);
    let present = || call.state.store.get(&resource.storage, key).ok_or_else(gone);
    let Some(review) = review else {
        // As in Kubernetes, an object that can't be converted can't be deleted.
        call.load(present()?).await?;
        return remove_directly(call, key, options, |_| true);
    };
    for _ in 0..MAX_ATTEMPTS {
        let present = call.load(present()?).await?.value();
        options.check(resource, &present)?;
        let served = codec::to_served(resource, &present);
        review.mutate(None, Some(&served)).await?;
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
        if let Some(why) = resource.strategy.forbids_deletion(present) {
            return Err(Status::forbidden(&resource.group, &resource.plural, &key.name, why));
        }
        options.check(resource, present)?;
        let mut object = (**present).clone();
        mark(resource, options, call.state.clock.now(), &mut object);
        Ok(if is_removable(resource, &object) {
            Mutation::Remove(object)
        } else if object == **present {
            Mutation::Keep
        } else {
            Mutation::Put(object)
        })
    };
    if options.dry_run {
        let present = call.state.store.get(&resource.storage, key);
        return Ok(match decide(present.as_ref().map(|stored| stored.value()).as_ref())? {
            Mutation::Remove(object) => {
                let object = Some(Arc::new(Stored::unsaved(object)));
                Committed { object, change: Some(ChangeKind::Deleted) }
            }
            Mutation::Put(object) => Committed { object: Some(Arc::new(Stored::unsaved(object))), change: None },
            Mutation::Keep => Committed { object: present, change: None },
        });
    }
    call.commit(key, decide)
}

/// Marks an object for deletion, with the time and propagation policy.
fn mark(resource: &Resource, options: &DeleteOptions, now: Timestamp, object: &mut Value) {
    set_propagation(options.propagation, object);
    // The options don't add a grace period to a kind without one, since nothing would use it.
    let grace = match resource.strategy.grace_period(object) {
        None | Some(0) => 0,
        Some(default) => options.grace.unwrap_or(default).max(0),
    };
    let deleting = meta::is_terminating(object);
    let before = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let shortened = deleting && grace < before && (options.grace.is_some() || grace == 0);
    if deleting && !shortened {
        return;
    }
    let start = match meta::parse_time(&object["metadata"]["deletionTimestamp"]) {
        Some(end) => end.saturating_sub(SignedDuration::from_secs(before)).unwrap_or(now),
        None => now,
    };
    let end = start.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    meta::edit(object, |metadata| {
        metadata.insert("deletionTimestamp".into(), meta::time(end));
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|_| !deleting) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    });
    resource.strategy.prepare_delete(object);
}

/// Sets the finalizers of the garbage collector. Without a policy they are unchanged.
fn set_propagation(propagation: Option<Propagation>, object: &mut Value) {
    let Some(propagation) = propagation else { return };
    let mut finalizers: Vec<String> = meta::finalizers(object).into_iter().map(str::to_owned).collect();
    finalizers.retain(|name| name != ORPHAN && name != FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
    }
    meta::set(object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
}
