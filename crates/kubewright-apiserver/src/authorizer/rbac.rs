//! Role-based access control (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/>).
//!
//! Roles and bindings are ordinary objects. Their strategies report every change to [`Roles`], an index of which each
//! request uses one consistent state. This module doesn't know the objects from which the rules come.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::RwLock;

use super::{Decision, EffectiveRules, rule::PolicyRule};
use crate::{
    auth::{attributes::Attributes, user::UserInfo},
    sorted_map::SortedMap,
};

/// The namespace of a role or binding, empty for cluster-wide ones, and its name.
pub(crate) type RoleKey = (Arc<str>, Arc<str>);

/// A user or group that a role is bound to. A service account is represented by its user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    User(Arc<str>),
    Group(Arc<str>),
}

/// A binding of a role to subjects.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) role: RoleKey,
    /// The binding and its role, as shown in messages.
    pub(crate) description: String,
    /// The subjects, each with its name in messages.
    pub(crate) subjects: Vec<(Subject, String)>,
}

/// All roles and bindings.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    index: RwLock<Arc<Index>>,
}

/// Names of bindings.
type Names = Arc<BTreeSet<Arc<str>>>;

#[derive(Clone, Debug, Default)]
struct Index {
    roles: SortedMap<RoleKey, Arc<[PolicyRule]>>,
    bindings: SortedMap<RoleKey, Arc<Binding>>,
    /// The names of the bindings of each subject in each namespace.
    bound: SortedMap<(Subject, Arc<str>), Names>,
}

impl Roles {
    /// Sets the rules of a role. `None` removes the role.
    pub(crate) fn set_role(&self, key: &RoleKey, rules: Option<Vec<PolicyRule>>) {
        let mut index = self.index.write();
        let roles = &mut Arc::make_mut(&mut index).roles;
        match rules {
            Some(rules) => roles.insert(key.clone(), rules.into()),
            None => drop(roles.remove(key)),
        }
    }

    /// Sets a binding. `None` removes it.
    pub(crate) fn set_binding(&self, key: &RoleKey, binding: Option<Binding>) {
        let mut present = self.index.write();
        let index = Arc::make_mut(&mut present);
        index.unbind(key);
        if let Some(binding) = binding {
            index.bind(key, &Arc::new(binding));
        }
    }

    /// Returns the rules of a role, or of a cluster role if there is no namespace.
    pub(crate) fn role(&self, namespace: &str, name: &str) -> Option<Vec<PolicyRule>> {
        self.index.read().roles.get(&(namespace.into(), name.into())).map(|rules| rules.to_vec())
    }

    /// Decides whether a user is allowed to make a request.
    pub(super) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let index = self.index.read().clone();
        let mut errors = BTreeSet::new();
        for (binding, subject) in index.bindings_of(user, &attributes.namespace) {
            match index.roles.get(&binding.role) {
                Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    let reason = format!("RBAC: allowed by {} to {subject}", binding.description);
                    return Decision::allow(reason);
                }
                Some(_) => {}
                None => {
                    errors.insert(role_not_found(&binding.role));
                }
            }
        }
        let errors: Vec<_> = errors.into_iter().collect();
        let reason = match errors.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
        Decision::no_opinion(reason)
    }

    /// Returns the rules that are bound to a user in a namespace, or in the whole cluster if it is empty.
    pub(super) fn rules(&self, user: &UserInfo, namespace: &str) -> EffectiveRules {
        let index = self.index.read().clone();
        let mut bound = EffectiveRules::default();
        for (binding, _) in index.bindings_of(user, namespace) {
            match index.roles.get(&binding.role) {
                Some(rules) => bound.rules.extend(rules.iter().cloned()),
                None => bound.errors.push(role_not_found(&binding.role)),
            }
        }
        bound
    }
}

fn role_not_found((namespace, name): &RoleKey) -> String {
    let resource = if namespace.is_empty() { "clusterrole" } else { "role" };
    format!("{resource}.rbac.authorization.k8s.io {name:?} not found")
}

impl Index {
    fn bind(&mut self, key: &RoleKey, binding: &Arc<Binding>) {
        let (namespace, name) = key;
        self.bindings.insert(key.clone(), binding.clone());
        for (subject, _) in &binding.subjects {
            let bound = (subject.clone(), namespace.clone());
            let mut names = self.bound.remove(&bound).unwrap_or_default();
            Arc::make_mut(&mut names).insert(name.clone());
            self.bound.insert(bound, names);
        }
    }

    fn unbind(&mut self, key: &RoleKey) {
        let (namespace, name) = key;
        let Some(binding) = self.bindings.remove(key) else { return };
        for (subject, _) in &binding.subjects {
            let bound = (subject.clone(), namespace.clone());
            if let Some(mut names) = self.bound.remove(&bound) {
                Arc::make_mut(&mut names).remove(name);
                if !names.is_empty() {
                    self.bound.insert(bound, names);
                }
            }
        }
    }

    /// Returns the bindings of a user, each with the matching subject's name in messages: first those of the cluster,
    /// then those of the namespace, by name.
    fn bindings_of(&self, user: &UserInfo, namespace: &str) -> Vec<(&Binding, &str)> {
        let groups = user.groups.iter().map(|group| Subject::Group(group.as_str().into()));
        let subjects: Vec<_> = std::iter::once(Subject::User(user.name.as_str().into())).chain(groups).collect();
        let mut scopes: Vec<Arc<str>> = vec!["".into()];
        if !namespace.is_empty() {
            scopes.push(namespace.into());
        }
        let mut found = Vec::new();
        for scope in scopes {
            let mut names = BTreeSet::new();
            for subject in &subjects {
                names.extend(
                    self.bound
                        .get(&(subject.clone(), scope.clone()))
                        .into_iter()
                        .flat_map(|names| names.iter().cloned()),
                );
            }
            for name in names {
                let binding = self.bindings.get(&(scope.clone(), name));
                found.extend(binding.and_then(|binding| {
                    let (_, name) = binding.subjects.iter().find(|(subject, _)| subjects.contains(subject))?;
                    Some((&**binding, name.as_str()))
                }));
            }
        }
        found
    }
}
