//! The selection of the controllers that a cluster runs.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// The controllers that a cluster runs, under the names that `kube-controller-manager --controllers` has for them. The
/// default is all of them.
///
/// What kube-apiserver does itself isn't among them and always runs: the deletion of the objects of a custom kind, the
/// expiry of events, the service `kubernetes`, the objects of the addresses of services, the availability of aggregated
/// API servers and the APIServices of custom kinds.
///
/// It is parsed from a list of names: `all` (or `*`), `none`, or names separated by commas, of which `-name` removes
/// one. A list that begins with a removal removes from all.
///
/// ```
/// use kubewright_cluster::Controllers;
///
/// let some: Controllers = "job-controller,namespace-controller".parse()?;
/// let others: Controllers = "-job-controller,-namespace-controller".parse()?;
/// assert!(some.contains("job-controller") && !others.contains("job-controller"));
/// assert!("jobs".parse::<Controllers>().is_err());
/// # Ok::<(), kubewright_cluster::UnknownController>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<&'static str>);

/// A name that no controller has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no controller is called {0:?}; there are {names}", names = Controllers::NAMES.join(", "))]
pub struct UnknownController(String);

impl Controllers {
    /// The names of all controllers, in order.
    pub const NAMES: [&'static str; 31] = [
        "certificatesigningrequest-approving-controller",
        "certificatesigningrequest-cleaner-controller",
        "certificatesigningrequest-signing-controller",
        "clusterrole-aggregation-controller",
        "cronjob-controller",
        "daemonset-controller",
        "deployment-controller",
        "device-taint-eviction-controller",
        "disruption-controller",
        "endpointslice-controller",
        "endpointslicemirroring-controller",
        "ephemeral-volume-controller",
        "garbage-collector-controller",
        "horizontal-pod-autoscaler-controller",
        "job-controller",
        "namespace-controller",
        "node-lifecycle-controller",
        "persistentvolume-binder-controller",
        "persistentvolume-protection-controller",
        "pod-garbage-collector-controller",
        "replicaset-controller",
        "replicationcontroller-controller",
        "resourceclaim-controller",
        "resourcequota-controller",
        "service-cidr-controller",
        "serviceaccount-controller",
        "serviceaccount-token-controller",
        "statefulset-controller",
        "taint-eviction-controller",
        "ttl-controller",
        "validatingadmissionpolicy-status-controller",
    ];

    /// Returns the selection of all controllers.
    pub fn all() -> Self {
        Self(Self::NAMES.into())
    }

    /// Returns the empty selection.
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns whether the selection has the controller of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl Default for Controllers {
    fn default() -> Self {
        Self::all()
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0 => f.write_str("none"),
            all if all == Self::NAMES.len() => f.write_str("all"),
            _ => f.write_str(&self.0.iter().copied().collect::<Vec<_>>().join(",")),
        }
    }
}

impl FromStr for Controllers {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, UnknownController> {
        let words = text.split(',').map(str::trim);
        let mut selected = if text.trim_start().starts_with('-') { Self::all() } else { Self::none() };
        for word in words {
            let name = word.strip_prefix('-').unwrap_or(word);
            match (word, Self::NAMES.iter().find(|known| **known == name)) {
                ("all" | "*", _) => selected = Self::all(),
                ("none", _) => selected = Self::none(),
                (_, None) => return Err(UnknownController(name.to_owned())),
                (_, Some(_)) if word.starts_with('-') => {
                    selected.0.remove(name);
                }
                (_, Some(name)) => {
                    selected.0.insert(name);
                }
            }
        }
        Ok(selected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_adds_and_removes() {
        let check =
            |text: &str, expect: &str| assert_eq!(text.parse::<Controllers>().unwrap().to_string(), expect, "{text}");
        check("all", "all");
        check("*", "all");
        check("none", "none");
        check("job-controller, deployment-controller", "deployment-controller,job-controller");
        check("deployment-controller,job-controller,-job-controller", "deployment-controller");
        let removed = "-job-controller".parse::<Controllers>().unwrap();
        assert_eq!("*,-job-controller".parse(), Ok(removed.clone()));
        assert!(!removed.contains("job-controller") && removed.contains("deployment-controller"));
        let error = "all,jobs".parse::<Controllers>().unwrap_err().to_string();
        assert!(error.starts_with("no controller is called \"jobs\"; there are certificate"), "{error}");
    }
}
