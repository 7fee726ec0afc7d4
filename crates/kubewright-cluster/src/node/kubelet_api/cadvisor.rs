//! What the node and its containers have used, by the names of cAdvisor, `/metrics/cadvisor`
//! (<https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md>). Pure.

use kubewright_apimachinery::status::Status;
use prometheus::proto::MetricFamily;
use serde_json::Value;

use super::{
    metrics::{add_sample, family, write},
    stats::{Measured, started, sum},
};
use crate::{
    controllers::value::{list, text, time},
    node::usage::Usage,
    quantity::{PARTS, quantity},
};

/// The period of CPU quotas, in microseconds.
const PERIOD: i128 = 100_000;
/// The smallest share of a processor, and that of one processor.
const SHARES: (i128, i128) = (2, 1024);

/// The metrics with their descriptions, in the order of the text.
const METRICS: [(&str, &str); 13] = [
    ("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds."),
    ("container_last_seen", "Last time a container was seen by the exporter"),
    ("container_memory_rss", "Size of RSS in bytes."),
    (
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
    ),
    ("container_memory_working_set_bytes", "Current working set in bytes."),
    ("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise"),
    ("container_spec_cpu_period", "CPU period of the container."),
    ("container_spec_cpu_quota", "CPU quota of the container."),
    ("container_spec_cpu_shares", "CPU share of the container."),
    ("container_spec_memory_limit_bytes", "Memory limit for the container."),
    ("container_start_time_seconds", "Start time of the container since unix epoch in seconds."),
    ("machine_cpu_cores", "Number of logical CPU cores."),
    ("machine_memory_bytes", "Amount of memory installed on the machine."),
];

/// Returns the text for a node, what it uses, and its pods.
///
/// # Errors
/// If a metric has no name, which a test excludes.
pub(super) fn text_of(node: &Value, usage: Option<&Usage>, pods: &[Measured]) -> Result<String, Status> {
    let mut metrics = Metrics(METRICS.map(|(name, help)| family(name, help)));
    if let Some(usage) = usage {
        metrics.add_usage(&labels("/", ["", ""], ["", "", ""]), usage);
    }
    for (pod, containers) in pods {
        let names = [text(pod, "/metadata/namespace"), text(pod, "/metadata/name")];
        let id = group_of(pod);
        if let Some(sum) = sum(containers) {
            metrics.add_usage(&labels(&id, names, ["", "", ""]), &sum);
        }
        for (name, usage) in containers {
            let status = started(pod, name).unwrap_or(&Value::Null);
            let of_runtime = text(status, "/containerID").rsplit('/').next().unwrap_or_default();
            let id = format!("{id}/{of_runtime}");
            let labels = labels(&id, names, [name, text(status, "/image"), of_runtime]);
            metrics.add_usage(&labels, usage);
            metrics.add_limits(&labels, spec(pod, name));
            if let Some(started) = time(status, "/state/running/startedAt") {
                metrics.add("container_start_time_seconds", &labels, started.as_second() as f64, usage);
            }
        }
    }
    metrics.set("container_scrape_error", 0.0);
    let capacity = |path| Some(quantity(node.pointer(path)?.as_str()?)? / PARTS);
    for (name, path) in
        [("machine_cpu_cores", "/status/capacity/cpu"), ("machine_memory_bytes", "/status/capacity/memory")]
    {
        if let Some(amount) = capacity(path) {
            metrics.set(name, amount as f64);
        }
    }
    write(metrics.0.into())
}

/// The labels of a sample, in the order of their names.
type Labels<'a> = [(&'static str, &'a str); 6];

/// Returns the labels of a control group, of the namespace and name of a pod, and of the name, image and ID of a
/// container.
fn labels<'a>(id: &'a str, [namespace, pod]: [&'a str; 2], [container, image, name]: [&'a str; 3]) -> Labels<'a> {
    [("container", container), ("id", id), ("image", image), ("name", name), ("namespace", namespace), ("pod", pod)]
}

/// The metrics of [`METRICS`].
struct Metrics([MetricFamily; METRICS.len()]);

impl Metrics {
    fn family(&mut self, name: &str) -> Option<&mut MetricFamily> {
        self.0.iter_mut().find(|family| family.name() == name)
    }

    /// Adds a sample of something at the time at which its use was measured.
    fn add(&mut self, name: &str, labels: &[(&str, &str)], value: f64, usage: &Usage) {
        if let Some(family) = self.family(name) {
            add_sample(family, labels, value, usage.at.as_millisecond());
        }
    }

    /// Sets a value without labels and time.
    fn set(&mut self, name: &str, value: f64) {
        if let Some(family) = self.family(name) {
            add_sample(family, &[], value, 0);
        }
    }

