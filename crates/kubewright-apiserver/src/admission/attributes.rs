//! The attributes of a request, as webhooks see them.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::{auth::UserInfo, registry::Resource};

/// The operation of a request, as webhooks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The attributes of a request that webhooks see
/// (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>).
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) operation: Operation,
    pub(crate) resource: Arc<Resource>,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// The `(group, version, kind)` of the request's object, if a subresource takes another kind.
    pub(crate) subresource_kind: Option<(String, String, String)>,
    /// Empty for objects without a namespace.
    pub(crate) namespace: String,
    /// Empty if the name is yet to be generated.
    pub(crate) name: String,
    /// The options of the request, such as `CreateOptions`.
    pub(crate) options: Value,
    pub(crate) dry_run: bool,
    pub(crate) user: UserInfo,
    /// Collects the warnings of webhooks that refuse the request.
    pub(crate) warnings: Warnings,
}

/// Warnings that are collected in several places.
pub(crate) type Warnings = Arc<Mutex<Vec<String>>>;

/// The storage of namespaces, whose own labels count for namespace selectors.
pub(crate) const NAMESPACES: &str = "/namespaces";
