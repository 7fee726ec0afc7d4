//! The registry: a kind is one entry, and nothing outside its entry knows it (ARCHITECTURE.md, invariant 6).

pub mod builtin;

use std::{fmt::Debug, sync::Arc};

use kubewright_apimachinery::{
    name,
    schema::{Definitions, Node, Schema},
    status::{Cause, Status},
};
use serde_json::Value;

pub use crate::convert::Versions;
use crate::{admission::Admission, auth::Access, rbac::Grants};
use tokio::sync::watch;

/// One served version of one resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The served version.
    pub version: Arc<str>,
    /// `Pod`
    pub kind: Arc<str>,
    /// `PodList`
    pub list_kind: Arc<str>,
    /// `pods`: the name in paths.
    pub plural: Arc<str>,
    /// `pod`
    pub singular: Arc<str>,
    /// `po`
    pub short_names: Vec<String>,
    /// `all`
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What may be done, in Kubernetes' words: `get`, `list`, `watch`, `create`, …
    pub verbs: Vec<&'static str>,
    /// Where objects are stored, `group/plural`. Two entries with one place are two faces of the same objects.
    pub storage: Arc<str>,
    /// The `(group, version, kind)` in which objects are stored; [`Strategy::decode`] and [`Strategy::encode`] convert, or
    /// [`Self::versions`] do.
    pub stored_as: (Arc<str>, Arc<str>, Arc<str>),
    /// For a custom kind: its versions, as its definition converts between them.
    pub versions: Option<Arc<Versions>>,
    /// The kind's schema.
    pub schema: Arc<ResourceSchema>,
    /// The kind's own rules.
    pub strategy: Arc<dyn Strategy>,
    /// `/status` is served and isolated.
    pub status: bool,
    /// `/scale` is served, with these paths.
    pub scale: Option<Scale>,
    /// Subresources beside these two, such as `log`: discovery lists them, actions answer them.
    pub subresources: Vec<Subresource>,
    /// Columns of `kubectl get`. `Name` goes before them, unless one has the format `name`.
    pub columns: Vec<Column>,
    /// Fields that a field selector may name, beside `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<Selectable>,
    /// `Some(warning)` when the version is deprecated.
    pub deprecated: Option<String>,
}

/// A kind's schema, as the engine walks it.
#[derive(Debug)]
pub struct ResourceSchema {
    /// The root of the kind.
    pub root: Schema,
    /// What references resolve in. Built-in kinds share one table.
    pub definitions: Arc<Definitions>,
    /// The root's name in OpenAPI documents, such as `io.k8s.api.core.v1.Pod`.
    pub name: String,
    /// Custom kinds are pruned, defaulted and validated by schema as CRDs are; built-in ones decode strictly by type.
    pub custom: bool,
}

impl ResourceSchema {
    /// The place to walk from.
    pub fn node(&self) -> Node<'_> {
        Node::new(&self.root, &self.definitions)
    }
}

/// JSON paths of the scale subresource, as a CRD writes them: `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The wanted number.
    pub spec_replicas: String,
    /// The observed number.
    pub status_replicas: String,
    /// A label selector in its string form, or (built-in workloads) a selector object.
    pub selector: Option<String>,
}

/// A subresource as discovery lists it.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `exec`
    pub name: &'static str,
    /// The `(group, version, kind)` of what is exchanged; for a connection that of the parent.
    pub exchanges: (&'static str, &'static str, &'static str),
    /// What may be done.
    pub verbs: Vec<&'static str>,
    /// What the pipeline itself does; `None` leaves it to an attached [`Action`](crate::Action).
    pub operation: Option<Operation>,
    /// For a connection: its options as an object, from the parameters of the request. Webhooks see that.
    pub connection: Option<ConnectionOptions>,
}

/// Makes an object of the parameters of a connection, as they were sent.
pub type ConnectionOptions = fn(&[(String, String)]) -> Value;

/// A subresource's work that is the pipeline's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An update of `spec.finalizers` alone.
    Finalize,
    /// Assigning the object to a node, by [`Strategy::bind`].
    Bind,
    /// A deletion that asks first.
    Evict,
    /// Making a token that stands for the object.
    Token,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `date`, …
    pub kind: String,
    /// `name` for the name column, else usually empty.
    pub format: String,
    /// Shown by `kubectl get --help`-like tools.
    pub description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i32,
    /// Where the cell comes from.
    pub cell: Cell,
}

impl Column {
    /// The same column, shown only with `-o wide`.
    #[must_use]
    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }
}

/// Where a cell's value comes from.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A JSON path such as `.status.phase`, as a CRD's `additionalPrinterColumns` has them.
    Path(String),
    /// Computed from the object and the present time (for ages).
    Computed(fn(&Value, jiff::Timestamp) -> Value),
}

/// A field that a field selector may name.
#[derive(Clone, Debug)]
pub struct Selectable {
    /// The label, such as `status.phase`.
    pub label: String,
    /// How its value is read from a stored object; absent fields read as the empty string.
    pub value: SelectableValue,
}

/// How a selectable field's value is read.
#[derive(Clone, Debug)]
pub enum SelectableValue {
    /// A JSON path.
    Path(String),
    /// Computed.
    Computed(fn(&Value) -> String),
}

