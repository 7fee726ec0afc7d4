//! Conversion between `autoscaling/v1` and `autoscaling/v2`.
//!
//! `v1` has fields for the utilization of CPU only. Other metrics, rules and conditions are JSON in annotations there,
//! with the fields in the order of Kubernetes' types.

use serde_json::{Map, Value, json};

use crate::fields::{fill, has, list, remove, set, text, within};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The annotations that hold fields of `v2`.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
    CURRENT_METRICS,
    CONDITIONS,
];

/// The fields in annotations, in an order that is that of each type. Others follow by name.
const ORDER: &[&str] = &[
    "type",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "apiVersion",
    "metricName",
    "metricSelector",
    "targetAverageUtilization",
    "currentAverageUtilization",
    "targetValue",
    "currentValue",
    "targetAverageValue",
    "currentAverageValue",
    "container",
    "selector",
    "averageValue",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
];

/// Returns the metric of `v2` for a utilization of CPU in percent.
pub(super) fn cpu_metric(utilization: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": utilization});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// Converts an autoscaler to `v2`.
pub(super) fn from_v1(object: &mut Value) {
    let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
    let parse = |name: &str| annotation(name).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let [metrics, current, conditions, behavior] = [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR].map(parse);
    drop_annotations(object);
    within(object, "spec", |spec| {
        let mut all: Vec<_> = sources(metrics.as_ref(), spec_to_v2);
        if let Some(utilization) = remove(spec, "targetCPUUtilizationPercentage").filter(|value| !value.is_null()) {
            all.push(cpu_metric(&utilization));
        }
        if all.is_empty() {
            all.push(cpu_metric(&super::DEFAULT_UTILIZATION.into()));
        }
        set(spec, "metrics", all);
        if let Some(behavior) = behavior.map(|behavior| renamed(&behavior, &lowered)).filter(is_filled) {
            set(spec, "behavior", behavior);
        }
    });
    within(object, "status", |status| {
        let cpu = remove(status, "currentCPUUtilizationPercentage").filter(|value| !value.is_null());
        let of_cpu = |utilization| json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": utilization}}}]);
        match (current, cpu) {
            (Some(current), _) => set(status, "currentMetrics", sources(Some(&current), status_to_v2)),
            (None, Some(cpu)) => set(status, "currentMetrics", of_cpu(cpu)),
            (None, None) => {}
        }
        if let Some(conditions) = conditions.filter(Value::is_array) {
            set(status, "conditions", conditions);
        }
    });
}

/// Converts an autoscaler from `v2`.
pub(super) fn to_v1(object: &mut Value) {
    drop_annotations(object);
    let mut added = Map::new();
    let mut annotate = |name: &str, value: &Value| {
        added.insert(name.to_owned(), ordered(value, true).into());
    };
    let is_cpu = |metric: &Value| {
        text(metric, "/type") == "Resource"
            && text(metric, "/resource/name") == "cpu"
            && has(metric, "/resource/target/averageUtilization")
    };
    let metrics = list(object, "/spec/metrics").to_vec();
    let others: Vec<_> = metrics.iter().filter(|metric| !is_cpu(metric)).map(|one| source(one, spec_to_v1)).collect();
    if !others.is_empty() {
        annotate(METRICS, &others.into());
    }
    let current = list(object, "/status/currentMetrics").to_vec();
    if !current.is_empty() {
        let current: Vec<_> = current.iter().map(|metric| source(metric, status_to_v1)).collect();
        annotate(CURRENT_METRICS, &current.into());
    }
    if object["spec"]["behavior"].is_object() {
        annotate(BEHAVIOR, &internal_behavior(&object["spec"]["behavior"]));
    }
    let conditions = list(object, "/status/conditions").to_vec();
    if !conditions.is_empty() {
        annotate(CONDITIONS, &conditions.into());
    }
    within(object, "spec", |spec| {
        remove(spec, "metrics");
        remove(spec, "behavior");
        if let Some(metric) = metrics.iter().find(|metric| is_cpu(metric)) {
            let utilization = metric["resource"]["target"]["averageUtilization"].clone();
            set(spec, "targetCPUUtilizationPercentage", utilization);
        }
    });
    within(object, "status", |status| {
        remove(status, "currentMetrics");
        remove(status, "conditions");
        fill(status, "currentReplicas", 0);
        fill(status, "desiredReplicas", 0);
        let cpu = current.iter().filter(|metric| text(metric, "/resource/name") == "cpu");
        let mut utilizations = cpu.filter_map(|metric| metric["resource"]["current"]["averageUtilization"].as_i64());
        if let Some(utilization) = utilizations.next_back() {
            set(status, "currentCPUUtilizationPercentage", utilization);
        }
    });
    if !added.is_empty() {
        within(object, "metadata", |metadata| {
            within(metadata, "annotations", |annotations| {
                added.into_iter().for_each(|(name, value)| set(annotations, &name, value));
            });
        });
    }
}

fn drop_annotations(object: &mut Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations") else { return };
    for name in ANNOTATIONS {
        remove(annotations, name);
    }
    if annotations.as_object().is_some_and(Map::is_empty) {
        within(object, "metadata", |metadata| drop(remove(metadata, "annotations")));
    }
}

/// Converts the source of a metric: the field that its type names.
type Convert = fn(&str, &Value) -> Value;

fn sources(metrics: Option<&Value>, convert: Convert) -> Vec<Value> {
    metrics.and_then(Value::as_array).into_iter().flatten().map(|metric| source(metric, convert)).collect()
}

fn source(metric: &Value, convert: Convert) -> Value {
    let mut converted = metric.clone();
    for field in ["object", "pods", "resource", "containerResource", "external"] {
        if metric[field].is_object() {
            set(&mut converted, field, convert(field, &metric[field]));
        }
    }
    converted
}

/// Builds an object of the fields that are present.
fn object<'a>(fields: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Value {
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
}

