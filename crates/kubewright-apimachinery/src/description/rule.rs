//! What an operator may do, one resource or path at a time.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// What is done, in the words of RBAC (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read all objects.
    List,
    /// Be told of changes.
    Watch,
    /// Make an object. Applying one that isn't there needs it beside [`Patch`](Self::Patch).
    Create,
    /// Replace an object.
    Update,
    /// Change an object, or apply one.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete many objects at once.
    DeleteCollection,
    /// Bind a role whose rights one hasn't.
    Bind,
    /// Give a role rights that one hasn't.
    Escalate,
    /// Act in another's name.
    Impersonate,
    /// Approve certificates for a signer.
    Approve,
    /// Sign certificates for a signer.
    Sign,
    /// Use a policy or a class of devices.
    Use,
}

/// As rules write it.
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Where a right holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Scope {
    /// Where the operator looks: in all namespaces, or in a project that is limited to one, there.
    #[default]
    Watched,
    /// In the namespace that the operator itself runs in.
    Own,
}

/// Some verbs on one resource, or on one path that is none of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Rule {
    /// The API group of the resource, empty for the core group.
    pub group: String,
    /// The resource, with its subresource: `pods/eviction`.
    pub resource: String,
    /// Only objects of these names; none means all.
    pub names: BTreeSet<String>,
    /// A path such as `/metrics`, in the place of group, resource and names.
    pub url: String,
    /// What is done.
    pub verbs: BTreeSet<Verb>,
    /// Whether the resource's objects live in namespaces.
    pub namespaced: bool,
    /// Where it holds.
    pub scope: Scope,
    /// The name of the role that it belongs to, if that is another than the operator's main one.
    pub role: String,
}

/// `create pods/eviction`, `get secrets "token"`, `get /metrics`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs: Vec<_> = self.verbs.iter().map(ToString::to_string).collect();
        write!(f, "{} {}{}", verbs.join(", "), self.url, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        self.names.iter().try_for_each(|name| write!(f, " {name:?}"))
    }
}
