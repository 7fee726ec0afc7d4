//! The paths of connections to pods at the kubelets of their nodes.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::reach::{first, requested_container};
use crate::{fields::text, object_type::ObjectType, registry::AtKubelet, strconv::is_true};

/// The characters that are escaped in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// Returns where the kubelet of a pod answers for a subresource; `None` if the pod has no node.
pub(super) fn at_kubelet(subresource: &str, pod: &Value, parameters: &[(String, String)]) -> Option<AtKubelet> {
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() {
        return None;
    }
    let (prefix, query) = match subresource {
        "log" => ("containerLogs", log_query(parameters)),
        "exec" | "attach" => (subresource, stream_query(parameters)),
        "portforward" => ("portForward", port_query(parameters)),
        _ => return None,
    };
    let mut target = format!("/{prefix}/{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    if subresource != "portforward" {
        target = format!("{target}/{}", requested_container(pod, parameters));
    }
    if !query.is_empty() {
        target = format!("{target}?{query}");
    }
    Some(AtKubelet { node: node.to_owned(), target })
}

fn log_query(parameters: &[(String, String)]) -> String {
    let flag = |name: &'static str| is_set(parameters, name).then(|| (name, "true".to_owned()));
    let number = |name: &'static str| {
        let number = first(parameters, name)?.parse::<i64>().ok()?;
        Some((name, number.to_string()))
    };
    let pairs = [
        flag("follow"),
        number("limitBytes"),
        flag("previous"),
        number("sinceSeconds"),
        first(parameters, "sinceTime").map(|time| ("sinceTime", time_of(time))),
        number("tailLines"),
        flag("timestamps"),
    ];
    encode(pairs.into_iter().flatten())
}

fn stream_query(parameters: &[(String, String)]) -> String {
    let flag = |name: &str, sent: &'static str| is_set(parameters, name).then(|| (sent, "1".to_owned()));
    let command = parameters.iter().filter(|(name, _)| name == "command").map(|(_, word)| ("command", word.clone()));
    let flags = [flag("stderr", "error"), flag("stdin", "input"), flag("stdout", "output"), flag("tty", "tty")];
    encode(command.chain(flags.into_iter().flatten()))
}

fn port_query(parameters: &[(String, String)]) -> String {
    let ports = parameters.iter().filter(|(name, _)| name == "ports").flat_map(|(_, ports)| ports.split(','));
    let ports: Vec<_> = ports.filter(|port| !port.is_empty()).collect();
    encode((!ports.is_empty()).then(|| ("port", ports.join(","))).into_iter())
}

fn is_set(parameters: &[(String, String)], name: &str) -> bool {
    parameters.iter().find(|(key, _)| key == name).is_some_and(|(_, value)| is_true(value))
}

/// Returns a time as Kubernetes writes it.
fn time_of(time: &str) -> String {
    let mut options = json!({"sinceTime": time});
    if let Some(ty) = ObjectType::of("", "v1", "PodLogOptions")
        && let Err(error) = ty.decode(&mut options)
    {
        tracing::debug!(%error, time, "the time of a log was not checked");
    }
    text(&options, "/sinceTime").to_owned()
}

/// Encodes a query with its names in this order.
fn encode<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let encoded = |value: &str| utf8_percent_encode(value, QUERY).to_string().replace(' ', "+");
    pairs.map(|(name, value)| format!("{name}={}", encoded(&value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::Query;

    #[test]
    fn parameters_are_those_of_the_kubelet() {
        let containers = json!([{"name": "main"}]);
        let pod = json!({
            "metadata": {"namespace": "n", "name": "p"},
            "spec": {"nodeName": "node", "containers": containers},
        });
        let check = |subresource: &str, query: &str, expect: &str| {
            let found = at_kubelet(subresource, &pod, Query::parse(Some(query)).pairs()).unwrap();
            assert_eq!((found.node.as_str(), found.target.as_str()), ("node", expect));
        };
        check("log", "", "/containerLogs/n/p/main");
        check("log", "follow=true&previous=0&timestamps=false&container=main", "/containerLogs/n/p/main?follow=true");
        let query = "timestamps=1&tailLines=3&sinceTime=2026-01-02T03:04:05Z&limitBytes=9&pretty=true";
        let expect = "limitBytes=9&sinceTime=2026-01-02T03%3A04%3A05Z&tailLines=3&timestamps=true";
        check("log", query, &format!("/containerLogs/n/p/main?{expect}"));
        let query = "command=sh&command=-c&command=echo+a%26b&stdin=true&stdout=true&stderr=true&tty=false";
        check("exec", query, "/exec/n/p/main?command=sh&command=-c&command=echo+a%26b&error=1&input=1&output=1");
        check("attach", "stdout=true&tty=true&container=main", "/attach/n/p/main?output=1&tty=1");
        check("portforward", "ports=80,81&ports=82", "/portForward/n/p?port=80%2C81%2C82");
        check("portforward", "", "/portForward/n/p");
        let pending = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
        assert_eq!(at_kubelet("log", &pending, &[]), None);
    }
}
