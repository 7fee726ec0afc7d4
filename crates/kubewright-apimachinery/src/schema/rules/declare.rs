//! The types of values in rules, by their schema
//! ([types](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules)).

use std::{collections::BTreeMap, sync::Arc};

use super::value::{escape, is_alias};
use crate::{
    cel::{Fields, Type},
    schema::{Additional, Kind, Schema},
};

/// Returns the type of a value in rules. `None` if rules can't use it, because its schema declares no type.
pub(super) fn type_of(schema: &Schema, resource: bool) -> Option<Type> {
    if schema.int_or_string {
        return Some(Type::Dyn);
    }
    Some(match schema.kind {
        None if resource => object(schema, resource),
        None => return None,
        Some(Kind::Object) => match &schema.additional {
            Additional::Schema(values) if !resource => {
                Type::map(Type::String, type_of(values, values.embedded_resource)?)
            }
            Additional::Allowed(true) => Type::Unknown,
            _ => object(schema, resource),
        },
        Some(Kind::Array) => {
            let items = schema.items.as_deref()?;
            Type::list(type_of(items, items.embedded_resource)?)
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

fn object(schema: &Schema, resource: bool) -> Type {
    let mut fields = BTreeMap::new();
    for (name, property) in &schema.properties {
        if let (Some(of), Some(escaped)) = (type_of(property, property.embedded_resource), escape(name)) {
            if is_alias(name) {
                fields.insert(name.clone(), of.clone());
            }
            fields.insert(escaped.into_owned(), of);
        }
    }
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
