//! The status of a CRD: its accepted names, whether it is served, and the versions in which objects may be stored.
//!
//! Each request that changes a CRD also sets its status, in a second write.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::approval;
use crate::{
    fields::{each, fill, list, set, text, within},
    registry::builtin::types::{TYPES, is_builtin_version},
};

/// The group and names of each CRD whose names were accepted, by the CRD's name.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, (String, Value)>);

impl Names {
    /// Updates the names of a CRD.
    pub(super) fn replace(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(before) = before {
            self.0.remove(text(before, "/metadata/name"));
        }
        if let Some(after) = after.filter(|after| holds(after, "NamesAccepted")) {
            let group = text(after, "/spec/group").to_owned();
            self.0.insert(text(after, "/metadata/name").to_owned(), (group, after["status"]["acceptedNames"].clone()));
        }
    }

    /// Returns the reason and message of a name conflict: a built-in kind, or another CRD of the same group, already
    /// uses one of the CRD's names.
    fn conflict(&self, definition: &Value) -> Option<(&'static str, String)> {
        let (own, group) = (text(definition, "/metadata/name"), text(definition, "/spec/group"));
        let others: Vec<_> = self.0.iter().filter(|(name, (of, _))| *name != own && of == group).collect();
        let builtin = TYPES.iter().filter(|builtin| builtin.group == group);
        let resource_taken = |name: &str| {
            let is_builtin = |kind: &str, plural: &str| plural == name || kind.to_lowercase() == name;
            !name.is_empty()
                && (builtin.clone().any(|it| is_builtin(it.kind, it.plural))
                    || others.iter().any(|(_, (_, names))| {
                        ["/plural", "/singular"].iter().any(|field| text(names, field) == name)
                            || list(names, "/shortNames").iter().any(|short| short == name)
                    }))
        };
        let kind_taken = |name: &str| {
            let has = |names: &Value| ["/kind", "/listKind"].iter().any(|field| text(names, field) == name);
            !name.is_empty()
                && (builtin.clone().any(|it| it.kind == name || it.list_kind == name)
                    || others.iter().any(|(_, (_, names))| has(names)))
        };
        let wanted = &definition["spec"]["names"];
        let in_use = |reason, name: &str| Some((reason, format!("{name:?} is already in use")));
        for (field, reason) in [("/plural", "PluralConflict"), ("/singular", "SingularConflict")] {
            if resource_taken(text(wanted, field)) {
                return in_use(reason, text(wanted, field));
            }
        }
        for short in list(wanted, "/shortNames").iter().filter_map(Value::as_str) {
            if resource_taken(short) {
                return in_use("ShortNamesConflict", short);
            }
        }
        for (field, reason) in [("/kind", "KindConflict"), ("/listKind", "ListKindConflict")] {
            if kind_taken(text(wanted, field)) {
                return in_use(reason, text(wanted, field));
            }
        }
        None
    }
}

/// Returns the name of the version in which objects are stored.
pub(super) fn storage_version(definition: &Value) -> Option<Value> {
    let storage = list(definition, "/spec/versions").iter().find(|version| version["storage"] == true);
    storage.map(|version| version["name"].clone())
}

/// Adds the storage version to the stored versions.
pub(super) fn add_stored_version(definition: &mut Value) {
    let storage = storage_version(definition);
    within(definition, "status", |status| {
        fill(status, "storedVersions", json!([]));
        if let Some(stored) = status.get_mut("storedVersions").and_then(Value::as_array_mut) {
            stored.extend(storage.filter(|name| !stored.contains(name)));
        }
    });
}

/// Sets names and conditions from the spec and the other CRDs.
pub(super) fn settle(definition: &mut Value, names: &Names) {
    if let Some((conforms, reason, message)) = approval::condition(definition) {
        condition(definition, "KubernetesAPIApprovalPolicyConformant", conforms, reason, &message);
    }
    let conflict = names.conflict(definition);
    let wanted = definition["spec"]["names"].clone();
    within(definition, "status", |status| match &conflict {
        None => set(status, "acceptedNames", wanted),
        Some(_) => fill(status, "acceptedNames", json!({"plural": "", "kind": ""})),
    });
    match conflict {
        None => {
            condition(definition, "NamesAccepted", true, "NoConflicts", "no conflicts found");
            match builtin_version(definition) {
                Some(message) if !holds(definition, "Established") => {
                    condition(definition, "Established", false, "GroupVersionConflict", &message);
                }
                _ => {
                    let message = "the initial names have been accepted";
                    condition(definition, "Established", true, "InitialNamesAccepted", message);
                }
            }
        }
        Some((reason, message)) => {
            condition(definition, "NamesAccepted", false, reason, &message);
            // An established CRD remains established, under its accepted names.
            if !holds(definition, "Established") {
                condition(definition, "Established", false, "NotAccepted", "not all names are accepted");
            }
        }
    }
}

/// Returns the message about a version of a CRD that the server itself serves. Kubernetes never serves such a version,
/// but doesn't report it.
fn builtin_version(definition: &Value) -> Option<String> {
    let group = text(definition, "/spec/group");
    let versions = list(definition, "/spec/versions").iter().map(|version| text(version, "/name"));
    let version = versions.into_iter().find(|version| is_builtin_version(group, version))?;
    Some(format!("{group}/{version} is served by the API server itself; use another version or another group"))
}

/// Marks a CRD that is being deleted.
pub(super) fn terminate(definition: &mut Value) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    condition(definition, "Terminating", true, "InstanceDeletionPending", message);
}

/// Returns whether a condition is true.
pub(super) fn holds(definition: &Value, kind: &str) -> bool {
    list(definition, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
}

/// Sets a condition. Its transition time is that of the object's deletion or creation.
fn condition(definition: &mut Value, kind: &str, holds: bool, reason: &str, message: &str) {
    let times = ["/metadata/deletionTimestamp", "/metadata/creationTimestamp"];
    let time = times.iter().map(|pointer| text(definition, pointer)).find(|time| !time.is_empty());
    let time = time.unwrap_or_default().to_owned();
    let state = if holds { "True" } else { "False" };
    within(definition, "status", |status| {
        fill(status, "conditions", json!([]));
        if let Some(found) = each(status, "conditions").find(|condition| text(condition, "/type") == kind) {
            if text(found, "/status") != state {
                set(found, "lastTransitionTime", time);
            }
            set(found, "status", state);
            set(found, "reason", reason);
            set(found, "message", message);
        } else if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.push(json!({
                "type": kind, "status": state, "reason": reason, "message": message, "lastTransitionTime": time,
            }));
        }
    });
}
