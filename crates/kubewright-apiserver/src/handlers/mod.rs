//! The request handlers: routing, filters, decoding, and a module for each operation.

mod call;
mod commit;
mod create;
mod decode;
mod delete;
mod edit;
mod filters;
mod info;
mod lifecycle;
mod list;
mod part;
mod patch;
mod present;
mod query;
mod route;
mod scale;
mod subresource;
mod token;
mod update;
mod watch;

use std::{panic::AssertUnwindSafe, sync::Arc};

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use kubewright_apimachinery::status::Status;

pub(crate) use self::call::ServerShutdown;
use self::{
    call::{Call, method_not_allowed},
    decode::MAX_BODY,
    part::Part,
    query::Query,
    route::{Route, Target},
};
use crate::{
    admission::Warnings,
    body::{self, BoxError},
    managed_fields::Conversions,
    response::{self, Accept, Response},
    state::State,
};

/// Handles a request. A panic of a handler also becomes a response.
pub(crate) async fn handle<B>(state: Arc<State>, request: Request<B>) -> Response
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let result = AssertUnwindSafe(respond(state, request)).catch_unwind().await;
    match result {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => response::status(&status),
        Err(panic) => {
            let message = body::panic_message(&*panic);
            tracing::error!(message, "a request handler panicked");
            response::status(&Status::internal(format!("the handler panicked: {message}")))
        }
    }
}

async fn respond<B>(state: Arc<State>, request: Request<B>) -> Result<Response, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let route = Route::parse(&parts.uri, &state.registry);
    let user = filters::filter(&state, &parts, &route)?;
    let Route::Resource(target) = route else { return info::respond(&state, &parts, route) };
    let body = read_body(&parts, body).await?;
    let accept = Accept::parse(&parts.headers)?;
    let query = Query::parse(parts.uri.query());
    let Target { resource, namespace, name, subresource } = target;
    let name = name.unwrap_or_default();
    let (deprecation, warnings) = (resource.deprecated.clone(), Warnings::default());
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
        warnings: warnings.clone(),
        conversions: Conversions::default(),
    };
    let mut response = dispatch(call).await.unwrap_or_else(|status| {
        let mut response = response::status(&status);
        response::add_warnings(&mut response, &warnings.lock());
        response
    });
    response::add_warnings(&mut response, deprecation.as_slice());
    Ok(response)
}

/// Reads the whole body, up to the size limit.
async fn read_body<B>(parts: &Parts, body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let too_large = || {
        let message = format!("Request entity too large: limit is {MAX_BODY}");
        Status::new(413, "RequestEntityTooLarge", message)
    };
    let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        return Err(too_large());
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Status::bad_request(format!("failed to read the request body: {error}"))),
    }
}

/// Runs the handler of a call.
async fn dispatch(call: Call) -> Result<Response, Status> {
    if let Some(name) = call.subresource.clone() {
        return subresource::handle(call, &name).await;
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
    if !call.resource.verbs.contains(&verb) {
        return Err(method_not_allowed());
    }
    let needs_namespace = matches!(verb, "create" | "deletecollection");
    if needs_namespace && call.resource.namespaced && call.namespace.is_empty() {
        return Err(method_not_allowed());
    }
    match verb {
        "list" => list::list(&call).await,
        "watch" => watch::watch(call).await,
        "get" => {
            let version = list::requested_version(&call)?.unwrap_or(0);
            list::wait_for(&call.state.store, version).await?;
            call.get().await
        }
        "create" => create::create(&call).await,
        "update" => update::update(&call, Part::Main).await,
        "patch" => patch::patch(&call, Part::Main).await,
        "delete" => delete::delete(&call).await,
        "deletecollection" => delete::delete_collection(&call).await,
        _ => Err(method_not_allowed()),
    }
}
