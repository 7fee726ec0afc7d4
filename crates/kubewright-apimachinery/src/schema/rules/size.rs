//! The greatest sizes of values by their schema, for the costs of rules (`k8s.io/apiserver/pkg/cel/common/schemas.go`).
//!
//! What has no limit of its own is limited by the length of a request.

use std::collections::BTreeMap;

use crate::{
    cel::{SizeLimits, escape},
    schema::{Additional, Kind, Schema},
};

/// The greatest length of a request in bytes.
const REQUEST: u64 = 3 << 20;
/// The bytes of a character at most.
const CHARACTER: u64 = 4;
/// The greatest length of a duration or time.
const TIME: u64 = 32;
/// The length of a date with its quotes.
const DATE: u64 = 12;

/// The greatest sizes of a value, and the shortest text of it.
#[derive(Clone, Debug)]
pub(super) struct Size {
    pub(super) limits: SizeLimits,
    /// The number of bytes of its shortest JSON text.
    least: u64,
}

impl Size {
    fn of(greatest: u64, least: u64) -> Self {
        Self { limits: SizeLimits { greatest, ..SizeLimits::default() }, least }
    }

    /// Returns how often such a value fits into a request.
    pub(super) fn occurrences(&self) -> u64 {
        REQUEST / (self.least + 1)
    }
}

/// Returns the sizes of a value. `None` if rules can't use it. `resource` is true for a whole object.
pub(super) fn size_of(schema: &Schema, resource: bool) -> Option<Size> {
    let limits = &schema.limits;
    if schema.int_or_string {
        return Some(Size::of(limits.max_length.map_or(REQUEST - 2, |length| length.saturating_mul(CHARACTER)), 1));
    }
    let below = |schema: &Schema| size_of(schema, schema.embedded_resource);
    match schema.kind {
        None if resource => Some(object(schema, resource)),
        None => None,
        Some(Kind::Array) => {
            let items = below(schema.items.as_deref()?)?;
            let most = limits.max_items.unwrap_or((REQUEST - 2) / (items.least + 1));
            Some(collection(items, most))
        }
        Some(Kind::Object) => match &schema.additional {
            Additional::Schema(values) => {
                let values = below(values)?;
                // A key has quotes, a colon and a comma, and at least two characters.
                let most = limits.max_properties.unwrap_or((REQUEST - 2) / (values.least + 6));
                Some(collection(values, most))
            }
            _ => Some(object(schema, resource)),
        },
        Some(Kind::String) => Some(text(schema)),
        Some(Kind::Boolean) => Some(Size::of(0, 4)),
        Some(Kind::Number | Kind::Integer) => Some(Size::of(0, 1)),
    }
}

fn collection(items: Size, greatest: u64) -> Size {
    let mut size = Size::of(greatest, 2);
    size.limits.items = Some(Box::new(items.limits));
    size
}

fn object(schema: &Schema, resource: bool) -> Size {
    let mut size = Size::of(0, 2);
    for (name, property) in &schema.properties {
        let Some(field) = size_of(property, property.embedded_resource) else { continue };
        if schema.required.contains(name) && property.default.is_none() {
            size.least += name.len() as u64 + field.least + 4;
        }
        if let Some(escaped) = escape(name) {
            size.limits.fields.insert(escaped.into_owned(), field.limits);
        }
    }
    if resource {
        let name = || SizeLimits { greatest: REQUEST - 2, ..SizeLimits::default() };
        let names = ["name", "generateName"].map(|field| (field.to_owned(), name()));
        let metadata = SizeLimits { fields: BTreeMap::from(names), ..SizeLimits::default() };
        let fields = [("apiVersion", name()), ("kind", name()), ("metadata", metadata)];
        size.limits.fields.extend(fields.map(|(field, limits)| (field.to_owned(), limits)));
    }
    size
}

fn text(schema: &Schema) -> Size {
    let limits = &schema.limits;
    match schema.format.as_deref() {
        Some("byte") => Size::of(limits.max_length.unwrap_or(REQUEST - 2), 2),
        Some("duration") => Size::of(TIME, 3),
        Some("date") => Size::of(DATE, DATE),
        Some("date-time") => Size::of(TIME, 21),
        _ => {
            let longest = |values: &Vec<serde_json::Value>| {
                let lengths = values.iter().filter_map(|value| value.as_str()).map(str::len);
                lengths.max().unwrap_or_default() as u64
            };
            let by_values = limits.enum_values.as_ref().filter(|values| !values.is_empty()).map(longest);
            let by_length = limits.max_length.map(|length| length.saturating_mul(CHARACTER));
            Size::of(by_length.or(by_values).unwrap_or(REQUEST - 2), 2)
        }
    }
}
