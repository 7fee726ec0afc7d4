//! The status of a definition: which names it got, whether it is served, in which versions objects may be stored.
//!
//! The server settles it in the same write that changes the spec, so a definition is established as soon as it is there.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::registry::builtin::fields::{each, fill, list, set, text, within};

/// The names that established definitions have, by the definition's name.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, (String, Value)>);

impl Names {
    /// Follows a change of a definition.
    pub(super) fn replace(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(before) = before {
            self.0.remove(text(before, "/metadata/name"));
        }
        if let Some(after) = after.filter(|after| holds(after, "NamesAccepted")) {
            let group = text(after, "/spec/group").to_owned();
            self.0.insert(text(after, "/metadata/name").to_owned(), (group, after["status"]["acceptedNames"].clone()));
        }
    }

    /// What stands against a definition's names: a reason, and a sentence.
    fn conflict(&self, definition: &Value) -> Option<(&'static str, String)> {
        let (own, group) = (text(definition, "/metadata/name"), text(definition, "/spec/group"));
        let others: Vec<_> = self.0.iter().filter(|(name, (of, _))| *name != own && of == group).collect();
        let resource_taken = |name: &str| {
            !name.is_empty()
                && others.iter().any(|(_, (_, names))| {
                    ["/plural", "/singular"].iter().any(|field| text(names, field) == name)
                        || list(names, "/shortNames").iter().any(|short| short == name)
                })
        };
        let kind_taken = |name: &str| {
            let has = |names: &Value| ["/kind", "/listKind"].iter().any(|field| text(names, field) == name);
            !name.is_empty() && others.iter().any(|(_, (_, names))| has(names))
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

/// Sets names, conditions and stored versions to what the spec and the other definitions say.
pub(super) fn settle(definition: &mut Value, names: &Names) {
    let conflict = names.conflict(definition);
    let wanted = definition["spec"]["names"].clone();
    let storage = list(definition, "/spec/versions").iter().find(|version| version["storage"] == true);
    let storage = storage.map(|version| version["name"].clone());
    within(definition, "status", |status| {
        fill(status, "storedVersions", json!([]));
        if let Some(stored) = status.get_mut("storedVersions").and_then(Value::as_array_mut) {
            stored.extend(storage.filter(|name| !stored.contains(name)));
        }
        match &conflict {
            None => set(status, "acceptedNames", wanted),
            Some(_) => fill(status, "acceptedNames", json!({"plural": "", "kind": ""})),
        }
    });
    match conflict {
        None => {
            condition(definition, "NamesAccepted", true, "NoConflicts", "no conflicts found");
            condition(definition, "Established", true, "InitialNamesAccepted", "the initial names have been accepted");
        }
        Some((reason, message)) => {
            condition(definition, "NamesAccepted", false, reason, &message);
            // What was once established goes on under the names that it has.
            if !holds(definition, "Established") {
                condition(definition, "Established", false, "NotAccepted", "not all names are accepted");
            }
        }
    }
}

/// Marks a definition that is being deleted.
pub(super) fn terminate(definition: &mut Value) {
    let message = "CustomResource deletion is in progress";
    condition(definition, "Terminating", true, "InstanceDeletionInProgress", message);
}

/// Whether a condition is true.
pub(super) fn holds(definition: &Value, kind: &str) -> bool {
    list(definition, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
}

/// Sets a condition. A transition is dated by the event behind it that the object itself knows of: its deletion, or its
/// creation.
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
