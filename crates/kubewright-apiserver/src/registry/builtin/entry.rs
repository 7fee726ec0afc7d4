//! The registry entries of built-in kinds.

use std::sync::Arc;

use k8s_openapi::{ListableResource, schemars::JsonSchema};
use serde_json::Value;

use super::{
    api_metadata, columns,
    component::Components,
    default_class::Classes,
    lifecycle,
    limit_ranges::LimitRanges,
    networking::ServiceRanges,
    node_references::NodeReferences,
    pod::{self, RuntimeClasses},
    priority::PriorityClasses,
    resource_metrics::MetricsSource,
    schemas::{self, definitions},
    service::ServiceRange,
    service_account::ServiceAccounts,
    topology::NodeTopology,
    types::BuiltinType,
};
use crate::{
    admission::{Policies, Webhooks},
    aggregation::ApiServices,
    authorizer::Authorizer,
    flow_control::FlowControl,
    object_type::ObjectType,
    plugins::Plugins,
    registry::{
        Column, CustomResources, DefaultStrategy, Operation, Resource, ResourceSchema, Scale, SelectableField,
        SelectableValue, Strategy, Subresource,
    },
};

/// The parts of the server that depend on objects of certain kinds. The strategies of those kinds keep them up to date.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    /// Roles and their bindings.
    pub(crate) authorizer: Arc<Authorizer>,
    /// Webhook configurations.
    pub(crate) webhooks: Arc<Webhooks>,
    /// Admission policies and their bindings.
    pub(crate) policies: Arc<Policies>,
    /// APIServices.
    pub(crate) api_services: Arc<ApiServices>,
    /// Priority classes.
    pub(crate) priorities: Arc<PriorityClasses>,
    /// Flow schemas and priority levels of requests.
    pub(crate) flow_control: Arc<FlowControl>,
    /// Runtime classes.
    pub(crate) runtimes: Arc<RuntimeClasses>,
    /// The range that addresses of services are allocated from.
    pub(crate) service_range: ServiceRange,
    /// The ranges of addresses of services.
    pub(crate) service_ranges: Arc<ServiceRanges>,
    /// Limit ranges.
    pub(crate) limits: Arc<LimitRanges>,
    /// Storage classes.
    pub(crate) storage_classes: Arc<Classes>,
    /// Ingress classes.
    pub(crate) ingress_classes: Arc<Classes>,
    /// The topology labels of nodes.
    pub(crate) topology: Arc<NodeTopology>,
    /// What the pods of nodes refer to.
    pub(crate) references: Arc<NodeReferences>,
    /// Service accounts.
    pub(crate) accounts: Arc<ServiceAccounts>,
    /// Custom resource definitions.
    pub(crate) custom: Arc<CustomResources>,
    /// The admission plugins that are on.
    pub(crate) plugins: Arc<Plugins>,
    /// The running components.
    pub(crate) components: Arc<Components>,
    /// The source of resource metrics.
    pub(crate) metrics: Arc<MetricsSource>,
}

/// A built-in kind, from which a registry entry is created.
pub(super) struct Entry {
    pub(super) builtin: BuiltinType,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    stored_as: (&'static str, &'static str, &'static str),
    strategy: Arc<dyn Strategy>,
    columns: Vec<Column>,
    selectable: Vec<SelectableField>,
    selector: Option<&'static str>,
    deprecated: Option<&'static str>,
}

impl Entry {
    /// Creates a kind whose objects are stored, without specific rules.
    pub(super) fn of<T: k8s_openapi::Resource + ListableResource + JsonSchema>() -> Self {
        Self::new(BuiltinType::of::<T>())
    }

    /// Creates a kind whose objects aren't stored and have no lists.
    pub(super) fn unlisted<T: k8s_openapi::Resource + JsonSchema>() -> Self {
        Self::new(BuiltinType::unlisted::<T>())
    }

    fn new(builtin: BuiltinType) -> Self {
        Self {
            builtin,
            short_names: &[],
            categories: &[],
            stored_as: (builtin.group, builtin.version, builtin.kind),
            strategy: Arc::new(DefaultStrategy),
            columns: vec![columns::created_at()],
            selectable: Vec::new(),
            selector: None,
            deprecated: None,
        }
    }

    /// Sets the warning that every response has.
    pub(super) fn deprecated(mut self, warning: &'static str) -> Self {
        self.deprecated = Some(warning);
        self
    }

    pub(super) fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    /// Adds the kind to the category `all`, which `kubectl get all` prints.
    pub(super) fn in_all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    pub(super) fn in_categories(mut self, names: &'static [&'static str]) -> Self {
        self.categories = names;
        self
    }

    pub(super) fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    pub(super) fn columns(mut self, columns: Vec<Column>) -> Self {
        self.columns = columns;
        self
    }

