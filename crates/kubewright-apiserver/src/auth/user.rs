//! Users.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The group of all users with valid credentials.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of users without credentials.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of requests without credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// The group whose members have unrestricted access, regardless of roles.
pub(crate) const MASTERS: &str = "system:masters";
/// The extra field with the identity of the credentials.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The group of nodes.
const NODES: &str = "system:nodes";
/// The prefix of the user names of nodes.
const NODE: &str = "system:node:";
/// The prefix of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that sent a request. It is stored in the request's extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The name, such as `system:admin`.
    pub name: String,
    /// The UID, which distinguishes users that had the same name at different times; often empty.
    pub uid: String,
    /// The groups, such as `system:masters`.
    pub groups: Vec<String>,
    /// Additional attributes, such as the pod that a token was issued for.
    pub extra: BTreeMap<String, Vec<String>>,
    /// Whether roles don't limit the user.
    pub(crate) is_unrestricted: bool,
    /// Whether webhooks and admission policies don't see the user's requests.
    pub(crate) skips_admission: bool,
}

impl UserInfo {
    /// Creates a user with these groups.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { name: name.into(), groups: groups.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Returns the user of in-process clients and of the kubeconfig's credentials, which has unrestricted access.
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS, AUTHENTICATED])
    }

    /// Gives the user unrestricted access, whatever its name and groups. Webhooks, policies and extension API servers
    /// see the name and the groups only. For parts of the cluster that run in the process of the API server.
    pub fn unrestricted(self) -> Self {
        Self { is_unrestricted: true, ..self }
    }

    /// Hides the user's requests from webhooks and admission policies. For what Kubernetes' API server writes in its
    /// storage directly.
    pub fn without_admission(self) -> Self {
        Self { skips_admission: true, ..self }
    }

    /// Adds the group of all users with valid credentials, unless the user is in it or has none.
    pub(crate) fn authenticated(mut self) -> Self {
        let is_in = self.groups.iter().any(|group| [AUTHENTICATED, UNAUTHENTICATED].contains(&group.as_str()));
        if self.name != ANONYMOUS && !is_in {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }

    /// Returns the user of requests without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// Returns the user of a service account
    /// (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#service-account-tokens>).
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let mut groups = service_account_groups(namespace);
        groups.push(AUTHENTICATED.into());
        Self::new(service_account_name(namespace, name), groups)
    }

    /// Returns whether roles don't limit the user, who is in `system:masters` or a part of the cluster.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted || self.groups.iter().any(|group| group == MASTERS)
    }

    /// Returns the name of the node that the user is, if it is one.
    pub(crate) fn node(&self) -> Option<&str> {
        let name = self.name.strip_prefix(NODE)?;
        self.groups.iter().any(|group| group == NODES).then_some(name)
    }

    /// Returns the user as `userInfo` of reviews, without empty fields.
    pub(crate) fn to_value(&self) -> Value {
        let mut user = json!({"username": self.name});
        if !self.uid.is_empty() {
            user["uid"] = self.uid.as_str().into();
        }
        if !self.groups.is_empty() {
            user["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            user["extra"] = json!(self.extra);
        }
        user
    }
}

/// Returns the user name of a service account.
pub(crate) fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// Returns the namespace and name of the service account with this user name, if it is one.
pub(crate) fn as_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// Returns the groups of all service accounts of a namespace.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}
