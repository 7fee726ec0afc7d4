//! POST to a collection.

use std::sync::Arc;

use http::StatusCode;
use kubewright_apimachinery::{name, status::Status};
use serde_json::{Value, json};

use super::{
    call::Call,
    decode::{self, Format},
    lifecycle::DecodedBody,
    query::WriteOptions,
    settle::settle,
};
use crate::{
    admission::{Operation, Review},
    codec, decoding,
    managed_fields::{self, Manager},
    meta,
    response::Response,
    storage::{Key, Mutation, Stored},
};

/// The maximum number of attempts to generate an unused name.
const MAX_NAME_ATTEMPTS: usize = 8;
/// The number of random characters of a generated name.
const SUFFIX: usize = 5;

/// Creates an object.
pub(super) async fn create(call: &Call) -> Result<Response, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let decoded =
        decode::object(&call.resource.kind, call.resource.schema.custom, Format::of(&call.parts.headers)?, &call.body)?;
    let incoming = call.receive(decoded, options.field_validation)?;
    let name = call.manager_name(&options);
    let manager = call.manager(&name, "");
    if let Some(reviewed) = review(call, &incoming.object, &manager)? {
        return Ok(call.object(StatusCode::CREATED, &Stored::unsaved(reviewed), &incoming.warnings));
    }
    create_admitted(call, incoming, &manager, &options).await
}

/// Creates an object, with admission by webhooks.
pub(super) async fn create_admitted(
    call: &Call,
    incoming: DecodedBody,
    manager: &Manager<'_>,
    options: &WriteOptions,
) -> Result<Response, Status> {
    let DecodedBody { mut object, mut warnings } = incoming;
    call.await_namespace().await;
    call.check_namespace(&object)?;
    let name = meta::text(&object, "name");
    let review = call.review(Operation::Create, name, "", None, || options.to_value(), options.dry_run);
    object = call.complete(None, object, manager);
    call.await_controllers(&object).await;
    object = call.admit(None, object)?;
    call.restrict(Operation::Create, "", None, Some(&object))?;
    if let Some(review) = &review {
        let managed = object["metadata"].get("managedFields").cloned();
        object = review.mutate(Some(object), None, |object| call.admit(None, object)).await?.unwrap_or_default();
        warnings.extend(managed_fields::repair(managed, &mut object));
        warnings.extend(call.deduplicate_admitted(&mut object));
        call.check_name_and_namespace(&mut object)?;
    }
    let stored = insert(call, object, manager, review.as_ref(), options.dry_run).await?;
    warnings.extend(review.map(|review| review.warnings()).unwrap_or_default());
    Ok(call.object(StatusCode::CREATED, &stored, &warnings))
}

/// Returns the result of a review, such as a `SubjectAccessReview`, or `None` for objects that are stored.
fn review(call: &Call, review: &Value, manager: &Manager<'_>) -> Result<Option<Value>, Status> {
    let resource = &*call.resource;
    let Some(status) = resource.strategy.review(review, &call.requester()) else { return Ok(None) };
    let status = status?;
    let mut reviewed = call.complete(None, review.clone(), manager);
    let causes = resource.strategy.validate(None, &reviewed);
    if !causes.is_empty() {
        // Kubernetes' errors about reviews of access don't name the kind.
        let kind = if &*resource.group == "authorization.k8s.io" { "" } else { &*resource.kind };
        return Err(Status::invalid(&resource.group, kind, "", causes));
    }
    if resource.strategy.answers_status_only() {
        reviewed = json!({"metadata": {}, "spec": {}});
        codec::set_type(&mut reviewed, &resource.group, &resource.version, &resource.kind);
    }
    reviewed["status"] = status;
    if resource.strategy.stamps_review() {
        meta::set(&mut reviewed, "creationTimestamp", Some(meta::time(call.state.clock.now())));
    }
    decoding::complete(resource, &mut reviewed);
    Ok(Some(reviewed))
}

