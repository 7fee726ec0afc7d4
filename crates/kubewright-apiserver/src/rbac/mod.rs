//! Role-based access control: which rules are bound to whom
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/>).
//!
//! Roles and bindings are objects like others; the registry's entries tell every change of one to [`Grants`], an index that
//! is swapped whole. A request looks at one state of it and locks nothing. Nothing here knows where the rules come from.

mod rule;

use std::{collections::BTreeSet, sync::Arc};

use arc_swap::ArcSwap;
use imbl::{OrdMap, OrdSet};

pub(crate) use self::rule::{Rule, missing, quoted};
use crate::auth::{Attempt, UserInfo};

/// A role's or a binding's namespace, empty for those of the whole cluster, and its name.
pub(crate) type Place = (Arc<str>, Arc<str>);

/// Whom rules can be bound to. A service account is its user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    User(Arc<str>),
    Group(Arc<str>),
}

/// A binding: a role, and to whom it is bound.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) role: Place,
    /// How messages name the binding and its role.
    pub(crate) shown: String,
    /// Each with how messages name it.
    pub(crate) subjects: Vec<(Subject, String)>,
}

/// Whether something is allowed, and why; the reason may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    pub(crate) reason: String,
}

/// All that someone may do in a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) rules: Vec<Rule>,
    /// Which roles are bound and don't exist.
    pub(crate) errors: Vec<String>,
}

/// All roles and bindings, ready to be asked.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    index: ArcSwap<Index>,
}

#[derive(Clone, Debug, Default)]
struct Index {
    roles: OrdMap<Place, Arc<[Rule]>>,
    bindings: OrdMap<Place, Arc<Binding>>,
    /// The bindings of each subject in each namespace.
    bound: OrdMap<(Subject, Arc<str>), OrdSet<Arc<str>>>,
}

impl Grants {
    /// Puts these rules in the place of the role's; `None` removes it.
    pub(crate) fn set_role(&self, place: &Place, rules: Option<Vec<Rule>>) {
        let rules: Option<Arc<[Rule]>> = rules.map(Into::into);
        self.index.rcu(|present| {
            let mut next = Index::clone(present);
            match &rules {
                Some(rules) => next.roles.insert(place.clone(), rules.clone()),
                None => next.roles.remove(place),
            };
            next
        });
    }

    /// Puts this binding in the place of what it was; `None` removes it.
    pub(crate) fn set_binding(&self, place: &Place, binding: Option<Binding>) {
        let binding = binding.map(Arc::new);
        self.index.rcu(|present| {
            let mut next = Index::clone(present);
            next.unbind(place);
            if let Some(binding) = &binding {
                next.bind(place, binding);
            }
            next
        });
    }

    /// The rules of a role; of the whole cluster without a namespace.
    pub(crate) fn role(&self, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        self.index.load().roles.get(&(namespace.into(), name.into())).map(|rules| rules.to_vec())
    }

    /// Whether a user may do something.
    pub(crate) fn decide(&self, user: &UserInfo, attempt: &Attempt) -> Verdict {
        if user.is_master() {
            return Verdict { allowed: true, reason: String::new() };
        }
        let index = self.index.load();
        let mut errors = BTreeSet::new();
        for (binding, subject) in index.bindings_of(user, &attempt.namespace) {
            match index.roles.get(&binding.role) {
                Some(rules) if rules.iter().any(|rule| rule.allows(attempt)) => {
                    let reason = format!("RBAC: allowed by {} to {subject}", binding.shown);
                    return Verdict { allowed: true, reason };
                }
                Some(_) => {}
                None => {
                    errors.insert(no_role(&binding.role));
                }
            }
        }
        let errors: Vec<_> = errors.into_iter().collect();
        let reason = match errors.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
        Verdict { allowed: false, reason }
    }

    /// All that a user may do in a namespace, or with an empty one everywhere.
    pub(crate) fn held(&self, user: &UserInfo, namespace: &str) -> Held {
        let index = self.index.load();
        let mut held = Held::default();
        for (binding, _) in index.bindings_of(user, namespace) {
            match index.roles.get(&binding.role) {
                Some(rules) => held.rules.extend(rules.iter().cloned()),
                None => held.errors.push(no_role(&binding.role)),
            }
        }
        held
    }
}

fn no_role((namespace, name): &Place) -> String {
    let resource = if namespace.is_empty() { "clusterrole" } else { "role" };
    format!("{resource}.rbac.authorization.k8s.io {name:?} not found")
}

impl Index {
    fn bind(&mut self, place: &Place, binding: &Arc<Binding>) {
        let (namespace, name) = place;
        self.bindings.insert(place.clone(), binding.clone());
        for (subject, _) in &binding.subjects {
            self.bound.entry((subject.clone(), namespace.clone())).or_default().insert(name.clone());
        }
    }

    fn unbind(&mut self, place: &Place) {
        let (namespace, name) = place;
        let Some(binding) = self.bindings.remove(place) else { return };
        for (subject, _) in &binding.subjects {
            let bound = (subject.clone(), namespace.clone());
            if let Some(names) = self.bound.get_mut(&bound) {
                names.remove(name);
                if names.is_empty() {
                    self.bound.remove(&bound);
                }
            }
        }
    }

    /// The bindings that concern a user, each with how it names them: first the cluster's, then the namespace's, by name.
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
                names.extend(self.bound.get(&(subject.clone(), scope.clone())).into_iter().flatten().cloned());
            }
            for name in names {
                let binding = self.bindings.get(&(scope.clone(), name));
                found.extend(binding.and_then(|binding| {
                    let (_, shown) = binding.subjects.iter().find(|(subject, _)| subjects.contains(subject))?;
                    Some((&**binding, shown.as_str()))
                }));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
