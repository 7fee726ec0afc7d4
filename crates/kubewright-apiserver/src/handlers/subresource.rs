//! What hangs below an object: status, scale, and actions.

use http::{HeaderValue, Method, StatusCode, header};
use kubewright_apimachinery::status::Status;
use serde_json::{Value, json};

use super::{
    Call,
    admission::Admitted,
    decode::{self, Format},
    delete,
    delete::DeleteOptions,
    method_not_allowed, patch,
    query::WriteOptions,
    scale, token,
    update::{self, Part},
};
use crate::{
    action::ActionRequest,
    admission, meta,
    registry::{Operation, Subresource},
    respond::{self, Answer},
};

impl Call {
    /// Answers a request for a subresource.
    pub(super) async fn subresource(self, name: &str) -> Result<Answer, Status> {
        let resource = self.resource.clone();
        match name {
            "status" if resource.status => return self.part(Part::Status).await,
            "scale" => {
                if let Some(paths) = &resource.scale {
                    return scale::scale(&self, paths).await;
                }
            }
            _ => {}
        }
        if let Some(action) = self.server.actions.find(&resource, name) {
            let (call, warnings) = self.admit_action(name).await?;
            let mut answer = action.call(call.into_action(name)?).await?;
            respond::warn(&mut answer, &warnings);
            return Ok(answer);
        }
        let Some(known) = resource.subresources.iter().find(|known| known.name == name) else {
            return Err(Status::no_such_resource());
        };
        match (known.operation, &self.parts.method) {
            (Some(Operation::Finalize), &Method::PUT) => update::update(&self, Part::Finalizers).await,
            (Some(Operation::Bind), &Method::POST) => bind(&self, known).await,
            (Some(Operation::Evict), &Method::POST) => evict(&self, known).await,
            (Some(Operation::Token), _) => token::issue(&self, known).await,
            (Some(_), _) => Err(method_not_allowed()),
            (None, _) => Err(self.unattached(name)),
        }
    }

    /// Asks the webhooks about a connection, or about an object that is sent to an action. What is only read is nobody's
    /// business.
    async fn admit_action(mut self, name: &str) -> Result<(Self, Vec<String>), Status> {
        let resource = self.resource.clone();
        let name = name.split('/').next().unwrap_or_default();
        let known = resource.subresources.iter().find(|known| known.name == name);
        let Some(known) = known.filter(|_| self.server.registry.admission().concerns(&resource)) else {
            return Ok((self, Vec::new()));
        };
        if let Some(options) = known.connection {
            let options = options(&self.query.clone().into_pairs());
            let admitted = self.admit_exchange(admission::Operation::Connect, known, options.clone(), false).await?;
            if admitted.object != options {
                return Err(Status::internal("an admission webhook attempted to modify the options of a connection"));
            }
            return Ok((self, admitted.warnings));
        }
        if self.parts.method != Method::POST {
            return Ok((self, Vec::new()));
        }
        let sent = decode::decode(Format::of(&self.parts.headers)?, &self.body)?.value;
        let dry_run = self.query.get("dryRun").is_some();
        let admitted = self.admit_exchange(admission::Operation::Create, known, sent, dry_run).await?;
        self.body = admitted.object.to_string().into();
        self.parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok((self, admitted.warnings))
    }

    async fn part(&self, part: Part) -> Result<Answer, Status> {
        match self.parts.method {
            Method::GET | Method::HEAD => self.get().await,
            Method::PUT => update::update(self, part).await,
            Method::PATCH => patch::patch(self, part).await,
            _ => Err(method_not_allowed()),
        }
    }

    fn into_action(self, subresource: &str) -> Result<ActionRequest, Status> {
        let stored = self.present()?;
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
    pub(super) fn body_of_kind(&self, kinds: &[&str]) -> Result<Value, Status> {
        let value = decode::decode(Format::of(&self.parts.headers)?, &self.body)?.value;
        match value["kind"].as_str() {
            _ if !value.is_object() => Err(Status::bad_request("the body must be an object")),
            None | Some("") => Ok(value),
            Some(kind) if kinds.contains(&kind) => Ok(value),
            Some(kind) => Err(Status::bad_request(format!("the body must be of kind {}, but is of {kind}", kinds[0]))),
        }
    }

    fn created(&self, warnings: &[String]) -> Answer {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        let mut answer = respond::value(StatusCode::CREATED, self.accept.text, &body);
        respond::warn(&mut answer, warnings);
        answer
    }
}

/// Assigns an object to a node, once.
async fn bind(call: &Call, known: &Subresource) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let binding = call.body_of_kind(&["Binding"])?;
    let Admitted { object: binding, warnings } =
        call.admit_exchange(admission::Operation::Create, known, binding, options.dry_run).await?;
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
    Ok(call.created(&warnings))
}

/// A deletion that asks first. Nothing here limits disruption, so it is always granted.
async fn evict(call: &Call, known: &Subresource) -> Result<Answer, Status> {
    let eviction = call.body_of_kind(&["Eviction"])?;
    let dry_run = DeleteOptions::read(&eviction["deleteOptions"], call)?.dry_run();
    let Admitted { object: eviction, warnings } =
        call.admit_exchange(admission::Operation::Create, known, eviction, dry_run).await?;
    let options = DeleteOptions::read(&eviction["deleteOptions"], call)?;
    // Who is asked about the eviction is not asked about the deletion, too.
    delete::remove_at_once(call, &call.key(), &options, |_| true)?;
    Ok(call.created(&warnings))
}
