//! Warnings about services that are valid but hardly intended.

use serde_json::Value;

use crate::registry::builtin::validation::{Path, cidr_warnings, entry, ip_warning, items, string, strings};

/// Returns the warnings about a service.
pub(super) fn of_service(service: &Value) -> Vec<String> {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let (spec, path) = (&service["spec"], Path::new("spec"));
    let kind = string(spec, "type");
    let headless = kind == "ClusterIP" && string(spec, "clusterIP") == "None";
    let has_external = !items(spec, "externalIPs").is_empty();
    let mut warnings = Vec::new();
    let mut warn = |text: String| warnings.push(text);
    if entry(&service["metadata"], "annotations", HINTS).is_some() {
        warn(format!("annotation {HINTS} is deprecated, please use {MODE} instead"));
    }
    if !string(spec, "clusterIP").is_empty() && string(spec, "clusterIP") != "None" {
        let path = path.child("clusterIPs");
        strings(spec, "clusterIPs")
            .enumerate()
            .filter_map(|(at, one)| ip_warning(one, &path.index(at)))
            .for_each(&mut warn);
    }
    if headless {
        if !string(spec, "loadBalancerIP").is_empty() {
            warn("spec.loadBalancerIP is ignored for headless services".into());
        }
        if has_external {
            warn("spec.externalIPs is ignored for headless services".into());
        }
        if string(spec, "sessionAffinity") != "None" {
            warn("spec.SessionAffinity is ignored for headless services".into());
        }
    }
    let external = path.child("externalIPs");
    strings(spec, "externalIPs")
        .enumerate()
        .filter_map(|(at, one)| ip_warning(one, &external.index(at)))
        .for_each(&mut warn);
    if has_external && !headless && kind != "ExternalName" {
        warn("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    ip_warning(string(spec, "loadBalancerIP"), &path.child("loadBalancerIP")).into_iter().for_each(&mut warn);
    let ranges = path.child("loadBalancerSourceRanges");
    strings(spec, "loadBalancerSourceRanges")
        .enumerate()
        .flat_map(|(at, one)| cidr_warnings(one, &ranges.index(at)))
        .for_each(&mut warn);
    if kind == "ExternalName" && has_external {
        warn("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if kind != "ExternalName" && !string(spec, "externalName").is_empty() {
        warn("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if string(spec, "trafficDistribution") == "PreferClose" {
        warn("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    warnings
}
