//! The objects that exist in every new cluster.

use serde_json::{Value, json};

use super::{ServiceRange, api_service, flow_control, priority, resource_metrics};
use crate::fields::{remove, text};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

const ACCESS: &str = "rbac.authorization.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";

/// The field manager of most of these objects.
const SERVER: &str = "kube-apiserver";
/// The field manager of flow schemas and priority levels.
const FLOW_CONTROLLER: &str = "api-priority-and-fairness-config-producer-v1";
/// The field manager of the rules of aggregated roles.
const AGGREGATION: &str = "clusterrole-aggregation-controller";

/// An object that exists in every new cluster, and its field managers, which are those in Kubernetes.
#[derive(Debug)]
pub(crate) struct BootstrapObject {
    /// The API group.
    pub(crate) group: &'static str,
    /// The plural name of the resource.
    pub(crate) plural: &'static str,
    /// The object, without the fields that the server sets at creation.
    pub(crate) object: Value,
    /// The field manager that creates the object.
    pub(crate) manager: &'static str,
    /// The fields of `spec` that the server sets at creation and that the manager owns.
    pub(crate) assigned: &'static [&'static str],
    /// A configuration that is applied afterwards, and its field manager.
    pub(crate) applied: Option<(&'static str, Value)>,
}

impl BootstrapObject {
    fn new((group, plural, mut object): (&'static str, &'static str, Value)) -> Self {
        let applied = if object["aggregationRule"].is_null() { None } else { remove(&mut object, "rules") };
        let applied = applied.map(|rules| {
            let metadata = json!({"name": text(&object, "/metadata/name")});
            let (version, kind) = (&object["apiVersion"], &object["kind"]);
            (AGGREGATION, json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules}))
        });
        let assigned = if plural == "services" { &["clusterIP"][..] } else { &[] };
        Self { group, plural, object, manager: SERVER, assigned, applied }
    }
}

/// Returns the objects that a new server stores. `range` is that of the addresses of services. `has_metrics` adds those
/// of resource metrics.
pub(crate) fn bootstrap_objects(range: ServiceRange, has_metrics: bool) -> Vec<BootstrapObject> {
    let namespaces = NAMESPACES.iter().map(|name| ("", "namespaces", namespace(name)));
    let priorities = priority::system_classes().map(|class| ("scheduling.k8s.io", "priorityclasses", class));
    let services = api_service::local_services().into_iter();
    let services = services.map(|service| ("apiregistration.k8s.io", "apiservices", service));
    // Flow schemas refer to levels.
    let levels = flow_control::default_levels().map(|level| (FLOW_CONTROL, "prioritylevelconfigurations", level));
    let schemas = flow_control::default_schemas().into_iter().map(|schema| (FLOW_CONTROL, "flowschemas", schema));
    let service = kubernetes(range);
    let range = ("networking.k8s.io", "servicecidrs", service_range(range));
    let objects = namespaces.chain([range, ("", "services", service)]).chain(priorities).chain(services);
    let objects = objects.map(BootstrapObject::new);
    let flow_control = levels.chain(schemas).map(BootstrapObject::new);
    let metrics = [
        ("apiregistration.k8s.io", "apiservices", resource_metrics::api_service()),
        (ACCESS, "clusterroles", resource_metrics::reader_role()),
    ];
    let metrics = metrics.into_iter().filter(|_| has_metrics).map(BootstrapObject::new);
    objects
        .chain(metrics)
        .chain(flow_control.map(|object| BootstrapObject { manager: FLOW_CONTROLLER, ..object }))
        .collect()
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
    })
}

/// Returns the range from which addresses of services are allocated.
fn service_range(range: ServiceRange) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": [range.to_string()]},
    })
}

/// Returns the service through which pods reach the API server.
fn kubernetes(range: ServiceRange) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    });
    if let Some(address) = range.of_kubernetes() {
        service["spec"]["clusterIP"] = address.to_string().into();
    }
    service
}
