//! Registry entries, which describe everything about a served resource.

use std::sync::Arc;

use serde_json::Value;

use super::{lifecycle::Lifecycle, schema::ResourceSchema, strategy::Strategy};
use crate::conversion::versions::Versions;

/// One served version of one resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The served version.
    pub version: Arc<str>,
    /// The kind, such as `Pod`.
    pub kind: Arc<str>,
    /// The kind of its lists, such as `PodList`.
    pub list_kind: Arc<str>,
    /// The plural name, as used in paths, such as `pods`.
    pub plural: Arc<str>,
    /// The singular name, such as `pod`.
    pub singular: Arc<str>,
    /// The short names, such as `po`.
    pub short_names: Vec<String>,
    /// The categories, such as `all`.
    pub categories: Vec<String>,
    /// True if the objects are namespaced.
    pub namespaced: bool,
    /// The served verbs: `get`, `list`, `watch`, `create`, …
    pub verbs: Vec<&'static str>,
    /// The stored resource, `group/plural`. Entries with the same value serve the same objects.
    pub storage: Arc<str>,
    /// The `(group, version, kind)` in which objects are stored. [`Strategy::decode`] and [`Strategy::encode`], or
    /// [`Self::versions`], convert between the stored and the served form.
    pub stored_as: (Arc<str>, Arc<str>, Arc<str>),
    /// The versions of a custom kind, with the conversion between them.
    pub versions: Option<Arc<Versions>>,
    /// All versions of a built-in kind that has several.
    pub builtin_versions: Arc<[BuiltinVersion]>,
    /// The schema of the kind.
    pub schema: Arc<ResourceSchema>,
    /// The rules of the kind.
    pub strategy: Arc<dyn Strategy>,
    /// The rules of the kind for updates and deletions.
    pub lifecycle: Lifecycle,
    /// True if `/status` is served and the status is isolated from other writes.
    pub status: bool,
    /// The paths of `/scale`, if it is served.
    pub scale: Option<Scale>,
    /// Other subresources, such as `log`.
    pub subresources: Vec<Subresource>,
    /// The columns of `kubectl get`. A column `Name` precedes them, unless one has the format `name`.
    pub columns: Vec<Column>,
    /// The fields for field selectors, in addition to `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<SelectableField>,
    /// The warning for a deprecated version.
    pub deprecated: Option<String>,
}

/// A version in which the objects of a built-in kind are served.
#[derive(Clone, Debug)]
pub struct BuiltinVersion {
    /// The group and version, such as `autoscaling/v1`.
    pub api_version: String,
    /// The schema of the version.
    pub schema: Arc<ResourceSchema>,
    /// The rules of the version, which convert from and to the stored form.
    pub strategy: Arc<dyn Strategy>,
}

/// The JSON paths of the scale subresource, such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The path of the desired number of replicas.
    pub spec_replicas: String,
    /// The path of the observed number of replicas.
    pub status_replicas: String,
    /// The path of the label selector: a string, or an object in built-in workloads.
    pub selector: Option<String>,
}

/// A subresource other than `status` and `scale`.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The name, such as `exec`.
    pub name: &'static str,
    /// The `(group, version, kind)` of the request and response bodies; for a connection, that of its options.
    pub kind: (&'static str, &'static str, &'static str),
    /// The served verbs.
    pub verbs: Vec<&'static str>,
    /// The operation, if the server itself implements it; `None` for subresources of an attached
    /// [`Action`](crate::Action).
    pub operation: Option<Operation>,
    /// The function that creates the options object of a connection, which webhooks receive.
    pub connection: Option<ConnectionOptions>,
}

/// Creates the options object of a connection from its query parameters.
pub type ConnectionOptions = fn(&[(String, String)]) -> Value;

/// A request to the kubelet of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtKubelet {
    /// The name of the node.
    pub node: String,
    /// The path and query.
    pub target: String,
}

/// An operation of a subresource that the server itself implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An update of `spec.finalizers` alone.
    Finalize,
    /// An assignment of the object to a node, by [`Strategy::bind`].
    Bind,
    /// An update of the approval of a certificate signing request.
    Approve,
    /// The eviction of a pod.
    Evict,
    /// The creation of a token for a service account.
    Token,
    /// A request that is sent on to the object.
    Proxy,
    /// Reads of the object, and updates of the part of it that [`Strategy::prepare_part`] determines.
    Part,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `date`, …
    pub kind: String,
    /// `name` for the name column, otherwise usually empty.
    pub format: String,
    /// The description, for documentation.
    pub description: String,
    /// 0 for columns that are always printed; greater for columns of `-o wide`.
    pub priority: i32,
    /// The source of the cells.
    pub cell: Cell,
}

impl Resource {
    /// Returns whether a subresource is a part of the object ([`Operation::Part`]).
    pub fn has_part(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|found| found.name == subresource && found.operation == Some(Operation::Part))
    }
}

impl Column {
    /// Makes the column appear only with `-o wide`.
    #[must_use]
    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// Sets the format.
    #[must_use]
    pub(crate) fn of_format(mut self, format: &str) -> Self {
        self.format = format.into();
        self
    }
}

/// The source of a cell's value.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A JSON path such as `.status.phase`.
    Path(String),
    /// A function of the object and the current time, which ages need.
    Computed(fn(&Value, jiff::Timestamp) -> Value),
}

/// A field for field selectors.
#[derive(Clone, Debug)]
pub struct SelectableField {
    /// The label, such as `status.phase`.
    pub label: String,
    /// The source of the value in a stored object. An absent field counts as the empty string.
    pub value: SelectableValue,
}

/// The source of a selectable field's value.
#[derive(Clone, Debug)]
pub enum SelectableValue {
    /// A JSON path.
    Path(String),
    /// A function of the object.
    Computed(fn(&Value) -> String),
}
