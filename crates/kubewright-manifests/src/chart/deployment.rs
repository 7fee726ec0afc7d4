//! The values of the operator's Deployment.

use serde_json::{Value, json};

use super::{
    part::{Part, port_of},
    template::{self, BLOCK, IMAGE, ITEMS, VALUE},
};
use crate::installer::{InstallerError, manager};

/// Extracts the values from the Deployment of the operator, and puts marks in their place.
pub(super) fn values(objects: &mut [Value]) -> Result<Value, InstallerError> {
    let has_certificates = objects.iter().any(|object| Part::of(object) == Some(Part::CertManager));
    let found = objects.iter_mut().find_map(|object| manager(object).is_some().then_some(object));
    let deployment = found.ok_or(InstallerError::NoManager)?;
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    deployment["spec"]["replicas"] = VALUE.mark("manager.replicas").into();
    let pod = &mut deployment["spec"]["template"]["spec"];
    let mut values = json!({"replicas": replicas});
    for (field, value, empty) in [
        ("imagePullSecrets", "imagePullSecrets", json!([])),
        ("securityContext", "podSecurityContext", json!({})),
        ("nodeSelector", "nodeSelector", json!({})),
        ("tolerations", "tolerations", json!([])),
        ("affinity", "affinity", json!({})),
    ] {
        values[value] = taken(pod, field, empty);
        pod[field] = BLOCK.mark(&format!("manager.{value}")).into();
    }
    let certificates = |item: &Value| {
        let is_certificate = item["name"].as_str().is_some_and(|name| name.ends_with("-certs"));
        (has_certificates && is_certificate).then_some(Part::CertManager)
    };
    optional(pod.get_mut("volumes"), certificates);
    let container = manager(deployment).ok_or(InstallerError::NoManager)?;
    optional(container.get_mut("volumeMounts"), certificates);
    optional(container.get_mut("ports"), |port| match port["name"].as_str() {
        Some("metrics") => Some(Part::Metrics),
        Some("webhook") => Some(Part::Webhook),
        _ => None,
    });
    let whole = container["image"].take();
    let (repository, tag) = image(whole.as_str().unwrap_or_default());
    values["image"] = json!({"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"});
    container["image"] = IMAGE.mark("manager.image").into();
    container["imagePullPolicy"] = VALUE.mark("manager.image.pullPolicy").into();
    for field in ["resources", "securityContext"] {
        values[field] = taken(container, field, json!({}));
        container[field] = BLOCK.mark(&format!("manager.{field}")).into();
    }
    values["args"] = arguments(container, has_certificates);
    values["env"] = environment(container);
    Ok(values)
}

/// Returns a field, which is removed, or a value for a missing one.
fn taken(object: &mut Value, field: &str, empty: Value) -> Value {
    Some(object[field].take()).filter(|value| !value.is_null()).unwrap_or(empty)
}

/// Makes items of a list conditional.
fn optional(list: Option<&mut Value>, part: impl Fn(&Value) -> Option<Part>) {
    let Some(items) = list.and_then(Value::as_array_mut) else { return };
    let mut all = Vec::new();
    for mut item in items.drain(..) {
        match part(&item) {
            Some(part) => {
                if let Some(port) = item.get_mut("containerPort") {
                    *port = part.port_mark();
                }
                all.extend([part.begin(), item, template::end()]);
            }
            None => all.push(item),
        }
    }
    *items = all;
}

/// Leaves the arguments that follow from other values, and returns the others.
fn arguments(container: &mut Value, has_certificates: bool) -> Value {
    let given = container["args"].take();
    let (mut free, mut left) = (Vec::new(), vec![ITEMS.mark("manager.args").into()]);
    for argument in given.as_array().into_iter().flatten() {
        let text = argument.as_str().unwrap_or_default();
        let part = match text.split('=').next().unwrap_or_default() {
            "--metrics-cert-path" | "--webhook-cert-path" if has_certificates => Part::CertManager,
            name if name.starts_with("--metrics-") => Part::Metrics,
            name if name.starts_with("--webhook-") => Part::Webhook,
            _ => {
                free.push(argument.clone());
                continue;
            }
        };
        let argument = match port_of(text) {
            Some((before, _)) => format!("{before}:{}", part.port_text()).into(),
            None => argument.clone(),
        };
        left.extend([part.begin(), argument, template::end()]);
    }
    container["args"] = left.into();
    free.into()
}

/// Leaves the variables that refer to something, and returns the others.
fn environment(container: &mut Value) -> Value {
    let given = container["env"].take();
    let all = given.as_array().cloned().unwrap_or_default();
    let (free, mut left): (Vec<_>, Vec<_>) = all.into_iter().partition(|variable| variable.get("value").is_some());
    left.push(ITEMS.mark("manager.env").into());
    container["env"] = left.into();
    free.into()
}

/// Splits an image into repository and tag. A registry port is not a tag, and a digest belongs to the repository.
pub(super) fn image(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') && !image.contains('@') => (repository, tag),
        _ => (image, ""),
    }
}
