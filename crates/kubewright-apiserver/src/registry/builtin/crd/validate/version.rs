//! Validation of the versions of a CRD.

use std::collections::BTreeSet;

use kubewright_apimachinery::{
    name,
    schema::{Kind, Node, Schema, parse, rules, structural},
};
use serde_json::Value;

use super::{SPEC, metadata, root::validate_root};
use crate::registry::builtin::{
    schemas::definitions,
    validation::{Errors, Path, Shown, boolean, field, items, optional_string, string},
};

/// The maximum number of selectable fields of a version.
const MAX_SELECTABLE: usize = 8;

/// The fields of a version that are validated as fields of the spec if they are equal in all versions.
const SHARED: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

/// The versions of a CRD.
pub(super) struct Versions<'a> {
    spec: &'a Value,
    list: &'a [Value],
    /// Those of [`SHARED`] that are equal in all versions.
    common: Vec<&'static str>,
    /// The versions of the replaced CRD.
    replaced: &'a [Value],
}

impl<'a> Versions<'a> {
    pub(super) fn new(spec: &'a Value) -> Self {
        let list = items(spec, "versions");
        let is_common = |name: &&str| list.windows(2).all(|pair| field(&pair[0], name) == field(&pair[1], name));
        let common = SHARED.into_iter().filter(|name| !list.is_empty() && is_common(name)).collect();
        Self { spec, list, common, replaced: &[] }
    }

    /// Sets the replaced CRD.
    pub(super) fn replacing(mut self, old: Option<&'a Value>) -> Self {
        self.replaced = old.map_or(&[], |old| items(&old["spec"], "versions"));
        self
    }

    /// Returns whether the replaced CRD has the version with the same schema.
    fn is_known(&self, version: &Value) -> bool {
        self.replaced.iter().any(|old| old["name"] == version["name"] && old["schema"] == version["schema"])
    }

    /// Returns the OpenAPI schemas; a common one once.
    pub(super) fn documents(&self) -> impl Iterator<Item = &'a Value> {
        let count = if self.is_common("schema") { 1 } else { self.list.len() };
        self.list.iter().take(count).filter_map(document)
    }

    fn is_common(&self, name: &str) -> bool {
        self.common.contains(&name)
    }

    /// Checks that all versions have a schema.
    pub(super) fn require_schemas(&self, errors: &mut Errors) {
        let path = SPEC.child("versions");
        for (index, version) in self.list.iter().enumerate() {
            if document(version).is_none() {
                let path = path.index(index);
                let path = path.child("schema");
                errors.required(&path.child("openAPIV3Schema"), "");
            }
        }
    }

    /// Checks the names of versions, what they don't have in common, and that exactly one is stored.
    pub(super) fn validate_each(&self, errors: &mut Errors) {
        let path = SPEC.child("versions");
        let mut names = BTreeSet::new();
        for (index, version) in self.list.iter().enumerate() {
            let path = path.index(index);
            let name = string(version, "name");
            names.insert(name);
            let wrong = name::dns1035_label(name);
            if !wrong.is_empty() {
                errors.invalid(&path.child("name"), name, &wrong.join(","));
            }
            validate_deprecation_warning(version, &path.child("deprecationWarning"), errors);
            self.validate_parts(version, false, &path, errors);
        }
        if names.len() < self.list.len() {
            errors.invalid(&path, self.shown(), "must contain unique version names");
        }
        if self.list.iter().filter(|version| boolean(version, "storage")).count() != 1 {
            errors.invalid(&path, self.shown(), "must have exactly one version marked as storage version");
        }
        // Kubernetes reports the name of the first version twice.
        let first = self.list.first().map(|first| string(first, "name")).unwrap_or_default();
        let wrong = name::dns1035_label(first);
        if !first.is_empty() && !wrong.is_empty() {
            errors.invalid(&SPEC.child("version"), first, &wrong.join(","));
        }
    }

    /// Checks what the versions have in common.
    pub(super) fn validate_common(&self, errors: &mut Errors) {
        if let Some(first) = self.list.first() {
            self.validate_parts(first, true, &SPEC, errors);
        }
    }

    /// Checks the fields of a version that are common, or those that aren't.
    fn validate_parts(&self, version: &Value, common: bool, path: &Path<'_>, errors: &mut Errors) {
        let has = |name: &str| self.is_common(name) == common;
        if has("schema") {
            let path = path.child(if common { "validation" } else { "schema" });
            // What all versions share is checked as if they had the same subresources.
            let versions = if common { self.list } else { std::slice::from_ref(version) };
            let has_status = versions.iter().any(|version| field(&version["subresources"], "status").is_some());
            validate_schema(version, (self.is_known(version), has_status), &path, errors);
        }
        if has("subresources")
            && let Some(scale) = field(&version["subresources"], "scale")
        {
            let path = path.child("subresources");
            validate_scale(scale, &path.child("scale"), errors);
        }
        if has("additionalPrinterColumns") {
            let path = path.child("additionalPrinterColumns");
            for (index, column) in items(version, "additionalPrinterColumns").iter().enumerate() {
                validate_column(column, &path.index(index), errors);
            }
        }
        if has("selectableFields") {
            let schema = document(version).filter(|_| self.is_common("schema") == common);
            validate_selectable_fields(version, schema, common, &path.child("selectableFields"), errors);
        }
    }

    /// Shows the versions in the form of Kubernetes' internal type.
    fn shown(&self) -> Shown {
        let part = |version: &Value, name: &str| {
            let value = field(version, name).filter(|_| !self.is_common(name));
            Shown::nullable(value)
        };
        let version = |version: &Value| {
            Shown::object([
                ("Name", string(version, "name").into()),
                ("Served", boolean(version, "served").into()),
                ("Storage", boolean(version, "storage").into()),
                ("Deprecated", boolean(version, "deprecated").into()),
                ("DeprecationWarning", Shown::nullable(version.get("deprecationWarning"))),
                ("Schema", part(version, "schema")),
                ("Subresources", part(version, "subresources")),
                ("AdditionalPrinterColumns", part(version, "additionalPrinterColumns")),
                ("SelectableFields", part(version, "selectableFields")),
            ])
        };
        match field(self.spec, "versions") {
            Some(_) => Shown::list(self.list.iter().map(version)),
            None => Value::Null.into(),
        }
    }
}

