//! All admission policies and their bindings.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;

use super::{
    attributes::Attributes,
    policy::{Policy, PolicyBinding},
    webhooks::Phase,
};
use crate::registry::Resource;

/// A policy whose rules match a request, with its bindings whose rules match too.
#[derive(Clone, Debug)]
pub(super) struct PolicyMatch {
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<Arc<PolicyBinding>>,
    /// The version of the resource that the rules name, and in which the policy sees the object.
    pub(super) resource: Arc<Resource>,
}

/// The policies and bindings of one phase.
#[derive(Clone, Debug, Default)]
struct Index {
    policies: BTreeMap<Arc<str>, Arc<Policy>>,
    /// The bindings of each policy, by name.
    bindings: BTreeMap<String, BTreeMap<Arc<str>, Arc<PolicyBinding>>>,
}

/// All admission policies and their bindings.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    mutating: RwLock<Arc<Index>>,
    validating: RwLock<Arc<Index>>,
}

impl Policies {
    fn of(&self, phase: Phase) -> &RwLock<Arc<Index>> {
        match phase {
            Phase::Mutating => &self.mutating,
            Phase::Validating => &self.validating,
        }
    }

    /// Sets a policy. `None` removes it.
    pub(crate) fn set_policy(&self, phase: Phase, name: &str, policy: Option<Policy>) {
        let mut present = self.of(phase).write();
        let policies = &mut Arc::make_mut(&mut present).policies;
        match policy {
            Some(policy) => drop(policies.insert(name.into(), Arc::new(policy))),
            None => drop(policies.remove(name)),
        }
    }

    /// Sets a binding. `None` removes it.
    pub(crate) fn set_binding(&self, phase: Phase, name: &str, binding: Option<PolicyBinding>) {
        let mut present = self.of(phase).write();
        let bindings = &mut Arc::make_mut(&mut present).bindings;
        bindings.retain(|_, of_policy| {
            of_policy.remove(name);
            !of_policy.is_empty()
        });
        if let Some(binding) = binding {
            bindings.entry(binding.policy.clone()).or_default().insert(name.into(), Arc::new(binding));
        }
    }

    /// Returns whether any policy may match a request for this resource. Without bindings this is a single load for
    /// each phase.
    pub(super) fn may_match(&self, resource: &Resource) -> bool {
        [&self.mutating, &self.validating].iter().any(|index| !index.read().bindings.is_empty())
            && resource.strategy.is_admitted()
    }

    /// Returns the policies of a phase whose rules match a request, and those of a binding. `all` contains all served
    /// resources.
    pub(super) fn matching(&self, phase: Phase, attributes: &Attributes, all: &[Arc<Resource>]) -> Vec<PolicyMatch> {
        let index = self.of(phase).read().clone();
        let matching = |(name, bindings): (&String, &BTreeMap<Arc<str>, Arc<PolicyBinding>>)| {
            let policy = index.policies.get(name.as_str())?;
            let resource = policy.criteria.find(attributes, all)?;
            let matches = |binding: &&Arc<PolicyBinding>| {
                binding.criteria.as_ref().is_none_or(|criteria| criteria.find(attributes, all).is_some())
            };
            let bindings: Vec<_> = bindings.values().filter(matches).cloned().collect();
            (!bindings.is_empty()).then(|| PolicyMatch { policy: policy.clone(), bindings, resource })
        };
        index.bindings.iter().filter_map(matching).collect()
    }
}
