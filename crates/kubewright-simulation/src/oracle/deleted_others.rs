//! Deletions of what belongs to others.

use std::{collections::BTreeMap, sync::Arc};

use kubewright_apiserver::Change;
use kubewright_cluster::faults::{ApiRequest, Verb};

use super::{Answer, Oracle, Own, Seen};
use crate::world::text;

/// How many owners are followed.
const DEPTH: usize = 5;

/// What is known of an object.
struct Known {
    uid: String,
    owners: Vec<String>,
    is_own: bool,
}

/// Finds deletions of objects that the operator hasn't created, that are of none of its kinds, and that none of these
/// own.
pub(super) struct DeletedOthers {
    own: Arc<Own>,
    /// By group, plural, namespace and name, also after a deletion.
    objects: BTreeMap<[String; 4], String>,
    known: BTreeMap<String, Known>,
}

impl DeletedOthers {
    pub(super) fn new(own: Arc<Own>) -> Self {
        Self { own, objects: BTreeMap::new(), known: BTreeMap::new() }
    }

    /// Returns whether the operator may delete an object.
    fn may(&self, uid: &str, seen: &Seen<'_>, depth: usize) -> bool {
        let Some(known) = self.known.get(uid) else { return seen.created.has(uid) };
        known.is_own
            || seen.created.has(&known.uid)
            || depth > 0 && known.owners.iter().any(|owner| self.may(owner, seen, depth - 1))
    }
}

impl Oracle for DeletedOthers {
    fn name(&self) -> &'static str {
        "deleted-others"
    }

    fn change(&mut self, change: &Change, _: &Seen<'_>) -> Vec<String> {
        let (object, resource) = (change.object(), &change.resource);
        let part = |field: &str| text(object, field).to_owned();
        let (group, plural) = (resource.group.to_string(), resource.plural.to_string());
        let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let owners = owners.iter().filter_map(|owner| Some(owner["uid"].as_str()?.to_owned())).collect();
        let is_own = self.own.contains(&(group.clone(), plural.clone()));
        self.known.insert(part("uid"), Known { uid: part("uid"), owners, is_own });
        self.objects.insert([group, plural, part("namespace"), part("name")], part("uid"));
        Vec::new()
    }

    fn executed(&mut self, request: &ApiRequest, answer: Answer, seen: &Seen<'_>) -> Vec<String> {
        if request.verb != Verb::Delete || answer.code >= 300 || request.resource == "leases" {
            return Vec::new();
        }
        let (namespace, name) =
            (request.namespace.clone().unwrap_or_default(), request.name.clone().unwrap_or_default());
        let key = [request.group.clone(), request.resource.clone(), namespace.clone(), name.clone()];
        match self.objects.get(&key) {
            Some(uid) if !self.may(uid, seen, DEPTH) => {
                let resource = &request.resource;
                vec![format!(
                    "the operator deletes {resource} {namespace}/{name}, which it hasn't created and none of its objects owns"
                )]
            }
            _ => Vec::new(),
        }
    }
}
