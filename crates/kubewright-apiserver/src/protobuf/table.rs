//! The table of messages and their fields, which the module's documentation describes.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use super::form::Form;

/// All messages. They refer to each other by index.
#[derive(Debug, Default)]
pub(super) struct Table {
    messages: Vec<Message>,
    names: BTreeMap<&'static str, usize>,
    /// The packages of API groups.
    groups: BTreeMap<&'static str, &'static str>,
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    /// The form of the message in JSON.
    pub(super) form: Form,
    /// The fields by number.
    fields: Vec<(u32, Field)>,
}

/// A field of a message.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    /// The name in JSON; empty for a message whose fields belong to the parent.
    pub(super) name: &'static str,
    pub(super) cardinality: Cardinality,
    pub(super) kind: Kind,
    /// True if JSON omits the field if it is zero.
    pub(super) omit_zero: bool,
}

/// The number of values of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cardinality {
    One,
    List,
    Map,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Json,
    Message(usize),
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.fields[at].1)
    }

    /// Returns all fields.
    #[cfg(test)]
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().map(|(_, field)| field)
    }
}

/// The types that all groups have in addition to their own kinds.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

#[derive(Deserialize)]
struct File {
    #[serde(borrow)]
    groups: BTreeMap<&'static str, &'static str>,
    #[serde(borrow)]
    forms: BTreeMap<&'static str, &'static str>,
    #[serde(borrow)]
    messages: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Table {
    /// Returns the table of this process, which is parsed on first use.
    pub(super) fn shared() -> &'static Self {
        // A test checks that the embedded file can be parsed.
        static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read().unwrap_or_default());
        &TABLE
    }

    /// Parses the file. Returns `None` if it is malformed.
    pub(super) fn read() -> Option<Self> {
        let file: File = serde_json::from_str(include_str!("../../data/protobuf.json")).ok()?;
        let names: BTreeMap<_, _> = file.messages.keys().enumerate().map(|(index, name)| (*name, index)).collect();
        let messages = file.messages.iter().map(|(name, fields)| {
            let (package, _) = name.rsplit_once('.')?;
            let fields = fields.iter().map(|line| field(line, package, &names)).collect::<Option<Vec<_>>>()?;
            let form = file.forms.get(name).map_or(Some(Form::Object), |form| Form::parse(form))?;
            fields.is_sorted_by_key(|(number, _)| *number).then_some(Message { form, fields })
        });
        let messages = messages.collect::<Option<_>>()?;
        Some(Self { messages, names, groups: file.groups })
    }

    pub(super) fn message(&self, index: usize) -> &Message {
        &self.messages[index]
    }

    /// Returns the index of the message of a kind. `version` is an `apiVersion`.
    pub(super) fn index(&self, version: &str, kind: &str) -> Option<usize> {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let own = self.groups.get(group).map(|package| format!("{package}.{version}.{kind}"));
        let shared = (kind == "DeleteOptions").then(|| format!("{META}.{kind}"));
        own.into_iter().chain(shared).find_map(|name| self.names.get(&*name).copied())
    }
}

/// Parses `number name type`.
fn field(line: &'static str, package: &str, names: &BTreeMap<&'static str, usize>) -> Option<(u32, Field)> {
    let mut words = line.split(' ');
    let (number, name, kind) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let (kind, omit_zero) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
    let (cardinality, kind) = match (kind.strip_prefix("[]"), kind.strip_prefix("map:")) {
        (Some(item), _) => (Cardinality::List, item),
        (_, Some(value)) => (Cardinality::Map, value),
        _ => (Cardinality::One, kind),
    };
    let kind = match kind {
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        "bool" => Kind::Bool,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "double" => Kind::Double,
        "json" => Kind::Json,
        full if full.contains('.') => Kind::Message(*names.get(full)?),
        short => Kind::Message(*names.get(&*format!("{package}.{short}"))?),
    };
    let name = if name == "." { "" } else { name };
    Some((number, Field { name, cardinality, kind, omit_zero }))
}
