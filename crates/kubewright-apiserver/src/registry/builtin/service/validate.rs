//! Validation of services beyond their schema, in Kubernetes' wording.

use std::collections::BTreeSet;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::Value;

use super::{NODE_PORTS, has_node_ports};
use crate::{
    fields::{int, list, text},
    registry::builtin::check::{each_sentence, one_of, positive_port},
};

pub(super) fn service(old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let spec = &new["spec"];
    let mut causes = name::labels("spec.selector", &spec["selector"]);
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(spec, "spec", "type", &kinds, &mut causes);
    one_of(spec, "spec", "sessionAffinity", &["ClientIP", "None"], &mut causes);
    let kind = text(spec, "/type");
    let headless = text(spec, "/clusterIP") == "None";
    if list(spec, "/ports").is_empty() && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" {
        if text(spec, "/externalName").is_empty() {
            causes.push(Cause::required("spec.externalName", ""));
        } else {
            each_sentence(spec, "spec", "externalName", name::dns1123_subdomain, &mut causes);
        }
    }
    if headless && has_node_ports(kind) {
        let why = "may not be set to 'None' for LoadBalancer services".replace("LoadBalancer", kind);
        causes.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIP"], &why));
    }
    ports(spec, &mut causes);
    address(old, spec, &mut causes);
    causes
}

fn ports(spec: &Value, causes: &mut Vec<Cause>) {
    let ports = list(spec, "/ports");
    let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let (name, protocol) = (text(port, "/name"), text(port, "/protocol"));
        if name.is_empty() && ports.len() > 1 {
            causes.push(Cause::required(format!("{path}.name"), ""));
        }
        each_sentence(port, &path, "name", name::dns1123_label, causes);
        if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(format!("{path}.name"), &port["name"]));
        }
        positive_port(&port["port"], &format!("{path}.port"), causes);
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], causes);
        match &port["targetPort"] {
            Value::Number(_) => positive_port(&port["targetPort"], &format!("{path}.targetPort"), causes),
            _ => each_sentence(port, &path, "targetPort", name::port_name, causes),
        }
        if !numbers.insert((protocol, int(port, "/port"))) {
            causes.push(Cause::duplicate(path.clone(), &port["port"]));
        }
        node_port(spec, port, &path, causes);
        if int(port, "/nodePort") != 0 && !node_ports.insert((protocol, int(port, "/nodePort"))) {
            causes.push(Cause::duplicate(format!("{path}.nodePort"), &port["nodePort"]));
        }
    }
}

fn node_port(spec: &Value, port: &Value, path: &str, causes: &mut Vec<Cause>) {
    let number = int(port, "/nodePort");
    if number == 0 {
        return;
    }
    let field = format!("{path}.nodePort");
    if !has_node_ports(text(spec, "/type")) {
        causes.push(Cause::forbidden(field, "may not be used when `type` is 'ClusterIP'"));
    } else if !u32::try_from(number).is_ok_and(|number| NODE_PORTS.contains(&number)) {
        let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
        let why = format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
        causes.push(Cause::invalid(field, &port["nodePort"], &why));
    }
}

fn address(old: Option<&Value>, spec: &Value, causes: &mut Vec<Cause>) {
    let address = text(spec, "/clusterIP");
    if !address.is_empty() && address != "None" && address.parse::<std::net::IpAddr>().is_err() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        causes.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIP"], why));
    }
    let Some(old) = old.map(|old| &old["spec"]) else { return };
    let needs_one = |spec: &Value| text(spec, "/type") != "ExternalName";
    let before = text(old, "/clusterIP");
    if needs_one(old) && needs_one(spec) && !before.is_empty() && before != address {
        causes.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIPs"], "may not change once set"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_services_are_refused_as_in_kubernetes() {
        let check = |spec: Value, expect: &[&str]| {
            let causes = service(None, &json!({"spec": spec}));
            assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
        };
        check(json!({"type": "ClusterIP"}), &["spec.ports: Required value"]);
        check(json!({"type": "ClusterIP", "clusterIP": "None"}), &[]);
        check(
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            &[
                "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid \
               ports is 30000-32767",
            ],
        );
        check(
            json!({"type": "ClusterIP", "ports": [{"port": 0}]}),
            &["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
        );
        check(
            json!({"ports": [{"port": 1, "protocol": "TCP"}, {"name": "b", "port": 2, "protocol": "TCP"}]}),
            &["spec.ports[0].name: Required value"],
        );
        check(json!({"type": "ExternalName"}), &["spec.externalName: Required value"]);
    }

    #[test]
    fn an_address_is_kept_on_update() {
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "127.96.0.5", "ports": [{"port": 1}]}});
        let mut new = old.clone();
        new["spec"]["clusterIP"] = "127.96.0.6".into();
        assert_eq!(service(Some(&old), &new)[0].field, "spec.clusterIPs[0]");
        assert_eq!(service(Some(&old), &old), []);
    }
}
