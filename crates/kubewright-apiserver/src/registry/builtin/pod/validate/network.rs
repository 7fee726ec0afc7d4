//! Ports of the node, names and name servers of a pod.

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{PodContext, has_host_network};
use crate::registry::builtin::validation::{
    Errors, Path, boolean, field, int, items, optional_string, string, strings, subdomain_with_underscore, validate_ip,
    validate_text,
};

/// Checks that the ports of a pod in the network of its node are those of the node. In templates, they are optional.
pub(super) fn validate_host_network_ports(spec: &Value, context: PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    if !has_host_network(spec) {
        return;
    }
    let path = path.child("containers");
    for (index, container) in items(spec, "containers").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("ports");
        for (index, port) in items(container, "ports").iter().enumerate() {
            let number = int(port, "hostPort");
            if (context.is_pod || number != 0) && number != int(port, "containerPort") {
                let path = path.index(index);
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&path.child("hostPort"), number, why);
            }
        }
    }
}

/// Checks `dnsConfig` of a pod.
pub(super) fn validate_pod_dns_config(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const SERVERS: usize = 3;
    const SEARCHES: usize = 32;
    const CHARACTERS: usize = 2048;
    let config = field(spec, "dnsConfig");
    let servers = config.map_or(&[][..], |config| items(config, "nameservers"));
    if string(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&path.child("nameservers"), why);
            return;
        }
    }
    let Some(config) = config else { return };
    let at = path.child("nameservers");
    if servers.len() > SERVERS {
        errors.invalid(&at, servers.to_vec(), &format!("must not have more than {SERVERS} nameservers"));
    }
    for (index, server) in strings(config, "nameservers").enumerate() {
        validate_ip(server, &at.index(index), errors);
    }
    let (searches, at) = (items(config, "searches"), path.child("searches"));
    if searches.len() > SEARCHES {
        errors.invalid(&at, searches.to_vec(), &format!("must not have more than {SEARCHES} search paths"));
    }
    let length = strings(config, "searches").map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
    if length > CHARACTERS {
        let why = format!("must not have more than {CHARACTERS} characters (including spaces) in the search list");
        errors.invalid(&at, searches.to_vec(), &why);
    }
    for (index, search) in strings(config, "searches").enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        validate_text(search, subdomain_with_underscore, &at.index(index), errors);
    }
    let at = path.child("options");
    for (index, option) in items(config, "options").iter().enumerate() {
        if string(option, "name").is_empty() {
            errors.required(&at.index(index), "must not be empty");
        }
    }
}

/// Checks `hostAliases` of a pod.
pub(super) fn validate_host_aliases(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = path.index(index);
        validate_ip(string(alias, "ip"), &path.child("ip"), errors);
        let path = path.child("hostnames");
        for (index, host) in strings(alias, "hostnames").enumerate() {
            validate_text(host, name::dns1123_subdomain, &path.index(index), errors);
        }
    }
}

/// Checks `hostnameOverride` of a pod.
pub(super) fn validate_hostname_override(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(host) = optional_string(spec, "hostnameOverride") else { return };
    let path = path.child("hostnameOverride");
    if boolean(spec, "setHostnameAsFQDN") {
        errors.forbidden(&path, "may not be specified when setHostnameAsFQDN is true");
    }
    if has_host_network(spec) {
        errors.forbidden(&path, "may not be specified when hostNetwork is true");
    }
    if host.len() > 64 {
        errors.too_long(&path, 64);
    }
    validate_text(host, name::dns1123_subdomain, &path, errors);
}
