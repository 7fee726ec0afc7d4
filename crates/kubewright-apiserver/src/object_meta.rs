//! Validation of `metadata`, for all kinds.

use std::{collections::BTreeSet, convert::Infallible};

use kubewright_apimachinery::{go_format, name, schema, status::Cause};
use serde_json::{Value, json};

use crate::{meta, registry::Resource};

/// The finalizers without a domain that Kubernetes itself uses.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The maximum length of the name of a field manager, in bytes.
const MAX_MANAGER: usize = 128;
/// The maximum length of the name of a subresource in managed fields, in bytes.
const MAX_SUBRESOURCE: usize = 256;

/// Removes empty fields, which are not stored in `ObjectMeta`. An empty list of managed fields is kept, since it resets
/// them.
pub(crate) fn drop_empty(object: &mut Value) {
    meta::edit(object, |metadata| {
        metadata.retain(|field, value| match value {
            _ if field == "managedFields" => true,
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => true,
        });
    });
}

/// Removes what a client sends for the fields that the server sets at creation.
pub(crate) fn wipe(object: &mut Value) {
    meta::edit(object, |metadata| {
        for field in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(field);
        }
    });
}

/// Restores the fields that an update can't change. Fields that it must not change are checked by [`check_update`].
pub(crate) fn restore(old: &Value, object: &mut Value) {
    let before = &old["metadata"];
    meta::edit(object, |metadata| {
        let absent = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value == "");
        for field in ["generation", "resourceVersion", "selfLink"] {
            metadata.remove(field);
        }
        for field in ["generation", "resourceVersion", "creationTimestamp", "deletionTimestamp"] {
            if let Some(value) = before.get(field).filter(|value| !value.is_null()) {
                metadata.insert(field.into(), value.clone());
            }
        }
        for field in ["uid", "deletionGracePeriodSeconds"] {
            if let Some(value) = before.get(field).filter(|_| absent(metadata.get(field))) {
                metadata.insert(field.into(), value.clone());
            }
        }
    });
}

/// Returns an object with the metadata that an update of the status keeps.
pub(crate) fn keep_for_status(old: &Value, object: &mut Value, kept: &[&str]) {
    for field in kept {
        meta::set(object, field, old["metadata"].get(*field).cloned());
    }
}

/// Checks the prefix of a generated name by the rule of the kind.
fn check_prefix(resource: &Resource, object: &Value) -> Vec<Cause> {
    let prefix = meta::text(object, "generateName");
    if prefix.is_empty() {
        return Vec::new();
    }
    // The suffix follows the last dash.
    let checked = prefix.strip_suffix('-').filter(|rest| !rest.is_empty()).map(|rest| {
        let kept = rest.char_indices().next_back().map_or(0, |(last, _)| last);
        format!("{}a", &rest[..kept])
    });
    let wrong = resource.strategy.check_name(object, checked.as_deref().unwrap_or(prefix));
    wrong.iter().map(|why| Cause::invalid("metadata.generateName", &json!(prefix), why)).collect()
}

/// Checks the prefix of a generated name in an update, which for some kinds has to be a part of a path only.
pub(crate) fn check_changed_prefix(resource: &Resource, object: &Value) -> Vec<Cause> {
    let prefix = meta::text(object, "generateName");
    if prefix.is_empty() || !resource.lifecycle.any_prefix {
        return check_prefix(resource, object);
    }
    let wrong = name::path_segment(&format!("{prefix}x"));
    wrong.iter().map(|why| Cause::invalid("metadata.generateName", &json!(prefix), why)).collect()
}

/// Checks the name, and the prefix of a generated name, by the rule of the kind.
pub(crate) fn check_name(resource: &Resource, object: &Value) -> Vec<Cause> {
    let check = |name: &str| resource.strategy.check_name(object, name);
    let mut causes = check_prefix(resource, object);
    let name = meta::text(object, "name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
        return causes;
    }
    causes.extend(check(name).iter().map(|why| Cause::invalid("metadata.name", &json!(name), why)));
    causes
}

/// Checks the metadata of the resources embedded in a custom object. They needn't have a name.
pub(crate) fn check_embedded(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let node = resource.schema.node();
    if !resource.schema.custom || !schema::has_embedded(node.schema()) {
        return causes;
    }
    let Ok(()) = schema::visit_embedded(node, &mut object.clone(), &mut |fields, path| {
        let embedded = json!({"metadata": fields.get("metadata")});
        let text = |field: &str| meta::text(&embedded, field).to_owned();
        let mut found = Vec::new();
        let mut check = |field: &str, wrong: Vec<String>| {
            let shown = json!(text(field));
            found.extend(wrong.iter().map(|why| Cause::invalid(format!("metadata.{field}"), &shown, why)));
        };
        check("generateName", name::path_segment(&format!("{}x", text("generateName"))));
        if !text("name").is_empty() {
            check("name", name::path_segment(&text("name")));
        }
        if !text("namespace").is_empty() {
            check("namespace", name::dns1123_label(&text("namespace")));
        }
        found.extend(check_syntax(resource, &embedded));
        causes.extend(found.into_iter().map(|cause| Cause { field: format!("{path}.{}", cause.field), ..cause }));
        Ok::<_, Infallible>(())
    });
    causes
}

/// Checks the syntax of labels, annotations, owner references and finalizers.
pub(crate) fn check_syntax(resource: &Resource, object: &Value) -> Vec<Cause> {
    check_metadata(object, resource.lifecycle.qualified_finalizers)
}

