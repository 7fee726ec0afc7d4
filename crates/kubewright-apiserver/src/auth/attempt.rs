//! What someone wants to do, in the words of roles.

use http::Method;
use kubewright_apimachinery::{selector::FieldSelector, status::Status};

use super::UserInfo;
use crate::{
    admission::NAMESPACES,
    handlers::{Query, Target},
};

/// What someone wants to do: to an object or a collection, or with a path that is neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// `get`, `list`, `create`, …; for a path the method in lower case.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource in the plural.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace; empty for all, and for resources without.
    pub namespace: String,
    /// The object's name; empty for a collection.
    pub name: String,
    /// The path, if it isn't a resource's. All but the verb is empty then.
    pub path: String,
}

impl Attempt {
    /// With a path that isn't a resource's.
    pub(crate) fn path(method: &Method, path: &str) -> Self {
        Self { verb: method.as_str().to_lowercase(), path: path.into(), ..Self::default() }
    }

    /// To a resource that is served.
    pub(crate) fn resource(method: &Method, target: &Target, query: &Query) -> Self {
        let Target { resource, namespace, name, subresource } = target;
        let mut attempt = Self {
            group: resource.group.to_string(),
            resource: resource.plural.to_string(),
            subresource: subresource.as_deref().and_then(|path| path.split('/').next()).unwrap_or_default().into(),
            namespace: namespace.clone(),
            name: name.clone().unwrap_or_default(),
            ..Self::default()
        };
        // A namespace is said to be in itself.
        if &*resource.storage == NAMESPACES {
            attempt.namespace = attempt.name.clone();
        }
        attempt.choose_verb(method, query);
        attempt
    }

    /// To something below a group's version that isn't served: refused like anything else, so that nobody learns more.
    pub(crate) fn unknown(method: &Method, path: &[String], query: &Query) -> Option<Self> {
        let (group, rest) = match path {
            [api, _version, rest @ ..] if api == "api" => ("", rest),
            [apis, group, _version, rest @ ..] if apis == "apis" => (group.as_str(), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            [namespaces, namespace, rest @ ..] if namespaces == "namespaces" && !rest.is_empty() => {
                (&**namespace, rest)
            }
            _ => ("", rest),
        };
        let text = |index: usize| rest.get(index).cloned().unwrap_or_default();
        let mut attempt = Self {
            group: group.into(),
            resource: rest.first()?.clone(),
            name: text(1),
            subresource: text(2),
            namespace: namespace.into(),
            ..Self::default()
        };
        attempt.choose_verb(method, query);
        Some(attempt)
    }

    fn choose_verb(&mut self, method: &Method, query: &Query) {
        let collection = self.name.is_empty();
        self.verb = match *method {
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
        // Whoever may look at one object may look for it in the list, too.
        if collection && matches!(self.verb.as_str(), "list" | "watch") {
            let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).ok();
            self.name = fields.as_ref().and_then(|fields| fields.exact("metadata.name")).unwrap_or_default().into();
        }
    }

    /// The same with another verb.
    pub(crate) fn with_verb(&self, verb: &str) -> Self {
        Self { verb: verb.into(), ..self.clone() }
    }

    /// The resource with its subresource, as roles name it: `pods/log`.
    pub fn full_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// 403, in Kubernetes' words. `why` may be empty.
    pub(crate) fn forbidden(&self, user: &UserInfo, why: &str) -> Status {
        let Self { verb, group, namespace, name, path, .. } = self;
        let who = format!("User {:?} cannot {verb}", user.name);
        let mut said = if !path.is_empty() {
            format!("{who} path {path:?}")
        } else {
            let what = format!("{who} resource {:?} in API group {group:?}", self.full_resource());
            match namespace.as_str() {
                "" => format!("{what} at the cluster scope"),
                namespace => format!("{what} in the namespace {namespace:?}"),
            }
        };
        said = said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !why.is_empty() {
            said = format!("{said}: {why}");
        }
        if path.is_empty() {
            return Status::forbidden(group, &self.resource, name, &said);
        }
        let mut status = Status::new(403, "Forbidden", format!("forbidden: {said}"));
        status.details = Some(Box::default());
        status
    }
}
