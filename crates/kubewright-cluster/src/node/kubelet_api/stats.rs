//! What the node and its containers have used, in the kubelet's formats. Pure.

use std::sync::Arc;

use kubewright_apimachinery::status::Status;
use prometheus::proto::MetricFamily;
use serde_json::{Value, json};

use super::{
    STATUSES, cadvisor,
    metrics::{add_sample, family, write},
};
use crate::{
    controllers::value::{list, stamp, text, time},
    node::usage::Usage,
    quantity::{PARTS, quantity},
};

/// A pod, and what its containers use, by name.
pub(super) type Measured = (Arc<Value>, Vec<(String, Usage)>);

/// The measurements at one time.
#[derive(Debug)]
pub(super) struct Stats<'a> {
    node: &'a Value,
    usage: Option<Usage>,
    pods: Vec<Measured>,
}

impl<'a> Stats<'a> {
    /// Creates the measurements of a node, if it has been measured, and of pods.
    pub(super) fn new(node: &'a Value, usage: Option<Usage>, pods: Vec<Measured>) -> Self {
        Self { node, usage, pods }
    }

    /// Returns the document of `/stats/summary`.
    pub(super) fn summary(&self) -> Value {
        let mut node = json!({
            "nodeName": self.node["metadata"]["name"],
            "startTime": self.node["metadata"]["creationTimestamp"],
        });
        if let Some(usage) = &self.usage {
            let total = quantity(text(self.node, "/status/capacity/memory")).unwrap_or_default() / PARTS;
            add(&mut node, usage);
            node["memory"]["availableBytes"] =
                json!(u64::try_from(total - i128::from(usage.memory)).unwrap_or_default());
        }
        let pods: Vec<_> = self.pods.iter().map(|(pod, containers)| of_pod(pod, containers)).collect();
        json!({"node": node, "pods": pods})
    }

    /// Returns the text of `/metrics/cadvisor`.
    ///
    /// # Errors
    /// If a metric has no name, which a test excludes.
    pub(super) fn cadvisor(&self) -> Result<String, Status> {
        cadvisor::text_of(self.node, self.usage.as_ref(), &self.pods)
    }

    /// Returns the text of `/metrics/resource`.
    ///
    /// # Errors
    /// If a metric has no name, which a test excludes.
    pub(super) fn metrics(&self) -> Result<String, Status> {
        let mut families = METRICS.map(|(name, help)| family(name, &format!("[STABLE] {help}")));
        let [container_cpu, container_memory, start, node_cpu, node_memory, pod_cpu, pod_memory, error] = &mut families;
        if let Some(usage) = &self.usage {
            add_cpu(node_cpu, &[], usage);
            add_memory(node_memory, &[], usage);
        }
        for (pod, containers) in &self.pods {
            let of_pod = [("namespace", text(pod, "/metadata/namespace")), ("pod", text(pod, "/metadata/name"))];
            for (name, usage) in containers {
                let labels = [&[("container", &**name)], &of_pod[..]].concat();
                add_cpu(container_cpu, &labels, usage);
                add_memory(container_memory, &labels, usage);
                if let Some(started) = started(pod, name).and_then(|status| time(status, "/state/running/startedAt")) {
                    add_sample(start, &labels, started.as_second() as f64, 0);
                }
            }
            if let Some(sum) = sum(containers) {
                add_cpu(pod_cpu, &of_pod, &sum);
                add_memory(pod_memory, &of_pod, &sum);
            }
        }
        add_sample(error, &[], 0.0, 0);
        write(families.into())
    }
}

/// The metrics of `/metrics/resource` with their descriptions, in the kubelet's order.
const METRICS: [(&str, &str); 8] = [
    ("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds"),
    ("container_memory_working_set_bytes", "Current working set of the container in bytes"),
    ("container_start_time_seconds", "Start time of the container since unix epoch in seconds"),
    ("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds"),
    ("node_memory_working_set_bytes", "Current working set of the node in bytes"),
    ("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds"),
    ("pod_memory_working_set_bytes", "Current working set of the pod in bytes"),
    ("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise"),
];

fn add_cpu(family: &mut MetricFamily, labels: &[(&str, &str)], usage: &Usage) {
    add_sample(family, labels, usage.cpu_nanos as f64 / 1e9, usage.at.as_millisecond());
}

fn add_memory(family: &mut MetricFamily, labels: &[(&str, &str)], usage: &Usage) {
    add_sample(family, labels, usage.memory as f64, usage.at.as_millisecond());
}

fn of_pod(pod: &Value, containers: &[(String, Usage)]) -> Value {
    let metadata = &pod["metadata"];
    let of_container = |(name, usage): &(String, Usage)| {
        let started = started(pod, name).map_or(Value::Null, |status| status["state"]["running"]["startedAt"].clone());
        let mut container = json!({"name": name, "startTime": started});
        add(&mut container, usage);
        container
    };
    let mut document = json!({
        "podRef": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
        "startTime": pod["status"]["startTime"],
        "containers": containers.iter().map(of_container).collect::<Vec<_>>(),
    });
    if let Some(sum) = sum(containers) {
        add(&mut document, &sum);
    }
    document
}

