//! The request handlers: routing, filters, decoding, and a module for each operation.

mod call;
mod commit;
mod computed;
mod create;
mod decode;
mod delete;
mod edit;
mod eviction;
mod exchange;
mod field_validation;
mod filters;
mod health;
mod info;
mod kubelet;
mod kubelet_port;
mod lifecycle;
mod list;
mod pages;
mod part;
mod patch;
mod pod_security;
mod present;
mod pretty;
mod proxy;
mod query;
mod quota;
mod request_audit;
mod route;
mod scale;
mod settle;
mod subresource;
mod time_limit;
mod token;
mod touched;
mod type_meta;
mod update;
mod watch;

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http::{HeaderValue, Method, Request, header, request::Parts};
use http_body_util::BodyExt;
use kubewright_apimachinery::{name::path_segment, status::Status};
use tokio::time::timeout;

use self::{
    call::Call,
    decode::MAX_BODY,
    exchange::Exchange,
    filters::Rejection,
    part::Part,
    route::{Route, Target},
};
pub(crate) use self::{
    health::HealthCounts,
    kubelet_port::prefix_path,
    query::Query,
    settle::{settle, settled},
};
use crate::{
    admission::Warnings,
    aggregation::ApiService,
    auth::UserInfo,
    body::{self, BoxError},
    managed_fields::Conversions,
    registry::Resource,
    response::{self, Accept, Response},
    state::State,
};

/// The size up to which a body that is too large is read. The connection is closed after a larger one.
const MAX_DROPPED: usize = 64 << 20;

/// Handles a request. A panic of a handler also becomes a response.
pub(crate) async fn handle<B>(state: Arc<State>, request: Request<B>) -> Response
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let mut exchange = Exchange::begin(&state, &parts);
    let result = AssertUnwindSafe(respond(state.clone(), parts, body, &mut exchange)).catch_unwind().await;
    let response = match result {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => {
            let mut response = response::status(&status);
            if status.code == 403 {
                response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            }
            response
        }
        Err(panic) => {
            let message = body::panic_message(&*panic);
            tracing::error!(message, "a request handler panicked");
            exchange.audit().panicked(message);
            response::status(&Status::internal(format!("the handler panicked: {message}")))
        }
    };
    exchange.finish(response)
}

async fn respond<B>(state: Arc<State>, parts: Parts, body: B, exchange: &mut Exchange<'_>) -> Result<Response, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut route = Route::parse(&parts.uri, &state.registry);
    let remote = state.aggregation.services.remote_of(parts.uri.path());
    if remote.is_some() {
        // Its resources are known only to its server, even if this one has some of the same version.
        route = Route::of_unknown(&parts.uri);
    }
    let limit = time_limit::of(&parts, &route)?;
    let response = respond_to(route, remote, state, parts, body, exchange);
    match limit {
        Some(limit) => timeout(limit, response).await.unwrap_or_else(|_| Ok(time_limit::exceeded())),
        None => response.await,
    }
}

/// Responds to a request for a route, which an API server of another version may have.
async fn respond_to<B>(
    route: Route,
    remote: Option<Arc<ApiService>>,
    state: Arc<State>,
    parts: Parts,
    body: B,
    exchange: &mut Exchange<'_>,
) -> Result<Response, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let user = match filters::filter(&state, &parts, &route, exchange) {
        Ok(user) => user,
        Err(Rejection::Status(status)) => return Err(status),
        Err(Rejection::Undecided(why)) => return Ok(response::internal_error(&parts.uri, &why)),
    };
    exchange.count(&parts, &route);
    if let Some(service) = remote {
        exchange.pass_through();
        let body = read_body(body).await?;
        return Ok(Box::pin(state.aggregation.forward(&service, &user, parts, body)).await);
    }
    let Route::Resource(target) = route else {
        let response = Box::pin(info::respond(&state, &parts, route)).await;
        return Ok(response.unwrap_or_else(|status| response::error(&parts.headers, &status)));
    };
    respond_to_target(target, user, state, parts, body, exchange).await
}