/// Stores a new object, given in served form, under its own or a generated name.
async fn insert(
    call: &Call,
    mut object: Value,
    manager: &Manager<'_>,
    review: Option<&Review>,
    dry_run: bool,
) -> Result<Arc<Stored>, Status> {
    if call.resource.strategy.names_itself()
        && ["name", "generateName"].iter().all(|field| meta::text(&object, field).is_empty())
    {
        meta::set(&mut object, "name", Some(call.state.random.uuid().into()));
    }
    let base = meta::text(&object, "generateName").to_owned();
    // Without any name, the object turns out to be invalid.
    if !meta::text(&object, "name").is_empty() || base.is_empty() {
        return insert_named(call, object, manager, review, dry_run).await;
    }
    let mut attempts = 1;
    loop {
        let mut object = object.clone();
        let name = format!("{}{}", name::generate_name_base(&base), call.state.random.suffix(SUFFIX));
        meta::set(&mut object, "name", Some(json!(name)));
        match insert_named(call, object, manager, review, dry_run).await {
            Err(status) if status.reason == "AlreadyExists" && attempts < MAX_NAME_ATTEMPTS => attempts += 1,
            Err(mut status) if status.reason == "AlreadyExists" => {
                status.message += ", the server was not able to generate a unique name for the object";
                if let Some(details) = &mut status.details {
                    details.retry_after_seconds = Some(1);
                }
                return Err(status);
            }
            result => return result,
        }
    }
}

async fn insert_named(
    call: &Call,
    object: Value,
    manager: &Manager<'_>,
    review: Option<&Review>,
    dry_run: bool,
) -> Result<Arc<Stored>, Status> {
    let resource = &*call.resource;
    let name = meta::text(&object, "name").to_owned();
    let version = meta::text(&object, "resourceVersion").to_owned();
    let asked = dry_run.then(|| object.clone());
    let object = call.prepare_create(object).await?;
    let object = match review {
        Some(review) => {
            let object = Arc::new(object);
            review.validate(Some(&codec::to_served(resource, &object)), None).await?;
            // The namespace may have been deleted during the webhook calls.
            call.check_namespace(&object)?;
            Arc::unwrap_or_clone(object)
        }
        None => object,
    };
    let mut object = codec::save(&call.state.webhook_client, resource, object).await?;
    let key = Key::new(&call.namespace, &name);
    let taken = |present: &Value| {
        let mut status = Status::already_exists(&resource.group, &resource.plural, &name);
        if meta::is_terminating(present) {
            status.message.insert_str(0, "object is being deleted: ");
        }
        status
    };
    if let Some(asked) = asked {
        call.charge(None, &object)?;
        resource.strategy.prepare_dry_run(&asked, &mut object);
        return match call.state.store.get(&resource.storage, &key) {
            Some(present) => Err(taken(&present.value())),
            None => {
                // As in Kubernetes, the version of the request remains.
                let version = Some(version).filter(|version| !version.is_empty());
                meta::set(&mut object, "resourceVersion", version.map(Value::from));
                call.load(Arc::new(Stored::unsaved(object))).await
            }
        };
    }
    // The store refuses a version, except in an apply, whose configuration isn't stored as it is.
    if !manager.applies && version.parse::<u64>().is_ok_and(|version| version != 0) {
        return Err(Status::unknown("resourceVersion should not be set on objects to be created"));
    }
    let mut object = Some(object);
    let decide = |present: Option<&Arc<Value>>| match (present, object.take()) {
        (None, Some(object)) => Ok(Mutation::Put(object)),
        // As in Kubernetes, a quota forbids the object before its name turns out to be taken.
        (Some(present), Some(object)) => {
            call.charge(None, &object)?;
            Err(taken(present))
        }
        // If the object has been stored and removed since the first attempt, it existed.
        (present, _) => Err(taken(present.map_or(&Value::Null, |present| present))),
    };
    let committed = call.commit_charged(&key, decide)?;
    settle(&call.state, resource, &key)?;
    call.load(committed.object.ok_or_else(|| Status::internal("the object was not stored"))?).await
}
