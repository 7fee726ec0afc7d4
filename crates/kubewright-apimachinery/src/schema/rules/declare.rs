//! The types of values in rules, by their schema
//! ([types](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules)).

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    cel::{Fields, PolicyDeclarations, Type, escape, is_alias},
    schema::{Additional, Kind, Node},
};

/// Declares the objects of a policy as those of a kind. Their fields are then checked.
pub fn declare_object(declarations: &PolicyDeclarations, node: Node<'_>) -> PolicyDeclarations {
    declare(declarations, &["object", "oldObject"], node)
}

/// Declares the parameters of a policy as objects of a kind. Their fields are then checked.
pub fn declare_parameters(declarations: &PolicyDeclarations, node: Node<'_>) -> PolicyDeclarations {
    declare(declarations, &["params"], node)
}

fn declare(declarations: &PolicyDeclarations, variables: &[&str], node: Node<'_>) -> PolicyDeclarations {
    let mut seen = Vec::new();
    let metadata = node.schema().properties.get("metadata");
    let mut fields = fields(node, &mut seen);
    // The schema of a custom kind says little about its metadata.
    if metadata.is_none_or(|metadata| metadata.reference.is_none()) {
        fields.insert("metadata".to_owned(), Type::Unknown);
    }
    for name in ["apiVersion", "kind"] {
        fields.insert(name.to_owned(), Type::String);
    }
    if node.schema().preserve_unknown {
        return declarations.clone();
    }
    declarations.of_type(variables, &Type::Object(Arc::new(Fields { name: "object", fields })))
}

/// Returns the type of a value in rules. `None` if rules can't use it, because its schema declares no type.
pub(super) fn type_of(node: Node<'_>, resource: bool) -> Option<Type> {
    declared(node, resource, &mut Vec::new())
}

/// Returns the type of a value inside of those of the definitions in `seen`.
fn declared<'a>(node: Node<'a>, resource: bool, seen: &mut Vec<&'a str>) -> Option<Type> {
    let Some(name) = node.site.reference.as_deref() else { return without_reference(node, resource, seen) };
    // A definition that contains itself has values of any depth.
    if seen.contains(&name) {
        return Some(Type::Unknown);
    }
    seen.push(name);
    let found = without_reference(node, resource, seen);
    seen.pop();
    found
}

fn without_reference<'a>(node: Node<'a>, resource: bool, seen: &mut Vec<&'a str>) -> Option<Type> {
    let schema = node.schema();
    if schema.int_or_string || schema.format.as_deref() == Some("int-or-string") {
        return Some(Type::Dyn);
    }
    let below = |schema: &'a _| Node::new(schema, node.definitions());
    Some(match schema.kind {
        None if resource => object(node, resource, seen),
        None => return None,
        Some(Kind::Object) => match &schema.additional {
            Additional::Schema(values) if !resource => {
                Type::map(Type::String, declared(below(values), values.embedded_resource, seen)?)
            }
            Additional::Allowed(true) => Type::Unknown,
            _ => object(node, resource, seen),
        },
        Some(Kind::Array) => {
            let items = schema.items.as_deref()?;
            Type::list(declared(below(items), items.embedded_resource, seen)?)
        }
        Some(Kind::String) => match schema.format.as_deref() {
            Some("byte") => Type::Bytes,
            Some("duration") => Type::Duration,
            Some("date" | "date-time" | "datetime") => Type::Timestamp,
            _ => Type::String,
        },
        Some(Kind::Boolean) => Type::Bool,
        Some(Kind::Number) => Type::Double,
        Some(Kind::Integer) => Type::Int,
    })
}

fn object<'a>(node: Node<'a>, resource: bool, seen: &mut Vec<&'a str>) -> Type {
    let mut fields = fields(node, seen);
    if resource {
        let names = ["name", "generateName"].map(|name| (name.to_owned(), Type::String));
        let metadata = Fields { name: "object", fields: BTreeMap::from(names) };
        fields.insert("metadata".to_owned(), Type::Object(Arc::new(metadata)));
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), Type::String);
        }
    }
    Type::Object(Arc::new(Fields { name: "object", fields }))
}

fn fields<'a>(node: Node<'a>, seen: &mut Vec<&'a str>) -> BTreeMap<String, Type> {
    let mut fields = BTreeMap::new();
    for (name, property) in &node.schema().properties {
        let of = declared(Node::new(property, node.definitions()), property.embedded_resource, seen);
        if let (Some(of), Some(escaped)) = (of, escape(name)) {
            if is_alias(name) {
                fields.insert(name.clone(), of.clone());
            }
            fields.insert(escaped.into_owned(), of);
        }
    }
    fields
}
