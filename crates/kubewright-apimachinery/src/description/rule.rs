//! The permissions of an operator: RBAC rules, each for one resource or path.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// A verb of RBAC
/// (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read all objects.
    List,
    /// Watch for changes.
    Watch,
    /// Create an object. Applying an object that doesn't exist requires it in addition to [`Patch`](Self::Patch).
    Create,
    /// Replace an object.
    Update,
    /// Change an object, or apply one.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete many objects at once.
    DeleteCollection,
    /// Bind a role with permissions that the requester doesn't have.
    Bind,
    /// Add permissions to a role that the requester doesn't have.
    Escalate,
    /// Impersonate another user.
    Impersonate,
    /// Approve certificates for a signer.
    Approve,
    /// Sign certificates for a signer.
    Sign,
    /// Use a policy or a device class.
    Use,
    /// All verbs, those that are added later too: `*`. Prefer the verbs that are needed.
    #[serde(rename = "*")]
    All,
}

/// Formats the verb as RBAC rules spell it.
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The namespaces in which a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Scope {
    /// The namespaces that the operator watches: all, or the one that the project is limited to.
    #[default]
    Watched,
    /// The namespace that the operator itself runs in.
    Own,
}

/// Verbs on one resource, or on one non-resource path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Rule {
    /// The API group of the resource, empty for the core group, `*` for all groups.
    pub group: String,
    /// The resource, with its subresource if any: `pods/eviction`. `*` are all resources with their subresources,
    /// `*/scale` the scales of all.
    pub resource: String,
    /// Names of the objects that the rule is limited to; all if empty.
    pub names: BTreeSet<String>,
    /// A path such as `/metrics`, instead of group, resource and names.
    pub url: String,
    /// The allowed verbs.
    pub verbs: BTreeSet<Verb>,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// The namespaces in which the rule applies.
    pub scope: Scope,
    /// The name of the role that contains the rule, unless it is the operator's main role.
    pub role: String,
}

/// Formats a rule as `create pods/eviction`, `get secrets "token"` or `get /metrics`.
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
