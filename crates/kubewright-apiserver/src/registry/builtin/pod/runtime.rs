//! What pods get from their runtime classes (<https://kubernetes.io/docs/concepts/containers/runtime-class/>).

use std::collections::BTreeMap;

use parking_lot::RwLock;
use serde_json::Value;

use crate::{
    fields::{set, text, within},
    registry::builtin::validation::{entries, field, items, optional_string, string as text_field},
};

const DIFFERENT_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// All runtime classes, by name.
#[derive(Debug, Default)]
pub(crate) struct RuntimeClasses(RwLock<BTreeMap<String, Value>>);

impl RuntimeClasses {
    /// Adds the overhead and the scheduling constraints of its runtime class to a new pod.
    ///
    /// # Errors
    /// Returns the reason why the pod is forbidden: its class doesn't exist, or contradicts it.
    pub(in crate::registry::builtin) fn admit(&self, pod: &mut Value) -> Result<(), String> {
        let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return Ok(()) };
        let class = match optional_string(spec, "runtimeClassName") {
            None => Value::Null,
            Some(name) => {
                let class = self.0.read().get(name).cloned();
                class.ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?
            }
        };
        set_overhead(&class, spec)?;
        set_scheduling(&class["scheduling"], spec)
    }

    /// Returns the reason why a valid pod is forbidden: its overhead isn't that of its runtime class.
    pub(in crate::registry::builtin) fn wrong_overhead(&self, pod: &Value) -> Option<&'static str> {
        let spec = &pod["spec"];
        let classes = self.0.read();
        let class = optional_string(spec, "runtimeClassName").and_then(|name| classes.get(name));
        let overhead = class.and_then(|class| field(class, "overhead"));
        match (overhead, field(spec, "overhead")) {
            (None, None) => None,
            (None, Some(_)) => {
                Some("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
            }
            (Some(overhead), own) if field(overhead, "podFixed") == own => None,
            (Some(_), _) => Some(DIFFERENT_OVERHEAD),
        }
    }

    /// Replaces a class.
    pub(in crate::registry::builtin) fn replace(&self, before: Option<&Value>, after: Option<&Value>) {
        let mut classes = self.0.write();
        match (before, after) {
            (_, Some(class)) => drop(classes.insert(text(class, "/metadata/name").to_owned(), class.clone())),
            (Some(class), None) => drop(classes.remove(text(class, "/metadata/name"))),
            (None, None) => {}
        }
    }
}

fn set_overhead(class: &Value, spec: &mut Value) -> Result<(), String> {
    let is_empty = |value: Option<&Value>| value.and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    let Some(overhead) = field(class, "overhead") else { return Ok(()) };
    let fixed = overhead.get("podFixed").filter(|fixed| !fixed.is_null());
    let sent = spec.get("overhead");
    if !is_empty(sent) && sent != fixed {
        return Err(DIFFERENT_OVERHEAD.into());
    }
    if let Some(fixed) = fixed {
        set(spec, "overhead", fixed.clone());
    }
    Ok(())
}

fn set_scheduling(scheduling: &Value, spec: &mut Value) -> Result<(), String> {
    if scheduling.is_null() {
        return Ok(());
    }
    for (key, value) in entries(scheduling, "nodeSelector") {
        let wanted = value.as_str().unwrap_or_default();
        if let Some(own) = spec["nodeSelector"][key].as_str().filter(|own| *own != wanted) {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
        within(spec, "nodeSelector", |selector| set(selector, key, wanted));
    }
    let added = items(scheduling, "tolerations");
    if !added.is_empty() {
        let merged = merge_tolerations(items(spec, "tolerations").iter().chain(added));
        set(spec, "tolerations", merged);
    }
    Ok(())
}

/// Returns the tolerations without those that others include.
fn merge_tolerations<'a>(all: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let all: Vec<_> = all.collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_redundant = merged.iter().any(|other| includes(other, toleration))
            || all[index + 1..].iter().any(|other| other != toleration && includes(other, toleration));
        if !is_redundant {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Returns whether a toleration tolerates everything that another one does.
fn includes(wide: &Value, narrow: &Value) -> bool {
    let [(key, operator, value, effect), (of_key, of_operator, of_value, of_effect)] = [wide, narrow].map(|it| {
        let value = |name| text_field(it, name);
        (value("key"), value("operator"), value("value"), value("effect"))
    });
    let seconds = |toleration: &Value| toleration.get("tolerationSeconds").and_then(Value::as_i64);
    let is_longer = match (effect, seconds(wide)) {
        ("NoExecute", Some(wide)) => seconds(narrow).is_some_and(|narrow| narrow <= wide),
        _ => true,
    };
    let fits = (key == of_key || (key.is_empty() && operator == "Exists"))
        && (effect == of_effect || effect.is_empty())
        && is_longer;
    wide == narrow
        || fits
            && match operator {
                "Equal" | "" => of_operator == "Equal" && value == of_value,
                other => other == "Exists",
            }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_gets_the_overhead_and_constraints_of_its_class() {
        let classes = RuntimeClasses::default();
        let class = json!({
            "metadata": {"name": "sandbox"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}},
            "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        });
        classes.replace(None, Some(&class));
        let check = |spec: Value, expect: Result<Value, &str>| {
            let mut pod = json!({"spec": spec});
            let admitted = classes.admit(&mut pod).map(|()| pod["spec"].take());
            assert_eq!(admitted, expect.map_err(String::from));
        };
        check(json!({}), Ok(json!({})));
        check(
            json!({"runtimeClassName": "sandbox", "nodeSelector": {"a": "b"}}),
            Ok(json!({
                "runtimeClassName": "sandbox", "nodeSelector": {"a": "b", "sandbox": "yes"}, "overhead": {"cpu": "10m"},
                "tolerations": [{"key": "k", "operator": "Exists"}],
            })),
        );
        check(json!({"runtimeClassName": "none"}), Err("pod rejected: RuntimeClass \"none\" not found"));
        check(
            json!({"runtimeClassName": "sandbox", "nodeSelector": {"sandbox": "no"}}),
            Err("conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; pod.spec.nodeSelector[sandbox] = no"),
        );
        let wrong = classes.wrong_overhead(&json!({"spec": {"overhead": {"cpu": "1"}}}));
        assert!(wrong.is_some_and(|why| why.contains("without corresponding RuntimeClass")));
        classes.replace(Some(&class), None);
        check(json!({"runtimeClassName": "sandbox"}), Err("pod rejected: RuntimeClass \"sandbox\" not found"));
    }
}