/// Like [`check_syntax`], for an object whose finalizers have to be qualified by a domain or not.
pub(crate) fn check_metadata(object: &Value, qualified_finalizers: bool) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    if metadata["generation"].as_i64().is_some_and(|generation| generation < 0) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("metadata.generation", &metadata["generation"], why));
    }
    causes.extend(name::labels("metadata.labels", &metadata["labels"]));
    causes.extend(name::annotations("metadata.annotations", &metadata["annotations"]));
    check_owners(&metadata["ownerReferences"], &mut causes);
    check_finalizers(&meta::finalizers(object), qualified_finalizers, &mut causes);
    check_managers(&metadata["managedFields"], &mut causes);
    causes
}

/// Checks the names in managed fields, which clients may send.
fn check_managers(managed: &Value, causes: &mut Vec<Cause>) {
    for (index, entry) in managed.as_array().into_iter().flatten().enumerate() {
        for (field, limit) in [("manager", MAX_MANAGER), ("subresource", MAX_SUBRESOURCE)] {
            if entry[field].as_str().is_some_and(|name| name.len() > limit) {
                let path = format!("metadata.managedFields[{index}].{field}");
                causes.push(Cause::new(
                    "FieldValueTooLong",
                    path,
                    format!("Too long: may not be more than {limit} bytes"),
                ));
            }
        }
    }
}

/// Checks owner references. As in Kubernetes, the field of a cause doesn't contain the index.
fn check_owners(owners: &Value, causes: &mut Vec<Cause>) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller = None;
    for owner in owners.as_array().into_iter().flatten() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (group, version) = match text("apiVersion").split_once('/') {
            None => ("", text("apiVersion")),
            // One with two slashes is read as an empty one.
            Some((_, version)) if version.contains('/') => ("", ""),
            Some(of_group) => of_group,
        };
        if version.is_empty() {
            let why = "version must not be empty";
            causes.push(Cause::invalid(format!("{FIELD}.apiVersion"), &json!(text("apiVersion")), why));
        }
        for field in ["kind", "name", "uid"].into_iter().filter(|field| text(field).is_empty()) {
            causes.push(Cause::invalid(format!("{FIELD}.{field}"), &json!(""), "must not be empty"));
        }
        if (group, version, text("kind")) == ("", "v1", "Event") {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid(FIELD, owner, why));
        }
        if owner["controller"] == json!(true) {
            let name = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {name}"
                    );
                    let shown = owners.as_array().into_iter().flatten().map(shown_owner).collect::<Vec<_>>().join(",");
                    let message = format!("Invalid value: [{shown}]: {why}");
                    causes.push(Cause::new("FieldValueInvalid", FIELD, message));
                }
            }
        }
    }
}

/// Returns an owner reference as JSON with its fields in their declared order.
fn shown_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields = fields.iter().filter_map(|name| Some(format!("{name:?}:{}", owner.get(*name)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn check_finalizers(finalizers: &[&str], qualified: bool, causes: &mut Vec<Cause>) {
    const FIELD: &str = "metadata.finalizers";
    for finalizer in finalizers {
        causes.extend(name::label_key(finalizer).iter().map(|why| Cause::invalid(FIELD, &json!(finalizer), why)));
    }
    if ["orphan", "foregroundDeletion"].iter().all(|one| finalizers.contains(one)) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid(FIELD, &json!(finalizers), why));
    }
    if !qualified {
        return;
    }
    for (index, finalizer) in finalizers.iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("{FIELD}[{index}]"), &json!(finalizer), why));
        }
    }
}

/// Returns the warnings for finalizers that a custom object has and that `old` doesn't have.
pub(crate) fn finalizer_warnings(old: Option<&Value>, object: &Value) -> Vec<String> {
    let known = old.map(meta::finalizers).unwrap_or_default();
    let added: BTreeSet<_> = meta::finalizers(object).into_iter().filter(|name| !known.contains(name)).collect();
    let unqualified = added.iter().filter(|name| !name.contains('/') && !STANDARD_FINALIZERS.contains(name));
    unqualified
        .map(|name| {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental \
                 conflicts with other finalizer writers"
            )
        })
        .collect()
}

/// Removes owner references that are contained twice. Returns the warning about them.
pub(crate) fn deduplicate_owners(object: &mut Value, after_admission: bool) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut duplicates = Vec::new();
    for index in (1..owners.len()).rev() {
        if owners[..index].contains(&owners[index]) {
            duplicates.push(owners.remove(index)["uid"].as_str().unwrap_or_default().to_owned());
        }
    }
    if duplicates.is_empty() {
        return None;
    }
    duplicates.reverse();
    let when = if after_admission { " after mutating admission happens" } else { "" };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
         may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    ))
}

/// Checks that an update with [restored](restore) metadata changes no field that it must not change.
pub(crate) fn check_update(old: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if meta::is_terminating(old) {
        let known = meta::finalizers(old);
        let added: BTreeSet<_> = meta::finalizers(object).into_iter().filter(|name| !known.contains(name)).collect();
        if !added.is_empty() {
            let added = go_format::strings(added);
            let why =
                format!("no new finalizers can be added if the object is being deleted, found new finalizers {added}");
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (before, after) = (&old["metadata"][field], &object["metadata"][field]);
        if before != after {
            causes.push(Cause::invalid(format!("metadata.{field}"), after, "field is immutable"));
        }
    }
    causes
}
