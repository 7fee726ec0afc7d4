//! The selection of objects by namespace, labels and fields.

use std::cell::OnceCell;

use kubewright_apimachinery::{
    path::JsonPath,
    selector::{FieldSelector, LabelSelector},
    status::Status,
};
use serde_json::Value;

use crate::{
    registry::{Resource, SelectableValue},
    storage::{Key, Stored},
};

/// The selection of a list or watch.
#[derive(Debug)]
pub(crate) struct Selection {
    namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
    /// The fields in the field selector, with functions that read them.
    readers: Vec<(String, Reader)>,
}

impl Selection {
    /// Parses the parameters of a list or watch.
    ///
    /// # Errors
    /// Returns 400 for selectors that can't be parsed, and for fields that the kind doesn't support.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: &str,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, Status> {
        let invalid = |why: &dyn std::fmt::Display| Status::bad_request(why.to_string());
        let labels = LabelSelector::parse(labels.unwrap_or_default()).map_err(|error| invalid(&error))?;
        let fields = FieldSelector::parse(fields.unwrap_or_default()).map_err(|error| invalid(&error))?;
        let mut readers = Vec::new();
        for requirement in fields.requirements() {
            let label = requirement.field.as_str();
            // A kind with fields of its own, and every custom kind, names all its labels.
            let names_labels = resource.schema.custom || !resource.selectable.is_empty();
            if label == "metadata.name" || label == "metadata.namespace" && (resource.namespaced || !names_labels) {
                continue;
            }
            let known = resource.selectable.iter().find(|known| known.label == label);
            let known = known.ok_or_else(|| {
                Status::bad_request(match names_labels {
                    true => resource.strategy.unsupported_field(label),
                    false => format!(
                        "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ),
                })
            })?;
            readers.push((known.label.clone(), Reader::new(&known.value)?));
        }
        Ok(Self { namespace: namespace.into(), labels, fields, readers })
    }

    /// Returns the namespace, empty for all.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the name of the only object that can match, if a field selector requires it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// Returns whether labels or fields restrict the selection.
    pub(crate) fn is_narrowed(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Returns whether the selection depends on the content of objects, and not only on their keys.
    pub(crate) fn depends_on_content(&self) -> bool {
        !self.labels.is_empty() || !self.readers.is_empty()
    }

    /// Returns whether an object with this key can match.
    pub(crate) fn may_match(&self, key: &Key) -> bool {
        (self.namespace.is_empty() || *key.namespace == *self.namespace)
            && self.name().is_none_or(|name| *key.name == *name)
    }

    /// Returns whether an object matches.
    pub(crate) fn matches(&self, key: &Key, stored: &Stored) -> bool {
        if !self.namespace.is_empty() && *key.namespace != *self.namespace {
            return false;
        }
        if self.labels.is_empty() && self.fields.is_empty() {
            return true;
        }
        // The value is parsed only for selectable fields.
        let value = OnceCell::new();
        self.labels.matches(|label| stored.label(label))
            && self.fields.matches(|label| match label {
                "metadata.name" => Some(key.name.to_string()),
                "metadata.namespace" => Some(key.namespace.to_string()),
                _ => self
                    .readers
                    .iter()
                    .find(|(known, _)| known == label)
                    .map(|(_, reader)| reader.read(value.get_or_init(|| stored.value()))),
            })
    }
}

/// Reads the value of a selectable field.
#[derive(Debug)]
enum Reader {
    Path(JsonPath),
    Computed(fn(&Value) -> String),
}

impl Reader {
    fn new(value: &SelectableValue) -> Result<Self, Status> {
        Ok(match value {
            SelectableValue::Path(path) => Self::Path(JsonPath::parse(path).map_err(Status::internal)?),
            SelectableValue::Computed(compute) => Self::Computed(*compute),
        })
    }

    /// Returns the field's value as text, empty if it is absent.
    fn read(&self, object: &Value) -> String {
        match self {
            Self::Computed(compute) => compute(object),
            Self::Path(path) => match path.first(object) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            },
        }
    }
}
