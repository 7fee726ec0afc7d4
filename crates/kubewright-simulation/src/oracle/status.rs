//! The generation that a status is about.

use std::{collections::BTreeSet, sync::Arc};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use super::{Oracle, Own, Seen};
use crate::world::{World, text};

/// Finds objects of the operator's kinds whose `status.observedGeneration` is newer than their generation, or older at rest.
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
        match generations(&change.object) {
            Some((observed, generation))
                if observed > generation && self.ahead.insert(text(&change.object, "uid").into()) =>
            {
                vec![format!(
                    "{} is at generation {generation}, and its status is about {observed}",
                    shown(&change.object)
                )]
            }
            _ => Vec::new(),
        }
    }

    fn at_rest(&mut self, seen: &Seen<'_>) -> Vec<String> {
        let behind =
            |object: &&Arc<Value>| generations(object).is_some_and(|(observed, generation)| observed < generation);
        let is_left = |object: &&Arc<Value>| object["metadata"]["deletionTimestamp"].is_null();
        let objects = own(seen.world, &self.own).filter(is_left).filter(behind);
        objects.map(|object| format!("the status of {} is about an older generation at rest", shown(object))).collect()
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

/// Returns the generation that the status is about, and that of the object.
fn generations(object: &Value) -> Option<(i64, i64)> {
    Some((object["status"]["observedGeneration"].as_i64()?, object["metadata"]["generation"].as_i64()?))
}

fn shown(object: &Value) -> String {
    format!("{} {}/{}", object["kind"].as_str().unwrap_or_default(), text(object, "namespace"), text(object, "name"))
}