/// Responds to a request for the objects of a kind.
async fn respond_to_target<B>(
    target: Target,
    user: Arc<UserInfo>,
    state: Arc<State>,
    parts: Parts,
    body: B,
    exchange: &mut Exchange<'_>,
) -> Result<Response, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let methods = Methods { custom: target.resource.schema.custom.then(|| target.resource.clone()) };
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    if methods.custom.is_some() && target.resource.namespaced && target.namespace.is_empty() && !is_read {
        return Ok(info::page_not_found());
    }
    let proxied = target.subresource.as_deref().is_some_and(|path| path.split('/').next() == Some("proxy"));
    if !proxied && !methods.are_known(&parts.method) {
        return Ok(response::error(&parts.headers, &methods.refuse(&parts.method, target.name.is_none())));
    }
    let body = read_body(body).await?;
    exchange.audit().receive(&parts.headers, &target, &body);
    // Reviews aren't printed as tables.
    let (tables, protobuf) = (!target.resource.list_kind.is_empty(), target.resource.schema.served.is_some());
    let accept = match Accept::of_objects(&parts.headers, tables, protobuf) {
        Ok(accept) => accept,
        // What is proxied has the media type of its server.
        Err(_) if proxied => Accept::JSON,
        Err(status) => return Ok(response::error(&parts.headers, &status)),
    };
    let mut query = Query::parse(parts.uri.query());
    let Target { resource, namespace, mut name, subresource, watch } = target;
    if watch {
        query.select_watch(name.take().as_deref());
    }
    let name = name.unwrap_or_default();
    check_name(&name)?;
    let collected = ResponseWarnings { deprecation: resource.deprecated.clone(), ..ResponseWarnings::default() };
    let call = Call {
        state,
        resource,
        namespace,
        name,
        subresource,
        query,
        user,
        accept,
        parts,
        body,
        problems: collected.problems.clone(),
        warnings: collected.warnings.clone(),
        advice: collected.advice.clone(),
        has_empty: AtomicBool::new(false),
        audit: exchange.audit().context(),
        conversions: Conversions::default(),
    };
    let store = (!is_read).then(|| call.state.store.clone());
    let (method, is_collection) = (call.parts.method.clone(), call.name.is_empty());
    let mut result = dispatch(call).await;
    // The router refuses these, which knows nothing of the kind.
    let unrouted = [Status::method_not_allowed(), Status::no_such_resource()];
    let is_routed = methods.custom.is_some() || !matches!(&result, Err(status) if unrouted.contains(status));
    result = result.map_err(|status| match status == Status::method_not_allowed() {
        true => methods.refuse(&method, is_collection),
        false => status,
    });
    if let Some(store) = store.filter(|_| result.is_ok()) {
        // One place for all requests, since some write several objects.
        result = store.synced().await.map_err(Status::from).and(result);
    }
    Ok(collected.respond(result, accept, is_routed))
}

/// The methods of a path of objects. Custom resources are served by another handler in Kubernetes: it takes HEAD for
/// GET, and knows no path without a namespace but that of the list.
struct Methods {
    /// The kind, if it is a custom one.
    custom: Option<Arc<Resource>>,
}

impl Methods {
    /// Returns whether any path has a method.
    fn are_known(&self, method: &Method) -> bool {
        match *method {
            Method::HEAD => self.custom.is_some(),
            Method::OPTIONS | Method::TRACE => false,
            _ => true,
        }
    }

    /// Returns the error for a method that the path doesn't have.
    fn refuse(&self, method: &Method, is_collection: bool) -> Status {
        let Some(resource) = &self.custom else { return Status::method_not_allowed() };
        let verb = match *method {
            Method::PUT | Method::PATCH if is_collection => return Status::bad_request("name must be provided"),
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if is_collection => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        };
        Status::method_not_supported(&resource.group, &resource.plural, verb)
    }
}

/// The warnings that a response carries.
#[derive(Default)]
struct ResponseWarnings {
    /// The warning about the version of the kind.
    deprecation: Option<String>,
    problems: Warnings,
    warnings: Warnings,
    advice: Warnings,
}

