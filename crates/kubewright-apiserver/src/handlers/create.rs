//! POST to a collection.

use std::sync::Arc;

use http::StatusCode;
use kubewright_apimachinery::{
    name,
    status::{Cause, Status},
};
use serde_json::{Value, json};

use super::{
    Call,
    decode::{self, Format},
    lifecycle::Incoming,
    query::WriteOptions,
};
use crate::{
    admission::{Operation, Review},
    convert, meta,
    ownership::Owner,
    respond::Answer,
    schema_rules,
    storage::{Decision, Key, Stored},
};

/// How often a generated name is drawn anew when it is taken.
const NAME_TRIES: usize = 8;
/// The random characters of a generated name.
const SUFFIX: usize = 5;

/// Creates an object.
pub(super) async fn create(call: &Call) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let decoded = decode::decode(Format::of(&call.parts.headers)?, &call.body)?;
    let incoming = call.receive(decoded, options.field_validation)?;
    if let Some(answer) = answer(call, &incoming.object).await? {
        return Ok(call.object(StatusCode::CREATED, &Stored::rehearsed(answer), &incoming.warnings));
    }
    let manager = call.manager(&options);
    let owner = call.owner(&manager, "");
    create_admitted(call, incoming, &owner, &options).await
}

/// Stores a new object as the webhooks make it and let it be.
pub(super) async fn create_admitted(
    call: &Call,
    incoming: Incoming,
    owner: &Owner<'_>,
    options: &WriteOptions,
) -> Result<Answer, Status> {
    let Incoming { mut object, mut warnings } = incoming;
    call.check_namespace(&object)?;
    let name = meta::text(&object, "name");
    let review = call.review(Operation::Create, name, "", None, || options.to_value(), options.dry_run);
    if let Some(review) = &review {
        object = review.mutate(Some(object), None).await?.unwrap_or_default();
    }
    let stored = insert(call, object, owner, review.as_ref(), options.dry_run).await?;
    warnings.extend(review.map(|review| review.warnings()).unwrap_or_default());
    Ok(call.object(StatusCode::CREATED, &stored, &warnings))
}

/// The answer to an object that is a question; `None` for one that is to be stored.
async fn answer(call: &Call, question: &Value) -> Result<Option<Value>, Status> {
    let resource = &*call.resource;
    let Some(status) = resource.strategy.answer(question, &call.access()) else { return Ok(None) };
    // Only the types count of what the schema says: clients send a status, too, with anything in it.
    schema_rules::validate(resource, question, None).await?;
    let status = status?;
    let causes = resource.strategy.validate(None, question);
    if !causes.is_empty() {
        return Err(Status::invalid(&resource.group, &resource.kind, meta::text(question, "name"), causes));
    }
    let mut answer = question.clone();
    answer["status"] = status;
    Ok(Some(answer))
}

/// Stores a new object, given in served form.
async fn insert(
    call: &Call,
    object: Value,
    owner: &Owner<'_>,
    review: Option<&Review>,
    dry_run: bool,
) -> Result<Arc<Stored>, Status> {
    let base = meta::text(&object, "generateName").to_owned();
    if !meta::text(&object, "name").is_empty() {
        return insert_named(call, object, owner, review, dry_run).await;
    }
    if base.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(Status::invalid(&call.resource.group, &call.resource.kind, "", vec![cause]));
    }
    let mut tries = 1;
    loop {
        let mut object = object.clone();
        let name = format!("{}{}", name::generate_name_base(&base), call.server.random.suffix(SUFFIX));
        meta::set(&mut object, "name", Some(json!(name)));
        match insert_named(call, object, owner, review, dry_run).await {
            Err(status) if status.reason == "AlreadyExists" && tries < NAME_TRIES => tries += 1,
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
    owner: &Owner<'_>,
    review: Option<&Review>,
    dry_run: bool,
) -> Result<Arc<Stored>, Status> {
    let resource = &*call.resource;
    let name = meta::text(&object, "name").to_owned();
    let object = call.prepare_create(object, owner).await?;
    let object = match review {
        Some(review) => {
            let object = Arc::new(object);
            review.validate(Some(&convert::to_served(resource, &object)), None).await?;
            // The namespace may have begun to go while webhooks were asked.
            call.check_namespace(&object)?;
            Arc::unwrap_or_clone(object)
        }
        None => object,
    };
    let object = convert::save(&call.server, resource, object).await?;
    let key = Key::new(&call.namespace, &name);
    let taken = || Status::already_exists(&resource.group, &resource.plural, &name);
    if dry_run {
        return match call.server.store.get(&resource.storage, &key) {
            Some(_) => Err(taken()),
            None => call.load(Arc::new(Stored::rehearsed(object))).await,
        };
    }
    let mut object = Some(object);
    let decide = |present: Option<&Arc<Value>>| match (present, object.take()) {
        (None, Some(object)) => Ok(Decision::Put(object)),
        _ => Err(taken()),
    };
    let committed = call.commit(&key, decide)?;
    call.load(committed.object.ok_or_else(|| Status::internal("the object was not stored"))?).await
}
