//! Owners of the number of replicas of an object, which its `Scale` shows as its own.
//!
//! A write through `scale` decides about ownership in the `Scale`. The owners before and after it are those of the
//! object, in other words (`ScaleHandler` in `apimachinery/pkg/util/managedfields`).

use serde_json::Value;

use super::{
    fields::FieldSet,
    managed::{Entry, Managers},
};

/// The `apiVersion` of a `Scale`.
pub const SCALE_VERSION: &str = "autoscaling/v1";

fn scale_path() -> FieldSet {
    FieldSet::of(["spec.replicas"])
}

/// Returns the `managedFields` of the scale of an object, given those of the object and the path of its number of
/// replicas.
pub fn owners_in_scale(managed: Option<&Value>, replicas: &FieldSet) -> Option<Value> {
    let mut managers = Managers::decode(managed).unwrap_or_default();
    managers.0.retain(|entry| entry.fields.contains(replicas));
    for entry in &mut managers.0 {
        SCALE_VERSION.clone_into(&mut entry.api_version);
        entry.fields = scale_path();
    }
    managers.encode()
}

/// Returns the `managedFields` of an object after a write to its scale, given those before the write and those of the
/// scale after it.
pub fn owners_after_scale(
    managed: Option<&Value>,
    scale: Option<&Value>,
    replicas: &FieldSet,
    group_version: &str,
) -> Option<Value> {
    let before = Managers::decode(managed).unwrap_or_default();
    let mut scale = Managers::decode(scale).unwrap_or_default();
    let mut after = Vec::with_capacity(before.0.len() + 1);
    for mut entry in before.0 {
        // An update is one of its version, so as in Kubernetes, it always continues as another entry.
        if entry.fields.contains(replicas) && scale.take(&entry).is_none() {
            entry.fields.subtract(replicas);
        }
        after.push(entry);
    }
    let path = scale_path();
    let owners = scale.0.into_iter().filter(|entry| entry.fields.contains(&path));
    after.extend(owners.map(|entry| Entry {
        api_version: group_version.to_owned(),
        time: None,
        fields: replicas.clone(),
        ..entry
    }));
    Managers(after).encode()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    }

    #[test]
    fn owners_of_the_replicas_own_those_of_the_scale() {
        let replicas = FieldSet::of(["spec.size"]);
        let managed = json!([
            entry("a", "Update", "g/v1", json!({"f:spec": {".": {}, "f:size": {}}})),
            entry("b", "Update", "g/v1", json!({"f:spec": {"f:other": {}}})),
        ]);
        let scale = owners_in_scale(Some(&managed), &replicas);
        assert_eq!(scale, Some(json!([entry("a", "Update", SCALE_VERSION, json!({"f:spec": {"f:replicas": {}}}))])));
        assert_eq!(owners_in_scale(None, &replicas), None);
    }

    #[test]
    fn owners_of_the_scale_own_the_replicas() {
        let replicas = FieldSet::of(["spec.size"]);
        let size = || json!({"f:spec": {"f:size": {}}});
        let in_scale = || json!({"f:spec": {"f:replicas": {}}});
        let managed = json!([
            entry("a", "Apply", "g/v1", size()),
            entry("b", "Apply", "g/v1", size()),
            entry("c", "Update", "g/v1", json!({"f:spec": {"f:other": {}, "f:size": {}}})),
        ]);
        let scale = json!([
            entry("a", "Apply", SCALE_VERSION, in_scale()),
            entry("c", "Update", SCALE_VERSION, in_scale()),
            entry("d", "Update", SCALE_VERSION, in_scale()),
        ]);
        let after = owners_after_scale(Some(&managed), Some(&scale), &replicas, "g/v1");
        let expect = json!([
            entry("a", "Apply", "g/v1", size()),
            entry("c", "Update", "g/v1", json!({"f:spec": {"f:other": {}}})),
            entry("c", "Update", "g/v1", size()),
            entry("d", "Update", "g/v1", size()),
        ]);
        assert_eq!(after, Some(expect));
    }
}
