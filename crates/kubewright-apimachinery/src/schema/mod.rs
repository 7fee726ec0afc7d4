//! Schemas of built-in and custom kinds, in one representation.
//!
//! The schema of a built-in kind is that of its Rust type, combined with the published list and patch markers. The
//! schema of a custom kind is that of its CRD. Validation, defaulting, pruning, apply, strategic merge, OpenAPI and
//! `explain` all traverse it through a [`Node`], which resolves references.

mod correlation;
mod default;
mod definitions;
mod embedded;
pub mod emit;
pub mod parse;
mod prune;
pub mod rules;
pub mod structural;
mod validate;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

pub use default::{default, drop_nulls};
pub use definitions::Definitions;
pub use embedded::{has_embedded, visit_embedded};
pub use prune::{prune, unknown_fields};
pub(crate) use validate::format::is_format;
pub use validate::validate;

use crate::cel::LazyProgram;

/// The name of the definition of `metadata`, which all kinds share.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A schema. The default allows any value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// The name of the definition that this schema refers to. If set, all other fields but `description`, `default` and
    /// the markers of the map type and of patches are empty.
    pub reference: Option<Arc<str>>,
    /// A short title.
    pub title: Option<String>,
    /// The description for users.
    pub description: Option<String>,
    /// The JSON type; any if absent.
    pub kind: Option<Kind>,
    /// The format of the value: `date-time`, `int32`, `byte`, …
    pub format: Option<String>,
    /// The declared fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// The fields that an object may have in addition to its `properties`.
    pub additional: Additional,
    /// The schema of an array's elements.
    pub items: Option<Box<Schema>>,
    /// The required fields.
    pub required: Vec<String>,
    /// True if null is allowed.
    pub nullable: bool,
    /// The default for an absent field.
    pub default: Option<Value>,
    /// An example for users.
    pub example: Option<Value>,
    /// `externalDocs`: a page with more documentation.
    pub external_docs: Option<Box<Value>>,
    /// Numeric bounds, length limits and patterns.
    pub limits: Limits,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// A quantity, which is written as a string or as a number. Its `kind` is that of its canonical form.
    pub quantity: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    /// `x-kubernetes-list-type`, and the keys of a list map.
    pub list: List,
    /// `x-kubernetes-map-type`: true for `atomic` (the whole value has one owner), false for `granular`. Beside a
    /// reference, it replaces that of the definition.
    pub atomic_map: Option<bool>,
    /// `x-kubernetes-patch-strategy`, split at commas: `merge`, `replace`, `retainKeys`.
    pub patch_strategy: Vec<String>,
    /// `x-kubernetes-patch-merge-key`.
    pub patch_merge_key: Option<String>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
    /// `allOf`, `anyOf`, `oneOf`, `not`: constraints on values only, as structural schemas require.
    pub logic: Logic,
    /// `x-kubernetes-group-version-kind`: (group, version, kind), on the root of a kind's schema.
    pub group_version_kind: Vec<(String, String, String)>,
}

/// A JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

impl Kind {
    /// Returns the type's name in a schema document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Additional {
    /// Not specified: unknown fields are pruned.
    #[default]
    Unspecified,
    /// `true` or `false`.
    Allowed(bool),
    /// Allows other fields, with values of this schema.
    Schema(Box<Schema>),
}

/// The type of a list, which determines ownership and merging
/// (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy>).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum List {
    /// Not specified: the whole list has one owner.
    #[default]
    Unspecified,
    /// The whole list has one owner.
    Atomic,
    /// Scalars, each with its own owners.
    Set,
    /// Objects, identified by these keys.
    Map(Vec<String>),
}

/// Limits of a value. Absent ones don't apply.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are JSON schema's own")]
pub struct Limits {
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub pattern: Option<String>,
    pub enum_values: Option<Vec<Value>>,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are the CRD's own")]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: Option<bool>,
    pub(crate) program: LazyProgram,
    pub(crate) message_program: LazyProgram,
}

/// Combinations of schemas, which only constrain values.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are JSON schema's own")]
pub struct Logic {
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

/// A schema, with the definitions in which its references resolve. Copying is free.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    schema: &'a Schema,
    /// The schema before references are resolved, which may have markers beside its reference.
    site: &'a Schema,
    definitions: &'a Definitions,
}

/// The schema of unknown values: any value is valid and preserved, maps are granular and lists atomic.
pub static ANYTHING: Schema = anything();

