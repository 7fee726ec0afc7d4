//! The built-in types: what Kubernetes' Go structs declare, and how objects pass through them.
//!
//! A real API server decodes every body of a built-in kind into a Go struct and encodes that struct again. Clients rely
//! on the result: times and quantities have one notation, an empty list that the struct omits is absent, and a field
//! that the struct always writes is there. [`Types`] holds the declarations, and its methods do the same to a
//! [`Value`] in place:
//!
//! * [`Types::decode`] checks the types, removes unknown fields, and rewrites values as Go would write them.
//! * [`Types::complete`] adds the fields that Go always writes.
//! * [`Types::write`] writes JSON with the fields in their declared order.
//!
//! The declarations are read from text ([`Types::parse`]). All names are slices of it, so a table is small.

pub(crate) mod base64;
mod complete;
mod decode;
mod encode;
mod names;
mod parse;
mod quantity;
mod required;
mod restore;
#[cfg(test)]
mod tests;
mod time;

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use self::names::Names;
pub use self::{
    decode::{Decoded, WrongTypes, json_type},
    parse::ParseError,
};

/// A type in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u16);

/// A table of types.
#[derive(Debug, Default)]
pub struct Types {
    types: Vec<Type>,
    /// The named types by package and name.
    names: BTreeMap<&'static str, BTreeMap<&'static str, TypeId>>,
    /// The types of objects by kind: their groups and versions.
    kinds: BTreeMap<&'static str, Vec<(&'static str, &'static str, TypeId)>>,
}

/// One type.
#[derive(Debug)]
pub struct Type {
    /// The package of a named type, such as `io.k8s.api.core.v1`; empty for others.
    package: &'static str,
    /// The name in the package; for a type without a package, its name in Go, such as `[]string`.
    local: Cow<'static, str>,
    shape: Shape,
    /// The allowed values, if they are enumerated.
    values: Box<[String]>,
    /// True if values of this type contain fields that Go always writes.
    grows: bool,
    /// True if values of this type contain required fields.
    requires: bool,
    /// True for a list that is a message of its own in protobuf.
    message: bool,
}

/// The structure of a type's JSON values.
#[derive(Debug)]
pub enum Shape {
    /// A string.
    String,
    /// A boolean.
    Bool,
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits.
    Int64,
    /// A floating-point number.
    Float64,
    /// Bytes, as base64.
    Bytes,
    /// `metav1.Time`: whole seconds.
    Time,
    /// `metav1.MicroTime`: microseconds.
    MicroTime,
    /// `resource.Quantity`
    Quantity,
    /// `intstr.IntOrString`
    IntOrString,
    /// Any JSON: `runtime.RawExtension`, `metav1.FieldsV1`, `apiextensions.JSON`.
    Any,
    /// A schema or a list of schemas. Contains the schema's type.
    SchemaOrArray(TypeId),
    /// A schema or a boolean.
    SchemaOrBool(TypeId),
    /// A schema or a list of strings.
    SchemaOrStrings(TypeId),
    /// A list.
    List(TypeId),
    /// A map with strings as keys.
    Map(TypeId),
    /// A struct.
    Struct(Box<Struct>),
}

/// A struct.
#[derive(Debug, Default)]
pub struct Struct {
    /// The fields in their declared order. Those of embedded structs are at the place of the struct.
    fields: Vec<Field>,
    /// The indices of `fields` by their names.
    names: Names,
    /// The indices of the fields that Go always writes.
    always: Box<[u16]>,
    /// The indices of the fields that can be missing in a valid object.
    required: Box<[u16]>,
    /// The fields by their protobuf numbers.
    numbers: Box<[(u32, Numbered)]>,
    /// Whether the whole struct has one owner (`+structType=atomic`).
    atomic: bool,
}

/// The field with a protobuf number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// A field of the struct, by its index.
    Field(u16),
    /// A message whose fields belong to the struct.
    Embedded(TypeId),
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    name: &'static str,
    ty: TypeId,
    pointer: bool,
    omit: Omit,
    required: bool,
    marks: Option<Box<Marks>>,
}

/// When Go leaves out a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Never.
    Never,
    /// `omitempty`: if it is false, 0, nil, or empty. A struct that isn't a pointer is never left out.
    Empty,
    /// `omitzero`: if it has the zero value.
    Zero,
}

/// The markers of a field.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Marks {
    /// `+listType`
    pub list: Option<ListMark>,
    /// `+mapType` or `+structType`: true if it is `atomic`.
    pub atomic: Option<bool>,
    /// `patchStrategy`
    pub patch_strategy: Vec<String>,
    /// `patchMergeKey`
    pub patch_merge_key: Option<String>,
    /// `+default`
    pub default: Option<Value>,
    /// True if defaulting distinguishes an empty list from an absent one.
    pub empty: bool,
}

/// `+listType`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListMark {
    /// The list has one owner.
    Atomic,
    /// Each item has its own owners.
    Set,
    /// Each item is identified by these keys.
    Map(Vec<String>),
}

