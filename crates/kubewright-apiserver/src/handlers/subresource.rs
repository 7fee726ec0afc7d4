//! Subresources: status, scale, and actions.

use http::{HeaderValue, Method, StatusCode, header};
use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::{
    call::Call,
    decode::{self, Decoded, Format},
    eviction, field_validation, kubelet,
    lifecycle::DecodedBody,
    part::Part,
    patch, proxy,
    query::{FieldValidation, Query, WriteOptions},
    scale, token, type_meta, update,
};
use crate::{
    action::ActionRequest,
    body::Body,
    codec,
    group_version::group_version,
    kubelet::Kubelet,
    meta,
    object_type::ObjectType,
    registry::{AtKubelet, Operation, Subresource},
    response::{self, Response},
    storage::Key,
    websocket::Content,
};

/// The old version of evictions, which has the same fields.
const OLD_EVICTION: (&str, &str) = ("policy/v1beta1", "Eviction");
/// The `(group, version, kind)` of bindings.
const BINDING: (&str, &str, &str) = ("", "v1", "Binding");

/// Handles a request for a subresource.
pub(super) async fn handle(call: Call, name: &str) -> Result<Response, Status> {
    let resource = call.resource.clone();
    if let Some(subresource) = call.proxied(name) {
        return Box::pin(proxy::proxy(call, subresource, name)).await;
    }
    match name {
        "status" if resource.status => return call.part(Part::Status).await,
        "scale" => {
            if let Some(paths) = &resource.scale {
                return scale::scale(&call, paths).await;
            }
        }
        _ => {}
    }
    call.check_method(name)?;
    call.check_parameters(name)?;
    let action = call.state.actions.find(&resource, name);
    let (call, warnings) = match action.is_some() || call.action(name).is_some() {
        true => call.admit_action(name).await?,
        false => (call, Vec::new()),
    };
    call.authorize_upgrade(name)?;
    call.check_target(name)?;
    if let Some((at, kubelet)) = call.other_kubelet(name)? {
        let mut response = Box::pin(kubelet::answer(call, name, at, kubelet)).await?;
        response::add_warnings(&mut response, &warnings);
        return Ok(response);
    }
    if let Some(action) = action {
        let mut response = action.call(call.into_action(name)?).await?;
        if action.streams_bytes() && response.status() == StatusCode::OK {
            response.extensions_mut().insert(Content::Bytes);
        }
        response::add_warnings(&mut response, &warnings);
        return Ok(response);
    }
    let Some(subresource) = resource.subresources.iter().find(|subresource| subresource.name == name) else {
        return Err(if resource.schema.custom { call.not_found() } else { Status::no_such_resource() });
    };
    match (subresource.operation, &call.parts.method) {
        (Some(Operation::Finalize), &Method::PUT) => update::update(&call, Part::Finalizers).await,
        (Some(Operation::Approve), _) => call.part(Part::Approval).await,
        (Some(Operation::Bind), &Method::POST) => bind_named(&call, subresource).await,
        (Some(Operation::Evict), &Method::POST) => eviction::evict(&call, subresource).await,
        (Some(Operation::Token), _) => token::issue(&call, subresource).await,
        (Some(Operation::Part), _) => call.part(Part::Other(subresource.name)).await,
        (Some(_), _) => Err(Status::method_not_allowed()),
        (None, _) => call.not_attached(name),
    }
}

impl Call {
    /// Authorizes a connection for `create`, too: that of a WebSocket client is a GET, but no read.
    fn authorize_upgrade(&self, name: &str) -> Result<(), Status> {
        let is_connection = |subresource: &&Subresource| subresource.name == name && subresource.connection.is_some();
        if self.resource.subresources.iter().any(|one| is_connection(&one)) {
            return self.authorize("create");
        }
        Ok(())
    }

    /// Runs admission for a connection, or for an object that is sent to an action. Webhooks aren't called for reads.
    async fn admit_action(mut self, name: &str) -> Result<(Self, Vec<String>), Status> {
        let resource = self.resource.clone();
        let name = name.split('/').next().unwrap_or_default();
        let subresource = resource.subresources.iter().find(|subresource| subresource.name == name);
        let Some(subresource) = subresource.filter(|_| self.state.admission.may_match(&resource)) else {
            return Ok((self, Vec::new()));
        };
        if let Some(options) = subresource.connection {
            let options = options(&self.query.clone().into_pairs());
            let admitted = self.admit_connection(subresource, options.clone()).await?;
            if admitted.object != options {
                self.query = Query::of_options(&admitted.object);
            }
            return Ok((self, admitted.warnings));
        }
        if self.parts.method != Method::POST {
            return Ok((self, Vec::new()));
        }
        let sent = decode::decode(Format::of(&self.parts.headers)?, &self.body)?.value;
        let options = WriteOptions::parse(&self.query, "CreateOptions")?;
        let admitted = self.admit_body(subresource.name, subresource.kind, sent, &options, |_| Ok(())).await?;
        self.body = admitted.object.to_string().into();
        self.parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok((self, admitted.warnings))
    }

