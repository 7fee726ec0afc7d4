//! Identities.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The group of whoever has shown credentials.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of whoever has shown none.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Who has shown no credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// The group whose members may do everything, whatever roles say.
pub(crate) const MASTERS: &str = "system:masters";
/// What the name of a service account's user begins with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Who sent a request. It travels in the request's extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Such as `system:admin`.
    pub name: String,
    /// Tells apart users that had one name at different times; mostly empty.
    pub uid: String,
    /// Such as `system:masters`.
    pub groups: Vec<String>,
    /// What else is known, such as the pod that a token was made for.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user with these groups.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { name: name.into(), groups: groups.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The identity of in-process clients and of the kubeconfig's credentials: it may do everything.
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS, AUTHENTICATED])
    }

    /// The identity of requests without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// The user that a service account is
    /// (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#service-account-tokens>).
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let mut groups = service_account_groups(namespace);
        groups.push(AUTHENTICATED.into());
        Self::new(service_account_name(namespace, name), groups)
    }

    /// Whether this is someone who may do everything.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// As `userInfo` stands in reviews: what is empty is left out.
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

/// The name of a service account's user.
pub(crate) fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// The namespace and name of the service account that a user is, if one.
pub(crate) fn as_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups of every service account of a namespace.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}