const fn anything() -> Schema {
    Schema {
        reference: None,
        title: None,
        description: None,
        kind: None,
        format: None,
        properties: BTreeMap::new(),
        additional: Additional::Unspecified,
        items: None,
        required: Vec::new(),
        nullable: false,
        default: None,
        example: None,
        external_docs: None,
        limits: Limits {
            minimum: None,
            maximum: None,
            exclusive_minimum: false,
            exclusive_maximum: false,
            multiple_of: None,
            min_length: None,
            max_length: None,
            min_items: None,
            max_items: None,
            unique_items: false,
            min_properties: None,
            max_properties: None,
            pattern: None,
            enum_values: None,
        },
        int_or_string: false,
        quantity: false,
        preserve_unknown: true,
        embedded_resource: false,
        list: List::Unspecified,
        atomic_map: None,
        patch_strategy: Vec::new(),
        patch_merge_key: None,
        rules: Vec::new(),
        logic: Logic { all_of: Vec::new(), any_of: Vec::new(), one_of: Vec::new(), not: None },
        group_version_kind: Vec::new(),
    }
}

impl<'a> Node<'a> {
    /// Creates the node of `schema`, whose references resolve in `definitions`.
    pub fn new(schema: &'a Schema, definitions: &'a Definitions) -> Self {
        let mut node = Self { schema, site: schema, definitions };
        // A chain of more references than there are definitions is cyclic.
        for _ in 0..=definitions.len() {
            let Some(name) = &node.schema.reference else { break };
            node.schema = definitions.get(name).unwrap_or(&ANYTHING);
        }
        node
    }

    /// Returns the schema, which is never a reference.
    pub fn schema(self) -> &'a Schema {
        self.schema
    }

    /// Returns whether the whole value has one owner, if it is an object.
    pub fn is_atomic_map(self) -> bool {
        self.site.atomic_map.or(self.schema.atomic_map).unwrap_or_default()
    }

    /// Returns the patch strategies of the value: `merge`, `replace`, `retainKeys`.
    pub fn patch_strategy(self) -> &'a [String] {
        &self.site.patch_strategy
    }

    /// Returns the key that identifies the items of the list in a patch.
    pub fn patch_merge_key(self) -> Option<&'a str> {
        self.site.patch_merge_key.as_deref()
    }

    /// Returns the definitions in which references resolve.
    pub fn definitions(self) -> &'a Definitions {
        self.definitions
    }

    /// Returns the schema of a field: that of a declared property or, otherwise, of `additional`. `None` means that the
    /// field is unknown. With `x-kubernetes-preserve-unknown-fields` the schema of an unknown field is [`ANYTHING`].
    pub fn field(self, name: &str) -> Option<Node<'a>> {
        self.declared_field(name).or_else(|| self.additional_field())
    }

    /// Returns the schema of a declared property; `None` if there is no such property.
    pub fn declared_field(self, name: &str) -> Option<Node<'a>> {
        self.schema.properties.get(name).map(|schema| Self::new(schema, self.definitions))
    }

    /// Returns the schema of fields that aren't declared, as in [`Node::field`]; `None` if such fields are unknown.
    pub fn additional_field(self) -> Option<Node<'a>> {
        match &self.schema.additional {
            Additional::Schema(schema) => Some(Self::new(schema, self.definitions)),
            Additional::Allowed(true) => Some(Self::new(&ANYTHING, self.definitions)),
            _ if self.schema.preserve_unknown => Some(Self::new(&ANYTHING, self.definitions)),
            _ => None,
        }
    }

    /// Like [`Node::field`], for an object or an embedded resource: `apiVersion`, `kind` and `metadata` are known even
    /// if the schema doesn't declare them, as is usual in CRDs.
    pub fn resource_field(self, name: &str) -> Option<Node<'a>> {
        match name {
            "apiVersion" | "kind" => Some(self.field(name).unwrap_or(Self::new(&ANYTHING, self.definitions))),
            "metadata" => Some(match self.schema.properties.get(name) {
                Some(schema) if schema.reference.is_some() => Self::new(schema, self.definitions),
                // A CRD may only restrict the name in `metadata`, so its fields come from the shared definition.
                _ => Self::new(self.definitions.get(OBJECT_META).unwrap_or(&ANYTHING), self.definitions),
            }),
            _ => self.field(name),
        }
    }

    /// Returns whether the schema allows any value, so that algorithms can skip everything below.
    pub fn is_anything(self) -> bool {
        std::ptr::eq(self.schema, &ANYTHING)
    }

    /// Returns the schema of a list's elements, [`ANYTHING`] if not specified.
    pub fn items(self) -> Node<'a> {
        Self::new(self.schema.items.as_deref().unwrap_or(&ANYTHING), self.definitions)
    }
}

#[cfg(test)]
mod tests;
