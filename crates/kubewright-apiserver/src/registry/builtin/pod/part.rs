//! The parts of a pod that subresources change: its ephemeral containers, and the resources of its containers.

use serde_json::Value;

use crate::fields::{each, list, remove, set, text};

/// Restores the spec of a pod, except for the part that a subresource changes.
pub(super) fn restore(subresource: &str, old: &Value, new: &mut Value) {
    let spec = match subresource {
        "ephemeralcontainers" => with(&old["spec"], &mut new["spec"], "ephemeralContainers"),
        "resize" => match resized(&old["spec"], &mut new["spec"]) {
            Some(spec) => spec,
            // The validation reports it.
            None => return,
        },
        _ => return,
    };
    set(new, "spec", spec);
}

/// Returns the old spec with a field of the new one.
fn with(old: &Value, new: &mut Value, name: &str) -> Value {
    let mut spec = old.clone();
    match remove(new, name) {
        Some(value) => set(&mut spec, name, value),
        None => drop(remove(&mut spec, name)),
    }
    spec
}

/// Returns the old spec with the new resources, or `None` if containers were added, removed, renamed or reordered.
fn resized(old: &Value, new: &mut Value) -> Option<Value> {
    const LISTS: [&str; 2] = ["/containers", "/initContainers"];
    if LISTS.iter().any(|name| list(old, name).len() != list(new, name).len()) {
        return None;
    }
    let mut spec = with(old, new, "resources");
    for name in LISTS {
        let changed = list(new, name);
        // As in Kubernetes, a list with other names is not restored.
        if list(old, name).iter().zip(changed).any(|(old, new)| text(old, "/name") != text(new, "/name")) {
            set(&mut spec, &name[1..], changed.to_vec());
            continue;
        }
        for (container, changed) in each(&mut spec, &name[1..]).zip(changed) {
            for field in ["resources", "resizePolicy"] {
                match changed.get(field) {
                    Some(value) => set(container, field, value.clone()),
                    None => drop(remove(container, field)),
                }
            }
        }
    }
    Some(spec)
}
