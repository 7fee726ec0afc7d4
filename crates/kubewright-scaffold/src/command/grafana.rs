//! The plugin `grafana`: dashboards of the runtime's metrics, and of the operator's own.

use kubewright_apimachinery::decode::yaml_file;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{plan::Plan, project::Project};

/// The key of the plugin in `PROJECT`, which is kubebuilder's, since the files are the same.
pub(crate) const KEY: &str = "grafana.kubebuilder.io/v1-alpha";

/// The list of the operator's own metrics.
const CONFIG: &str = "grafana/custom-metrics/config.yaml";
const CONFIG_TEMPLATE: &str = include_str!("../../templates/edit/grafana_config.yaml.in");

const RUNTIME: &str = "grafana/controller-runtime-metrics.json";
const RESOURCES: &str = "grafana/controller-resources-metrics.json";
const CUSTOM: &str = "grafana/custom-metrics/custom-metrics-dashboard.json";

/// An error in the list of the operator's own metrics.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrafanaError {
    /// The file is not valid.
    #[error("cannot read {CONFIG}: {0}; its comment has an example")]
    Syntax(String),
    /// A metric has an unknown type.
    #[error("{CONFIG}: the metric {metric:?} has the type {found:?}: use counter, gauge or histogram")]
    Type {
        /// The metric.
        metric: String,
        /// Its type.
        found: String,
    },
    /// A metric has no name.
    #[error("{CONFIG}: metric {0} of the list has no name: set metric")]
    Nameless(usize),
}

/// The list of the operator's own metrics.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Custom {
    custom_metrics: Option<Vec<Metric>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metric {
    metric: String,
    r#type: String,
    expr: Option<String>,
    unit: Option<String>,
}

/// A panel: its title, unit and queries with their legends.
struct Panel<'a> {
    title: &'a str,
    unit: &'a str,
    queries: &'a [(&'a str, &'a str)],
}

const fn panel<'a>(title: &'a str, unit: &'a str, queries: &'a [(&'a str, &'a str)]) -> Panel<'a> {
    Panel { title, unit, queries }
}

/// The panels of the runtime. `OF` stands for the selection of the operator.
const RUNTIME_PANELS: [Panel<'static>; 13] = [
    panel(
        "Reconciles by controller",
        "cps",
        &[(
            "sum(rate(controller_runtime_reconcile_total{OF}[5m])) by (controller, result)",
            "{{controller}} {{result}}",
        )],
    ),
    panel(
        "Failed reconciles by controller",
        "cps",
        &[("sum(rate(controller_runtime_reconcile_errors_total{OF}[5m])) by (controller)", "{{controller}}")],
    ),
    panel(
        "Duration of reconciles",
        "s",
        &[
            (
                "histogram_quantile(0.50, sum(rate(controller_runtime_reconcile_time_seconds_bucket{OF}[5m])) by (controller, le))",
                "P50 {{controller}}",
            ),
            (
                "histogram_quantile(0.99, sum(rate(controller_runtime_reconcile_time_seconds_bucket{OF}[5m])) by (controller, le))",
                "P99 {{controller}}",
            ),
        ],
    ),
    panel(
        "Workers in use",
        "short",
        &[
            ("controller_runtime_active_workers{OF}", "{{controller}} {{pod}}"),
            ("controller_runtime_max_concurrent_reconciles{OF}", "limit of {{controller}} {{pod}}"),
        ],
    ),
    panel("Depth of work queues", "short", &[("workqueue_depth{OF}", "{{name}} {{pod}}")]),
    panel(
        "Time in work queues",
        "s",
        &[
            (
                "histogram_quantile(0.50, sum(rate(workqueue_queue_duration_seconds_bucket{OF}[5m])) by (name, le))",
                "P50 {{name}}",
            ),
            (
                "histogram_quantile(0.90, sum(rate(workqueue_queue_duration_seconds_bucket{OF}[5m])) by (name, le))",
                "P90 {{name}}",
            ),
            (
                "histogram_quantile(0.99, sum(rate(workqueue_queue_duration_seconds_bucket{OF}[5m])) by (name, le))",
                "P99 {{name}}",
            ),
        ],
    ),
    panel("Additions to work queues", "cps", &[("sum(rate(workqueue_adds_total{OF}[5m])) by (name)", "{{name}}")]),
    panel("Retries", "cps", &[("sum(rate(workqueue_retries_total{OF}[5m])) by (name)", "{{name}}")]),
    panel("Time of unfinished work", "s", &[("workqueue_unfinished_work_seconds{OF}", "{{name}} {{pod}}")]),
    panel(
        "Requests to the API server",
        "reqps",
        &[("sum(rate(rest_client_requests_total{OF}[5m])) by (method, code)", "{{method}} {{code}}")],
    ),
    panel(
        "Admission requests",
        "reqps",
        &[("sum(rate(controller_runtime_webhook_requests_total{OF}[5m])) by (webhook, code)", "{{webhook}} {{code}}")],
    ),
    panel(
        "Duration of admission requests",
        "s",
        &[(
            "histogram_quantile(0.99, sum(rate(controller_runtime_webhook_latency_seconds_bucket{OF}[5m])) by (webhook, le))",
            "P99 {{webhook}}",
        )],
    ),
    panel("Leaders", "short", &[("leader_election_master_status{OF}", "{{name}} {{pod}}")]),
];

