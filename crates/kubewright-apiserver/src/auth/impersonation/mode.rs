//! The modes of constrained impersonation, whose roles also say what may be done as the other user
//! (<https://kep.k8s.io/5284>).

use kubewright_apimachinery::{name, status::Status};

use crate::{
    auth::{
        attributes::Attributes,
        user::{MASTERS, UserInfo, as_service_account},
    },
    authorizer::{Authorizer, Decision},
};

/// The API group of what is impersonated.
const GROUP: &str = "authentication.k8s.io";
/// The prefix of the user names of nodes.
const NODE: &str = "system:node:";
/// The extra field with the node of a service account's pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The number of groups or extra values from which all of them are asked for at once.
const MANY: usize = 4;

/// A mode of constrained impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A service account acts as the node of its pod.
    AssociatedNode,
    /// A user acts as any node.
    ArbitraryNode,
    /// A user acts as a service account.
    ServiceAccount,
    /// A user acts as a user that is neither a node nor a service account.
    UserInfo,
}

impl Mode {
    /// All modes, in the order in which they are tried.
    pub(super) const ALL: [Self; 4] = [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo];

    /// Returns the verb on the user, which the audit log calls the constraint.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
        }
    }

    /// Returns the verb on the object of a request with another verb.
    fn verb_on(self, verb: &str) -> String {
        let mode = self.verb().trim_start_matches("impersonate:");
        format!("impersonate-on:{mode}:{verb}")
    }

    /// Returns whether a user can be impersonated in this mode.
    pub(super) fn covers(self, requester: &UserInfo, wanted: &UserInfo) -> bool {
        let has_name_only = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = as_service_account(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let own = requester.extra.get(NODE_NAME).map(Vec::as_slice);
                has_name_only
                    && as_service_account(&requester.name).is_some()
                    && node.is_some_and(|node| matches!(own, Some([own]) if own == node))
            }
            Self::ArbitraryNode => has_name_only && node.is_some(),
            Self::ServiceAccount => has_name_only && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
        }
    }

    /// Checks that a user may send a request as another user in this mode.
    ///
    /// # Errors
    /// Returns 403.
    pub(super) fn check(
        self,
        authorizer: &Authorizer,
        requester: &UserInfo,
        request: &Attributes,
        wanted: &UserInfo,
    ) -> Result<(), Status> {
        let check = Check { mode: self, authorizer, requester };
        check.allows(&request.with_verb(&self.verb_on(&request.verb)))?;
        let attributes = match (node_name(&wanted.name), as_service_account(&wanted.name)) {
            // Kubernetes remembers the decision for all nodes.
            (Some(_), _) if self == Self::AssociatedNode => check.attributes("nodes", "*"),
            (Some(node), _) => check.attributes("nodes", node),
            (_, Some((namespace, name))) => {
                Attributes { namespace: namespace.into(), ..check.attributes("serviceaccounts", name) }
            }
            _ => check.attributes("users", &wanted.name),
        };
        check.allows(&attributes)?;
        if !wanted.uid.is_empty() {
            check.allows(&check.attributes("uids", &wanted.uid))?;
        }
        check.groups(wanted)?;
        check.extra(wanted)
    }
}

/// Returns the name of the node with this user name, if it is one.
pub(super) fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE).filter(|name| name::dns1123_subdomain(name).is_empty())
}

/// The check of what is impersonated in a mode.
struct Check<'a> {
    mode: Mode,
    authorizer: &'a Authorizer,
    requester: &'a UserInfo,
}

impl Check<'_> {
    fn attributes(&self, resource: &str, name: &str) -> Attributes {
        Attributes {
            verb: self.mode.verb().into(),
            group: GROUP.into(),
            resource: resource.into(),
            name: name.into(),
            ..Attributes::default()
        }
    }

    fn allows(&self, attributes: &Attributes) -> Result<(), Status> {
        let Decision { allowed, reason, .. } = self.authorizer.authorize(self.requester, attributes);
        if allowed { Ok(()) } else { Err(attributes.forbidden(self.requester, &reason)) }
    }

    fn groups(&self, wanted: &UserInfo) -> Result<(), Status> {
        let groups = &wanted.groups;
        let refuse = |group: &str, why: &str| Err(self.attributes("groups", group).forbidden(self.requester, why));
        if groups.iter().any(String::is_empty) {
            return refuse("", "impersonating the empty string group is not allowed");
        }
        if groups.iter().any(|group| group == MASTERS) {
            return refuse(MASTERS, "impersonating the system:masters group is not allowed");
        }
        if groups.len() >= MANY && self.allows(&self.attributes("groups", "*")).is_ok() {
            return Ok(());
        }
        groups.iter().try_for_each(|group| self.allows(&self.attributes("groups", group)))
    }

    fn extra(&self, wanted: &UserInfo) -> Result<(), Status> {
        let extra = &wanted.extra;
        let attributes =
            |key: &str, value: &str| Attributes { subresource: key.into(), ..self.attributes("userextras", value) };
        if let Some(why) = extra.iter().find_map(|(key, values)| problem(key, values)) {
            return Err(attributes("", "").forbidden(self.requester, &why));
        }
        let count: usize = extra.values().map(Vec::len).sum();
        if count >= MANY && self.allows(&attributes("*", "*")).is_ok() {
            return Ok(());
        }
        let mut all = extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        all.try_for_each(|(key, value)| self.allows(&attributes(key, value)))
    }
}

/// Returns why an extra field can't be impersonated in these modes.
fn problem(key: &str, values: &[String]) -> Option<String> {
    let why = match key.split_once('/') {
        _ if key.is_empty() => "the empty string key in extra is not allowed".to_owned(),
        Some((domain, path)) if !path.is_empty() && name::dns1123_subdomain(domain).is_empty() => {
            if values.iter().any(String::is_empty) {
                "the empty string value in extra is not allowed".to_owned()
            } else if key.chars().any(char::is_uppercase) {
                format!("a non-lowercase key in extra is not allowed: {key:?}")
            } else {
                return None;
            }
        }
        _ => format!(
            "an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: must be a domain-prefixed path \
             (such as \"acme.io/foo\")"
        ),
    };
    Some(format!("impersonating {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_cover_different_users() {
        let mut agent = UserInfo::service_account("kube-system", "agent");
        agent.extra.insert(NODE_NAME.into(), vec!["a".into()]);
        let covering = |requester: &UserInfo, wanted: &UserInfo| {
            Mode::ALL.into_iter().filter(|mode| mode.covers(requester, wanted)).collect::<Vec<_>>()
        };
        let named = |name: &str| UserInfo { name: name.into(), ..UserInfo::default() };
        assert_eq!(covering(&agent, &named("system:node:a")), [Mode::AssociatedNode, Mode::ArbitraryNode]);
        assert_eq!(covering(&agent, &named("system:node:b")), [Mode::ArbitraryNode]);
        assert_eq!(covering(&agent, &named("system:node:B_")), [Mode::UserInfo]);
        assert_eq!(covering(&agent, &named("system:serviceaccount:a:b")), [Mode::ServiceAccount]);
        assert_eq!(covering(&agent, &named("jane")), [Mode::UserInfo]);
        let with_groups = |name: &str| UserInfo { groups: vec!["g".into()], ..named(name) };
        assert_eq!(covering(&agent, &with_groups("system:node:a")), []);
        assert_eq!(covering(&agent, &with_groups("jane")), [Mode::UserInfo]);
    }
}
