//! The attributes of a request that authorization looks at.

use kubewright_apimachinery::status::Status;

use super::user::UserInfo;

/// The attributes of a request that authorization looks at: of a request for an object or a collection, or for a path
/// that isn't a resource's (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#review-your-request-attributes>).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
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
    /// The path, if it isn't a resource's. All other fields but the verb are empty then.
    pub path: String,
}

impl Attributes {
    /// The same attributes with another verb.
    pub(crate) fn with_verb(&self, verb: &str) -> Self {
        Self { verb: verb.into(), ..self.clone() }
    }

    /// The resource with its subresource as roles name it: `pods/log`.
    pub fn full_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// 403 with Kubernetes' own message. The reason may be empty.
    pub(crate) fn forbidden(&self, user: &UserInfo, reason: &str) -> Status {
        let Self { verb, group, namespace, name, path, .. } = self;
        let who = format!("User {:?} cannot {verb}", user.name);
        let mut message = if !path.is_empty() {
            format!("{who} path {path:?}")
        } else {
            let what = format!("{who} resource {:?} in API group {group:?}", self.full_resource());
            match namespace.as_str() {
                "" => format!("{what} at the cluster scope"),
                namespace => format!("{what} in the namespace {namespace:?}"),
            }
        };
        message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        if path.is_empty() {
            return Status::forbidden(group, &self.resource, name, &message);
        }
        let mut status = Status::new(403, "Forbidden", format!("forbidden: {message}"));
        status.details = Some(Box::default());
        status
    }
}
