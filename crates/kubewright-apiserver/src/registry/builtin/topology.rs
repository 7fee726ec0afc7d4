//! The labels of nodes that say where they are, which pods get when they are assigned to one
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#podtopologylabels>).

use std::collections::BTreeMap;

use parking_lot::RwLock;
use serde_json::{Map, Value};

use crate::fields::{entries, set, text, within};

/// The labels that are copied.
const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// The topology labels of the nodes that have some, by name.
#[derive(Debug, Default)]
pub(crate) struct NodeTopology(RwLock<BTreeMap<String, Map<String, Value>>>);

impl NodeTopology {
    /// Sets the labels of a node on a pod, or on its binding, instead of those that it has. A node that doesn't exist
    /// has none.
    pub(in crate::registry::builtin) fn label(&self, object: &mut Value, node: &str) {
        if let Some(labels) = self.0.read().get(node) {
            within(object, "metadata", |metadata| {
                within(metadata, "labels", |present| {
                    labels.iter().for_each(|(name, value)| set(present, name, value.clone()));
                });
            });
        }
    }

    /// Replaces a node.
    pub(in crate::registry::builtin) fn replace(&self, before: Option<&Value>, after: Option<&Value>) {
        let Some(node) = after.or(before) else { return };
        let labels = after.into_iter().flat_map(|node| entries(node, "/metadata/labels"));
        let copied = labels.filter(|(name, _)| LABELS.contains(&name.as_str()));
        let copied: Map<_, _> = copied.map(|(name, value)| (name.clone(), value.clone())).collect();
        let name = text(node, "/metadata/name");
        if copied.is_empty() {
            self.0.write().remove(name);
        } else {
            self.0.write().insert(name.to_owned(), copied);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zone_and_region_replace_those_of_the_object() {
        let topology = NodeTopology::default();
        let node = |labels: Value| json!({"metadata": {"name": "n", "labels": labels}});
        let full = node(json!({
            "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "b", "kubernetes.io/hostname": "n",
        }));
        topology.replace(None, Some(&full));
        let labels = |name: &str| {
            let mut pod = json!({"metadata": {"labels": {"app": "x", "topology.kubernetes.io/zone": "old"}}});
            topology.label(&mut pod, name);
            pod["metadata"]["labels"].clone()
        };
        let expect = json!({"app": "x", "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "b"});
        assert_eq!(labels("n"), expect);
        let own = json!({"app": "x", "topology.kubernetes.io/zone": "old"});
        assert_eq!(labels("other"), own);
        let plain = node(json!({"kubernetes.io/hostname": "n"}));
        topology.replace(Some(&full), Some(&plain));
        assert_eq!(labels("n"), own);
        topology.replace(Some(&plain), Some(&full));
        topology.replace(Some(&full), None);
        assert_eq!(labels("n"), own);
    }
}
