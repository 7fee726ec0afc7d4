//! The kernel parameters that a pod may set, `securityContext.sysctls`
//! (<https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/#safe-and-unsafe-sysctls>). Pure.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::controllers::value::{flag, list, text};

/// The parameters that the kubelet allows by default, with the name of their namespace and the field of pods that are
/// in the host's.
const SAFE: [(&str, &str, &str); 12] = [
    ("kernel.shm_rmid_forced", "IPC", "/spec/hostIPC"),
    ("net.ipv4.ip_local_port_range", "Net", "/spec/hostNetwork"),
    ("net.ipv4.tcp_syncookies", "Net", "/spec/hostNetwork"),
    ("net.ipv4.ping_group_range", "Net", "/spec/hostNetwork"),
    ("net.ipv4.ip_unprivileged_port_start", "Net", "/spec/hostNetwork"),
    ("net.ipv4.ip_local_reserved_ports", "Net", "/spec/hostNetwork"),
    ("net.ipv4.tcp_keepalive_time", "Net", "/spec/hostNetwork"),
    ("net.ipv4.tcp_fin_timeout", "Net", "/spec/hostNetwork"),
    ("net.ipv4.tcp_keepalive_intvl", "Net", "/spec/hostNetwork"),
    ("net.ipv4.tcp_keepalive_probes", "Net", "/spec/hostNetwork"),
    ("net.ipv4.tcp_rmem", "Net", "/spec/hostNetwork"),
    ("net.ipv4.tcp_wmem", "Net", "/spec/hostNetwork"),
];

/// Returns the kubelet's message about the first parameter that a pod may not set.
pub(crate) fn forbidden(pod: &Value) -> Option<String> {
    list(pod, "/spec/securityContext/sysctls").iter().find_map(|parameter| {
        let name = normalized(text(parameter, "/name"));
        match SAFE.iter().find(|(safe, ..)| *safe == name) {
            None => Some(format!("forbidden sysctl: {name:?} not allowlisted")),
            Some((_, namespace, shared)) if flag(pod, shared) => {
                Some(format!("forbidden sysctl: {name:?} not allowed with host {namespace} enabled"))
            }
            Some(_) => None,
        }
    })
}

/// Returns the parameters that a pod sets: their files below `/proc/sys`, and their values.
pub(crate) fn files(pod: &Pod) -> impl Iterator<Item = (String, String)> {
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let parameters = security.and_then(|security| security.sysctls.as_ref());
    // The node admits only those whose names it knows.
    let file = |name: &str| swapped(&normalized(name));
    parameters.into_iter().flatten().map(move |parameter| (file(&parameter.name), parameter.value.clone()))
}

/// Returns a name with dots as separators, even if the given one has slashes.
fn normalized(name: &str) -> String {
    let has_slashes = name.find(['.', '/']).is_some_and(|at| name[at..].starts_with('/'));
    if has_slashes { swapped(name) } else { name.to_owned() }
}

/// Exchanges dots and slashes.
fn swapped(name: &str) -> String {
    let swapped = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swapped).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_that_affect_other_pods_are_forbidden() {
        let check = |names: &[&str], expect: Option<&str>| {
            let parameters: Vec<_> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
            let pod = json!({"spec": {"hostNetwork": true, "securityContext": {"sysctls": parameters}}});
            assert_eq!(forbidden(&pod).as_deref(), expect, "{names:?}");
        };
        check(&[], None);
        check(&["kernel.shm_rmid_forced", "kernel/shm_rmid_forced"], None);
        check(
            &["kernel.shm_rmid_forced", "kernel/msgmax"],
            Some("forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
        );
        check(&["net/core/a.b"], Some("forbidden sysctl: \"net.core.a/b\" not allowlisted"));
        let shared = "forbidden sysctl: \"net.ipv4.tcp_rmem\" not allowed with host Net enabled";
        check(&["net.ipv4.tcp_rmem"], Some(shared));
    }

    #[test]
    fn parameters_have_files() {
        let parameters = json!([{"name": "net.ipv4.tcp_rmem", "value": "4096 87380 6291456"},
            {"name": "kernel/shm_rmid_forced", "value": "1"}]);
        let pod = json!({"spec": {"containers": [], "securityContext": {"sysctls": parameters}}});
        let found: Vec<_> = files(&serde_json::from_value(pod).expect("a pod")).collect();
        let file = |file: &str, value: &str| (file.to_owned(), value.to_owned());
        assert_eq!(found, [file("net/ipv4/tcp_rmem", "4096 87380 6291456"), file("kernel/shm_rmid_forced", "1")]);
    }
}
