//! The options of connections to pods, which admission webhooks receive.

use serde_json::{Map, Value, json};

use crate::{registry::ConnectionOptions, strconv::is_true};

const YES_OR_NO: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// Returns the kind of the options of a connection to an object of a resource, if the subresource is one.
pub(crate) fn options_kind(resource: &str, subresource: &str) -> Option<&'static str> {
    Some(match (resource, subresource) {
        ("pods", "attach") => "PodAttachOptions",
        ("pods", "exec") => "PodExecOptions",
        ("pods", "portforward") => "PodPortForwardOptions",
        ("pods", "proxy") => "PodProxyOptions",
        ("services", "proxy") => "ServiceProxyOptions",
        ("nodes", "proxy") => "NodeProxyOptions",
        _ => return None,
    })
}

/// Returns the function that creates a subresource's options object from query parameters.
pub(crate) fn connection(subresource: &str) -> Option<ConnectionOptions> {
    match subresource {
        "attach" => Some(|parameters| options("PodAttachOptions", parameters)),
        "exec" => Some(|parameters| options("PodExecOptions", parameters)),
        "portforward" => Some(|parameters| options("PodPortForwardOptions", parameters)),
        _ => None,
    }
}

/// Creates an options object with the parameters that all three subresources have. Missing parameters are omitted.
fn options(kind: &str, parameters: &[(String, String)]) -> Value {
    let all =
        |name: &'static str| parameters.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str());
    let mut fields = Map::new();
    fields.insert("kind".into(), kind.into());
    fields.insert("apiVersion".into(), "v1".into());
    for name in YES_OR_NO {
        if let Some(value) = all(name).next() {
            fields.insert(name.into(), is_true(value).into());
        }
    }
    if let Some(container) = all("container").next() {
        fields.insert("container".into(), container.into());
    }
    let command: Vec<_> = all("command").collect();
    if !command.is_empty() {
        fields.insert("command".into(), json!(command));
    }
    let ports: Vec<u16> =
        all("ports").flat_map(|ports| ports.split(',')).filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        fields.insert("ports".into(), json!(ports));
    }
    Value::Object(fields)
}
