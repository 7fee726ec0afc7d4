//! Priority classes, and the priorities that pods get from them.

use std::{collections::BTreeMap, sync::Arc};

use kubewright_apimachinery::status::Cause;
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{
    columns::{age, integer, string, truth, value_or},
    validation::IMMUTABLE,
};
use crate::{
    fields::{fill, flag, int, set, text},
    plugins::{AdmissionPlugin, Plugins},
    registry::{Column, Strategy},
};

/// The greatest value of a class that users create.
const HIGHEST: i64 = 1_000_000_000;
/// The prefix of the names of the system's classes.
const SYSTEM: &str = "system-";
/// The default preemption policy.
const PREEMPT: &str = "PreemptLowerPriority";

/// The classes that exist in every cluster: name, value and description.
const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2 * HIGHEST + 1000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2 * HIGHEST,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// Returns the classes that exist in every cluster.
pub(super) fn system_classes() -> impl Iterator<Item = Value> {
    SYSTEM_CLASSES.into_iter().map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
            "value": value, "description": description,
        })
    })
}

/// The part of a priority class that determines the priority of pods.
#[derive(Clone, Debug, PartialEq)]
struct Class {
    value: i64,
    policy: String,
    default: bool,
}

/// All priority classes, by name.
#[derive(Debug, Default)]
pub(crate) struct PriorityClasses(RwLock<BTreeMap<String, Class>>);

impl PriorityClasses {
    fn replace(&self, before: Option<&Value>, after: Option<&Value>) {
        let mut classes = self.0.write();
        match (before, after) {
            (_, Some(class)) => {
                let policy = text(class, "/preemptionPolicy").to_owned();
                let known = Class { value: int(class, "/value"), policy, default: flag(class, "/globalDefault") };
                classes.insert(text(class, "/metadata/name").to_owned(), known);
            }
            (Some(class), None) => drop(classes.remove(text(class, "/metadata/name"))),
            (None, None) => {}
        }
    }

    /// Returns the default class. If there are several, after a race, it is the one with the lowest value.
    fn default(&self) -> Option<(String, Class)> {
        let classes = self.0.read();
        let defaults = classes.iter().filter(|(_, class)| class.default);
        defaults.min_by_key(|(_, class)| class.value).map(|(name, class)| (name.clone(), class.clone()))
    }

    /// Sets the priority of a new pod by its class.
    ///
    /// # Errors
    /// Returns the reason why the pod is forbidden: its class doesn't exist, or it has another priority.
    pub(super) fn admit(&self, pod: &mut Value) -> Result<(), String> {
        let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return Ok(()) };
        let name = text(spec, "/priorityClassName").to_owned();
        let class = if name.is_empty() {
            let none = || (String::new(), Class { value: 0, policy: PREEMPT.to_owned(), default: false });
            let (name, class) = self.default().unwrap_or_else(none);
            if !name.is_empty() {
                set(spec, "priorityClassName", name);
            }
            class
        } else {
            let class = self.0.read().get(&name).cloned();
            class.ok_or_else(|| format!("no PriorityClass with name {name} was found"))?
        };
        if let Some(sent) = spec["priority"].as_i64().filter(|sent| *sent != class.value) {
            return Err(format!(
                "the integer value of priority ({sent}) must not be provided in pod spec; priority admission controller \
                 computed {} from the given PriorityClass name",
                class.value
            ));
        }
        set(spec, "priority", class.value);
        if class.policy.is_empty() {
            return Ok(());
        }
        if let Some(sent) = spec["preemptionPolicy"].as_str().filter(|sent| *sent != class.policy) {
            return Err(format!(
                "the string value of PreemptionPolicy ({sent}) must not be provided in pod spec; priority admission \
                 controller computed {} from the given PriorityClass name",
                class.policy
            ));
        }
        set(spec, "preemptionPolicy", class.policy);
        Ok(())
    }
}

/// The strategy of priority classes.
#[derive(Debug)]
pub(super) struct PriorityClassStrategy {
    /// The classes that determine the priorities of pods, which this strategy keeps up to date.
    pub(super) classes: Arc<PriorityClasses>,
    pub(super) plugins: Arc<Plugins>,
}

impl Strategy for PriorityClassStrategy {
    fn default(&self, object: &mut Value) {
        fill(object, "preemptionPolicy", PREEMPT);
    }

