//! The defaults of the metadata of embedded resources.

use kubewright_apimachinery::{schema::Schema, status::Cause};
use serde_json::Value;

use crate::{
    embedded::{Step, decode_metadata, surround},
    object_meta,
};

/// Checks that the defaults of metadata of embedded resources result in valid metadata (`ValidateDefaults` of
/// `apiextensions-apiserver`). `path` is that of the schema.
pub(super) fn check(schema: &Schema, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    check_below(schema, path, &[], &mut causes);
    causes
}

/// Checks the default of a schema, to which `steps` lead from an embedded resource if it describes metadata, and those
/// of the schemas below it.
fn check_below(schema: &Schema, path: &str, steps: &[Step], causes: &mut Vec<Cause>) {
    let steps = if schema.embedded_resource { &[] } else { steps };
    let in_metadata = !steps.is_empty();
    if let Some(default) = schema.default.as_ref().filter(|_| in_metadata)
        && let Some(why) = invalid_metadata(surround(default.clone(), steps))
    {
        let why = format!("must result in valid metadata: {why}");
        causes.push(Cause::invalid(format!("{path}.default"), default, &why));
    }
    let below = |step: Step| [steps, &[step]].concat();
    for (name, field) in &schema.properties {
        let begins = schema.embedded_resource && name == "metadata";
        let steps = if begins || in_metadata { below(Step::Field(name.clone())) } else { Vec::new() };
        check_below(field, &format!("{path}.properties[{name}]"), &steps, causes);
    }
    if let Some(items) = &schema.items {
        let steps = if in_metadata { below(Step::Items) } else { Vec::new() };
        check_below(items, &format!("{path}.items"), &steps, causes);
    }
}

/// Returns why the metadata of a resource is invalid.
fn invalid_metadata(mut resource: Value) -> Option<String> {
    let sent = resource["metadata"].clone();
    if let Err(why) = decode_metadata(resource.as_object_mut()?, "") {
        return Some(Cause::invalid("metadata", &sent, &why).to_string());
    }
    match object_meta::check_metadata(&resource, false).as_slice() {
        [] => None,
        [one] => Some(one.to_string()),
        several => Some(format!("[{}]", several.iter().map(Cause::to_string).collect::<Vec<_>>().join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::schema::parse::from_openapi;
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_of_metadata_are_valid() {
        let check = |metadata: Value, expect: &str| {
            let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "metadata": metadata,
            }});
            let schema = from_openapi(&json!({"type": "object", "properties": {"spec": embedded}}));
            let found: Vec<_> = super::check(&schema, "root").iter().map(Cause::to_string).collect();
            match expect {
                "" => assert!(found.is_empty(), "{found:?}"),
                _ => assert!(found.len() == 1 && found[0].starts_with(expect), "{found:?}"),
            }
        };
        let of = |default: Value| json!({"type": "object", "default": default});
        let invalid = "root.properties[spec].properties[metadata].default: Invalid value: ";
        check(of(json!({"name": "a", "odd": {}})), "");
        check(
            of(json!({"name": 5})),
            &(invalid.to_owned()
                + r#"{"name":5}: must result in valid metadata: metadata: Invalid value: {"name":5}: json: cannot unmarshal "#),
        );
        check(
            of(json!({"labels": {"a b": "c"}})),
            &(invalid.to_owned()
                + r#"{"labels":{"a b":"c"}}: must result in valid metadata: metadata.labels: Invalid value: "a b": name part"#),
        );
        check(
            json!({"type": "object", "properties": {"labels": of(json!({"a b": "c"}))}}),
            "root.properties[spec].properties[metadata].properties[labels].default: Invalid value: ",
        );
    }
}
