//! Warnings about the formats in the schemas of a CRD.

use serde_json::Value;

use super::version::Versions;
use crate::registry::builtin::validation::{field, items, string};

/// The formats of strings that are validated, without hyphens.
const STRING_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Returns the warnings about formats that have no effect. Those of the replaced CRD aren't repeated.
pub(in crate::registry::builtin::crd) fn format_warnings(old: Option<&Value>, new: &Value) -> Vec<String> {
    let known = old.map(|old| unrecognized_formats(&old["spec"])).unwrap_or_default();
    let formats = unrecognized_formats(&new["spec"]).into_iter().filter(|format| !known.contains(format));
    formats.map(|format| format!("unrecognized format {format:?}")).collect()
}

fn unrecognized_formats(spec: &Value) -> Vec<String> {
    let mut formats = Vec::new();
    Versions::new(spec).documents().for_each(|document| collect(document, &mut formats));
    formats
}

/// Adds the unrecognized formats of a schema and those in it. The depth of decoded documents is limited.
fn collect(schema: &Value, formats: &mut Vec<String>) {
    let format = string(schema, "format");
    let is_recognized = match string(schema, "type") {
        "" | "string" => STRING_FORMATS.contains(&&*format.replace('-', "")),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !is_recognized {
        formats.push(format.to_owned());
    }
    for list in ["items", "allOf", "anyOf", "oneOf"] {
        items(schema, list).iter().for_each(|schema| collect(schema, formats));
    }
    for child in ["items", "not"].into_iter().filter_map(|name| field(schema, name)) {
        collect(child, formats);
    }
    for (_, property) in schema["properties"].as_object().into_iter().flatten() {
        collect(property, formats);
    }
    if let Some(additional) = field(schema, "additionalProperties") {
        collect(additional, formats);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_without_effect_are_reported_once() {
        let definition = |format: &str| {
            let schema = json!({"type": "object", "properties": {
                "a": {"type": "string", "format": "date-time"}, "b": {"type": "integer", "format": format},
                "c": {"type": "array", "items": {"type": "number", "format": "double"}},
            }});
            json!({"spec": {"versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": schema}}, {"name": "v2", "schema": {"openAPIV3Schema": schema}},
            ]}})
        };
        assert_eq!(format_warnings(None, &definition("int32")), [""; 0]);
        let new = definition("uint32");
        assert_eq!(format_warnings(None, &new), ["unrecognized format \"uint32\""]);
        assert_eq!(format_warnings(Some(&definition("int32")), &new).len(), 1);
        assert_eq!(format_warnings(Some(&new), &new), [""; 0]);
    }
}
