//! The attributes of a request that webhooks receive.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::{audit::AuditContext, auth::UserInfo, registry::Resource};

/// The operation of a request in admission reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The attributes of a request that webhooks receive
/// (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>).
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) operation: Operation,
    pub(crate) resource: Arc<Resource>,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// The `(group, version, kind)` of the request's object, if a subresource takes a different kind.
    pub(crate) subresource_kind: Option<(String, String, String)>,
    /// The namespace; empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// The name; empty if it has not been generated yet.
    pub(crate) name: String,
    /// The options of the request, such as `CreateOptions`.
    pub(crate) options: Value,
    pub(crate) dry_run: bool,
    pub(crate) user: Arc<UserInfo>,
    /// Collects the warnings of webhooks that deny the request.
    pub(crate) warnings: Warnings,
    /// Collects the annotations of webhooks and policies.
    pub(crate) audit: AuditContext,
}

/// Warnings collected from several sources.
pub(crate) type Warnings = Arc<Mutex<Vec<String>>>;

/// The storage of namespaces. Namespace selectors match a namespace by its own labels.
pub(crate) const NAMESPACES: &str = "/namespaces";
