//! A request for a resource, as passed to the handlers.

use std::sync::{Arc, atomic::AtomicBool};

use bytes::Bytes;
use http::{Method, StatusCode, header, request::Parts};
use kubewright_apimachinery::status::{Details, Status};
use serde_json::Value;

use super::{
    decode::{self, Format},
    filters,
    query::{Query, WriteOptions},
    route::Target,
};
use crate::{
    admission::{Operation, Warnings},
    audit::AuditContext,
    auth::{Requester, UserInfo},
    codec,
    managed_fields::{Conversions, Manager},
    object_meta,
    registry::{Resource, builtin::Change},
    response::{Accept, Response},
    state::State,
    storage::{Key, Stored},
};

/// A request for a resource.
pub(super) struct Call {
    pub(super) state: Arc<State>,
    pub(super) resource: Arc<Resource>,
    /// The namespace; empty for all namespaces, and for cluster-scoped resources.
    pub(super) namespace: String,
    /// The object's name; empty if the request is for the whole collection.
    pub(super) name: String,
    pub(super) subresource: Option<String>,
    pub(super) query: Query,
    pub(super) user: Arc<UserInfo>,
    pub(super) accept: Accept,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    /// Warnings about the body of a request that is refused for another reason.
    pub(super) problems: Warnings,
    /// Warnings for a response that denies the request.
    pub(super) warnings: Warnings,
    /// Warnings about the valid object of the request.
    pub(super) advice: Warnings,
    pub(super) audit: AuditContext,
    /// Whether the object of the request has an empty list or map outside of its metadata.
    pub(super) has_empty: AtomicBool,
    /// The object in the versions in which other managers own fields of it.
    pub(super) conversions: Conversions,
}

impl Call {
    /// Authorizes the user for another verb on the object of this call.
    pub(super) fn authorize(&self, verb: &str) -> Result<(), Status> {
        if self.user.is_unrestricted() {
            return Ok(());
        }
        let target = Target {
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            subresource: self.subresource.clone(),
            watch: false,
        };
        let attributes = filters::of_target(&self.parts.method, &target, &self.query).with_verb(verb);
        self.state.authorization.authorize(&self.user, &attributes)
    }

    /// Returns whether the changes of the user are restricted, as those of nodes are.
    pub(super) fn is_restricted(&self) -> bool {
        self.state.node_restriction.is_some() && self.user.node().is_some()
    }

    /// Checks a change by the user, if it is a node whose changes are restricted. `old` and `new` are in served form.
    pub(super) fn restrict(
        &self,
        operation: Operation,
        subresource: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(restriction) = &self.state.node_restriction else { return Ok(()) };
        let (namespace, name) = (self.namespace.as_str(), self.name.as_str());
        let resource = &*self.resource;
        restriction.check(&self.user, Change { operation, resource, subresource, namespace, name, old, new })
    }

    /// Returns the user of the call, as passed to strategies.
    pub(super) fn requester(&self) -> Requester<'_> {
        Requester::new(&self.user, &self.state.authenticator, self.state.authorization.authorizer())
    }

    /// Returns the key of the object.
    pub(super) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// Returns 404 for the object.
    pub(super) fn not_found(&self) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }

    /// Returns 405 for a watch of a resource that can only be listed.
    pub(super) fn not_watched(&self) -> Status {
        let Resource { group, plural, .. } = &*self.resource;
        let message = format!("watch is not supported on resources of kind {plural:?}");
        let details = Details { group: group.to_string(), kind: plural.to_string(), ..Details::default() };
        Status { details: Some(details.into()), ..Status::new(405, "MethodNotAllowed", message) }
    }

    /// Returns the body if it is the JSON text of an object.
    pub(super) fn json_text(&self) -> Option<&[u8]> {
        let is_object = self.parts.method != Method::PATCH;
        let is_json = is_object && matches!(Format::of(&self.parts.headers), Ok(Format::Json));
        is_json.then_some(&*self.body)
    }

    /// Returns whether the request applies a configuration.
    pub(super) fn applies(&self) -> bool {
        self.parts.method == Method::PATCH && decode::media_type(&self.parts.headers) == decode::APPLY
    }

    /// Keeps warnings about a body for a response that refuses the request later. A successful one has its own.
    pub(super) fn keep_warnings(&self, warnings: &[String]) {
        let mut kept = self.problems.lock();
        for warning in warnings {
            if !kept.contains(warning) {
                kept.push(warning.clone());
            }
        }
    }

    /// Removes the owner references that admission has repeated. Returns the warning about them.
    pub(super) fn deduplicate_admitted(&self, object: &mut Value) -> Option<String> {
        let warning = object_meta::deduplicate_owners(object, true);
        self.keep_warnings(warning.as_slice());
        warning
    }

    /// Returns the name of the field manager: that of the options or, by default, the first part of the `User-Agent`.
    pub(super) fn manager_name(&self, options: &WriteOptions) -> String {
        options.field_manager.clone().unwrap_or_else(|| self.agent())
    }

    fn agent(&self) -> String {
        let agent =
            self.parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let name: String = agent.split('/').next().unwrap_or_default().chars().take(128).collect();
        if name.is_empty() { "unknown".into() } else { name }
    }

    /// Returns the field manager of a write other than an apply.
    pub(super) fn manager<'a>(&'a self, name: &'a str, subresource: &'a str) -> Manager<'a> {
        let (now, conversions) = (self.state.clock.now(), &self.conversions);
        Manager { name, subresource, applies: false, force: false, now, conversions }
    }

    /// Returns the response to a GET of the object.
    pub(super) async fn get(&self) -> Result<Response, Status> {
        let object = self.load(self.present()?).await?;
        Ok(self.object(StatusCode::OK, &object, &[]))
    }

    /// Returns whether the object exists.
    pub(super) fn exists(&self) -> bool {
        self.state.store.get(&self.resource.storage, &self.key()).is_some()
    }

    /// Returns the object in its stored form.
    ///
    /// # Errors
    /// Returns 404 if the object doesn't exist.
    pub(super) fn present(&self) -> Result<Arc<Stored>, Status> {
        self.state.store.get(&self.resource.storage, &self.key()).ok_or_else(|| self.not_found())
    }

    /// Converts a stored object to the version of this call.
    pub(super) async fn load(&self, stored: Arc<Stored>) -> Result<Arc<Stored>, Status> {
        codec::load_one(&self.state.webhook_client, &self.resource, stored).await
    }
}
