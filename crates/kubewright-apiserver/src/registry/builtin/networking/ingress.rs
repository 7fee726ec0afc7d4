//! Validation of ingresses.

use std::net::IpAddr;

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::validation::{
    Errors, Path, entry, field, int, items, optional_string, string, strings, validate_ip, validate_port_number,
    validate_required_name, validate_text, wildcard_subdomain,
};

const SPEC: Path<'static> = Path::new("spec");
/// The annotation that preceded `ingressClassName`.
const CLASS: &str = "kubernetes.io/ingress.class";

/// Checks an ingress.
pub(super) fn validate_ingress(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    let (rules, backend) = (items(spec, "rules"), field(spec, "defaultBackend"));
    if rules.is_empty() && backend.is_none() {
        let shown = spec.get("rules").cloned().unwrap_or_default();
        errors.invalid(&SPEC, shown, "either `defaultBackend` or `rules` must be specified");
    }
    if let Some(backend) = backend {
        validate_backend(backend, &SPEC.child("defaultBackend"), errors);
    }
    let path = SPEC.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(rule, &path.index(index), errors);
    }
    validate_tls(spec, errors);
    let class = optional_string(spec, "ingressClassName");
    if let Some(class) = class {
        validate_text(class, name::dns1123_subdomain, &SPEC.child("ingressClassName"), errors);
    }
    if let (None, Some(class), Some(annotation)) = (old, class, entry(&new["metadata"], "annotations", CLASS))
        && class != annotation
    {
        let path = Path::new("annotations");
        errors.invalid(&path.child(CLASS), annotation, "must match `ingressClassName` when both are specified");
    }
}

/// Checks the addresses and names in the status. Malformed addresses of the old one stay valid.
pub(super) fn validate_ingress_status(old: &Value, new: &Value, errors: &mut Errors) {
    let old = items(&old["status"]["loadBalancer"], "ingress");
    let existing: Vec<_> = old.iter().map(|ingress| string(ingress, "ip")).collect();
    let path = Path::new("status.loadBalancer.ingress");
    for (index, ingress) in items(&new["status"]["loadBalancer"], "ingress").iter().enumerate() {
        let path = path.index(index);
        let (ip, host) = (string(ingress, "ip"), string(ingress, "hostname"));
        if !ip.is_empty() && !existing.contains(&ip) {
            validate_ip(ip, &path.child("ip"), errors);
        }
        if !host.is_empty() {
            let path = path.child("hostname");
            validate_text(host, name::dns1123_subdomain, &path, errors);
            if host.parse::<IpAddr>().is_ok() {
                errors.invalid(&path, host, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// Returns the warnings about a new ingress.
pub(super) fn ingress_warnings(ingress: &Value) -> Vec<String> {
    let class = optional_string(&ingress["spec"], "ingressClassName");
    if class.is_some() || entry(&ingress["metadata"], "annotations", CLASS).is_none() {
        return Vec::new();
    }
    vec![format!("annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead")]
}

fn validate_host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    let rule = if host.contains('*') { wildcard_subdomain } else { name::dns1123_subdomain };
    validate_text(host, rule, path, errors);
}

fn validate_tls(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("tls");
    for (index, tls) in items(spec, "tls").iter().enumerate() {
        let path = path.index(index);
        let hosts = path.child("hosts");
        for (index, host) in strings(tls, "hosts").enumerate() {
            validate_host(host, &hosts.index(index), errors);
        }
        let secret = string(tls, "secretName");
        if !secret.is_empty() {
            validate_text(secret, name::dns1123_subdomain, &path.child("secretName"), errors);
        }
    }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (host, at) = (string(rule, "host"), path.child("host"));
    if !host.is_empty() {
        if host.parse::<IpAddr>().is_ok() {
            errors.invalid(&at, host, "must be a DNS name, not an IP address");
        }
        validate_host(host, &at, errors);
    }
    let Some(http) = field(rule, "http") else { return };
    let path = path.child("http");
    let path = path.child("paths");
    let paths = items(http, "paths");
    if paths.is_empty() {
        errors.required(&path, "");
    }
    for (index, item) in paths.iter().enumerate() {
        validate_path(item, &path.index(index), errors);
    }
}

fn validate_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
    let Some(kind) = optional_string(item, "pathType") else {
        errors.required(&path.child("pathType"), "pathType must be specified");
        return;
    };
    let (text, at) = (string(item, "path"), path.child("path"));
    let absolute = text.starts_with('/');
    match kind {
        "Exact" | "Prefix" => {
            if !absolute {
                errors.invalid(&at, text, "must be an absolute path");
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(sequence) {
                    errors.invalid(&at, text, &format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if text.ends_with(suffix) {
                    errors.invalid(&at, text, &format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !absolute {
                errors.invalid(&at, text, "must be an absolute path");
            }
        }
        other => errors.not_supported(&path.child("pathType"), other, TYPES),
    }
    validate_backend(&item["backend"], &path.child("backend"), errors);
}

fn validate_backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (field(backend, "resource"), field(backend, "service")) {
        (Some(_), Some(_)) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (Some(resource), None) => validate_resource(resource, &path.child("resource"), errors),
        (None, Some(service)) => validate_service_backend(service, path, errors),
        (None, None) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn validate_service_backend(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("service");
    validate_required_name(string(service, "name"), name::dns1123_label, &at.child("name"), errors);
    let (name, number) = (string(&service["port"], "name"), int(&service["port"], "number"));
    let at = at.child("port");
    match (name, number) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => validate_port_number(number, &at.child("number"), errors),
        (name, 0) => validate_text(name, name::port_name, &at.child("name"), errors),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn validate_resource(resource: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = optional_string(resource, "apiGroup") {
        validate_text(group, name::dns1123_subdomain, &path.child("apiGroup"), errors);
    }
    for field in ["kind", "name"] {
        validate_required_name(string(resource, field), name::path_segment, &path.child(field), errors);
    }
}
