//! The attributes of a request that authorization checks.

use kubewright_apimachinery::status::Status;

use super::user::UserInfo;

/// The attributes of a request that authorization checks, either for an object or a collection, or for a non-resource
/// path (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#review-your-request-attributes>).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    /// The verb: `get`, `list`, `create`, …; for a non-resource path, the method in lower case.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace; empty for all namespaces, and for cluster-scoped resources.
    pub namespace: String,
    /// The object's name; empty for a collection.
    pub name: String,
    /// The non-resource path, if any. All other fields but the verb are then empty.
    pub path: String,
    /// The fields that the selector of a list, a watch or a deletion of a collection requires to have these values.
    pub fields: Vec<(String, String)>,
}

impl Attributes {
    /// Returns the same attributes with another verb.
    pub(crate) fn with_verb(&self, verb: &str) -> Self {
        Self { verb: verb.into(), ..self.clone() }
    }

    /// Returns whether the request is limited to objects of which a field has this value.
    pub(crate) fn selects(&self, field: &str, value: &str) -> bool {
        self.fields.iter().any(|(name, required)| name == field && required == value)
    }

    /// Returns the resource with its subresource, as roles name it: `pods/log`.
    pub fn full_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// Returns 403 with Kubernetes' message. The reason may be empty.
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
