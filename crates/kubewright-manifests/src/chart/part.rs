//! The parts of a chart that values turn on and off.

use serde_json::{Value, json};

use super::{
    name,
    template::{self, VALUE},
};

/// The name of the metrics Service after the prefix.
const METRICS_SERVICE: &str = "-metrics-service";
/// The roles for users of a kind, by the ends of their names.
const HELPERS: [&str; 3] = ["-admin-role", "-editor-role", "-viewer-role"];

/// An optional part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Metrics,
    Webhook,
    CertManager,
    Prometheus,
    Helpers,
}

impl Part {
    const ALL: [Self; 5] = [Self::Metrics, Self::Webhook, Self::CertManager, Self::Prometheus, Self::Helpers];

    /// Returns the part that an object belongs to.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let name = name(object);
        match object["kind"].as_str()? {
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Some(Self::Webhook),
            "Certificate" | "Issuer" => Some(Self::CertManager),
            "ServiceMonitor" => Some(Self::Prometheus),
            "ClusterRole" | "Role" if HELPERS.iter().any(|end| name.ends_with(end)) => Some(Self::Helpers),
            "Deployment" | "ServiceAccount" | "CustomResourceDefinition" | "Namespace" => None,
            _ if ["-webhook-service", "-webhook-role", "-webhook-rolebinding", "allow-webhook-traffic"]
                .iter()
                .any(|end| name.ends_with(end)) =>
            {
                Some(Self::Webhook)
            }
            _ if [
                METRICS_SERVICE,
                "-metrics-auth-role",
                "-metrics-auth-rolebinding",
                "-metrics-reader",
                "allow-metrics-traffic",
            ]
            .iter()
            .any(|end| name.ends_with(end)) =>
            {
                Some(Self::Metrics)
            }
            _ => None,
        }
    }

    /// Returns the name of its values.
    fn key(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Webhook => "webhook",
            Self::CertManager => "certManager",
            Self::Prometheus => "prometheus",
            Self::Helpers => "rbacHelpers",
        }
    }

    /// Returns the expression of the condition. A ServiceMonitor is of no use without metrics.
    fn condition(self) -> String {
        match self {
            Self::Prometheus => "and .Values.prometheus.enable .Values.metrics.enable".into(),
            part => format!(".Values.{}.enable", part.key()),
        }
    }

    /// Returns the mark that begins conditional items of a list.
    pub(super) fn begin(self) -> Value {
        template::IF.mark(&format!("{}.enable", self.key())).into()
    }

    /// Returns the text for its port.
    pub(super) fn port_text(self) -> String {
        VALUE.mark(&format!("{}.port", self.key()))
    }

    /// Returns the mark for its port.
    pub(super) fn port_mark(self) -> Value {
        self.port_text().into()
    }

    /// Returns a template that the values turn off.
    pub(super) fn optional(self, text: &str) -> String {
        format!("{{{{- if {} }}}}\n{text}{{{{- end }}}}\n", self.condition())
    }
}

/// Splits an address into what is before its port, and the port.
pub(super) fn port_of(text: &str) -> Option<(&str, u16)> {
    let (before, port) = text.split_once("-bind-address=").and_then(|_| text.rsplit_once(':'))?;
    Some((before, port.parse().ok()?))
}

/// Adds the values of the parts that the objects have, and puts marks in the place of ports.
pub(super) fn values(objects: &mut [Value], values: &mut Value) {
    for part in Part::ALL {
        let Some(first) = objects.iter().find(|object| Part::of(object) == Some(part)) else { continue };
        // A ServiceMonitor that is not part of the project is offered.
        let is_offered = first.pointer("/metadata/annotations").is_some_and(|found| found.get(OFFERED).is_some());
        values[part.key()] = json!({"enable": !is_offered});
        let ports = objects.iter_mut().filter(|object| object["kind"] == "Service" && Part::of(object) == Some(part));
        for port in ports.filter_map(|service| service.pointer_mut("/spec/ports/0")) {
            let number = port["targetPort"].as_u64().or_else(|| port["port"].as_u64());
            let Some(number) = number else { continue };
            values[part.key()]["port"] = number.into();
            if port["port"] == number {
                port["port"] = part.port_mark();
            }
            port["targetPort"] = part.port_mark();
        }
    }
    for object in objects.iter_mut() {
        if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
            annotations.remove(OFFERED);
            if annotations.is_empty()
                && let Some(metadata) = object["metadata"].as_object_mut()
            {
                metadata.remove("annotations");
            }
        }
    }
}

/// The annotation of an object that the project does not have.
const OFFERED: &str = "kubewright-offered";

/// Adds a ServiceMonitor for the metrics Service, unless there is one.
pub(super) fn add_monitor(objects: &mut Vec<Value>, prefix: &str) {
    let has_one = objects.iter().any(|object| object["kind"] == "ServiceMonitor");
    let service = objects.iter().find(|object| object["kind"] == "Service" && name(object).ends_with(METRICS_SERVICE));
    let (Some(service), false) = (service, has_one) else { return };
    let monitor = json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {
            "name": format!("{prefix}-controller-manager-metrics-monitor"),
            "namespace": service["metadata"]["namespace"],
            "labels": service["metadata"]["labels"],
            "annotations": {OFFERED: "true"},
        },
        "spec": {
            "endpoints": [{
                "path": "/metrics", "port": service.pointer("/spec/ports/0/name"), "scheme": "https",
                "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                "tlsConfig": {"insecureSkipVerify": true},
            }],
            "selector": {"matchLabels": service.pointer("/spec/selector")},
        },
    });
    objects.push(monitor);
}