/// Returns a quantity, 0 if it is absent.
fn amount(value: &Value) -> Value {
    if value.is_null() { "0".into() } else { value.clone() }
}

fn identifier(name: &Value, selector: &Value) -> Value {
    object([("name", name), ("selector", selector)])
}

/// Converts the source of a wanted metric to `v1`.
fn spec_to_v1(kind: &str, of: &Value) -> Value {
    let (target, metric) = (&of["target"], &of["metric"]);
    match kind {
        "object" => object([
            ("target", &of["describedObject"]),
            ("metricName", &metric["name"]),
            ("targetValue", &amount(&target["value"])),
            ("selector", &metric["selector"]),
            ("averageValue", &target["averageValue"]),
        ]),
        "pods" => object([
            ("metricName", &metric["name"]),
            ("targetAverageValue", &amount(&target["averageValue"])),
            ("selector", &metric["selector"]),
        ]),
        "external" => object([
            ("metricName", &metric["name"]),
            ("metricSelector", &metric["selector"]),
            ("targetValue", &target["value"]),
            ("targetAverageValue", &target["averageValue"]),
        ]),
        _ => object([
            ("name", &of["name"]),
            ("targetAverageUtilization", &target["averageUtilization"]),
            ("targetAverageValue", &target["averageValue"]),
            ("container", &of["container"]),
        ]),
    }
}

