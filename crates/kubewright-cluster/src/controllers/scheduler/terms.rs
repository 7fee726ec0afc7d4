//! The terms of the affinity and anti-affinity between pods. Pure.

use std::collections::BTreeMap;

use kubewright_apimachinery::selector::LabelSelector;
use serde_json::Value;

use crate::controllers::value::{int, list, selector, text};

/// The labels of all namespaces.
pub(super) type Namespaces = BTreeMap<String, Value>;

/// A topology key with a value of it: a node, a zone, or another set of nodes.
pub(super) type Domain<'a> = (&'a str, &'a str);

/// Which pods a term selects, and the topology key of the domain that they share.
#[derive(Clone, Debug)]
pub(super) struct Term {
    namespaces: Vec<String>,
    namespace_selector: LabelSelector,
    selector: LabelSelector,
    topology_key: String,
}

impl Term {
    fn new(pod: &Value, term: &Value) -> Self {
        let mut namespaces: Vec<_> =
            list(term, "/namespaces").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if namespaces.is_empty() && term["namespaceSelector"].is_null() {
            namespaces.push(text(pod, "/metadata/namespace").to_owned());
        }
        Self {
            namespaces,
            namespace_selector: selector(term, "/namespaceSelector"),
            selector: selector(term, "/labelSelector"),
            topology_key: text(term, "/topologyKey").to_owned(),
        }
    }

    /// Returns whether the term selects a pod of a namespace, wherever it runs.
    pub(super) fn selects<S: AsRef<str>>(
        &self,
        namespace: &str,
        label: impl Fn(&str) -> Option<S>,
        namespaces: &Namespaces,
    ) -> bool {
        let named = || self.namespaces.iter().any(|name| name == namespace);
        let selected = || {
            // A namespace without labels is selected by an empty selector.
            self.namespace_selector.matches_labels(namespaces.get(namespace).unwrap_or(&Value::Null))
        };
        self.selector.matches(label) && (named() || selected())
    }

    /// Returns the domain of a node by the topology key; `None` for a node without the label.
    pub(super) fn domain<'a>(&'a self, node: &'a Value) -> Option<Domain<'a>> {
        let value = node["metadata"]["labels"][&self.topology_key].as_str()?;
        Some((&self.topology_key, value))
    }
}

/// The terms of a pod.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The required ones of its affinity.
    pub(super) affinity: Vec<Term>,
    /// The required ones of its anti-affinity.
    pub(super) anti_affinity: Vec<Term>,
    /// The preferred ones with their weights, which are negative for those of its anti-affinity.
    pub(super) preferred: Vec<(Term, i64)>,
}

impl Terms {
    /// Returns the terms of a pod.
    pub(super) fn of(pod: &Value) -> Self {
        let [affinity, anti_affinity] = ["podAffinity", "podAntiAffinity"].map(|kind| &pod["spec"]["affinity"][kind]);
        let required = |kind| list(kind, "/requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = |kind| list(kind, "/preferredDuringSchedulingIgnoredDuringExecution").iter();
        let weighted = |sign| {
            move |one: &Value| (Term::new(pod, &one["podAffinityTerm"]), int(one, "/weight").saturating_mul(sign))
        };
        Self {
            affinity: required(affinity).map(|term| Term::new(pod, term)).collect(),
            anti_affinity: required(anti_affinity).map(|term| Term::new(pod, term)).collect(),
            preferred: preferred(affinity).map(weighted(1)).chain(preferred(anti_affinity).map(weighted(-1))).collect(),
        }
    }

    /// Returns whether the pod requires anything of other pods.
    pub(super) fn are_required(&self) -> bool {
        !self.affinity.is_empty() || !self.anti_affinity.is_empty()
    }

    /// Returns whether the pod has no terms.
    pub(super) fn is_empty(&self) -> bool {
        !self.are_required() && self.preferred.is_empty()
    }
}
