//! The status of a CRD: its accepted names, whether it is served, and the versions in which objects may be stored.
//!
//! Each request that changes a CRD also sets its status, in a second write.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{approval, bundle::has_readable_bundle};
use crate::{
    fields::{each, fill, list, set, text, within},
    registry::builtin::types::{TYPES, is_builtin_version},
};

/// The names of each CRD, by the CRD's name.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, Accepted>);

/// The names of a CRD that were accepted.
#[derive(Debug)]
struct Accepted {
    group: String,
    names: Value,
    /// True if these are all that it wants.
    is_complete: bool,
}

impl Names {
    /// Updates the names of a CRD.
    pub(super) fn replace(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(before) = before {
            self.0.remove(text(before, "/metadata/name"));
        }
        if let Some(after) = after {
            let accepted = Accepted {
                group: text(after, "/spec/group").to_owned(),
                names: after["status"]["acceptedNames"].clone(),
                is_complete: holds(after, "NamesAccepted"),
            };
            self.0.insert(text(after, "/metadata/name").to_owned(), accepted);
        }
    }

    /// Returns the CRDs that want names which others have, or had.
    pub(super) fn incomplete(&self) -> Vec<String> {
        self.0.iter().filter(|(_, accepted)| !accepted.is_complete).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names of a CRD that it can have, and the reason and message of a conflict: a built-in kind, or
    /// another CRD of the same group, already uses one of the names. As in Kubernetes, the last of several conflicts
    /// counts, and a CRD keeps the names that were accepted before.
    fn accept(&self, definition: &Value) -> (Value, Option<(&'static str, String)>) {
        let (own, group) = (text(definition, "/metadata/name"), text(definition, "/spec/group"));
        let others: Vec<_> = self.0.iter().filter(|(name, other)| *name != own && other.group == group).collect();
        let builtin = TYPES.iter().filter(|builtin| builtin.group == group);
        let resource_taken = |name: &str| {
            let is_builtin = |kind: &str, plural: &str| plural == name || kind.to_lowercase() == name;
            !name.is_empty()
                && (builtin.clone().any(|it| is_builtin(it.kind, it.plural))
                    || others.iter().any(|(_, other)| {
                        ["/plural", "/singular"].iter().any(|field| text(&other.names, field) == name)
                            || list(&other.names, "/shortNames").iter().any(|short| short == name)
                    }))
        };
        let kind_taken = |name: &str| {
            let has = |names: &Value| ["/kind", "/listKind"].iter().any(|field| text(names, field) == name);
            !name.is_empty()
                && (builtin.clone().any(|it| it.kind == name || it.list_kind == name)
                    || others.iter().any(|(_, other)| has(&other.names)))
        };
        let wanted = &definition["spec"]["names"];
        let before = &definition["status"]["acceptedNames"];
        let mut accepted = json!({"plural": "", "kind": ""});
        let mut conflict = None;
        let in_use = |name: &str| format!("{name:?} is already in use");
        for (field, reason, is_kind) in [
            ("plural", "PluralConflict", false),
            ("singular", "SingularConflict", false),
            ("shortNames", "ShortNamesConflict", false),
            ("kind", "KindConflict", true),
            ("listKind", "ListKindConflict", true),
        ] {
            let is_taken = |name: &str| if is_kind { kind_taken(name) } else { resource_taken(name) };
            let names: Vec<&str> = match &wanted[field] {
                Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                name => name.as_str().into_iter().collect(),
            };
            let taken: Vec<_> = names.into_iter().filter(|name| is_taken(name)).map(in_use).collect();
            let source = if taken.is_empty() { wanted } else { before };
            if let Some(names) = source.get(field).filter(|names| !names.is_null()) {
                accepted[field] = names.clone();
            }
            conflict = match taken.as_slice() {
                [] => conflict,
                [one] => Some((reason, one.clone())),
                several => Some((reason, format!("[{}]", several.join(", ")))),
            };
        }
        if let Some(categories) = wanted.get("categories") {
            accepted["categories"] = categories.clone();
        }
        (accepted, conflict)
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
    let (accepted, conflict) = names.accept(definition);
    within(definition, "status", |status| set(status, "acceptedNames", accepted));
    match conflict {
        None => {
            condition(definition, "NamesAccepted", true, "NoConflicts", "no conflicts found");
            match not_established(definition) {
                Some((reason, message)) if !holds(definition, "Established") => {
                    condition(definition, "Established", false, reason, &message);
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

/// Returns the reason why a CRD can't be established although its names are accepted, and a message.
fn not_established(definition: &Value) -> Option<(&'static str, String)> {
    if !has_readable_bundle(definition) {
        return Some(("InvalidCABundle", "The conversion webhook CABundle is invalid".to_owned()));
    }
    builtin_version(definition).map(|message| ("GroupVersionConflict", message))
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