/// The panels of the process.
const RESOURCE_PANELS: [Panel<'static>; 4] = [
    panel("CPU", "percentunit", &[("rate(process_cpu_seconds_total{OF}[5m])", "{{pod}}")]),
    panel("Memory", "bytes", &[("process_resident_memory_bytes{OF}", "{{pod}}")]),
    panel("Open files", "short", &[("process_open_fds{OF}", "{{pod}}")]),
    panel("Threads", "short", &[("process_threads{OF}", "{{pod}}")]),
];

/// The selection of the operator by the variables of a dashboard.
const SELECTION: &str = r#"{job="$job", namespace="$namespace", pod=~"$pod"}"#;

/// Notes the plugin in the project.
pub(super) fn note(project: &mut Project) {
    project.plugins.entry(KEY.into()).or_insert_with(|| json!({}));
}

/// Plans the dashboards. That of the operator's own metrics is for those in the file `CONFIG`.
pub(super) fn plan(project: &Project, plan: &mut Plan<'_>) -> Result<(), GrafanaError> {
    let name = &project.project_name;
    let unreadable = |error: std::io::Error| GrafanaError::Syntax(error.to_string());
    let config = plan.source().read(CONFIG).map_err(unreadable)?;
    plan.create_if_missing(CONFIG, CONFIG_TEMPLATE);
    plan.replace(RUNTIME, dashboard(name, "runtime", &RUNTIME_PANELS));
    plan.replace(RESOURCES, dashboard(name, "resources", &RESOURCE_PANELS));
    let metrics = config.map(|text| metrics(&text)).transpose()?.unwrap_or_default();
    if metrics.is_empty() {
        plan.delete(CUSTOM);
        return Ok(());
    }
    let queries: Vec<_> = metrics.iter().flat_map(queries).collect();
    let panels = queries.iter().map(|(title, unit, query)| (title, unit, [(query.as_str(), "{{pod}}")]));
    let panels: Vec<_> = panels.collect();
    let panels: Vec<_> = panels.iter().map(|(title, unit, queries)| panel(title, unit, queries)).collect();
    plan.replace(CUSTOM, dashboard(name, "own metrics", &panels));
    Ok(())
}

/// Parses and checks the list of metrics.
fn metrics(text: &str) -> Result<Vec<Metric>, GrafanaError> {
    let syntax = |error: &dyn std::fmt::Display| GrafanaError::Syntax(error.to_string());
    let content = yaml_file(text).map_err(|error| syntax(&error))?;
    if content.is_null() {
        return Ok(Vec::new());
    }
    let custom: Custom = serde_json::from_value(content).map_err(|error| syntax(&error))?;
    let metrics = custom.custom_metrics.unwrap_or_default();
    for (index, metric) in metrics.iter().enumerate() {
        if metric.metric.is_empty() {
            return Err(GrafanaError::Nameless(index + 1));
        }
        if !["counter", "gauge", "histogram"].contains(&metric.r#type.to_ascii_lowercase().as_str()) {
            let (metric, found) = (metric.metric.clone(), metric.r#type.clone());
            return Err(GrafanaError::Type { metric, found });
        }
    }
    Ok(metrics)
}

/// Returns the panels of a metric: title, unit and query. The unit follows from the name if it is not given.
fn queries(metric: &Metric) -> Vec<(String, String, String)> {
    let name = &metric.metric;
    let by_name = match name {
        name if name.contains("second") => "s",
        name if name.contains("byte") => "bytes",
        name if name.contains("ratio") => "percentunit",
        _ => "none",
    };
    let unit = metric.unit.clone().unwrap_or_else(|| by_name.into());
    if let Some(expr) = &metric.expr {
        return vec![(name.clone(), unit, expr.clone())];
    }
    match metric.r#type.to_ascii_lowercase().as_str() {
        "counter" => vec![(format!("{name} (rate)"), unit, format!("sum(rate({name}OF[5m])) by (pod)"))],
        "gauge" => vec![(name.clone(), unit, format!("{name}OF"))],
        _ => {
            let quantile = |p: &str| {
                let query = format!("histogram_quantile(0.{p}, sum(rate({name}_bucketOF[5m])) by (pod, le))");
                (format!("{name} (P{p})"), unit.clone(), query)
            };
            vec![quantile("50"), quantile("90"), quantile("99")]
        }
    }
}

