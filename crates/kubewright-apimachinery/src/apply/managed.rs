//! `metadata.managedFields`: the fields of each manager, and the operation by which it acquired them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    fields::{FieldSet, FieldsError},
    typed::Cursor,
};
use crate::schema::Node;

/// The maximum number of update entries. Beyond it, the oldest are merged into one.
const MAX_UPDATES: usize = 10;

/// The manager of the merged entries.
const ANCIENT: &str = "ancient-changes";

/// The operation by which a manager acquired its fields. Kubernetes sorts entries in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: Option<Timestamp>,
    pub(crate) fields: FieldSet,
}

/// A `managedFields` list is malformed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ManagedError {
    #[error("managed fields must be a list of objects")]
    NotEntries,
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    #[error("invalid time in managed fields entry {0}")]
    Time(usize),
    #[error("error decoding managed fields entry {0}")]
    Fields(usize, #[source] FieldsError),
}

impl Entry {
    fn decode(place: usize, entry: &Value) -> Result<Self, ManagedError> {
        let Value::Object(entry) = entry else { return Err(ManagedError::NotEntries) };
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(ManagedError::ApiVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(ManagedError::NoFieldsType(place)),
            other => return Err(ManagedError::FieldsType(place, other.to_owned())),
        }
        let time = match entry.get("time") {
            None | Some(Value::Null) => None,
            Some(time) => Some(time.as_str().and_then(|time| time.parse().ok()).ok_or(ManagedError::Time(place))?),
        };
        let fields = match entry.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => FieldSet::from_fields_v1(fields).map_err(|error| ManagedError::Fields(place, error))?,
        };
        Ok(Self {
            manager: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time,
            fields,
        })
    }

    fn encode(self) -> Value {
        let mut entry = Map::new();
        entry.insert("apiVersion".to_owned(), self.api_version.into());
        entry.insert("fieldsType".to_owned(), "FieldsV1".into());
        entry.insert("fieldsV1".to_owned(), self.fields.into_fields_v1());
        if !self.manager.is_empty() {
            entry.insert("manager".to_owned(), self.manager.into());
        }
        entry.insert("operation".to_owned(), self.operation.as_str().into());
        if !self.subresource.is_empty() {
            entry.insert("subresource".to_owned(), self.subresource.into());
        }
        if let Some(time) = self.time {
            entry.insert("time".to_owned(), seconds(time).to_string().into());
        }
        Value::Object(entry)
    }

    /// Returns whether both entries have the same manager and operation. An apply in another version of the kind
    /// replaces the manager's entry; an update in another version adds an entry.
    pub(crate) fn is_of(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }
}

/// Truncates a time to whole seconds, as on the wire.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Managers(pub(crate) Vec<Entry>);

impl Managers {
    /// Parses the list. An absent list counts as empty. As in Kubernetes, the last of several entries of a manager
    /// counts.
    pub(crate) fn decode(managed: Option<&Value>) -> Result<Self, ManagedError> {
        let entries = match managed {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(ManagedError::NotEntries),
        };
        let mut managers = Self::default();
        for (place, entry) in entries.iter().enumerate() {
            let entry = Entry::decode(place, entry)?;
            managers.take(&entry);
            managers.0.push(entry);
        }
        Ok(managers)
    }

    /// Returns the list in Kubernetes' order, or `None` if it is empty.
    pub(crate) fn encode(mut self) -> Option<Value> {
        self.0.retain(|entry| !entry.fields.is_empty());
        let second = |entry: &Entry| entry.time.map_or(0, Timestamp::as_second);
        self.0.sort_by(|a, b| {
            (a.operation, second(a), &a.manager, &a.api_version, &a.subresource).cmp(&(
                b.operation,
                second(b),
                &b.manager,
                &b.api_version,
                &b.subresource,
            ))
        });
        (!self.0.is_empty()).then(|| self.0.into_iter().map(Entry::encode).collect())
    }

    /// Removes and returns the entry that `entry` replaces.
    pub(crate) fn take(&mut self, entry: &Entry) -> Option<Entry> {
        let place = self.0.iter().position(|other| other.is_of(entry))?;
        Some(self.0.remove(place))
    }

    /// Returns the other versions in which fields are owned.
    pub(crate) fn other_versions(&self, own: &str) -> BTreeSet<&str> {
        self.0.iter().map(|entry| &*entry.api_version).filter(|version| *version != own).collect()
    }

    /// Adapts the fields that are owned in a version to its schema.
    pub(crate) fn reconcile(&mut self, api_version: &str, node: Node<'_>) {
        let entries = self.0.iter_mut().filter(|entry| entry.api_version == api_version);
        entries.for_each(|entry| Cursor::root(node).reconcile(&mut entry.fields));
    }

    /// Returns whether there are too many update entries.
    pub(crate) fn have_excess(&self) -> bool {
        self.0.iter().filter(|entry| entry.operation == Operation::Update).count() > MAX_UPDATES
    }

    /// Merges the oldest update entries of each version into one until the limit is met.
    pub(crate) fn cap_updates(&mut self) {
        let mut updates: Vec<usize> =
            (0..self.0.len()).filter(|&place| self.0[place].operation == Operation::Update).collect();
        let mut excess = updates.len().saturating_sub(MAX_UPDATES);
        if excess == 0 {
            return;
        }
        updates.sort_by_key(|&place| (self.0[place].time.map(Timestamp::as_second), self.0[place].manager.clone()));
        let mut into: BTreeMap<String, usize> = BTreeMap::new();
        for &place in &updates {
            if self.0[place].manager == ANCIENT && self.0[place].subresource.is_empty() {
                into.insert(self.0[place].api_version.clone(), place);
            }
        }
        for place in updates {
            if excess == 0 {
                break;
            }
            let bucket = *into.entry(self.0[place].api_version.clone()).or_insert(place);
            if bucket == place {
                continue;
            }
            let fields = std::mem::take(&mut self.0[place].fields);
            let time = self.0[place].time;
            let bucket = &mut self.0[bucket];
            bucket.manager = ANCIENT.to_owned();
            bucket.subresource.clear();
            bucket.time = bucket.time.max(time);
            bucket.fields.union(fields);
            excess -= 1;
        }
        self.0.retain(|entry| !entry.fields.is_empty());
    }
}

/// Returns whether the list resets the ownership: `[]` or `[{}]`.
pub(crate) fn is_reset(managed: &Value) -> bool {
    match managed.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}
