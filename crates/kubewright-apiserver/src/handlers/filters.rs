//! The filters that precede the handling of every request: authentication, impersonation, authorization.

use std::sync::Arc;

use http::{Method, request::Parts};
use kubewright_apimachinery::{selector::FieldSelector, status::Status};

use super::{
    exchange::Exchange,
    kubelet_port::KubeletPath,
    query::Query,
    route::{Route, Target},
};
use crate::{
    admission::NAMESPACES,
    auth::{self, Attributes, UserInfo},
    state::State,
    token_use,
};

/// Authenticates, classifies and authorizes a request. Returns the effective user.
///
/// # Errors
/// Returns 401 for invalid credentials, and 403 for requests that the user is not allowed to make.
pub(super) fn filter(
    state: &State,
    parts: &Parts,
    route: &Route,
    exchange: &mut Exchange<'_>,
) -> Result<Arc<UserInfo>, Rejection> {
    let attributes = || attributes_of(parts, route);
    let authenticated = state.authenticator.authenticate(parts);
    let known = authenticated.as_ref().ok().map(|(user, _)| user.clone());
    exchange.begin_audit(parts, route, known, attributes);
    let (user, secret) = authenticated?;
    if let Some(secret) = secret {
        token_use::record(state, &secret);
    }
    let user = match auth::impersonate(&state.authorization, &user, &parts.headers, attributes)? {
        Some(acting) => {
            exchange.audit().impersonate(&acting);
            acting.user
        }
        None => user,
    };
    let kubelet = parts.extensions.get::<KubeletPath>();
    kubelet.map_or(Ok(()), |path| path.check_user(&user))?;
    // Most requests come from the cluster itself or its administrator, and don't require attributes.
    if user.is_unrestricted() {
        exchange.classify(route, state.flow_control.classify(&user, None));
        exchange.audit().decide(true, "");
    } else {
        let attributes = attributes();
        exchange.classify(route, state.flow_control.classify(&user, Some(&attributes)));
        let decide = |one: &Attributes| state.authorization.decide(&user, one);
        let decision = kubelet.map_or_else(|| decide(&attributes), |path| path.decide(&attributes, decide));
        exchange.audit().decide(decision.allowed, &decision.reason);
        if !decision.allowed && !decision.error.is_empty() {
            return Err(Rejection::Undecided(decision.error));
        }
        decision.require(&user, &attributes)?;
    }
    Ok(user)
}

/// Why a request doesn't reach its handler.
pub(super) enum Rejection {
    Status(Status),
    /// An authorizer couldn't decide about it, and none allowed it.
    Undecided(String),
}

impl From<Status> for Rejection {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Returns the attributes of a request.
fn attributes_of(parts: &Parts, route: &Route) -> Attributes {
    let query = Query::parse(parts.uri.query());
    let path = || non_resource(&parts.method, parts.uri.path());
    match route {
        Route::Resource(target) => of_target(&parts.method, target, &query),
        Route::Unknown(segments) => of_unknown(&parts.method, segments, &query).unwrap_or_else(path),
        _ => path(),
    }
}

/// Returns the attributes of a request for a non-resource path.
fn non_resource(method: &Method, path: &str) -> Attributes {
    Attributes { verb: method.as_str().to_lowercase(), path: path.into(), ..Attributes::default() }
}

/// Returns the attributes of a request for a served resource.
pub(super) fn of_target(method: &Method, target: &Target, query: &Query) -> Attributes {
    let Target { resource, namespace, name, subresource, watch } = target;
    let name = name.clone().unwrap_or_default();
    // A namespace counts as being in itself.
    let namespace = if &*resource.storage == NAMESPACES { name.clone() } else { namespace.clone() };
    let attributes = Attributes {
        group: resource.group.to_string(),
        resource: resource.plural.to_string(),
        subresource: subresource.as_deref().and_then(|path| path.split('/').next()).unwrap_or_default().into(),
        namespace,
        name,
        ..Attributes::default()
    };
    if *watch {
        return with_fields(attributes.with_verb("watch"), query);
    }
    with_verb(attributes, method, query)
}

/// Returns the attributes of a request for a resource that isn't served, or `None` for other paths. Such requests
/// require the same permissions as others, so that a 404 doesn't reveal which resources are served.
fn of_unknown(method: &Method, segments: &[String], query: &Query) -> Option<Attributes> {
    let (group, rest) = match segments {
        [api, _version, rest @ ..] if api == "api" => ("", rest),
        [apis, group, _version, rest @ ..] if apis == "apis" => (group.as_str(), rest),
        _ => return None,
    };
    let (watch, rest) = match rest {
        [watch, rest @ ..] if watch == "watch" && !rest.is_empty() => (true, rest),
        _ => (false, rest),
    };
    let (namespace, rest) = match rest {
        [namespaces, namespace, rest @ ..] if namespaces == "namespaces" && !rest.is_empty() => (&**namespace, rest),
        _ => ("", rest),
    };
    let segment = |index: usize| rest.get(index).cloned().unwrap_or_default();
    let attributes = Attributes {
        group: group.into(),
        resource: rest.first()?.clone(),
        name: segment(1),
        subresource: segment(2),
        namespace: namespace.into(),
        ..Attributes::default()
    };
    Some(match watch {
        true => with_fields(attributes.with_verb("watch"), query),
        false => with_verb(attributes, method, query),
    })
}

/// Sets the verb that corresponds to a method.
fn with_verb(mut attributes: Attributes, method: &Method, query: &Query) -> Attributes {
    let collection = attributes.name.is_empty();
    attributes.verb = match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD if !collection => "get",
        Method::GET | Method::HEAD if query.flag("watch") == Some(true) => "watch",
        Method::GET | Method::HEAD => "list",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
    .into();
    with_fields(attributes, query)
}

/// Sets the fields that the selector of a request for several objects requires to have certain values.
fn with_fields(mut attributes: Attributes, query: &Query) -> Attributes {
    if !matches!(attributes.verb.as_str(), "list" | "watch" | "deletecollection") {
        return attributes;
    }
    let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).unwrap_or_default();
    // Users with permission for one object may select it by name from the collection.
    if attributes.name.is_empty() && attributes.verb != "deletecollection" {
        attributes.name = fields.exact("metadata.name").unwrap_or_default().into();
    }
    let exact = fields.requirements().iter().filter(|one| !one.negated);
    attributes.fields = exact.map(|one| (one.field.clone(), one.value.clone())).collect();
    attributes
}
