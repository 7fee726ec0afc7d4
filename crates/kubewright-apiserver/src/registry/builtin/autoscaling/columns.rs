//! The columns of autoscalers.

use serde_json::Value;

use super::convert::from_v1;
use crate::{
    fields::{has, int, list, text},
    registry::{
        Column,
        builtin::columns::{NONE, age, string, value_or},
    },
};

/// The number of metrics that a cell shows. Further ones are only counted.
const SHOWN: usize = 2;
const UNKNOWN: &str = "<unknown>";

pub(in crate::registry::builtin) fn columns() -> Vec<Column> {
    vec![
        string("Reference", |object, _| {
            format!("{}/{}", text(object, "/spec/scaleTargetRef/kind"), text(object, "/spec/scaleTargetRef/name"))
                .into()
        }),
        string("Targets", |object, _| metrics(object).into()),
        string("MinPods", |object, _| match object.pointer("/spec/minReplicas") {
            Some(Value::Number(number)) => number.to_string().into(),
            _ => "<unset>".into(),
        }),
        string("MaxPods", |object, _| int(object, "/spec/maxReplicas").into()),
        string("Replicas", |object, _| int(object, "/status/currentReplicas").into()),
        age(),
    ]
}

fn metrics(object: &Value) -> String {
    // The table of `v1` shows the metrics of `v2`.
    if !has(object, "/spec/metrics") && has(object, "/spec/scaleTargetRef") {
        let mut object = object.clone();
        from_v1(&mut object);
        return metrics(&object);
    }
    let (specs, statuses) = (list(object, "/spec/metrics"), list(object, "/status/currentMetrics"));
    let all: Vec<_> = specs.iter().enumerate().map(|(index, spec)| metric(spec, statuses.get(index))).collect();
    match all.len() {
        0 => NONE.into(),
        number if number > SHOWN => format!("{} + {} more...", all[..SHOWN].join(", "), number - SHOWN),
        _ => all.join(", "),
    }
}

/// Returns a metric as `current/target`.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let field = match text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let target = &spec[field]["target"];
    let current = status.map_or(&Value::Null, |status| &status[field]["current"]);
    let shown = |value: &Value, name: &str, none: &str| match value_or(value, &format!("/{name}"), none) {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let pair = |name: &str| format!("{}/{}", shown(current, name, UNKNOWN), shown(target, name, "<nil>"));
    match field {
        "pods" => pair("averageValue"),
        "external" | "object" if has(target, "/averageValue") => format!("{} (avg)", pair("averageValue")),
        "external" | "object" => pair("value"),
        _ => {
            let name = text(spec, &format!("/{field}/name")).to_owned();
            if has(target, "/averageValue") {
                return format!("{name}: {}", pair("averageValue"));
            }
            let percent = |value: &Value, none: &str| match value["averageUtilization"].as_i64() {
                Some(number) => format!("{number}%"),
                None => none.to_owned(),
            };
            format!("{name}: {}/{}", percent(current, UNKNOWN), percent(target, "<auto>"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_are_shown_with_their_targets() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let queue = json!({"type": "External", "external": {"target": {"averageValue": "5"}}});
        let current = json!([{"type": "Resource", "resource": {"current": {"averageUtilization": 7}}}]);
        let object = json!({"spec": {"metrics": [cpu, queue]}, "status": {"currentMetrics": current}});
        assert_eq!(metrics(&object), "cpu: 7%/80%, <unknown>/5 (avg)");
        let object = json!({"spec": {"metrics": [cpu, cpu, cpu]}});
        assert_eq!(metrics(&object), "cpu: <unknown>/80%, cpu: <unknown>/80% + 1 more...");
        assert_eq!(metrics(&json!({})), "<none>");
    }
}
