//! The columns of services.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    fields::{int, list, text},
    registry::{
        Column,
        builtin::columns::{NONE, age, labels, or_none, string},
    },
};

/// Returns the columns of services.
pub(in crate::registry::builtin) fn columns() -> Vec<Column> {
    vec![
        string("Type", |service, _| text(service, "/spec/type").into()),
        string("Cluster-IP", |service, _| or_none(text(service, "/spec/clusterIP")).into()),
        string("External-IP", |service, _| external(service).into()),
        string("Port(s)", |service, _| ports(service).into()),
        age(),
        string("Selector", |service, _| labels(service, "/spec/selector")).wide(),
    ]
}

fn external(service: &Value) -> String {
    let own = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str);
    let addresses: Vec<_> = own.clone().collect();
    match text(service, "/spec/type") {
        "ExternalName" => text(service, "/spec/externalName").into(),
        "LoadBalancer" => {
            let ingress = list(service, "/status/loadBalancer/ingress").iter();
            let given =
                ingress.map(|one| [text(one, "/ip"), text(one, "/hostname")].into_iter().find(|it| !it.is_empty()));
            let given: BTreeSet<_> = given.flatten().collect();
            let addresses: Vec<_> = given.into_iter().chain(own).collect();
            if addresses.is_empty() { "<pending>".into() } else { addresses.join(",") }
        }
        _ if addresses.is_empty() => NONE.into(),
        _ => addresses.join(","),
    }
}

fn ports(service: &Value) -> String {
    let parts: Vec<_> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
            match int(port, "/nodePort") {
                0 => format!("{number}/{protocol}"),
                node_port => format!("{number}:{node_port}/{protocol}"),
            }
        })
        .collect();
    or_none(&parts.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_and_addresses_are_joined() {
        let service = json!({"spec": {"type": "NodePort", "ports": [
            {"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"},
        ]}});
        assert_eq!(ports(&service), "80:30080/TCP,53/UDP");
        assert_eq!(external(&service), "<none>");
        assert_eq!(external(&json!({"spec": {"type": "LoadBalancer"}})), "<pending>");
        assert_eq!(ports(&json!({})), "<none>");
        let ingress = json!([{"hostname": "z.example.com"}, {"ip": "5.6.7.8"}, {"ip": "5.6.7.8"}, {"ip": "7.7.7.7", "hostname": "a"}]);
        let balanced = json!({
            "spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9", "1.1.1.1"]},
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        assert_eq!(external(&balanced), "5.6.7.8,7.7.7.7,z.example.com,9.9.9.9,1.1.1.1");
    }
}
