//! What hangs below an object: status, scale, and actions.

use http::{Method, StatusCode};
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{
    Call,
    decode::{self, Format},
    delete,
    delete::DeleteOptions,
    method_not_allowed, patch,
    query::WriteOptions,
    scale,
    update::{self, Part},
};
use crate::{
    action::ActionRequest,
    meta,
    registry::Operation,
    respond::{self, Answer},
};

impl Call {
    /// Answers a request for a subresource.
    pub(super) async fn subresource(self, name: &str) -> Result<Answer, Status> {
        let resource = self.resource.clone();
        match name {
            "status" if resource.status => return self.part(Part::Status),
            "scale" => {
                if let Some(paths) = &resource.scale {
                    return scale::scale(&self, paths);
                }
            }
            _ => {}
        }
        if let Some(action) = self.server.actions.find(&resource, name) {
            return action.call(self.into_action(name)?).await;
        }
        let Some(known) = resource.subresources.iter().find(|known| known.name == name) else {
            return Err(Status::no_such_resource());
        };
        match (known.operation, &self.parts.method) {
            (Some(Operation::Finalize), &Method::PUT) => update::update(&self, Part::Finalizers),
            (Some(Operation::Bind), &Method::POST) => bind(&self),
            (Some(Operation::Evict), &Method::POST) => evict(&self),
            (Some(_), _) => Err(method_not_allowed()),
            (None, _) => Err(self.unattached(name)),
        }
    }

    fn part(&self, part: Part) -> Result<Answer, Status> {
        match self.parts.method {
            Method::GET | Method::HEAD => self.get(),
            Method::PUT => update::update(self, part),
            Method::PATCH => patch::patch(self, part),
            _ => Err(method_not_allowed()),
        }
    }

    fn into_action(self, subresource: &str) -> Result<ActionRequest, Status> {
        let stored = self.server.store.get(&self.resource.storage, &self.key()).ok_or_else(|| self.not_found())?;
        Ok(ActionRequest {
            resource: self.resource,
            namespace: self.namespace,
            name: self.name,
            subresource: subresource.to_owned(),
            query: self.query.into_pairs(),
            object: stored.value(),
            user: self.user,
            parts: self.parts,
            body: self.body,
        })
    }

    /// The answer to an action that no one is there to take.
    fn unattached(&self, name: &str) -> Status {
        let Some(stored) = self.server.store.get(&self.resource.storage, &self.key()) else { return self.not_found() };
        if let Some(why) = self.resource.strategy.unreachable(&stored.value()) {
            return Status::bad_request(why);
        }
        Status::internal(format!("{}/{name} is not implemented by this cluster", self.resource.plural))
    }

    /// The body as an object of one of these kinds; an absent kind will do.
    fn body_of_kind(&self, kinds: &[&str]) -> Result<Value, Status> {
        let value = decode::decode(Format::of(&self.parts.headers)?, &self.body)?.value;
        match value["kind"].as_str() {
            _ if !value.is_object() => Err(Status::bad_request("the body must be an object")),
            None | Some("") => Ok(value),
            Some(kind) if kinds.contains(&kind) => Ok(value),
            Some(kind) => Err(Status::bad_request(format!("the body must be of kind {}, but is of {kind}", kinds[0]))),
        }
    }

    fn created(&self) -> Answer {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        respond::value(StatusCode::CREATED, self.accept.text, &body)
    }
}

/// Assigns an object to a node, once.
fn bind(call: &Call) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let binding = call.body_of_kind(&["Binding"])?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if node.is_empty() || !matches!(binding["target"]["kind"].as_str(), None | Some("" | "Node")) {
        return Err(Status::bad_request("the target of a binding must be a node, with its name"));
    }
    let conflict = |why: String| {
        Status::conflict(&call.resource.group, &format!("{}/binding", call.resource.plural), &call.name, &why)
    };
    call.modify(options.dry_run, |old| {
        let old = old.ok_or_else(|| call.not_found())?;
        let wanted = meta::text(&binding, "uid");
        if !wanted.is_empty() && wanted != meta::text(old, "uid") {
            let uid = meta::text(old, "uid");
            return Err(conflict(format!(
                "Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            )));
        }
        if meta::is_terminating(old) {
            let what = &call.resource.singular;
            return Err(conflict(format!("{what} {} is being deleted, cannot be assigned to a host", call.name)));
        }
        let mut object = (**old).clone();
        let time = meta::time(call.server.clock.now());
        call.resource.strategy.bind(&mut object, node, &time).map_err(conflict)?;
        Ok(object)
    })?;
    Ok(call.created())
}

/// A deletion that asks first. Nothing here limits disruption, so it is always granted.
fn evict(call: &Call) -> Result<Answer, Status> {
    let eviction = call.body_of_kind(&["Eviction"])?;
    let options = DeleteOptions::read(&eviction["deleteOptions"], call)?;
    delete::remove(call, &call.key(), &options)?;
    Ok(call.created())
}
