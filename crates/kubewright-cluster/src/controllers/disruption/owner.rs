//! The numbers of replicas of the controllers of pods. Pure.

use std::collections::BTreeMap;

use kubewright_apimachinery::path::JsonPath;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use crate::controllers::value::{controller_of, text};

/// The group and kind of a resource.
pub(super) type GroupKind = (String, String);

/// The objects that have a scale, of all kinds.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By group and kind, namespace, and name.
    scaled: BTreeMap<(GroupKind, String, String), Scaled>,
}

#[derive(Debug, PartialEq)]
struct Scaled {
    uid: String,
    replicas: i64,
    /// The controller reference.
    controller: Option<Value>,
}

impl Owners {
    /// Processes a change. Returns whether it changes the scale of an object.
    pub(super) fn take(&mut self, change: &Change) -> bool {
        let resource = &change.resource;
        let Some(scale) = &resource.scale else { return false };
        let (kind, object) = ((resource.group.to_string(), resource.kind.to_string()), change.object());
        let key = (kind, text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned());
        if change.kind == ChangeKind::Deleted {
            return self.scaled.remove(&key).is_some();
        }
        let path = JsonPath::parse(&scale.spec_replicas).ok();
        let replicas = path.and_then(|path| path.first(object)?.as_i64()).unwrap_or_default();
        let scaled = Scaled {
            uid: text(object, "/metadata/uid").to_owned(),
            replicas,
            controller: controller_of(object).cloned(),
        };
        if self.scaled.get(&key) == Some(&scaled) {
            return false;
        }
        self.scaled.insert(key, scaled);
        true
    }

    /// Returns the UID and the scale of the object that a controller reference of a pod refers to. That of a ReplicaSet
    /// is the scale of its Deployment, if it has one. Returns `None` if there is no such object, or it has no scale.
    pub(super) fn scale(&self, namespace: &str, reference: &Value) -> Option<(String, i64)> {
        let owner = self.find(namespace, reference)?;
        let is = |reference: &Value, name: &str| {
            let (group, kind) = group_kind(reference);
            group == "apps" && kind == name
        };
        let deployment = owner.controller.as_ref().filter(|_| is(reference, "ReplicaSet"));
        let deployment = deployment.filter(|controller| is(controller, "Deployment"));
        let owner = deployment.and_then(|controller| self.find(namespace, controller)).unwrap_or(owner);
        Some((owner.uid.clone(), owner.replicas))
    }

    fn find(&self, namespace: &str, reference: &Value) -> Option<&Scaled> {
        let key = (group_kind(reference), namespace.to_owned(), text(reference, "/name").to_owned());
        self.scaled.get(&key).filter(|owner| owner.uid == text(reference, "/uid"))
    }
}

/// Returns the group and kind of a reference.
pub(super) fn group_kind(reference: &Value) -> GroupKind {
    let group = text(reference, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), text(reference, "/kind").to_owned())
}
