//! The required terms of the affinity and anti-affinity between pods. Pure.

use std::collections::BTreeMap;

use kubewright_apimachinery::selector::LabelSelector;
use serde_json::Value;

use crate::controllers::value::{list, selector, text};

/// The labels of all namespaces.
pub(super) type Namespaces = BTreeMap<String, Value>;

/// A required term: which pods it selects, and what they share a node or zone by.
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

    /// Returns whether two nodes have the same value of the topology key.
    pub(super) fn joins(&self, node: &Value, other: &Value) -> bool {
        let [here, there] = [node, other].map(|node| node["metadata"]["labels"][&self.topology_key].as_str());
        here.is_some() && here == there
    }

    /// Returns whether a node has the topology key.
    pub(super) fn is_known_by(&self, node: &Value) -> bool {
        node["metadata"]["labels"][&self.topology_key].is_string()
    }
}

/// Returns the required terms of a pod's affinity.
pub(super) fn affinity(pod: &Value) -> Vec<Term> {
    terms(pod, &pod["spec"]["affinity"]["podAffinity"])
}

/// Returns the required terms of a pod's anti-affinity.
pub(super) fn anti_affinity(pod: &Value) -> Vec<Term> {
    terms(pod, &pod["spec"]["affinity"]["podAntiAffinity"])
}

fn terms(pod: &Value, of: &Value) -> Vec<Term> {
    let required = list(of, "/requiredDuringSchedulingIgnoredDuringExecution");
    required.iter().map(|term| Term::new(pod, term)).collect()
}