impl ResponseWarnings {
    /// Returns the response with its warnings. A request that isn't routed gets none about the version.
    fn respond(&self, result: Result<Response, Status>, accept: Accept, is_routed: bool) -> Response {
        let mut response = result.unwrap_or_else(|status| {
            let mut response = response::status_as(accept.encoding, &status);
            response::add_warnings(&mut response, &self.problems.lock());
            response::add_warnings(&mut response, &self.warnings.lock());
            response
        });
        let deprecation = self.deprecation.as_slice().get(..usize::from(is_routed)).unwrap_or_default();
        response::add_warnings(&mut response, deprecation);
        response::add_warnings(&mut response, &self.advice.lock());
        response
    }
}

/// Checks that the storage can have an object of this name. An empty one is that of a collection.
fn check_name(name: &str) -> Result<(), Status> {
    if name.is_empty() {
        return Ok(());
    }
    match path_segment(name).as_slice() {
        [] => Ok(()),
        why => Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {}", why.join(";")))),
    }
}

/// Reads the whole body, up to the size limit. A body that is larger is read to its end, up to another limit, since
/// many clients read the response only after they have sent everything.
async fn read_body<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let mut body = pin!(body.map_err(Into::into));
    let mut bytes = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let failed = |error: BoxError| Status::bad_request(format!("failed to read the request body: {error}"));
        let Ok(data) = frame.map_err(failed)?.into_data() else { continue };
        length += data.len();
        if length > MAX_DROPPED {
            break;
        }
        if length > MAX_BODY {
            bytes = BytesMut::new();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    if length > MAX_BODY {
        let message = format!("Request entity too large: limit is {MAX_BODY}");
        return Err(Status::new(413, "RequestEntityTooLarge", message));
    }
    Ok(bytes.freeze())
}

/// Runs the handler of a call.
async fn dispatch(mut call: Call) -> Result<Response, Status> {
    if let Some(name) = call.subresource.clone() {
        return Box::pin(subresource::handle(call, &name)).await;
    }
    if call.resource.schema.custom && call.parts.method == Method::POST {
        // As in Kubernetes, the name in the path doesn't matter.
        call.name.clear();
    }
    let collection = call.name.is_empty();
    let verb = match (&call.parts.method, collection) {
        (&Method::GET | &Method::HEAD, true) if call.query.flag("watch") == Some(true) => "watch",
        (&Method::GET | &Method::HEAD, true) => "list",
        (&Method::GET | &Method::HEAD, false) => "get",
        (&Method::POST, true) => "create",
        (&Method::PUT, false) => "update",
        (&Method::PATCH, false) => "patch",
        (&Method::DELETE, false) => "delete",
        (&Method::DELETE, true) => "deletecollection",
        _ => "",
    };
    // A custom kind whose definition is being deleted serves more than discovery shows.
    if !call.resource.schema.custom && !call.resource.verbs.contains(&verb) {
        return Err(match verb {
            "watch" if call.resource.verbs.contains(&"list") => call.not_watched(),
            _ => Status::method_not_allowed(),
        });
    }
    let needs_namespace = matches!(verb, "create" | "deletecollection");
    if needs_namespace && call.resource.namespaced && call.namespace.is_empty() {
        return Err(Status::method_not_allowed());
    }
    if let Some(target) = call.resource.strategy.binds() {
        return Box::pin(subresource::create_binding(call, target)).await;
    }
    if let Some(objects) = call.resource.strategy.computed() {
        return computed::respond(&call, objects);
    }
    if let Some(from) = call.resource.strategy.derived_from() {
        return computed::derive(&call, from);
    }
    // All but the smallest are boxed: the future of each request would have room for the largest, and is moved several
    // times.
    match verb {
        "list" => Box::pin(list::list(&call)).await,
        "watch" => Box::pin(watch::watch(call)).await,
        "get" => {
            let version = list::requested_start(&call)?;
            list::wait_for(&call.state.store, version).await?;
            call.get().await
        }
        "create" => Box::pin(create::create(&call)).await,
        "update" => Box::pin(update::update(&call, Part::Main)).await,
        "patch" => Box::pin(patch::patch(&call, Part::Main)).await,
        "delete" => Box::pin(delete::delete(&call)).await,
        "deletecollection" => Box::pin(delete::delete_collection(&call)).await,
        _ => Err(Status::method_not_allowed()),
    }
}