/// Returns the OpenAPI schema of a version.
fn document(version: &Value) -> Option<&Value> {
    field(&version["schema"], "openAPIV3Schema")
}

fn validate_deprecation_warning(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    const LIMIT: usize = 256;
    let Some(warning) = optional_string(version, "deprecationWarning") else { return };
    if !boolean(version, "deprecated") {
        errors.invalid(path, warning, "can only be set for deprecated versions");
        return;
    }
    if warning.len() > LIMIT {
        errors.invalid(path, warning, &format!("must be <= {LIMIT} characters long"));
    }
    if warning.is_empty() {
        errors.invalid(path, warning, "must not be an empty string");
    }
    if let Some((place, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        let why =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {place}");
        errors.invalid(path, warning, &why);
    }
}

/// Checks the schema of a version that is known if the replaced CRD has it too, and that may have a status subresource.
fn validate_schema(version: &Value, (is_known, has_status): (bool, bool), path: &Path<'_>, errors: &mut Errors) {
    let Some(document) = document(version) else { return };
    validate_root(document, has_status, &path.child(structural::ROOT), errors);
    let path = path.to_string();
    let (found, is_structural) = structural::check(document, &path);
    errors.extend(found);
    if is_structural {
        let schema = parse::from_openapi(document);
        errors.extend(metadata::check(&schema, &format!("{path}.{}", structural::ROOT)));
        errors.extend(rules::check(&schema, &path, is_known));
    }
}

fn validate_scale(scale: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], ".spec"),
        ("statusReplicasPath", &[".status."], ".status"),
        ("labelSelectorPath", &[".spec.", ".status."], "either .spec or .status"),
    ];
    for (field, parents, shown) in rules {
        let (text, path) = (string(scale, field), path.child(field));
        if text.is_empty() {
            if field != "labelSelectorPath" {
                errors.required(&path, "");
            }
        } else if validate_simple_json_path(text, &path, errors)
            && !parents.iter().any(|parent| text.starts_with(parent))
        {
            errors.invalid(&path, text, &format!("should be a json path under {shown}"));
        }
    }
}

/// Checks the beginning of a path. Returns whether it is valid.
fn validate_simple_json_path(text: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let valid = text.starts_with('.');
    if !valid {
        errors.invalid(path, text, "must be a simple json path starting with .");
    }
    valid
}

fn validate_column(column: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    if string(column, "name").is_empty() {
        errors.required(&path.child("name"), "");
    }
    let why = format!("must be one of {}", TYPES.join(","));
    match string(column, "type") {
        "" => errors.required(&path.child("type"), &why),
        kind if TYPES.contains(&kind) => {}
        kind => errors.invalid(&path.child("type"), kind, &why),
    }
    let format = string(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        errors.invalid(&path.child("format"), format, &format!("must be one of {}", FORMATS.join(",")));
    }
    // The field is spelled as in an older version of the API.
    let path = path.child("JSONPath");
    match string(column, "jsonPath") {
        "" => errors.required(&path, ""),
        text => {
            validate_simple_json_path(text, &path, errors);
        }
    }
}

/// Checks the selectable fields by the schema at the same place.
fn validate_selectable_fields(
    version: &Value,
    document: Option<&Value>,
    common: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let fields = items(version, "selectableFields");
    if fields.is_empty() {
        return;
    }
    let Some(document) = document else {
        let why = if common {
            "may only be set when validations.schema is included"
        } else {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        };
        return errors.invalid(path, "", why);
    };
    let schema = structural::parse(document).unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("jsonPath");
        let text = string(field, "jsonPath");
        if text.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let kind = match find_field(&schema, text) {
            Ok(kind) => kind,
            Err(why) => {
                errors.invalid(&path, text, &format!("is an invalid path: {why}"));
                continue;
            }
        };
        if text == ".metadata" || text.starts_with(".metadata.") {
            errors.invalid(&path, text, "must not point to fields in metadata");
        }
        if !matches!(kind, Some(Kind::String | Kind::Boolean | Kind::Integer)) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                       formats are allowed.";
            errors.invalid(&path, text, why);
        }
        if !seen.insert(text) {
            errors.duplicate(&path, text);
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.too_many(path, seen.len(), MAX_SELECTABLE);
    }
}

/// Returns the type of the field that a path such as `.spec.a` refers to.
fn find_field(schema: &Schema, text: &str) -> Result<Option<Kind>, String> {
    let definitions = definitions();
    let mut node = Node::new(schema, &definitions);
    let mut rest = text;
    while !rest.is_empty() {
        let Some(step) = rest.strip_prefix('.') else {
            if rest.starts_with('[') {
                return Err("array notation is not allowed".into());
            }
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(format!("expected [ or . but got: {}", &rest[..end]));
        };
        if step.is_empty() {
            return Err("unexpected end of JSON path".into());
        }
        let end = step.find(['.', '[', ']']).unwrap_or(step.len());
        let (name, after) = step.split_at(end);
        node = node.field(name).ok_or("does not refer to a valid field")?;
        rest = after;
    }
    Ok(node.schema().kind)
}
