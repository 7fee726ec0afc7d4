//! The third stage: defaults must be valid and have no unknown fields.

use serde_json::Value;

use super::{Place, Relation};
use crate::{
    schema::{Definitions, Node, parse, prune, validate},
    status::Cause,
};

pub(super) fn check(root: &Place<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    visit(root, &mut causes);
    causes
}

fn visit(place: &Place<'_>, causes: &mut Vec<Cause>) {
    if let Some(value) = place.value("default") {
        check_default(place, value, causes);
    }
    for (relation, child) in place.children() {
        if !matches!(relation, Relation::Junctor(..)) {
            visit(&child, causes);
        }
    }
}

fn check_default(place: &Place<'_>, value: &Value, causes: &mut Vec<Cause>) {
    let schema = parse::from_openapi(&Value::Object(place.document.clone()));
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
