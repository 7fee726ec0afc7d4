//! DELETE of an object or a collection.
//!
//! Deletion is a request: an object with finalizers, a grace period or a reason of its kind lives on, marked with
//! `metadata.deletionTimestamp`, until the last of them is gone (<https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>).

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::{
    Call,
    admission::{TRIES, is_same_state},
    decode::{self, Format},
    list, query,
    update::may_go,
};
use crate::{
    admission::Operation,
    convert, meta,
    registry::Resource,
    respond::{self, Answer},
    storage::{ChangeKind, Committed, Decision, Key, Stored},
};

/// The finalizer that makes the garbage collector orphan the dependents.
const ORPHAN: &str = "orphan";
/// The finalizer that makes the garbage collector delete the dependents first.
const FOREGROUND: &str = "foregroundDeletion";

/// What is to become of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    grace: Option<i64>,
    propagation: Option<Propagation>,
    uid: Option<String>,
    version: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    /// From the body, if there is one, else from the query.
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

    /// From a `DeleteOptions` object; what it lacks comes from the query.
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

    /// Whether the deletion is only rehearsed.
    pub(super) fn dry_run(&self) -> bool {
        self.dry_run
    }

    /// The options as an object, for webhooks.
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
pub(super) async fn delete(call: &Call) -> Result<Answer, Status> {
    let options = DeleteOptions::parse(call)?;
    let mut warnings = Vec::new();
    let committed = remove(call, &call.key(), &options, &mut warnings).await?;
    answer(call, committed, &warnings).await
}

async fn answer(call: &Call, committed: Committed, warnings: &[String]) -> Result<Answer, Status> {
    let object = committed.object.ok_or_else(|| call.not_found())?;
    if committed.change != Some(ChangeKind::Deleted) {
        let shown = call.load(object).await?;
        return Ok(call.object(StatusCode::OK, &shown, warnings));
    }
    let mut answer = respond::value(StatusCode::OK, call.accept.text, &success(&call.resource, &object.value()));
    respond::warn(&mut answer, warnings);
    Ok(answer)
}

/// The `Status` that tells of a success.
pub(super) fn success(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({
        "name": meta::text(object, "name"), "kind": &*resource.plural, "uid": meta::text(object, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = (*resource.group).into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes every object that the selectors mean.
pub(super) async fn delete_collection(call: &Call) -> Result<Answer, Status> {
    let options = DeleteOptions::parse(call)?;
    let selection = list::selection(call)?;
    let snapshot = list::shown(call, call.server.store.snapshot(&call.resource.storage), &selection).await?;
    let (mut deleted, mut warnings) = (Vec::new(), Vec::new());
    for (key, stored) in list::range(&snapshot.objects, selection.namespace(), None) {
        if !selection.matches(key, stored) {
            continue;
        }
        match remove(call, key, &options, &mut warnings).await {
            Ok(committed) => deleted.extend(committed.object),
            // Another's deletion came first, which is what was wanted.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let metadata = json!({"resourceVersion": call.server.store.revision().to_string()});
    let deleted = convert::load(&call.server, &call.resource, deleted).await?;
    let mut answer = respond::value(StatusCode::OK, call.accept.text, &call.present_list(&deleted, &metadata)?);
    warnings.dedup();
    respond::warn(&mut answer, &warnings);
    Ok(answer)
}

/// Deletes an object, or asks for its deletion, if the webhooks that want to be asked let it.
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
    let present = || call.server.store.get(&resource.storage, key).ok_or_else(gone);
    let Some(review) = review else {
        // As in Kubernetes, what can't be shown can't be deleted.
        call.load(present()?).await?;
        return remove_at_once(call, key, options, |_| true);
    };
    for _ in 0..TRIES {
        let present = call.load(present()?).await?.value();
        options.check(resource, &present)?;
        let served = convert::to_served(resource, &present);
        review.mutate(None, Some(&served)).await?;
        review.validate(None, Some(&served)).await?;
        let mut overtaken = false;
        let committed = remove_at_once(call, key, options, |now| {
            overtaken = !is_same_state(now, &present);
            !overtaken
        });
        if !overtaken {
            warnings.extend(review.warnings());
            return committed;
        }
    }
    Err(Status::stale(&resource.group, &resource.plural, &key.name))
}

/// Deletes an object if it is in a state that will do.
pub(super) fn remove_at_once(
    call: &Call,
    key: &Key,
    options: &DeleteOptions,
    mut will_do: impl FnMut(&Value) -> bool,
) -> Result<Committed, Status> {
    let resource = &*call.resource;
    let mut decide = |present: Option<&Arc<Value>>| {
        let present = present.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, &key.name))?;
        if !will_do(present) {
            return Err(Status::stale(&resource.group, &resource.plural, &key.name));
        }
        if let Some(why) = resource.strategy.forbids_deletion(present) {
            return Err(Status::forbidden(&resource.group, &resource.plural, &key.name, why));
        }
        options.check(resource, present)?;
        let mut object = (**present).clone();
        mark(resource, options, call.server.clock.now(), &mut object);
        Ok(if may_go(resource, &object) {
            Decision::Remove(object)
        } else if object == **present {
            Decision::Keep
        } else {
            Decision::Put(object)
        })
    };
    if options.dry_run {
        let present = call.server.store.get(&resource.storage, key);
        return Ok(match decide(present.as_ref().map(|stored| stored.value()).as_ref())? {
            Decision::Remove(object) => {
                let object = Some(Arc::new(Stored::rehearsed(object)));
                Committed { object, change: Some(ChangeKind::Deleted) }
            }
            Decision::Put(object) => Committed { object: Some(Arc::new(Stored::rehearsed(object))), change: None },
            Decision::Keep => Committed { object: present, change: None },
        });
    }
    call.commit(key, decide)
}

/// Writes into the object that it is to be deleted, when, and what is to become of its dependents.
fn mark(resource: &Resource, options: &DeleteOptions, now: Timestamp, object: &mut Value) {
    set_propagation(options.propagation, object);
    // A grace of zero seconds by nature cannot be lengthened: nothing is there that would use it.
    let grace = match resource.strategy.grace_period(object) {
        None | Some(0) => 0,
        Some(usual) => options.grace.unwrap_or(usual).max(0),
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

/// Sets the garbage collector's finalizers; without a wish those that are there stay.
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