impl Types {
    /// Returns a type by its OpenAPI name, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn find(&self, name: &str) -> Option<TypeId> {
        let (package, name) = name.rsplit_once('.')?;
        let packages: &BTreeMap<&str, BTreeMap<&str, TypeId>> = &self.names;
        packages.get(package)?.get(name).copied()
    }

    /// Returns the type of a kind. `group` is empty for the core group.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let kinds: &BTreeMap<&str, _> = &self.kinds;
        let found = kinds.get(kind)?.iter().find(|(of, in_version, _)| (*of, *in_version) == (group, version));
        found.map(|(_, _, id)| *id)
    }

    /// Returns whether a version of a group has kinds.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.kinds.values().flatten().any(|(of, in_version, _)| (&**of, &**in_version) == (group, version))
    }

    /// Returns the group, version and kind of a type of objects. The group of those that belong to all groups, such as
    /// `DeleteOptions`, is `meta.k8s.io`.
    pub fn group_version_kind(&self, id: TypeId) -> Option<(&'static str, &'static str, &'static str)> {
        let kinds: &BTreeMap<&str, _> = &self.kinds;
        let (kind, all) = kinds.get_key_value(&*self.get(id).local)?;
        let (group, version, _) = all.iter().find(|(_, _, of)| *of == id)?;
        Some((group, version, kind))
    }

    /// Returns a type.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[usize::from(id.0)]
    }

    /// Returns the types with OpenAPI names.
    pub fn named(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.names.values().flat_map(BTreeMap::values).map(|id| (*id, self.get(*id)))
    }
}

impl Type {
    /// Returns the OpenAPI name, such as `io.k8s.api.core.v1.PodSpec`; `None` for unnamed types such as `[]string`.
    pub fn name(&self) -> Option<String> {
        (!self.package.is_empty()).then(|| [self.package, ".", &self.local].concat())
    }

    /// Returns the name in Go's error messages, such as `v1.PodSpec` or `[]v1.Container`.
    fn go(&self) -> Cow<'_, str> {
        match self.package.rsplit('.').next() {
            Some(package) if !package.is_empty() => [package, ".", &self.local].concat().into(),
            _ => Cow::Borrowed(&self.local),
        }
    }

    /// Returns the structure of the values.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns whether the type is a list that is a message of its own in protobuf, where other lists are repeated
    /// fields.
    pub fn is_message(&self) -> bool {
        self.message
    }

    /// Returns the enumerated values, sorted; empty if there are none.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns the struct, if the type is one.
    pub fn as_struct(&self) -> Option<&Struct> {
        if let Shape::Struct(fields) = &self.shape { Some(fields) } else { None }
    }
}

impl Shape {
    /// Returns whether Go represents values by a struct, which `omitempty` never leaves out.
    pub(crate) fn is_struct(&self) -> bool {
        matches!(
            self,
            Self::Struct(_)
                | Self::Time
                | Self::MicroTime
                | Self::Quantity
                | Self::IntOrString
                | Self::Any
                | Self::SchemaOrArray(_)
                | Self::SchemaOrBool(_)
                | Self::SchemaOrStrings(_)
        )
    }
}

impl Struct {
    /// Returns the fields in their declared order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns a field.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.index(name).map(|index| &self.fields[index])
    }

    /// Returns the index of a field.
    fn index(&self, name: &str) -> Option<usize> {
        self.names.candidates(name).find(|index| self.fields[*index].name == name)
    }

    /// Returns the field with a protobuf number.
    pub fn numbered(&self, number: u32) -> Option<Numbered> {
        let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.numbers[at].1)
    }

    /// Returns the fields with protobuf numbers, in the order of these.
    pub fn numbered_fields(&self) -> impl Iterator<Item = (u32, Numbered)> {
        self.numbers.iter().copied()
    }

    /// Returns whether the whole struct has one owner.
    pub fn is_atomic(&self) -> bool {
        self.atomic
    }

    fn always(&self) -> impl Iterator<Item = &Field> {
        self.always.iter().map(|index| &self.fields[usize::from(*index)])
    }

    fn required(&self) -> impl Iterator<Item = &Field> {
        self.required.iter().map(|index| &self.fields[usize::from(*index)])
    }
}

impl Field {
    /// Returns the name in JSON.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the type, without the pointer.
    pub fn ty(&self) -> TypeId {
        self.ty
    }

    /// Returns whether Go's field is a pointer.
    pub fn is_pointer(&self) -> bool {
        self.pointer
    }

    /// Returns when Go leaves out the field.
    pub fn omit(&self) -> Omit {
        self.omit
    }

    /// Returns whether the field is required: it is marked so, or Go always writes it and it isn't marked as optional.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Returns the markers.
    pub fn marks(&self) -> Option<&Marks> {
        self.marks.as_deref()
    }
}