/// Returns the status of a container.
pub(super) fn started<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    STATUSES.into_iter().flat_map(|(at, _)| list(pod, at)).find(|status| text(status, "/name") == name)
}

/// Returns what the containers of a pod use together.
pub(super) fn sum(containers: &[(String, Usage)]) -> Option<Usage> {
    containers.iter().map(|(_, usage)| *usage).reduce(|sum, one| Usage {
        at: sum.at.max(one.at),
        cpu_nanos: sum.cpu_nanos.saturating_add(one.cpu_nanos),
        nanocores: sum.nanocores.zip(one.nanocores).map(|(sum, one)| sum.saturating_add(one)),
        memory: sum.memory.saturating_add(one.memory),
    })
}

/// Adds what something uses to its document.
fn add(document: &mut Value, usage: &Usage) {
    let at = stamp(usage.at);
    document["cpu"] = json!({"time": at, "usageCoreNanoSeconds": usage.cpu_nanos});
    if let Some(nanocores) = usage.nanocores {
        document["cpu"]["usageNanoCores"] = json!(nanocores);
    }
    let bytes = usage.memory;
    document["memory"] = json!({"time": at, "usageBytes": bytes, "workingSetBytes": bytes, "rssBytes": bytes});
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn usage(cpu_nanos: u64, memory: u64) -> Usage {
        let at = Timestamp::from_second(1_700_000_000).expect("a time");
        Usage { at, cpu_nanos, nanocores: Some(5), memory }
    }

    fn pod() -> Arc<Value> {
        let status = json!({"name": "main", "state": {"running": {"startedAt": "2023-11-14T22:13:10Z"}}});
        Arc::new(json!({
            "metadata": {"namespace": "default", "name": "web", "uid": "u"},
            "status": {"startTime": "2023-11-14T22:13:09Z", "containerStatuses": [status]},
        }))
    }

    #[test]
    fn metrics_of_a_pod_and_its_node() {
        let containers = vec![("main".to_owned(), usage(1_500_000_000, 10)), ("side".to_owned(), usage(20, 5))];
        let node = json!({"metadata": {"name": "n"}});
        let text = Stats::new(&node, Some(usage(3_000_000_000, 7)), vec![(pod(), containers)]).metrics().expect("text");
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let of_pod = r#"namespace="default",pod="web"}"#;
        assert_eq!(
            samples,
            [
                &format!(r#"container_cpu_usage_seconds_total{{container="main",{of_pod} 1.5 1700000000000"#),
                &format!(r#"container_cpu_usage_seconds_total{{container="side",{of_pod} 0.00000002 1700000000000"#),
                &format!(r#"container_memory_working_set_bytes{{container="main",{of_pod} 10 1700000000000"#),
                &format!(r#"container_memory_working_set_bytes{{container="side",{of_pod} 5 1700000000000"#),
                &format!(r#"container_start_time_seconds{{container="main",{of_pod} 1699999990"#),
                "node_cpu_usage_seconds_total 3 1700000000000",
                "node_memory_working_set_bytes 7 1700000000000",
                &format!(r#"pod_cpu_usage_seconds_total{{{of_pod} 1.50000002 1700000000000"#),
                &format!(r#"pod_memory_working_set_bytes{{{of_pod} 15 1700000000000"#),
                "resource_scrape_error 0",
            ]
        );
        let head = "# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds\n\
                    # TYPE node_cpu_usage_seconds_total counter\n";
        assert!(text.contains(head), "{text}");
        let text = Stats::new(&node, None, Vec::new()).metrics().expect("text");
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["resource_scrape_error 0"]);
    }

    #[test]
    fn a_summary_has_what_is_known() {
        let node = json!({
            "metadata": {"name": "n", "creationTimestamp": "2023-11-14T22:00:00Z"}, "status": {"capacity": {"memory": "1Ki"}},
        });
        let first = Usage { nanocores: None, ..usage(20, 5) };
        let summary = Stats::new(&node, Some(usage(3, 24)), vec![(pod(), vec![("main".to_owned(), first)])]).summary();
        let at = "2023-11-14T22:13:20Z";
        let (cpu, memory) = (
            json!({"time": at, "usageCoreNanoSeconds": 20}),
            json!({"time": at, "usageBytes": 5, "workingSetBytes": 5, "rssBytes": 5}),
        );
        let container = json!({"name": "main", "startTime": "2023-11-14T22:13:10Z", "cpu": cpu, "memory": memory});
        assert_eq!(
            summary["pods"],
            json!([{
                "podRef": {"name": "web", "namespace": "default", "uid": "u"}, "startTime": "2023-11-14T22:13:09Z",
                "containers": [container], "cpu": cpu, "memory": memory,
            }])
        );
        assert_eq!(
            summary["node"],
            json!({
                "nodeName": "n", "startTime": "2023-11-14T22:00:00Z",
                "cpu": {"time": at, "usageCoreNanoSeconds": 3, "usageNanoCores": 5},
                "memory": {
                    "time": at, "usageBytes": 24, "workingSetBytes": 24, "rssBytes": 24, "availableBytes": 1000,
                },
            })
        );
    }
}
