//! Changes of kubeconfigs, as functions of values: what is unknown here is kept.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::EXTENSION;

/// The lists of a kubeconfig.
const LISTS: [&str; 3] = ["clusters", "contexts", "users"];

/// The name of a context and of its cluster and user, and its default namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextNames<'a> {
    pub(crate) context: &'a str,
    pub(crate) namespace: &'a str,
}

/// The extension of a context that kubewright has written: what is needed to remove the context, also after a crash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The cluster's own kubeconfig, which is locked while the cluster runs. Only set in the user's kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
    /// The current context before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_context: Option<String>,
    /// Whether the file didn't exist before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    created_file: bool,
    /// The address of an operator's traces, for operators that are not pods of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traces: Option<String>,
}

/// Gives the only context of a kubeconfig, its cluster and its user another name, and sets the address of traces.
pub(crate) fn rename(kubeconfig: &mut Value, names: ContextNames<'_>, traces: Option<String>) {
    let ContextNames { context: name, namespace } = names;
    for list in LISTS {
        if let Some(entry) = kubeconfig[list].get_mut(0) {
            entry["name"] = name.into();
        }
    }
    let context = &mut kubeconfig["contexts"][0]["context"];
    context["cluster"] = name.into();
    context["user"] = name.into();
    context["namespace"] = namespace.into();
    kubeconfig["current-context"] = name.into();
    if traces.is_some() {
        set_record(kubeconfig, name, &Record { traces, ..Record::default() });
    }
}

/// Returns the contexts that kubewright has merged into a kubeconfig, each with its cluster's own kubeconfig.
pub(super) fn merged(kubeconfig: &Value) -> Vec<(String, PathBuf)> {
    let own = |name: &String| record(kubeconfig, name).and_then(|record| record.kubeconfig);
    names(kubeconfig, "contexts").into_iter().filter_map(|name| own(&name).map(|file| (name, file))).collect()
}

/// Adds the entries of a cluster's own kubeconfig, which is at `file`, and sets the current context unless
/// `keep_context`. `created_file` is whether the file of the user didn't exist before.
///
/// # Errors
/// Returns the name of the list that already has an entry of this name.
pub(super) fn add(
    kubeconfig: &mut Value,
    own: &Value,
    file: &Path,
    keep_context: bool,
    created_file: bool,
) -> Result<(), &'static str> {
    let name = current(own).unwrap_or_default();
    if let Some(list) = LISTS.into_iter().find(|list| names(kubeconfig, list).contains(&name)) {
        return Err(list);
    }
    let mut record = record(own, &name).unwrap_or_default();
    record.kubeconfig = Some(file.to_owned());
    record.created_file = created_file;
    record.previous_context = current(kubeconfig).filter(|_| !keep_context);
    for (key, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        if kubeconfig[key].is_null() {
            kubeconfig[key] = value.into();
        }
    }
    for list in LISTS {
        let entries = own[list].as_array().cloned().unwrap_or_default();
        match &mut kubeconfig[list] {
            Value::Array(present) => present.extend(entries),
            other => *other = entries.into(),
        }
    }
    set_record(kubeconfig, &name, &record);
    if !keep_context {
        kubeconfig["current-context"] = name.into();
    }
    Ok(())
}

/// Removes a context that [`add`] has added, with its cluster and user, and restores the current context. Returns
/// whether nothing is left of a file that kubewright has created.
pub(super) fn remove(kubeconfig: &mut Value, name: &str) -> bool {
    let Some(removed) = record(kubeconfig, name) else { return false };
    for list in LISTS {
        if let Some(entries) = kubeconfig[list].as_array_mut() {
            entries.retain(|entry| entry["name"] != name);
        }
    }
    if current(kubeconfig).as_deref() == Some(name) {
        let contexts = names(kubeconfig, "contexts");
        kubeconfig["current-context"] =
            removed.previous_context.clone().filter(|previous| contexts.contains(previous)).unwrap_or_default().into();
    }
    let mut inherits_file = removed.created_file;
    for (other, _) in merged(kubeconfig) {
        let Some(mut record) = record(kubeconfig, &other) else { continue };
        record.created_file |= std::mem::take(&mut inherits_file);
        if record.previous_context.as_deref() == Some(name) {
            record.previous_context.clone_from(&removed.previous_context);
        }
        set_record(kubeconfig, &other, &record);
    }
    inherits_file && is_empty(kubeconfig)
}

fn current(kubeconfig: &Value) -> Option<String> {
    kubeconfig["current-context"].as_str().filter(|name| !name.is_empty()).map(Into::into)
}

fn names(kubeconfig: &Value, list: &str) -> Vec<String> {
    let entries = kubeconfig[list].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["name"].as_str().map(Into::into)).collect()
}

fn record(kubeconfig: &Value, name: &str) -> Option<Record> {
    let context = kubeconfig["contexts"].as_array()?.iter().find(|context| context["name"] == name)?;
    let extensions = context["context"]["extensions"].as_array()?;
    let ours = extensions.iter().find(|extension| extension["name"] == EXTENSION)?;
    Record::deserialize(&ours["extension"]).ok()
}

