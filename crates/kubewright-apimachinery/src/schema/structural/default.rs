//! Defaults must be valid and have no unknown fields.

use serde_json::Value;

use super::{Place, Relation};
use crate::{
    schema::{Definitions, Node, parse, prune, validate},
    status::Cause,
};

pub(super) fn check(root: &Place<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    visit(root, true, &mut causes);
    causes
}

/// Checks the defaults of a schema and below it. Like Kubernetes, not those of maps' values (`ValidateDefaults` in
/// `apiextensions-apiserver`).
fn visit(place: &Place<'_>, is_root: bool, causes: &mut Vec<Cause>) {
    if let Some(value) = place.value("default") {
        check_default(place, is_root, value, causes);
    }
    for (relation, child) in place.children() {
        if matches!(relation, Relation::Property(_) | Relation::Items) {
            visit(&child, false, causes);
        }
    }
}

fn check_default(place: &Place<'_>, is_root: bool, value: &Value, causes: &mut Vec<Cause>) {
    let mut schema = parse::from_openapi(&Value::Object(place.document.clone()));
    // A default of the root is a whole object.
    schema.embedded_resource |= is_root;
    let definitions = Definitions::default();
    let node = Node::new(&schema, &definitions);
    if !prune::unknown_fields_as(prune::Root::Part, node, value).is_empty() {
        causes.push(Cause::invalid(place.at("default"), value, "must not have unknown fields"));
    }
    for cause in validate(node, value, None) {
        let field = match cause.field.as_str() {
            "" | "<nil>" => place.at("default"),
            field => place.at(&format!("default.{field}")),
        };
        causes.push(Cause { field, ..cause });
    }
}
