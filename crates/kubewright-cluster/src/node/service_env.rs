//! The environment variables with which a container finds services, as set by the kubelet
//! (<https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>). Pure.
//!
//! They include the services that exist when the container starts. On systems other than Linux, cluster IPs don't
//! answer.

use serde_json::Value;

use crate::controllers::value::{list, text};

/// Returns the variables of a namespace's services.
pub(crate) fn variables<'a>(services: impl Iterator<Item = &'a Value>) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for service in services {
        let host = text(service, "/spec/clusterIP");
        let ports = list(service, "/spec/ports");
        if host.is_empty() || host == "None" || ports.is_empty() {
            continue;
        }
        let prefix = in_capitals(text(service, "/metadata/name"));
        let mut set = |suffix: &str, value: String| variables.push((format!("{prefix}_{suffix}"), value));
        set("SERVICE_HOST", host.into());
        set("SERVICE_PORT", ports[0]["port"].to_string());
        for port in ports.iter().filter(|port| !text(port, "/name").is_empty()) {
            set(&format!("SERVICE_PORT_{}", in_capitals(text(port, "/name"))), port["port"].to_string());
        }
        for (index, port) in ports.iter().enumerate() {
            let (number, protocol) = (&port["port"], port["protocol"].as_str().unwrap_or("TCP"));
            let url = format!("{}://{host}:{number}", protocol.to_lowercase());
            if index == 0 {
                set("PORT", url.clone());
            }
            let name = format!("PORT_{number}_{protocol}");
            set(&name, url);
            set(&format!("{name}_PROTO"), protocol.to_lowercase());
            set(&format!("{name}_PORT"), number.to_string());
            set(&format!("{name}_ADDR"), host.into());
        }
    }
    variables
}

fn in_capitals(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_has_all_variables_that_the_kubelet_sets() {
        let service = json!({"metadata": {"name": "cow-web"}, "spec": {"clusterIP": "127.96.1.7", "ports": [
            {"name": "http-main", "port": 80, "protocol": "TCP"},
        ]}});
        let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}});
        let external = json!({"metadata": {"name": "e"}, "spec": {"externalName": "example.com"}});
        let variables = variables([service, headless, external].iter());
        let lines: Vec<_> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expect = [
            "COW_WEB_SERVICE_HOST=127.96.1.7",
            "COW_WEB_SERVICE_PORT=80",
            "COW_WEB_SERVICE_PORT_HTTP_MAIN=80",
            "COW_WEB_PORT=tcp://127.96.1.7:80",
            "COW_WEB_PORT_80_TCP=tcp://127.96.1.7:80",
            "COW_WEB_PORT_80_TCP_PROTO=tcp",
            "COW_WEB_PORT_80_TCP_PORT=80",
            "COW_WEB_PORT_80_TCP_ADDR=127.96.1.7",
        ];
        assert_eq!(lines, expect);
    }
}