fn set_record(kubeconfig: &mut Value, name: &str, record: &Record) {
    let contexts = kubeconfig["contexts"].as_array_mut().into_iter().flatten();
    let Some(context) = contexts.into_iter().find(|context| context["name"] == name) else { return };
    let extensions = &mut context["context"]["extensions"];
    let ours = json!({"name": EXTENSION, "extension": record});
    match extensions {
        Value::Array(extensions) => {
            extensions.retain(|extension| extension["name"] != EXTENSION);
            extensions.push(ours);
        }
        other => *other = json!([ours]),
    }
}

/// Returns whether a kubeconfig has neither entries nor settings.
fn is_empty(kubeconfig: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    let no_entries = Map::new();
    let mut entries = kubeconfig.as_object().unwrap_or(&no_entries).iter();
    entries.all(|(key, value)| matches!(key.as_str(), "apiVersion" | "kind") || is_empty(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kubeconfig of a cluster, as the API server writes it.
    fn own(name: &str) -> Value {
        let mut own = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "kubewright",
            "clusters": [{"name": "kubewright", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "kubewright-admin", "user": {"client-key-data": "a2V5"}}],
            "contexts": [{"name": "kubewright", "context": {"cluster": "kubewright", "user": "kubewright-admin"}}],
        });
        rename(&mut own, ContextNames { context: name, namespace: "shop" }, None);
        own
    }

    fn of_user() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "work", "preferences": {"colors": true},
            "clusters": [{"name": "work", "cluster": {"server": "https://work.example.com", "tls-server-name": "a"}}],
            "users": [{"name": "me", "user": {"exec": {"command": "login", "env": null}}}],
            "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me"}}],
            "unknown": [1],
        })
    }

    fn added(kubeconfig: &mut Value, name: &str) {
        add(kubeconfig, &own(name), Path::new(&format!("/tmp/{name}")), false, false).unwrap();
    }

    #[test]
    fn a_renamed_kubeconfig_has_one_name_everywhere() {
        let context = json!({"cluster": "a", "user": "a", "namespace": "shop"});
        let own = own("a");
        assert_eq!(own["contexts"], json!([{"name": "a", "context": context}]));
        assert_eq!((&own["clusters"][0]["name"], &own["users"][0]["name"]), (&json!("a"), &json!("a")));
        assert_eq!(own["current-context"], "a");
    }

    #[test]
    fn what_is_added_is_removed_and_nothing_else_changes() {
        let mut kubeconfig = of_user();
        added(&mut kubeconfig, "a");
        assert_eq!(kubeconfig["current-context"], "a");
        assert_eq!(kubeconfig["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(kubeconfig["users"][1]["user"]["client-key-data"], "a2V5");
        assert_eq!(merged(&kubeconfig), [("a".to_owned(), PathBuf::from("/tmp/a"))]);
        assert!(!remove(&mut kubeconfig, "a"));
        assert_eq!(kubeconfig, of_user());
    }

    #[test]
    fn the_current_context_is_kept_on_request_and_when_it_was_changed() {
        let mut kubeconfig = of_user();
        add(&mut kubeconfig, &own("a"), Path::new("/tmp/a"), true, false).unwrap();
        assert_eq!(kubeconfig["current-context"], "work");
        kubeconfig["current-context"] = "a".into();
        remove(&mut kubeconfig, "a");
        assert_eq!(kubeconfig["current-context"], "", "the context before is unknown");
        let mut kubeconfig = of_user();
        added(&mut kubeconfig, "a");
        kubeconfig["current-context"] = "work".into();
        remove(&mut kubeconfig, "a");
        assert_eq!(kubeconfig, of_user());
    }

    #[test]
    fn clusters_may_end_in_any_order() {
        for order in [["a", "b"], ["b", "a"]] {
            let mut kubeconfig = of_user();
            added(&mut kubeconfig, "a");
            added(&mut kubeconfig, "b");
            for name in order {
                remove(&mut kubeconfig, name);
            }
            assert_eq!(kubeconfig, of_user(), "{order:?}");
            let mut kubeconfig = json!({});
            add(&mut kubeconfig, &own("a"), Path::new("/tmp/a"), false, true).unwrap();
            added(&mut kubeconfig, "b");
            let left = order.map(|name| remove(&mut kubeconfig, name));
            assert_eq!(left, [false, true], "the last one removes the file: {kubeconfig}");
        }
    }

    #[test]
    fn entries_of_others_are_never_replaced() {
        let mut kubeconfig = of_user();
        for (name, list) in [("work", "clusters"), ("me", "users")] {
            assert_eq!(add(&mut kubeconfig, &own(name), Path::new("/tmp/a"), false, false), Err(list));
        }
        assert!(!remove(&mut kubeconfig, "work"));
        assert_eq!(kubeconfig, of_user());
    }

    #[test]
    fn a_file_that_others_have_written_to_is_not_empty() {
        let mut kubeconfig = json!({"clusters": null, "preferences": {}});
        add(&mut kubeconfig, &own("a"), Path::new("/tmp/a"), false, true).unwrap();
        let mut with_user = kubeconfig.clone();
        with_user["users"].as_array_mut().unwrap().push(json!({"name": "me", "user": {}}));
        assert!(!remove(&mut with_user, "a"));
        assert!(remove(&mut kubeconfig, "a"));
    }
}