/// What a kind adds to the common life of an object. The defaults suit most custom kinds.
///
/// The pipeline calls, on create: `decode`, schema defaulting, `default`, `prepare_create`, schema validation, `validate`;
/// on update: the same with `prepare_update`. Metadata (uid, creation time, generation, managed fields, finalizers) is the
/// pipeline's business. Status isolation is, too: where [`Resource::status`] is set, create and update drop or keep the
/// status, and a status update keeps everything else but the metadata that may change.
pub trait Strategy: Debug + Send + Sync + 'static {
    /// Fills in what the kind's published defaults say.
    fn default(&self, _object: &mut Value) {}

    /// Sets what the server itself decides at creation.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Sets or restores what an update may not change silently. `old` and `new` are in stored form.
    fn prepare_update(&self, _old: &Value, _new: &mut Value) {}

    /// Checks what a schema cannot say; `old` is there on update.
    fn validate(&self, _old: Option<&Value>, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The rule for `metadata.name`: what is wrong with a name, in sentences.
    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::dns1123_subdomain
    }

    /// The seconds of grace that a deletion without any gets, for kinds that are deleted gracefully; `None` for the others.
    fn grace_period(&self, _object: &Value) -> Option<i64> {
        None
    }

    /// Why an object may never be deleted, for those few of which that is so.
    fn forbids_deletion(&self, _object: &Value) -> Option<&'static str> {
        None
    }

    /// Sets what a kind shows once its deletion has been asked for. Called when the object is to live on for a while.
    fn prepare_delete(&self, _object: &mut Value) {}

    /// Whether an object that is being deleted must stay for a reason of its kind, beside `metadata.finalizers` and its
    /// grace period. It goes with the first update after which this is false.
    fn held(&self, _object: &Value) -> bool {
        false
    }

    /// Assigns the object to a node, once, at a time in its text form. `Err` says why it can't be.
    fn bind(&self, _object: &mut Value, _node: &str, _time: &Value) -> Result<(), String> {
        Err("objects of this kind are not assigned to nodes".into())
    }

    /// Why an action such as `log` can't reach the object, if it can't.
    fn unreachable(&self, _object: &Value) -> Option<String> {
        None
    }

    /// Whether `metadata.generation` rises when the old and new object differ so. By default it does on any change
    /// outside metadata and status.
    fn has_generation(&self) -> bool {
        true
    }

    /// From the served to the stored form, where they differ; not for versions of custom kinds.
    fn decode(&self, _object: &mut Value) {}

    /// From the stored to the served form, where they differ.
    fn encode(&self, _object: &mut Value) {}

    /// For kinds that are questions and not objects, such as `SelfSubjectReview`: the `status` with which one is sent back.
    /// Nothing is stored, and the answer counts only if [`Self::validate`] finds nothing. `None` for all other kinds.
    fn answer(&self, _question: &Value, _access: &Access<'_>) -> Option<Result<Value, Status>> {
        None
    }

    /// Whether who asks may write this object, beyond what the verb and the resource say: nobody gives to others what they
    /// don't have. `old` is there on update.
    fn check_access(&self, _access: &Access<'_>, _old: Option<&Value>, _new: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Whether admission webhooks are asked about objects of this kind. Not about those that say which webhooks there are,
    /// or a bad one could never be mended.
    fn is_admitted(&self) -> bool {
        true
    }

    /// Told of every committed change, in revision order, before any watcher: `None` before is a creation, `None` after a
    /// removal. For kinds that change what the server serves (CRDs).
    fn committed(&self, _registry: &Registry, _before: Option<&Value>, _after: Option<&Value>) {}
}

/// The strategy of a kind without rules of its own.
#[derive(Debug)]
pub struct Plain;

impl Strategy for Plain {}

/// Every resource served at the moment.
#[derive(Debug, Default)]
pub struct Registry {
    resources: arc_swap::ArcSwap<Vec<Arc<Resource>>>,
    changed: watch::Sender<()>,
    admission: Admission,
    grants: Grants,
}

impl Registry {
    /// A registry of these resources.
    pub fn new(resources: Vec<Resource>) -> Self {
        let resources = resources.into_iter().map(Arc::new).collect();
        Self {
            resources: arc_swap::ArcSwap::from_pointee(resources),
            changed: watch::Sender::new(()),
            admission: Admission::default(),
            grants: Grants::default(),
        }
    }

    /// A snapshot of all entries, in the order of registration.
    pub fn all(&self) -> Arc<Vec<Arc<Resource>>> {
        self.resources.load_full()
    }

    /// The entry for a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources
            .load()
            .iter()
            .find(|entry| &*entry.group == group && &*entry.version == version && &*entry.plural == plural)
            .cloned()
    }

    /// What stands in the place of an entry by now; `None` if it is no longer served.
    pub(crate) fn successor(&self, entry: &Resource) -> Option<Arc<Resource>> {
        self.find(&entry.group, &entry.version, &entry.plural)
    }

    /// The admission webhooks, which come from objects as custom kinds do.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Who may do what, which comes from objects, too.
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Tells of every change of what is served.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Replaces all entries of a custom resource (`group/plural`) in one step; an empty list stops serving it. Built-in
    /// resources stay as they are, and entries that have the path or the objects of one are left out.
    pub fn replace(&self, storage: &str, entries: Vec<Resource>) {
        let entries: Vec<_> = entries.into_iter().map(Arc::new).collect();
        let place = |entry: &Resource| (entry.group.clone(), entry.version.clone(), entry.plural.clone());
        self.resources.rcu(|present| {
            let stays = |entry: &&Arc<Resource>| !entry.schema.custom || &*entry.storage != storage;
            let mut next: Vec<_> = present.iter().filter(stays).cloned().collect();
            let is_free = |new: &&Arc<Resource>| {
                !present
                    .iter()
                    .filter(|entry| !entry.schema.custom)
                    .any(|builtin| builtin.storage == new.storage || place(builtin) == place(new))
            };
            next.extend(entries.iter().filter(is_free).cloned());
            next
        });
        self.changed.send_replace(());
    }
}
