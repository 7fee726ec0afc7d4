//! The generation that a status is about.

use std::{collections::BTreeSet, sync::Arc};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use super::{Oracle, Own, Seen};
use crate::world::{World, text};

/// Finds objects of the operator's kinds whose `observedGeneration`, of the status or of a condition, is newer than
/// their generation, or older at rest.
pub(super) struct Status {
    own: Arc<Own>,
    ahead: BTreeSet<String>,
}

impl Status {
    pub(super) fn new(own: Arc<Own>) -> Self {
        Self { own, ahead: BTreeSet::new() }
    }

    fn is_own(&self, change: &Change) -> bool {
        self.own.contains(&(change.resource.group.to_string(), change.resource.plural.to_string()))
    }
}

impl Oracle for Status {
    fn name(&self) -> &'static str {
        "status"
    }

    fn change(&mut self, change: &Change, _: &Seen<'_>) -> Vec<String> {
        if change.kind == ChangeKind::Deleted || !self.is_own(change) {
            return Vec::new();
        }
        let object = change.object();
        let Some(generation) = generation(object) else { return Vec::new() };
        let ahead = observed(object).into_iter().find(|(_, observed)| *observed > generation);
        match ahead {
            Some((what, observed)) if self.ahead.insert(text(object, "uid").into()) => {
                vec![format!("{} is at generation {generation}, and its {what} is about {observed}", shown(object))]
            }
            _ => Vec::new(),
        }
    }

    fn at_rest(&mut self, seen: &Seen<'_>) -> Vec<String> {
        let is_left = |object: &&Arc<Value>| object["metadata"]["deletionTimestamp"].is_null();
        let behind = own(seen.world, &self.own).filter(is_left).flat_map(|object| {
            let behind = observed(object).into_iter().filter(|(_, observed)| Some(*observed) < generation(object));
            behind.map(|(what, _)| format!("the {what} of {} is about an older generation at rest", shown(object)))
        });
        behind.collect()
    }
}

/// Returns the objects of the operator's kinds.
fn own<'a>(world: &'a World, own: &Own) -> impl Iterator<Item = &'a Arc<Value>> {
    let groups: BTreeSet<String> = own.iter().map(|(group, _)| group.clone()).collect();
    world.all().filter(move |object| {
        let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
        group.is_some_and(|group| groups.contains(group))
    })
}

/// Returns the generation. An object without one can't be compared.
fn generation(object: &Value) -> Option<i64> {
    object["metadata"]["generation"].as_i64()
}

/// Returns the generations that the status and its conditions are about, if they say so.
fn observed(object: &Value) -> Vec<(String, i64)> {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let conditions = conditions.iter().filter_map(|condition| {
        let name = condition["type"].as_str().unwrap_or_default();
        Some((format!("condition {name}"), condition["observedGeneration"].as_i64()?))
    });
    let whole = status["observedGeneration"].as_i64().map(|observed| ("status".to_owned(), observed));
    whole.into_iter().chain(conditions).collect()
}

fn shown(object: &Value) -> String {
    format!("{} {}/{}", object["kind"].as_str().unwrap_or_default(), text(object, "namespace"), text(object, "name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_and_its_conditions_say_what_they_are_about() {
        let conditions = json!([{"type": "Ready", "observedGeneration": 2}, {"type": "Paused"}]);
        let mut object =
            json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 3, "conditions": conditions}});
        let expected = [("status".to_owned(), 3), ("condition Ready".to_owned(), 2)];
        assert_eq!((observed(&object), generation(&object)), (expected.to_vec(), Some(3)));
        object["status"] = Value::Null;
        assert_eq!(observed(&object), []);
    }
}
