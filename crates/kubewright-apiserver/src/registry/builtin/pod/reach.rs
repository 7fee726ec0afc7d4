//! What connections to pods require: valid parameters, a container, and a node.

use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use crate::{
    fields::{list, text},
    object_type::ObjectType,
    strconv,
};

/// Checks the parameters of a connection, as the conversion to its options and their validation do.
pub(super) fn check_parameters(subresource: &str, pod: &str, parameters: &[(String, String)]) -> Result<(), Status> {
    match subresource {
        "log" => check_log(pod, parameters),
        "portforward" => check_ports(parameters),
        _ => Ok(()),
    }
}

/// Returns the first value of a parameter that isn't empty.
pub(super) fn first<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = parameters.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

fn check_ports(parameters: &[(String, String)]) -> Result<(), Status> {
    let ports = parameters.iter().filter(|(key, _)| key == "ports").flat_map(|(_, ports)| ports.split(','));
    match ports.filter(|port| !port.is_empty()).find(|port| port.parse::<u16>().is_err()) {
        Some(port) => Err(Status::bad_request(format!("cannot convert to []int32: {}", strconv::parse_uint(port)))),
        None => Ok(()),
    }
}

fn check_log(pod: &str, parameters: &[(String, String)]) -> Result<(), Status> {
    let number = |name: &str| {
        let text = first(parameters, name);
        let parsed = text.map(|text| text.parse::<i64>().map_err(|_| Status::bad_request(strconv::parse_int(text))));
        parsed.transpose()
    };
    let (seconds, tail, limit) = (number("sinceSeconds")?, number("tailLines")?, number("limitBytes")?);
    let time = first(parameters, "sinceTime");
    if let (Some(time), Some(ty)) = (time, ObjectType::of("", "v1", "PodLogOptions")) {
        ty.decode(&mut json!({"sinceTime": time})).map_err(Status::bad_request)?;
    }
    let mut causes = Vec::new();
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        causes.push(Cause::invalid("tailLines", &json!(lines), "must be greater than or equal to 0"));
    }
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        causes.push(Cause::invalid("limitBytes", &json!(bytes), "must be greater than 0"));
    }
    match seconds {
        Some(_) if time.is_some() => {
            // The path of no field reads as an index without one.
            causes.push(Cause::forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
        }
        Some(seconds) if seconds < 1 => {
            causes.push(Cause::invalid("sinceSeconds", &json!(seconds), "must be greater than 0"));
        }
        _ => {}
    }
    // A stream can be selected only with Kubernetes' feature PodLogsQuerySplitStreams, which is off by default.
    if first(parameters, "stream").is_some() {
        causes.push(Cause::forbidden("stream", "may not be specified"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("", "PodLogOptions", pod, causes)) }
}

/// Checks that the pod has the container of a connection, or a single one if the parameters name none.
pub(super) fn check_container(subresource: &str, pod: &Value, parameters: &[(String, String)]) -> Result<(), Status> {
    if !["attach", "exec", "log"].contains(&subresource) {
        return Ok(());
    }
    let names = |field: &str| -> Vec<&str> { list(pod, field).iter().map(|one| text(one, "/name")).collect() };
    let main = names("/spec/containers");
    let all = [names("/spec/initContainers"), main.clone(), names("/spec/ephemeralContainers")].concat();
    let name = text(pod, "/metadata/name");
    let why = match (first(parameters, "container"), main.len()) {
        (Some(wanted), _) if all.contains(&wanted) => return Ok(()),
        (None, 1) => return Ok(()),
        (Some(wanted), _) => format!("container {wanted} is not valid for pod {name}"),
        (None, 0) => format!("a container name must be specified for pod {name}"),
        (None, _) => {
            format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" "))
        }
    };
    Err(Status::bad_request(why))
}

/// Returns the container of a connection whose parameters are valid.
pub(super) fn requested_container<'a>(pod: &'a Value, parameters: &'a [(String, String)]) -> &'a str {
    let only = || list(pod, "/spec/containers").first().map(|one| text(one, "/name"));
    first(parameters, "container").or_else(only).unwrap_or_default()
}

/// Returns whether the pod has a node to connect to. A pod without one has an empty log.
pub(super) fn reaches(subresource: &str, pod: &Value) -> Result<bool, Status> {
    if !text(pod, "/spec/nodeName").is_empty() {
        return Ok(true);
    }
    if subresource == "log" {
        return Ok(false);
    }
    let name = text(pod, "/metadata/name");
    Err(Status::bad_request(format!("pod {name} does not have a host assigned")))
}