    /// Adds fields for field selectors. A field's path equals its label.
    pub(super) fn select(mut self, labels: &[&str]) -> Self {
        self.selectable.extend(labels.iter().map(|label| SelectableField {
            label: (*label).into(),
            value: SelectableValue::Path(format!(".{label}")),
        }));
        self
    }

    /// Adds fields whose stored names differ from the served ones; `served` returns the label.
    pub(super) fn select_stored(mut self, labels: &[&str], served: fn(&str) -> String) -> Self {
        self.selectable.extend(
            labels.iter().map(|label| SelectableField {
                label: served(label),
                value: SelectableValue::Path(format!(".{label}")),
            }),
        );
        self
    }

    /// Adds a field for field selectors whose value a function reads.
    pub(super) fn select_by(mut self, label: &str, read: fn(&Value) -> String) -> Self {
        self.selectable.push(SelectableField { label: label.into(), value: SelectableValue::Computed(read) });
        self
    }

    /// Sets the path of the selector for the scale subresource.
    pub(super) fn scaled_by(mut self, selector: &'static str) -> Self {
        self.selector = Some(selector);
        self
    }

    /// Stores the objects as a kind of another group with the same plural name.
    pub(super) fn stored_as(mut self, group: &'static str, version: &'static str, kind: &'static str) -> Self {
        self.stored_as = (group, version, kind);
        self
    }

    /// Creates the registry entry. Returns `None` for a kind without published metadata; a test checks that there is
    /// none.
    pub(super) fn into_resource(self) -> Option<Resource> {
        let BuiltinType { group, version, kind, list_kind, plural, schema_name, .. } = self.builtin;
        let schema_name = schema_name();
        let metadata = api_metadata::of(group, version, plural)?;
        let subresources = metadata
            .subresources
            .iter()
            .filter_map(|(name, exchange)| {
                let served = SERVED.iter().find(|(of, served, _)| (*of, *served) == (plural, *name));
                served.map(|(_, _, operation)| (name, exchange, *operation))
            })
            .map(|(name, exchange, operation)| Subresource {
                name,
                operation,
                connection: (exchange.verbs == ["connect"]).then(|| pod::connection(name)).flatten(),
                kind: match pod::options_kind(plural, name) {
                    Some(kind) => ("", "v1", kind),
                    None => (exchange.group, exchange.version, exchange.kind),
                },
                verbs: match operation {
                    _ if *name == "proxy" => vec!["create", "delete", "get", "patch", "update"],
                    _ if exchange.verbs == ["connect"] => vec!["create", "get"],
                    _ => exchange.verbs.clone(),
                },
            })
            .collect();
        let (stored_group, stored_version, stored_kind) = self.stored_as;
        Some(Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: list_kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase().into(),
            short_names: self.short_names.iter().map(ToString::to_string).collect(),
            categories: self.categories.iter().map(ToString::to_string).collect(),
            namespaced: metadata.namespaced,
            verbs: metadata.verbs.clone(),
            storage: format!("{stored_group}/{plural}").into(),
            stored_as: (stored_group.into(), stored_version.into(), stored_kind.into()),
            versions: None,
            builtin_versions: Arc::default(),
            schema: Arc::new(ResourceSchema {
                root: schemas::reference(&schema_name),
                definitions: definitions(),
                name: schema_name,
                custom: false,
                served: ObjectType::of(group, version, kind),
                stored: ObjectType::of(stored_group, stored_version, stored_kind),
            }),
            strategy: self.strategy,
            lifecycle: lifecycle::of(group, plural),
            status: metadata.subresources.contains_key("status"),
            scale: metadata.subresources.contains_key("scale").then(|| Scale {
                spec_replicas: ".spec.replicas".into(),
                status_replicas: ".status.replicas".into(),
                selector: self.selector.map(String::from),
            }),
            subresources,
            columns: self.columns,
            selectable: self.selectable,
            deprecated: self.deprecated.map(String::from),
        })
    }
}

/// The subresources served in addition to `status` and `scale`: resource, subresource and operation.
const SERVED: &[(&str, &str, Option<Operation>)] = &[
    ("certificatesigningrequests", "approval", Some(Operation::Approve)),
    ("namespaces", "finalize", Some(Operation::Finalize)),
    ("nodes", "proxy", Some(Operation::Proxy)),
    ("pods", "attach", None),
    ("pods", "binding", Some(Operation::Bind)),
    ("pods", "ephemeralcontainers", Some(Operation::Part)),
    ("pods", "eviction", Some(Operation::Evict)),
    ("pods", "exec", None),
    ("pods", "log", None),
    ("pods", "portforward", None),
    ("pods", "proxy", Some(Operation::Proxy)),
    ("pods", "resize", Some(Operation::Part)),
    ("serviceaccounts", "token", Some(Operation::Token)),
    ("services", "proxy", Some(Operation::Proxy)),
];
