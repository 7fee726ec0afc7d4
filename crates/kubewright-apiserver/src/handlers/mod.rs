//! The request pipeline: route, authenticate, authorise, decode, and one module for each thing that can be asked for.

mod admission;
mod create;
mod decode;
mod delete;
mod info;
mod lifecycle;
mod list;
mod metadata;
mod patch;
mod present;
mod query;
mod route;
mod scale;
mod size;
mod subresource;
mod token;
mod update;
mod watch;

use std::{panic::AssertUnwindSafe, sync::Arc};

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use kubewright_apimachinery::status::Status;

use self::decode::BODY_LIMIT;
pub(crate) use self::{
    metadata::check_types as check_metadata_types,
    query::Query,
    route::{Route, Target},
};
use crate::{
    admission::Warnings,
    auth::{self, Access, Attempt, UserInfo},
    body::{self, BoxError},
    convert::{self, Conversions},
    registry::Resource,
    respond::{self, Accept, Answer},
    server::Inner,
    storage::{Key, Stored},
};

/// One request for a resource, as the handlers see it.
pub(crate) struct Call {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    /// Empty for all namespaces, and for kinds without.
    namespace: String,
    /// The object's name; empty when the request is about the whole collection.
    name: String,
    subresource: Option<String>,
    query: Query,
    user: UserInfo,
    accept: Accept,
    parts: Parts,
    body: Bytes,
    /// What a refusal is to warn of.
    warnings: Warnings,
    /// How the object looks in versions in which others own fields of it.
    conversions: Conversions,
}

/// Answers a request, whatever happens.
pub(crate) async fn serve<B>(server: Arc<Inner>, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let answered = AssertUnwindSafe(answer(server, request)).catch_unwind().await;
    match answered {
        Ok(Ok(answer)) => answer,
        Ok(Err(status)) => respond::status(&status),
        Err(panic) => {
            let message = body::message(&*panic);
            tracing::error!(message, "a request handler panicked");
            respond::status(&Status::internal(format!("the handler panicked: {message}")))
        }
    }
}

async fn answer<B>(server: Arc<Inner>, request: Request<B>) -> Result<Answer, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let route = Route::parse(&parts.uri, &server.registry);
    let user = auth::admit(&server, &parts, &route)?;
    let Route::Resource(target) = route else { return info::answer(&server, &parts, route) };
    let body = read_body(&parts, body).await?;
    let accept = Accept::parse(&parts.headers)?;
    let query = Query::parse(parts.uri.query());
    let Target { resource, namespace, name, subresource } = target;
    let name = name.unwrap_or_default();
    let (deprecation, warnings) = (resource.deprecated.clone(), Warnings::default());
    let call = Call {
        server,
        resource,
        namespace,
        name,
        subresource,
        query,
        user,
        accept,
        parts,
        body,
        warnings: warnings.clone(),
        conversions: Conversions::default(),
    };
    let mut answer = call.dispatch().await.unwrap_or_else(|status| {
        let mut answer = respond::status(&status);
        respond::warn(&mut answer, &warnings.lock());
        answer
    });
    respond::warn(&mut answer, deprecation.as_slice());
    Ok(answer)
}

/// The whole body, if it is not too large.
async fn read_body<B>(parts: &Parts, body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let too_large = || {
        let message = format!("Request entity too large: limit is {BODY_LIMIT}");
        Status::new(413, "RequestEntityTooLarge", message)
    };
    let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Status::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// 405.
fn method_not_allowed() -> Status {
    Status::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
}

impl Call {
    async fn dispatch(self) -> Result<Answer, Status> {
        if let Some(name) = self.subresource.clone() {
            return self.subresource(&name).await;
        }
        let collection = self.name.is_empty();
        let verb = match (&self.parts.method, collection) {
            (&Method::GET | &Method::HEAD, true) if self.query.flag("watch") == Some(true) => "watch",
            (&Method::GET | &Method::HEAD, true) => "list",
            (&Method::GET | &Method::HEAD, false) => "get",
            (&Method::POST, true) => "create",
            (&Method::PUT, false) => "update",
            (&Method::PATCH, false) => "patch",
            (&Method::DELETE, false) => "delete",
            (&Method::DELETE, true) => "deletecollection",
            _ => "",
        };
        if !self.resource.verbs.contains(&verb) {
            return Err(method_not_allowed());
        }
        let places = matches!(verb, "create" | "deletecollection");
        if places && self.resource.namespaced && self.namespace.is_empty() {
            return Err(method_not_allowed());
        }
        match verb {
            "list" => list::list(&self).await,
            "watch" => watch::watch(self).await,
            "get" => {
                let version = list::requested_version(&self)?.unwrap_or(0);
                list::wait_for(&self.server.store, version).await?;
                self.get().await
            }
            "create" => create::create(&self).await,
            "update" => update::update(&self, update::Part::Main).await,
            "patch" => patch::patch(&self, update::Part::Main).await,
            "delete" => delete::delete(&self).await,
            "deletecollection" => delete::delete_collection(&self).await,
            _ => Err(method_not_allowed()),
        }
    }

    /// Whether who asks may do this, too, to the object of this call.
    fn authorize(&self, verb: &str) -> Result<(), Status> {
        if self.user.is_master() {
            return Ok(());
        }
        let target = Target {
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            subresource: self.subresource.clone(),
        };
        let attempt = Attempt::resource(&self.parts.method, &target, &self.query).with_verb(verb);
        auth::authorize(&self.server, &self.user, &attempt)
    }

    /// The rights of who asks.
    fn access(&self) -> Access<'_> {
        Access::new(&self.user, &self.server)
    }

    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn not_found(&self) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }

    /// The field manager's name when none is given: the first part of the `User-Agent`.
    fn agent(&self) -> String {
        let agent =
            self.parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let name: String = agent.split('/').next().unwrap_or_default().chars().take(128).collect();
        if name.is_empty() { "unknown".into() } else { name }
    }

    async fn get(&self) -> Result<Answer, Status> {
        let object = self.load(self.present()?).await?;
        Ok(self.object(StatusCode::OK, &object, &[]))
    }

    /// The object as it is stored.
    fn present(&self) -> Result<Arc<Stored>, Status> {
        self.server.store.get(&self.resource.storage, &self.key()).ok_or_else(|| self.not_found())
    }

    /// An object out of the store, in the version of this call.
    async fn load(&self, stored: Arc<Stored>) -> Result<Arc<Stored>, Status> {
        convert::load_one(&self.server, &self.resource, stored).await
    }
}