/// Converts the source of a wanted metric to `v2`.
fn spec_to_v2(kind: &str, of: &Value) -> Value {
    let target = |kind: &str, value: &Value, average: &Value| {
        object([("type", &kind.into()), ("value", value), ("averageValue", average)])
    };
    match kind {
        "object" => {
            let (average, value) = (&of["averageValue"], &amount(&of["targetValue"]));
            let target = match (average.is_null(), value == "0") {
                (true, _) => target("Value", value, average),
                (false, true) => target("AverageValue", &Value::Null, average),
                (false, false) => target("AverageValue", value, average),
            };
            let metric = identifier(&of["metricName"], &of["selector"]);
            json!({"describedObject": of["target"], "metric": metric, "target": target})
        }
        "pods" => {
            let target = target("AverageValue", &Value::Null, &amount(&of["targetAverageValue"]));
            json!({"metric": identifier(&of["metricName"], &of["selector"]), "target": target})
        }
        "external" => {
            let kind = if of["targetValue"].is_null() { "AverageValue" } else { "Value" };
            let target = target(kind, &of["targetValue"], &of["targetAverageValue"]);
            json!({"metric": identifier(&of["metricName"], &of["metricSelector"]), "target": target})
        }
        _ => {
            let utilization = &of["targetAverageUtilization"];
            let kind = if utilization.is_null() { "AverageValue" } else { "Utilization" };
            let target = object([
                ("type", &kind.into()),
                ("averageValue", &of["targetAverageValue"]),
                ("averageUtilization", utilization),
            ]);
            object([("name", &of["name"]), ("target", &target), ("container", &of["container"])])
        }
    }
}

/// Converts the source of an observed metric to `v1`.
fn status_to_v1(kind: &str, of: &Value) -> Value {
    let (current, metric) = (&of["current"], &of["metric"]);
    match kind {
        "object" => object([
            ("target", &of["describedObject"]),
            ("metricName", &metric["name"]),
            ("currentValue", &amount(&current["value"])),
            ("selector", &metric["selector"]),
            ("averageValue", &current["averageValue"]),
        ]),
        "pods" => object([
            ("metricName", &metric["name"]),
            ("currentAverageValue", &amount(&current["averageValue"])),
            ("selector", &metric["selector"]),
        ]),
        "external" => object([
            ("metricName", &metric["name"]),
            ("metricSelector", &metric["selector"]),
            ("currentValue", &amount(&current["value"])),
            ("currentAverageValue", &current["averageValue"]),
        ]),
        _ => object([
            ("name", &of["name"]),
            ("currentAverageUtilization", &current["averageUtilization"]),
            ("currentAverageValue", &amount(&current["averageValue"])),
            ("container", &of["container"]),
        ]),
    }
}

/// Converts the source of an observed metric to `v2`.
fn status_to_v2(kind: &str, of: &Value) -> Value {
    match kind {
        "object" => {
            let current = object([("value", &amount(&of["currentValue"])), ("averageValue", &of["averageValue"])]);
            let metric = identifier(&of["metricName"], &of["selector"]);
            json!({"describedObject": of["target"], "metric": metric, "current": current})
        }
        "pods" => {
            let current = json!({"averageValue": amount(&of["currentAverageValue"])});
            json!({"metric": identifier(&of["metricName"], &of["selector"]), "current": current})
        }
        "external" => {
            let current =
                object([("value", &amount(&of["currentValue"])), ("averageValue", &of["currentAverageValue"])]);
            json!({"metric": identifier(&of["metricName"], &of["metricSelector"]), "current": current})
        }
        _ => {
            let current = object([
                ("averageValue", &amount(&of["currentAverageValue"])),
                ("averageUtilization", &of["currentAverageUtilization"]),
            ]);
            object([("name", &of["name"]), ("current", &current), ("container", &of["container"])])
        }
    }
}

/// Returns the rules as Kubernetes' internal type, which the annotation contains.
fn internal_behavior(behavior: &Value) -> Value {
    let rules = |field: &str| {
        let rules = &behavior[field];
        if rules.is_null() {
            return Value::Null;
        }
        json!({
            "StabilizationWindowSeconds": rules["stabilizationWindowSeconds"], "SelectPolicy": rules["selectPolicy"],
            "Policies": renamed(&rules["policies"], &raised), "Tolerance": rules["tolerance"],
        })
    };
    json!({"ScaleUp": rules("scaleUp"), "ScaleDown": rules("scaleDown")})
}

fn is_filled(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.values().any(|field| !field.is_null()))
}

fn lowered(name: &str) -> String {
    let mut rest = name.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
}