/// Returns a dashboard, with two panels in a row.
fn dashboard(project: &str, title: &str, panels: &[Panel<'_>]) -> String {
    let source = json!({"type": "prometheus", "uid": "${DS_PROMETHEUS}"});
    let panels: Vec<Value> = panels
        .iter()
        .enumerate()
        .map(|(index, panel)| {
            let targets: Vec<Value> = panel
                .queries
                .iter()
                .zip('A'..='Z')
                .map(|((query, legend), id)| {
                    let expr = query.replace("{OF}", SELECTION).replace("OF[", &format!("{SELECTION}["));
                    let expr = expr.strip_suffix("OF").map_or(expr.clone(), |name| format!("{name}{SELECTION}"));
                    json!({"datasource": source, "expr": expr, "legendFormat": legend, "range": true, "refId": id})
                })
                .collect();
            json!({
                "datasource": source,
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "gridPos": {"h": 8, "w": 12, "x": 12 * (index % 2), "y": 8 * (index / 2)},
                "id": index + 1,
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
                "targets": targets,
                "title": panel.title,
                "type": "timeseries",
            })
        })
        .collect();
    let variable = |name: &str, query: &str, all: bool| {
        json!({
            "datasource": source, "definition": query, "includeAll": all, "multi": all, "name": name,
            "query": {"query": query, "refId": "values"}, "refresh": 2, "sort": 1, "type": "query",
        })
    };
    let content = json!({
        "__inputs": [{
            "name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus", "pluginName": "Prometheus",
        }],
        "editable": true,
        "panels": panels,
        "refresh": "30s",
        "schemaVersion": 39,
        "tags": ["operator", project],
        "templating": {"list": [
            variable("job", "label_values(process_start_time_seconds, job)", false),
            variable("namespace", "label_values(process_start_time_seconds{job=\"$job\"}, namespace)", false),
            variable("pod", "label_values(process_start_time_seconds{job=\"$job\", namespace=\"$namespace\"}, pod)", true),
        ]},
        "time": {"from": "now-30m", "to": "now"},
        "title": format!("{project}: {title}"),
    });
    format!("{content:#}\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn planned(config: Option<&str>) -> Result<BTreeMap<String, String>, GrafanaError> {
        let files: BTreeMap<_, _> = config.map(|text| (CONFIG.to_owned(), text.to_owned())).into_iter().collect();
        let project = Project::new("ship".parse().unwrap(), None);
        let mut planned = Plan::new(&files);
        plan(&project, &mut planned)?;
        let changes = planned.finish().unwrap();
        Ok(changes.into_iter().filter_map(|change| Some((change.path, change.after?))).collect())
    }

    fn expressions(text: &str) -> Vec<String> {
        let dashboard: Value = serde_json::from_str(text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().clone();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap().clone());
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn dashboards_select_the_operator() {
        let made = planned(None).unwrap();
        assert_eq!(made.keys().collect::<Vec<_>>(), [RESOURCES, RUNTIME, CONFIG]);
        let all = [expressions(&made[RUNTIME]), expressions(&made[RESOURCES])].concat();
        for expression in &all {
            assert!(expression.contains(SELECTION) && !expression.contains("OF"), "{expression}");
        }
        assert_eq!(
            all[0],
            format!("sum(rate(controller_runtime_reconcile_total{SELECTION}[5m])) by (controller, result)")
        );
        // The list without metrics makes no dashboard of its own.
        let again = planned(Some(CONFIG_TEMPLATE)).unwrap();
        assert_eq!(again.keys().collect::<Vec<_>>(), [RESOURCES, RUNTIME]);
    }

    #[test]
    fn own_metrics_have_panels_by_their_types() {
        let config = "\
customMetrics:
- {metric: ships_total, type: counter}
- {metric: cargo_bytes, type: gauge}
- {metric: voyage_seconds, type: Histogram}
- {metric: crew, type: gauge, expr: max(crew), unit: short}
";
        let made = planned(Some(config)).unwrap();
        let expected = [
            format!("sum(rate(ships_total{SELECTION}[5m])) by (pod)"),
            format!("cargo_bytes{SELECTION}"),
            format!("histogram_quantile(0.50, sum(rate(voyage_seconds_bucket{SELECTION}[5m])) by (pod, le))"),
            format!("histogram_quantile(0.90, sum(rate(voyage_seconds_bucket{SELECTION}[5m])) by (pod, le))"),
            format!("histogram_quantile(0.99, sum(rate(voyage_seconds_bucket{SELECTION}[5m])) by (pod, le))"),
            "max(crew)".to_owned(),
        ];
        assert_eq!(expressions(&made[CUSTOM]), expected);
        assert!(made[CUSTOM].contains("\"unit\": \"bytes\"") && made[CUSTOM].contains("\"unit\": \"short\""));
    }

    #[test]
    fn a_wrong_list_is_an_error() {
        for (config, says) in [
            ("customMetrics: 1", "cannot read grafana/custom-metrics/config.yaml"),
            ("customMetrics: [{metric: a, type: summary}]", "the metric \"a\" has the type \"summary\""),
            ("customMetrics: [{type: gauge}]", "metric 1 of the list has no name"),
        ] {
            let error = planned(Some(config)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
