//! Validation of network policies.

use std::collections::BTreeSet;

use kubewright_apimachinery::{cidr::Cidr, name};
use serde_json::Value;

use crate::registry::builtin::validation::{
    Errors, Path, cidr_warnings, field, items, optional_int, optional_string, string, strings, validate_cidr,
    validate_label_selector, validate_port_number, validate_text,
};

const SPEC: Path<'static> = Path::new("spec");

/// Checks a network policy. Malformed ranges of the old one stay valid.
pub(super) fn validate_network_policy(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    let existing: BTreeSet<_> = old.into_iter().flat_map(|old| ranges(&old["spec"])).collect();
    validate_label_selector(&spec["podSelector"], &SPEC.child("podSelector"), errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = SPEC.child(rules);
        for (index, rule) in items(spec, rules).iter().enumerate() {
            let path = path.index(index);
            let at = path.child("ports");
            for (index, port) in items(rule, "ports").iter().enumerate() {
                validate_port(port, &at.index(index), errors);
            }
            let at = path.child(peers);
            for (index, peer) in items(rule, peers).iter().enumerate() {
                validate_peer(peer, &existing, &at.index(index), errors);
            }
        }
    }
    let path = SPEC.child("policyTypes");
    let types = items(spec, "policyTypes");
    if types.len() > 2 {
        errors.invalid(&path, types.to_vec(), "may not specify more than two policyTypes");
        return;
    }
    for (index, kind) in strings(spec, "policyTypes").enumerate() {
        if !["Ingress", "Egress"].contains(&kind) {
            errors.not_supported(&path.index(index), kind, &["Ingress", "Egress"]);
        }
    }
}

/// Returns the warnings about the address ranges of a network policy.
pub(super) fn network_policy_warnings(policy: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = SPEC.child(rules);
        for (index, rule) in items(&policy["spec"], rules).iter().enumerate() {
            let path = path.index(index);
            let path = path.child(peers);
            for (index, peer) in items(rule, peers).iter().enumerate() {
                let Some(block) = field(peer, "ipBlock") else { continue };
                let path = path.index(index);
                let path = path.child("ipBlock");
                warnings.extend(cidr_warnings(string(block, "cidr"), &path.child("cidr")));
                let path = path.child("except");
                for (index, except) in strings(block, "except").enumerate() {
                    warnings.extend(cidr_warnings(except, &path.index(index)));
                }
            }
        }
    }
    warnings
}

/// Returns the address ranges of a policy.
fn ranges(spec: &Value) -> Vec<&str> {
    let peers = [("ingress", "from"), ("egress", "to")]
        .into_iter()
        .flat_map(|(rules, peers)| items(spec, rules).iter().flat_map(move |rule| items(rule, peers)));
    peers.flat_map(|peer| strings(&peer["ipBlock"], "except").chain([string(&peer["ipBlock"], "cidr")])).collect()
}

fn validate_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];
    if let Some(protocol) = optional_string(port, "protocol").filter(|protocol| !PROTOCOLS.contains(protocol)) {
        errors.not_supported(&path.child("protocol"), protocol, PROTOCOLS);
    }
    let (end, at) = (optional_int(port, "endPort"), path.child("endPort"));
    match field(port, "port") {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(&at, end, "may not be specified when `port` is non-numeric");
            }
            validate_text(name, name::port_name, &path.child("port"), errors);
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or_default();
            validate_port_number(number, &path.child("port"), errors);
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&at, number, "must be greater than or equal to `port`");
                }
                validate_port_number(end, &at, errors);
            }
        }
        None => {
            if let Some(end) = end {
                errors.invalid(&at, end, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn validate_peer(peer: &Value, existing: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let mut peers = 0;
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = field(peer, name) {
            peers += 1;
            validate_label_selector(selector, &path.child(name), errors);
        }
    }
    let block = field(peer, "ipBlock");
    if let Some(block) = block {
        peers += 1;
        validate_ip_block(block, existing, &path.child("ipBlock"), errors);
    }
    if peers == 0 {
        errors.required(path, "must specify a peer");
    } else if peers > 1 && block.is_some() {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn validate_ip_block(block: &Value, existing: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let text = string(block, "cidr");
    if text.is_empty() {
        errors.required(&path.child("cidr"), "");
        return;
    }
    if !existing.contains(text) {
        validate_cidr(text, &path.child("cidr"), errors);
    }
    let Some(range) = Cidr::parse(text) else { return };
    let path = path.child("except");
    for (index, text) in strings(block, "except").enumerate() {
        if !existing.contains(text) {
            validate_cidr(text, &path.index(index), errors);
        }
        let Some(except) = Cidr::parse(text) else { continue };
        if !range.contains(except.address) || range.length >= except.length {
            errors.invalid(&path.index(index), text, "must be a strict subset of `cidr`");
        }
    }
}
