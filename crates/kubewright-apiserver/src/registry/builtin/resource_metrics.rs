//! `metrics.k8s.io`: what nodes and pods use, as metrics-server answers it
//! (<https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/>).
//!
//! The objects are derived from stored nodes and pods at each request. What is measured comes from a source outside of
//! the server, such as a node; without one, the group isn't served.

use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apimachinery::{
    quantity::Quantity,
    schema::{Additional, Kind, OBJECT_META, Schema},
    status::Status,
};
use serde_json::{Value, json};

use super::{
    columns, lifecycle,
    schemas::{definitions, reference},
};
use crate::{
    amounts,
    fields::{list, text},
    meta,
    registry::{Column, DerivedFrom, Resource, ResourceSchema, Strategy},
};

/// The group.
const GROUP: &str = "metrics.k8s.io";
/// The version.
const VERSION: &str = "v1beta1";
/// The name of quantities in OpenAPI documents.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// What a container or a node uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// The CPU, in billionths of a core, averaged over the window of its measurement.
    pub cpu_nanocores: u64,
    /// The memory, in bytes.
    pub memory_bytes: u64,
}

/// A measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement<T> {
    /// The end of the window.
    pub timestamp: Timestamp,
    /// The time over which the CPU was measured.
    pub window: Duration,
    /// What was used.
    pub usage: T,
}

/// Measures what pods and nodes use.
pub trait ResourceMetrics: Debug + Send + Sync + 'static {
    /// Returns what the running containers of a stored pod use, by name, or `None` as long as that isn't known.
    fn pod(&self, pod: &Value) -> Option<Measurement<Vec<(String, ResourceUsage)>>>;
    /// Returns what a stored node uses, or `None` as long as that isn't known.
    fn node(&self, node: &Value) -> Option<Measurement<ResourceUsage>>;
}

/// The source of measurements, if there is one.
#[derive(Debug, Default)]
pub(crate) struct MetricsSource(OnceLock<Arc<dyn ResourceMetrics>>);

impl MetricsSource {
    /// Sets the source. A second one is ignored.
    pub(crate) fn set(&self, source: Arc<dyn ResourceMetrics>) {
        let _present = self.0.set(source);
    }
}

/// Returns the entries of the group; none without a source.
pub(super) fn resources(source: &MetricsSource) -> Vec<Resource> {
    let Some(source) = source.0.get() else { return Vec::new() };
    let entry = |plural, kind, measured, fields: &[(&str, Schema)]| entry(plural, kind, source, measured, fields);
    let usage = usage_schema();
    let container = Schema {
        properties: [("name".to_owned(), of_kind(Kind::String)), ("usage".to_owned(), usage.clone())].into(),
        required: vec!["name".into(), "usage".into()],
        ..of_kind(Kind::Object)
    };
    let containers = Schema { items: Some(Box::new(container)), ..of_kind(Kind::Array) };
    vec![
        entry("nodes", "NodeMetrics", Measured::Node, &[("usage", usage)]),
        entry("pods", "PodMetrics", Measured::Pod, &[("containers", containers)]),
    ]
}

fn entry(
    plural: &'static str,
    kind: &str,
    source: &Arc<dyn ResourceMetrics>,
    measured: Measured,
    fields: &[(&str, Schema)],
) -> Resource {
    let common = [
        ("apiVersion", of_kind(Kind::String)),
        ("kind", of_kind(Kind::String)),
        ("metadata", reference(OBJECT_META)),
        ("timestamp", Schema { format: Some("date-time".into()), ..of_kind(Kind::String) }),
        ("window", of_kind(Kind::String)),
    ];
    let required = ["timestamp", "window"].into_iter().chain(fields.iter().map(|(name, _)| *name));
    let root = Schema {
        required: required.map(String::from).collect(),
        properties: common.iter().chain(fields).map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect(),
        group_version_kind: vec![(GROUP.into(), VERSION.into(), kind.into())],
        ..of_kind(Kind::Object)
    };
    Resource {
        group: GROUP.into(),
        version: VERSION.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        plural: plural.into(),
        singular: "".into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: measured == Measured::Pod,
        verbs: vec!["get", "list"],
        storage: format!("{GROUP}/{plural}").into(),
        stored_as: (GROUP.into(), VERSION.into(), kind.into()),
        versions: None,
        builtin_versions: Arc::default(),
        schema: Arc::new(ResourceSchema {
            root,
            definitions: definitions(),
            name: format!("io.k8s.metrics.pkg.apis.metrics.{VERSION}.{kind}"),
            custom: false,
            served: None,
            stored: None,
        }),
        strategy: Arc::new(MetricsStrategy { measured, source: source.clone() }),
        lifecycle: lifecycle::of(GROUP, plural),
        status: false,
        scale: None,
        subresources: Vec::new(),
        columns: columns(),
        selectable: Vec::new(),
        deprecated: None,
    }
}

fn of_kind(kind: Kind) -> Schema {
    Schema { kind: Some(kind), ..Schema::default() }
}

fn usage_schema() -> Schema {
    Schema { additional: Additional::Schema(Box::new(reference(QUANTITY))), ..of_kind(Kind::Object) }
}

/// The columns of metrics-server: the sums over the containers, and the window.
fn columns() -> Vec<Column> {
    let of_format = |column: Column, format: &str| column.of_format(format);
    vec![
        of_format(columns::string("cpu", |object, _| sum(object, "cpu").into()), "quantity"),
        of_format(columns::string("memory", |object, _| sum(object, "memory").into()), "quantity"),
        of_format(columns::string("Window", |object, _| object["window"].clone()), "duration"),
    ]
}

