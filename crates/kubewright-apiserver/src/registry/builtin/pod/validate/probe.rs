//! Probes, and the handlers of a container's life cycle.

use serde_json::Value;

use super::ContainerContext;
use crate::registry::builtin::validation::{
    Errors, Path, field, http_header, int, items, optional_int, optional_string, string, validate_nonnegative,
    validate_port_number_or_name, validate_text,
};

/// Checks a liveness or startup probe.
pub(super) fn validate_liveness_probe(probe: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_probe(probe, path, errors);
    let threshold = int(probe, "successThreshold");
    if threshold != 1 {
        errors.invalid(&path.child("successThreshold"), threshold, "must be 1");
    }
}

/// Checks a readiness probe.
pub(super) fn validate_readiness_probe(probe: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_probe(probe, path, errors);
    if let Some(seconds) = optional_int(probe, "terminationGracePeriodSeconds") {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, "must not be set for readinessProbes");
    }
}

fn validate_probe(probe: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], None, path, errors);
    for name in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        validate_nonnegative(int(probe, name), &path.child(name), errors);
    }
    if let Some(seconds) = optional_int(probe, "terminationGracePeriodSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

/// Checks that there is exactly one of several handlers, and this one.
fn validate_handler(handler: &Value, kinds: &[&str], grace_period: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let mut handlers = 0;
    for kind in kinds {
        let Some(action) = field(handler, kind) else { continue };
        handlers += 1;
        if handlers > 1 {
            errors.forbidden(&path.child(kind), "may not specify more than 1 handler type");
            continue;
        }
        let path = path.child(kind);
        match *kind {
            "exec" if items(action, "command").is_empty() => errors.required(&path.child("command"), ""),
            "httpGet" => validate_http_get_action(action, &path, errors),
            "tcpSocket" | "grpc" => validate_port_number_or_name(&action["port"], &path.child("port"), errors),
            "sleep" => validate_sleep_action(action, grace_period, &path, errors),
            _ => {}
        }
    }
    if handlers == 0 {
        errors.required(path, "must specify a handler type");
    }
}

fn validate_http_get_action(action: &Value, path: &Path<'_>, errors: &mut Errors) {
    const SCHEMES: &[&str] = &["HTTP", "HTTPS"];
    if string(action, "path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    validate_port_number_or_name(&action["port"], &path.child("port"), errors);
    let scheme = string(action, "scheme");
    if !SCHEMES.contains(&scheme) {
        errors.not_supported(&path.child("scheme"), scheme, SCHEMES);
    }
    for header in items(action, "httpHeaders") {
        validate_text(string(header, "name"), http_header, &path.child("httpHeaders"), errors);
    }
}

fn validate_sleep_action(action: &Value, grace_period: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let seconds = int(action, "seconds");
    if let Some(limit) = grace_period
        && !(0..=limit).contains(&seconds)
    {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({limit})");
        errors.invalid(path, seconds, &why);
    }
}

/// Checks the handlers of a container's life cycle.
pub(super) fn validate_lifecycle(
    lifecycle: &Value,
    context: &ContainerContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for name in ["postStart", "preStop"] {
        if let Some(handler) = field(lifecycle, name) {
            let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
            validate_handler(handler, &kinds, context.grace_period, &path.child(name), errors);
        }
    }
    if optional_string(lifecycle, "stopSignal").is_some() && context.os.is_none() {
        let why = "may not be set for containers with empty `spec.os.name`";
        errors.forbidden(&path.child("stopSignal"), why);
    }
}
