//! `/eviction`: a deletion that disruption budgets can refuse.

use std::sync::Arc;

use http::StatusCode;
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{
    call::Call,
    commit::commit,
    delete::{self, DeleteOptions},
    edit::{Admitted, MAX_ATTEMPTS},
    lifecycle::DecodedBody,
    query::WriteOptions,
};
use crate::{
    managed_fields::{Conversions, Manager},
    meta,
    registry::{Resource, Subresource, builtin::eviction},
    response::{self, Response},
    storage::{Key, Mutation},
};

/// The field manager of changes that the server itself makes.
const MANAGER: &str = "kube-apiserver";

/// Evicts the object of a call.
pub(super) async fn evict(call: &Call, subresource: &Subresource) -> Result<Response, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let DecodedBody { object: eviction, mut warnings } =
        call.body_of_kind(subresource.kind, options.field_validation)?;
    if meta::text(&eviction, "name") != call.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let dry_run = options.dry_run || DeleteOptions::read(&eviction["deleteOptions"])?.dry_run;
    let options = WriteOptions { dry_run, ..options };
    let Admitted { object: eviction, warnings: admission_warnings } =
        call.admit_body(subresource.name, subresource.kind, eviction, &options, |_| Ok(())).await?;
    warnings.extend(admission_warnings);
    let mut options = DeleteOptions::read(&eviction["deleteOptions"])?;
    options.dry_run |= dry_run;
    match evict_unprotected(call, &options)? {
        Protection::None => {}
        Protection::Of(pod) => evict_protected(call, &pod, &options)?,
    }
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    let mut response = response::value(StatusCode::CREATED, call.accept.encoding, &body);
    response::add_warnings(&mut response, &warnings);
    Ok(response)
}

/// Whether budgets may protect an object.
enum Protection {
    /// The object was unprotected, and has been evicted.
    None,
    /// The object in this state may be protected.
    Of(Arc<Value>),
}

/// Evicts the object if no budget can protect it. It must not become protected meanwhile, so it is deleted in the state
/// in which it was read. Without a version of the client's, this is repeated after a conflict.
fn evict_unprotected(call: &Call, options: &DeleteOptions) -> Result<Protection, Status> {
    let mut result = Ok(());
    for _ in 0..MAX_ATTEMPTS {
        let object = call.present()?.value();
        if !eviction::is_unprotected(&object) {
            return Ok(Protection::Of(object));
        }
        let fixed = !eviction::has_ended(&object) && options.version.is_none();
        result = if fixed { delete(call, &options.at_version(&object)) } else { delete(call, options) };
        if options.version.is_some() || !is_conflict(&result) {
            break;
        }
    }
    result.map(|()| Protection::None)
}

/// Evicts an object if its budget, if any, allows that.
fn evict_protected(call: &Call, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let Some(budgets) = eviction::budgets(&call.state.registry) else { return delete(call, options) };
    let found = protecting(call, &budgets, object);
    let budget = match found.as_slice() {
        [] => return delete(call, options),
        [budget] => budget,
        _ => {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::unknown(why));
        }
    };
    if !eviction::is_uncounted(budget, object) {
        record(call, &budgets, budget, options.dry_run)?;
        return delete(call, options);
    }
    // The object must not become healthy before it is deleted.
    let result = delete(call, &options.at_version(object));
    if is_conflict(&result) && options.version.is_none() {
        return Err(eviction::unprocessed(meta::text(budget, "name")));
    }
    result
}

fn is_conflict(result: &Result<(), Status>) -> bool {
    result.as_ref().is_err_and(|status| status.code == 409)
}

/// Returns the budgets that protect an object.
fn protecting(call: &Call, budgets: &Resource, object: &Value) -> Vec<Arc<Value>> {
    let snapshot = call.state.store.snapshot(&budgets.storage);
    let of_namespace = snapshot.objects.range(Key::new(&call.namespace, "")..);
    let of_namespace = of_namespace.take_while(|(key, _)| *key.namespace == *call.namespace);
    of_namespace.map(|(_, stored)| stored.value()).filter(|budget| eviction::protects(budget, object)).collect()
}

/// Records the eviction in the status of a budget.
fn record(call: &Call, budgets: &Resource, budget: &Value, dry_run: bool) -> Result<(), Status> {
    let now = call.state.clock.now();
    let name = meta::text(budget, "name");
    if dry_run {
        return eviction::disrupt(budget, &call.name, now).map(drop);
    }
    let conversions = Conversions::default();
    let manager =
        Manager { name: MANAGER, subresource: "status", applies: false, force: false, now, conversions: &conversions };
    let decide = |present: Option<&Arc<Value>>| {
        let present = present.ok_or_else(|| Status::not_found(&budgets.group, &budgets.plural, name))?;
        let after = eviction::disrupt(present, &call.name, now)?;
        Ok(Mutation::Put(manager.track(budgets, Some(present), after)))
    };
    commit(&call.state, budgets, &Key::new(&call.namespace, name), decide).map(drop)
}

/// Deletes the object. Before, it gets a condition that says why.
fn delete(call: &Call, options: &DeleteOptions) -> Result<(), Status> {
    let mut options = options.clone();
    if !options.dry_run {
        let marked = call.modify(false, |present| {
            let present = present.ok_or_else(|| call.not_found())?;
            options.check(&call.resource, present)?;
            let mut object = (**present).clone();
            eviction::mark(&mut object, call.state.clock.now());
            Ok(object)
        })?;
        if options.version.is_some() {
            options = options.at_version(&marked.value());
        }
    }
    // Webhooks that admitted the eviction aren't called again for the deletion.
    delete::remove_directly(call, &call.key(), &options, |_| true).map(drop)
}