/// Returns what an object's node or containers use of a resource.
fn sum(object: &Value, resource: &str) -> String {
    let own = std::iter::once(&object["usage"]).filter(|usage| !usage.is_null());
    let containers = list(object, "/containers").iter().map(|container| &container["usage"]);
    let mut amounts = own.chain(containers).map(|usage| amounts::Amount::of(&usage[resource]));
    let first = amounts.next();
    let total = amounts.fold(first, |sum, more| {
        let mut sum = sum?;
        sum.add(&more);
        Some(sum)
    });
    total.map_or_else(|| "0".into(), |total| total.shown)
}

/// What a kind measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Node,
    Pod,
}

/// The strategy of both kinds.
#[derive(Debug)]
struct MetricsStrategy {
    measured: Measured,
    source: Arc<dyn ResourceMetrics>,
}

impl Strategy for MetricsStrategy {
    fn derived_from(&self) -> Option<DerivedFrom> {
        Some(match self.measured {
            Measured::Node => DerivedFrom { storage: "/nodes", resource: "nodes" },
            Measured::Pod => DerivedFrom { storage: "/pods", resource: "pods" },
        })
    }

    fn derive(&self, object: &Value, now: Timestamp) -> Option<Value> {
        match self.measured {
            Measured::Node => {
                let measured = self.source.node(object)?;
                let mut metrics = metrics("NodeMetrics", object, &measured, now);
                metrics["usage"] = usage(measured.usage);
                Some(metrics)
            }
            Measured::Pod => {
                if text(object, "/status/phase") != "Running" {
                    return None;
                }
                let measured = self.source.pod(object)?;
                let mut metrics = metrics("PodMetrics", object, &measured, now);
                let container = |(name, used): &(String, _)| json!({"name": name, "usage": usage(*used)});
                metrics["containers"] = measured.usage.iter().map(container).collect();
                Some(metrics)
            }
        }
    }

    fn underived(&self, object: &Value) -> Status {
        let (kind, name) = match self.measured {
            Measured::Node => ("nodemetrics", text(object, "/metadata/name").to_owned()),
            Measured::Pod => {
                let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
                ("podmetrics", format!("{namespace}/{name}"))
            }
        };
        Status::not_found(GROUP, kind, &name)
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// Returns the fields that both kinds have. As metrics-server does it, the object is created at the time of the request
/// and has the labels of what it measures.
fn metrics<T>(kind: &str, object: &Value, measured: &Measurement<T>, now: Timestamp) -> Value {
    let mut metadata = json!({"name": object["metadata"]["name"], "creationTimestamp": meta::time(now)});
    for field in ["namespace", "labels"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    json!({
        "kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": metadata,
        "timestamp": meta::time(measured.timestamp), "window": go_duration(measured.window),
    })
}

fn usage(usage: ResourceUsage) -> Value {
    let (cpu, memory) = (i128::from(usage.cpu_nanocores), i128::from(usage.memory_bytes));
    json!({
        "cpu": amounts::decimal(Quantity::from_billionths(cpu)),
        "memory": amounts::binary(Quantity::from_billionths(memory.saturating_mul(1_000_000_000))),
    })
}

/// Formats a duration as Go does, such as `10.05s` or `1m0s`.
fn go_duration(duration: Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    let fraction = format!("{:09}", duration.subsec_nanos());
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let seconds = format!("{seconds}{point}{fraction}s");
    match (minutes / 60, minutes % 60) {
        (0, 0) if duration.as_secs() == 0 && !duration.is_zero() => below_a_second(duration),
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

fn below_a_second(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    let (unit, name) = match nanos {
        1_000_000.. => (1_000_000, "ms"),
        1000.. => (1000, "µs"),
        _ => (1, "ns"),
    };
    let fraction = format!("{:0width$}", nanos % unit, width = unit.to_string().len() - 1);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{name}", nanos / unit)
}

/// Returns the `APIService` of the group, with the priorities of metrics-server's.
pub(super) fn api_service() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{VERSION}.{GROUP}"), "labels": {"k8s-app": "metrics-server"}},
        "spec": {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100},
    })
}

/// Returns the role that lets everyone with the role `view` read metrics.
pub(super) fn reader_role() -> Value {
    let aggregate = |role: &str| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), Value::from("true"));
    let mut labels: serde_json::Map<_, _> = ["admin", "edit", "view"].map(aggregate).into_iter().collect();
    labels.insert("k8s-app".into(), "metrics-server".into());
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "system:aggregated-metrics-reader", "labels": labels},
        "rules": [{"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_written_as_go_writes_durations() {
        for (nanos, expect) in [
            (0, "0s"),
            (15_000_000_000, "15s"),
            (10_050_000_000, "10.05s"),
            (60_000_000_000, "1m0s"),
            (3_661_500_000_000, "1h1m1.5s"),
            (1_500_000, "1.5ms"),
            (1_050, "1.05µs"),
            (7, "7ns"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), expect);
        }
    }

    #[test]
    fn amounts_are_written_as_metrics_server_writes_them() {
        let check = |cpu_nanocores, memory_bytes, cpu: &str, memory: &str| {
            let written = usage(ResourceUsage { cpu_nanocores, memory_bytes });
            assert_eq!(written, json!({"cpu": cpu, "memory": memory}));
        };
        check(0, 0, "0", "0");
        check(250_000_000, 1 << 20, "250m", "1Mi");
        check(1_234_567, 3 << 10, "1234567n", "3Ki");
        check(2_000_000_000, 1025, "2", "1025");
    }
}
