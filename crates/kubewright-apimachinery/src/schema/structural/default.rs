//! Defaults must be valid and have no unknown fields outside of metadata.

use serde_json::Value;

use super::{Place, Relation};
use crate::{
    cel::Budget,
    schema::{Definitions, Node, parse, prune, rules, validate},
    status::Cause,
};

pub(super) fn check(root: &Place<'_>) -> Vec<Cause> {
    let mut checked = Checked { causes: Vec::new(), budget: Budget::of_object() };
    checked.visit(root, true, false);
    checked.causes
}

/// The errors so far, and what is left for the evaluation of rules.
struct Checked {
    causes: Vec<Cause>,
    budget: Budget,
}

impl Checked {
    /// Checks the defaults of a schema and below it. Like Kubernetes, not those of maps' values (`ValidateDefaults` in
    /// `apiextensions-apiserver`). `in_metadata` tells whether the schema is that of the type or the metadata of a
    /// resource, or below it.
    fn visit(&mut self, place: &Place<'_>, is_root: bool, in_metadata: bool) {
        let is_embedded = place.flag("x-kubernetes-embedded-resource");
        let in_metadata = in_metadata && !is_embedded;
        if let Some(value) = place.value("default") {
            self.check(place, is_root, in_metadata, value);
        }
        for (relation, child) in place.children() {
            match relation {
                Relation::Property("apiVersion" | "kind" | "metadata") if is_root || is_embedded => {
                    self.visit(&child, false, true);
                }
                Relation::Property(_) | Relation::Items => self.visit(&child, false, in_metadata),
                Relation::Additional | Relation::Junctor(..) => {}
            }
        }
    }

    fn check(&mut self, place: &Place<'_>, is_root: bool, in_metadata: bool, value: &Value) {
        let mut schema = parse::from_openapi(&Value::Object(place.document.clone()));
        // A default of the root is a whole object.
        schema.embedded_resource |= is_root;
        let definitions = Definitions::default();
        let node = Node::new(&schema, &definitions);
        // Those of metadata are removed when the default is set.
        if !in_metadata && !prune::unknown_fields_as(prune::Root::Part, node, value).is_empty() {
            self.causes.push(Cause::invalid(place.at("default"), value, "must not have unknown fields"));
        }
        let mut causes = validate(node, value, None);
        if causes.is_empty() {
            causes = rules::check_default(node, value, &mut self.budget);
        }
        self.causes.extend(causes.into_iter().map(|cause| {
            let field = match cause.field.as_str() {
                "" | "<nil>" => place.at("default"),
                field => place.at(&format!("default.{field}")),
            };
            Cause { field, ..cause }
        }));
    }
}