    fn admit(&self, _old: Option<&Value>, object: &mut Value) -> Result<(), String> {
        if !flag(object, "/globalDefault") || !self.plugins.has(AdmissionPlugin::Priority) {
            return Ok(());
        }
        match self.classes.default() {
            Some((name, _)) if name != text(object, "/metadata/name") => {
                Err(format!("PriorityClass {name} is already marked as default. Only one default can exist"))
            }
            _ => Ok(()),
        }
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let (name, value) = (text(new, "/metadata/name"), int(new, "/value"));
        if let Some(old) = old {
            if int(old, "/value") != value {
                causes.push(Cause::forbidden("value", "may not be changed in an update."));
            }
            if old["preemptionPolicy"] != new["preemptionPolicy"] {
                causes.push(Cause::invalid("preemptionPolicy", &new["preemptionPolicy"], IMMUTABLE));
            }
            return causes;
        }
        if name.starts_with(SYSTEM) {
            let system = SYSTEM_CLASSES.iter().find(|(known, _, _)| *known == name);
            let wrong = match system {
                None => Some(format!("{name} is not a known system priority class")),
                Some((_, known, _)) if *known != value => {
                    Some(format!("value of {name} PriorityClass must be {known}"))
                }
                Some(_) if flag(new, "/globalDefault") => {
                    Some(format!("globalDefault of {name} PriorityClass must be false"))
                }
                Some(_) => None,
            };
            if let Some(wrong) = wrong {
                let why = format!(
                    "priority class names with '{SYSTEM}' prefix are reserved for system use only. error: {wrong}"
                );
                causes.push(Cause::forbidden("metadata.name", &why));
            }
        } else if value > HIGHEST {
            let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
            causes.push(Cause::forbidden("value", &why));
        }
        let policy = &new["preemptionPolicy"];
        match policy.as_str() {
            Some("") => causes.push(Cause::required("preemptionPolicy", "")),
            Some(PREEMPT | "Never") | None => {}
            Some(_) => causes.push(Cause::not_supported("preemptionPolicy", policy, &[PREEMPT, "Never"])),
        }
        causes
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn forbids_deletion(&self, object: &Value) -> Option<&'static str> {
        let name = text(object, "/metadata/name");
        let is_system = SYSTEM_CLASSES.iter().any(|(known, _, _)| *known == name);
        is_system.then_some("this is a system priority class and cannot be deleted")
    }

    fn increments_generation(&self, _old: &Value, _new: &Value, _changed: bool) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.classes.replace(before, after);
    }
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        integer("Value", |object, _| int(object, "/value").into()),
        truth("Global-Default", |object, _| flag(object, "/globalDefault").into()),
        age(),
        string("PreemptionPolicy", |object, _| value_or(object, "/preemptionPolicy", PREEMPT)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strategy() -> PriorityClassStrategy {
        let strategy = PriorityClassStrategy { classes: Arc::default(), plugins: Arc::default() };
        system_classes().for_each(|class| strategy.committed(None, Some(&class)));
        strategy
    }

    fn class(name: &str, value: i64, default: bool) -> Value {
        json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"})
    }

    #[test]
    fn a_pod_gets_the_priority_of_its_class_or_of_the_default_class() {
        let strategy = strategy();
        let check = |spec: Value, expect: Result<Value, &str>| {
            let mut pod = json!({"spec": spec});
            let admitted = strategy.classes.admit(&mut pod).map(|()| pod["spec"].take());
            match expect {
                Ok(spec) => assert_eq!(admitted, Ok(spec)),
                Err(why) => assert!(admitted.clone().unwrap_err().contains(why), "{admitted:?}"),
            }
        };
        check(json!({}), Ok(json!({"priority": 0, "preemptionPolicy": PREEMPT})));
        check(json!({"priorityClassName": "gold"}), Err("no PriorityClass with name gold was found"));
        check(json!({"priority": 7}), Err("the integer value of priority (7) must not be provided in pod spec"));
        strategy.committed(None, Some(&class("gold", 7, false)));
        let gold = json!({"priorityClassName": "gold", "priority": 7, "preemptionPolicy": "Never"});
        check(json!({"priorityClassName": "gold"}), Ok(gold.clone()));
        check(gold.clone(), Ok(gold));
        strategy.committed(None, Some(&class("high", 5, true)));
        strategy.committed(None, Some(&class("low", 3, true)));
        check(json!({}), Ok(json!({"priorityClassName": "low", "priority": 3, "preemptionPolicy": "Never"})));
        strategy.committed(Some(&class("low", 3, true)), None);
        check(json!({"preemptionPolicy": PREEMPT}), Err("the string value of PreemptionPolicy (PreemptLowerPriority)"));
    }

    #[test]
    fn classes_are_checked() {
        let strategy = strategy();
        let check = |class: &Value, expect: &[&str]| {
            let found: Vec<_> = strategy.validate(None, class).iter().map(ToString::to_string).collect();
            assert_eq!(found, expect);
        };
        check(&class("gold", HIGHEST, false), &[]);
        check(
            &class("gold", HIGHEST + 1, false),
            &["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        );
        check(&class("system-node-critical", 2_000_001_000, false), &[]);
        let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
                        only. error: system-x is not a known system priority class";
        check(&class("system-x", 1, false), &[reserved]);
        let changed = strategy.validate(Some(&class("gold", 1, false)), &class("gold", 2, false));
        assert_eq!(changed[0].to_string(), "value: Forbidden: may not be changed in an update.");
        strategy.committed(None, Some(&class("high", 5, true)));
        let mut second = class("low", 3, true);
        let why = "PriorityClass high is already marked as default. Only one default can exist";
        assert_eq!(strategy.admit(None, &mut second), Err(why.to_owned()));
        assert_eq!(strategy.admit(Some(&second), &mut class("high", 5, true)), Ok(()));
    }
}