fn raised(name: &str) -> String {
    let mut rest = name.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// Returns a value with other names of fields, without those that are null.
fn renamed(value: &Value, rename: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, field)| !field.is_null());
            fields.map(|(name, field)| (rename(name), renamed(field, rename))).collect()
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, rename)).collect(),
        other => other.clone(),
    }
}

/// Writes a value with its fields in [`ORDER`], or sorted if they are keys of a map.
fn ordered(value: &Value, is_struct: bool) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            let place = |name: &str| ORDER.iter().position(|known| is_struct && *known == name).unwrap_or(usize::MAX);
            fields.sort_by_key(|(name, _)| place(name));
            let write = |(name, field): (&String, &Value)| {
                format!("{}:{}", Value::from(name.as_str()), ordered(field, name != "matchLabels"))
            };
            format!("{{{}}}", fields.into_iter().map(write).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| ordered(item, true)).collect::<Vec<_>>().join(","))
        }
        Value::String(text) => {
            // Go's encoder escapes these characters.
            let text = Value::from(text.as_str()).to_string();
            text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
        object["metadata"]["annotations"][name].as_str().unwrap()
    }

    /// The texts are those of Kubernetes.
    #[test]
    fn other_metrics_become_annotations_and_return() {
        let stored = json!({
            "metadata": {"name": "h", "annotations": {"a": "b"}},
            "spec": {
                "maxReplicas": 5, "minReplicas": 1,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"}}},
                    {"type": "Pods", "pods": {
                        "metric": {"name": "x", "selector": {"matchLabels": {"name": "a", "type": "b"}}},
                        "target": {"type": "AverageValue", "averageValue": "5"},
                    }},
                    {"type": "Object", "object": {
                        "metric": {"name": "x"}, "describedObject": {"kind": "Service", "name": "s"},
                        "target": {"type": "Value", "value": "5"},
                    }},
                    {"type": "ContainerResource", "containerResource": {
                        "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50},
                    }},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30}}},
                ],
                "behavior": {"scaleUp": {
                    "stabilizationWindowSeconds": 7, "selectPolicy": "Max",
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
                }},
            },
            "status": {"conditions": [{"type": "AbleToScale", "status": "False", "message": "a > b"}]},
        });
        let mut object = stored.clone();
        to_v1(&mut object);
        assert_eq!(object["spec"], json!({"maxReplicas": 5, "minReplicas": 1, "targetCPUUtilizationPercentage": 30}));
        assert_eq!(object["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
        assert_eq!(
            annotation(&object, METRICS),
            concat!(
                r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"100Mi"}},"#,
                r#"{"type":"Pods","pods":{"metricName":"x","targetAverageValue":"5","selector":{"matchLabels":{"name":"a","type":"b"}}}},"#,
                r#"{"type":"Object","object":{"target":{"kind":"Service","name":"s"},"metricName":"x","targetValue":"5"}},"#,
                r#"{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":50,"container":"c"}}]"#,
            )
        );
        assert_eq!(
            annotation(&object, BEHAVIOR),
            concat!(
                r#"{"ScaleUp":{"StabilizationWindowSeconds":7,"SelectPolicy":"Max","#,
                r#""Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}"#,
            )
        );
        let conditions = r#"[{"type":"AbleToScale","status":"False","message":"a \u003e b"}]"#;
        assert_eq!(annotation(&object, CONDITIONS), conditions);
        from_v1(&mut object);
        let mut expected = stored;
        expected["status"]["currentReplicas"] = 0.into();
        expected["status"]["desiredReplicas"] = 0.into();
        assert_eq!(object, expected);
    }

    #[test]
    fn annotations_that_are_no_json_are_dropped() {
        let mut object = json!({"metadata": {"annotations": {METRICS: "{", CONDITIONS: "1"}}, "spec": {}});
        from_v1(&mut object);
        assert_eq!(object["metadata"], json!({}));
        assert_eq!(object["spec"]["metrics"], json!([cpu_metric(&80.into())]));
    }
}