    async fn part(&self, part: Part) -> Result<Response, Status> {
        match self.parts.method {
            Method::GET | Method::HEAD => self.get().await,
            Method::PUT => update::update(self, part).await,
            Method::PATCH => patch::patch(self, part).await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    pub(super) fn into_action(self, subresource: &str) -> Result<ActionRequest, Status> {
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

    /// Returns the subresource whose requests are sent on to the object. The rest of its path belongs to the object.
    fn proxied(&self, name: &str) -> Option<Subresource> {
        let name = name.split('/').next().unwrap_or_default();
        let is_proxy = |one: &&Subresource| one.name == name && one.operation == Some(Operation::Proxy);
        self.resource.subresources.iter().find(is_proxy).cloned()
    }

    /// Returns the kubelet that answers for an action, unless it is part of this process.
    fn other_kubelet(&self, name: &str) -> Result<Option<(AtKubelet, Kubelet)>, Status> {
        if self.action(name).is_none() {
            return Ok(None);
        }
        let (strategy, object) = (&self.resource.strategy, self.present()?.value());
        let Some(at) = strategy.at_kubelet(name, &object, self.query.pairs()) else { return Ok(None) };
        let kubelets = &self.state.kubelets;
        if kubelets.is_own(&at.node) {
            return Ok(None);
        }
        let node = self.state.store.get("/nodes", &Key::new("", &at.node));
        // As in Kubernetes, the error has the name of the node, but the kind of the object.
        let missing = || Status::not_found(&self.resource.group, &self.resource.plural, &at.node);
        let kubelet = kubelets.of(&node.ok_or_else(missing)?.value())?;
        Ok(Some((at, kubelet)))
    }

    /// Returns the action of this name, whether it is attached or not.
    fn action(&self, name: &str) -> Option<&Subresource> {
        let name = name.split('/').next().unwrap_or_default();
        self.resource.subresources.iter().find(|one| one.name == name && one.operation.is_none())
    }

    /// Checks the method of an action.
    fn check_method(&self, name: &str) -> Result<(), Status> {
        let Some(subresource) = self.action(name) else { return Ok(()) };
        let verb = match self.parts.method {
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        if subresource.verbs.contains(&verb) { Ok(()) } else { Err(Status::method_not_allowed()) }
    }

    /// Checks the parameters of an action.
    fn check_parameters(&self, name: &str) -> Result<(), Status> {
        let Some(Subresource { name, connection, .. }) = self.action(name) else { return Ok(()) };
        if connection.is_some() {
            self.check_connection()?;
        }
        self.resource.strategy.check_parameters(name, &self.name, self.query.pairs())
    }

    /// Checks that a connection isn't asked for in a dry run.
    pub(super) fn check_connection(&self) -> Result<(), Status> {
        match self.query.get("dryRun") {
            Some(_) => Err(Status::bad_request("dryRun is not supported")),
            None => Ok(()),
        }
    }

    /// Checks that the object of an action has what the parameters name.
    fn check_target(&self, name: &str) -> Result<(), Status> {
        let Some(Subresource { name, .. }) = self.action(name) else { return Ok(()) };
        self.resource.strategy.check_target(name, &self.present()?.value(), self.query.pairs())
    }

    /// Returns the response for an action that isn't attached.
    fn not_attached(&self, name: &str) -> Result<Response, Status> {
        let object = self.present()?.value();
        if !self.resource.strategy.reaches(name, &object)? {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        let message = format!("the subresource {}/{name} is not implemented by this cluster", self.resource.plural);
        Err(Status::generic(501, "NotImplemented", message))
    }

    /// Parses the body as an object of a built-in type that isn't stored, which it passes through.
    pub(super) fn body_of_kind(
        &self,
        of: (&str, &str, &str),
        validation: FieldValidation,
    ) -> Result<DecodedBody, Status> {
        let decoded = decode::object(of.2, false, Format::of(&self.parts.headers)?, &self.body)?;
        self.typed(of, decoded, validation)
    }

    /// Passes an object through a built-in type whose objects aren't stored.
    pub(super) fn typed(
        &self,
        of: (&str, &str, &str),
        decoded: Decoded,
        validation: FieldValidation,
    ) -> Result<DecodedBody, Status> {
        let (group, version, kind) = of;
        let Decoded { value: mut object, duplicates } = decoded;
        if !object.is_object() {
            return Err(Status::bad_request("the body must be an object"));
        }
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (sent_version, sent_kind) = (type_meta::version(&object), text("kind"));
        let is_version = sent_version.is_empty()
            || sent_version == group_version(group, version)
            || (sent_version, kind) == OLD_EVICTION;
        if !is_version || !["", kind].contains(&sent_kind) {
            return Err(self.another_kind(of, sent_version, if sent_kind.is_empty() { kind } else { sent_kind }));
        }
        codec::set_type(&mut object, group, version, kind);
        let refuse = |why: &str| {
            Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
        };
        let unknown = match ObjectType::of(group, version, kind) {
            Some(ty) => ty.decode_text(&mut object, self.json_text()).map_err(|why| refuse(&why))?.unknown,
            None => Vec::new(),
        };
        let fields = field_validation::validate(&unknown, duplicates, self.json_text(), validation);
        let warnings = fields.map_err(|why| refuse(&why))?;
        self.keep_warnings(&warnings);
        Ok(DecodedBody { object, warnings })
    }

    fn created(&self, warnings: &[String]) -> Response {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        let mut response = response::value(StatusCode::CREATED, self.accept.encoding, &body);
        response::add_warnings(&mut response, warnings);
        response
    }
}

/// Handles the creation of an object that binds another one of its name: a `Binding`. As in Kubernetes, it is reviewed
/// as an object of its own resource.
pub(super) async fn create_binding(mut call: Call, target: [&str; 3]) -> Result<Response, Status> {
    let [group, version, plural] = target;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let DecodedBody { object: binding, mut warnings } = call.body_of_kind(BINDING, options.field_validation)?;
    call.name = meta::text(&binding, "name").to_owned();
    if call.name.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(Status::invalid(group, &call.resource.kind, "", vec![cause]));
    }
    let admitted = call.admit_body("", BINDING, binding, &options, |_| Ok(())).await?;
    warnings.extend(admitted.warnings);
    call.resource = call.state.registry.find(group, version, plural).ok_or_else(Status::no_such_resource)?;
    bind(&call, &admitted.object, &options, &warnings)
}

/// Checks that a binding names a node. Kubernetes passes the causes on as an unknown error.
fn check_target(binding: &Value) -> Result<(), Status> {
    let text = |field: &str| binding["target"][field].as_str().unwrap_or_default();
    let mut causes = Vec::new();
    if !["", "Node"].contains(&text("kind")) {
        causes.push(format!(
            "target.kind: Unsupported value: {:?}: supported values: \"Node\", \"<empty>\"",
            text("kind")
        ));
    }
    if text("name").is_empty() {
        causes.push("target.name: Required value".into());
    }
    match causes.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::unknown(one)),
        several => Err(Status::unknown(format!("[{}]", several.join(", ")))),
    }
}

/// Assigns an object to a node, which is possible only once.
async fn bind_named(call: &Call, subresource: &Subresource) -> Result<Response, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let DecodedBody { object: binding, mut warnings } = call.body_of_kind(BINDING, options.field_validation)?;
    let admitted = call.admit_body(subresource.name, BINDING, binding, &options, |_| Ok(())).await?;
    warnings.extend(admitted.warnings);
    if meta::text(&admitted.object, "name") != call.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    bind(call, &admitted.object, &options, &warnings)
}

/// Binds the object of a call as a binding says.
fn bind(call: &Call, binding: &Value, options: &WriteOptions, warnings: &[String]) -> Result<Response, Status> {
    check_target(binding)?;
    let conflict = |why: String| {
        Status::conflict(&call.resource.group, &format!("{}/binding", call.resource.plural), &call.name, &why)
    };
    call.modify(options.dry_run, |old| {
        let old = old.ok_or_else(|| call.not_found())?;
        for (field, title) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let (expected, found) = (meta::text(binding, field), meta::text(old, field));
            if !expected.is_empty() && expected != found {
                return Err(conflict(format!(
                    "Precondition failed: {title} in precondition: {expected}, {title} in object meta: {found}"
                )));
            }
        }
        if meta::is_terminating(old) {
            let what = &call.resource.singular;
            return Err(conflict(format!("{what} {} is being deleted, cannot be assigned to a host", call.name)));
        }
        let mut object = (**old).clone();
        let time = meta::time(call.state.clock.now());
        call.resource.strategy.bind(&mut object, binding, &time).map_err(conflict)?;
        Ok(object)
    })?;
    Ok(call.created(warnings))
}