    fn add_usage(&mut self, labels: &Labels<'_>, usage: &Usage) {
        let [container, rest @ ..] = *labels;
        let [id, image, name, namespace, pod] = rest;
        let of_cpu = [container, ("cpu", "total"), id, image, name, namespace, pod];
        self.add("container_cpu_usage_seconds_total", &of_cpu, usage.cpu_nanos as f64 / 1e9, usage);
        self.add("container_last_seen", labels, usage.at.as_second() as f64, usage);
        for name in ["container_memory_rss", "container_memory_usage_bytes", "container_memory_working_set_bytes"] {
            self.add(name, labels, usage.memory as f64, usage);
        }
    }

    /// Adds what a container may use, by its specification.
    fn add_limits(&mut self, labels: &Labels<'_>, container: &Value) {
        let amount = |path: &str| container.pointer(path).and_then(Value::as_str).and_then(quantity);
        let limit = amount("/resources/limits/cpu");
        let requested = amount("/resources/requests/cpu").unwrap_or_default();
        let shares = (requested * SHARES.1 / PARTS).max(SHARES.0);
        let memory = amount("/resources/limits/memory").unwrap_or_default() / PARTS;
        let values = [
            ("container_spec_cpu_period", Some(PERIOD)),
            ("container_spec_cpu_quota", limit.map(|limit| limit * PERIOD / PARTS)),
            ("container_spec_cpu_shares", Some(shares)),
            ("container_spec_memory_limit_bytes", Some(memory)),
        ];
        for (name, value) in values {
            if let (Some(family), Some(value)) = (self.family(name), value) {
                add_sample(family, labels, value as f64, 0);
            }
        }
    }
}

/// Returns the control group that the kubelet would make for a pod.
fn group_of(pod: &Value) -> String {
    let uid = text(pod, "/metadata/uid");
    match text(pod, "/status/qosClass") {
        "Burstable" => format!("/kubepods/burstable/pod{uid}"),
        "BestEffort" => format!("/kubepods/besteffort/pod{uid}"),
        _ => format!("/kubepods/pod{uid}"),
    }
}

/// Returns the specification of a container.
fn spec<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let kinds = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"];
    kinds
        .into_iter()
        .flat_map(|at| list(pod, at))
        .find(|container| text(container, "/name") == name)
        .unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_its_pod_and_the_node() {
        let at = Timestamp::from_second(1_700_000_000).expect("a time");
        let used = Usage { at, cpu_nanos: 1_500_000_000, nanocores: None, memory: 10 };
        let resources = json!({"limits": {"cpu": "500m", "memory": "1Mi"}, "requests": {"cpu": "250m"}});
        let pod = Arc::new(json!({
            "metadata": {"namespace": "default", "name": "web", "uid": "u"},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
            "status": {"qosClass": "Burstable", "containerStatuses": [{
                "name": "main", "containerID": "containerd://c1", "image": "docker.io/library/web:1",
                "state": {"running": {"startedAt": "2023-11-14T22:13:10Z"}},
            }]},
        }));
        let node = json!({"status": {"capacity": {"cpu": "2", "memory": "1Ki"}}});
        let text = text_of(&node, Some(&used), &[(pod, vec![("main".to_owned(), used)])]).expect("text");
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let container = r#"id="/kubepods/burstable/podu/c1",image="docker.io/library/web:1",name="c1",namespace="default",pod="web"}"#;
        let of_pod = r#"id="/kubepods/burstable/podu",image="",name="",namespace="default",pod="web"}"#;
        for expect in [
            r#"container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 1.5 1700000000000"#,
            &format!(r#"container_cpu_usage_seconds_total{{container="",cpu="total",{of_pod} 1.5 1700000000000"#),
            &format!(
                r#"container_cpu_usage_seconds_total{{container="main",cpu="total",{container} 1.5 1700000000000"#
            ),
            &format!(r#"container_memory_working_set_bytes{{container="main",{container} 10 1700000000000"#),
            &format!(r#"container_spec_cpu_quota{{container="main",{container} 50000"#),
            &format!(r#"container_spec_cpu_shares{{container="main",{container} 256"#),
            &format!(r#"container_spec_memory_limit_bytes{{container="main",{container} 1048576"#),
            &format!(r#"container_start_time_seconds{{container="main",{container} 1699999990 1700000000000"#),
            "container_scrape_error 0",
            "machine_cpu_cores 2",
            "machine_memory_bytes 1024",
        ] {
            assert!(samples.contains(&expect), "{expect}\n{text}");
        }
        let text = text_of(&json!({}), None, &[]).expect("text");
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["container_scrape_error 0"]);
    }
}
