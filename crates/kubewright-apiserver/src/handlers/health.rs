//! Health checks (<https://kubernetes.io/docs/reference/using-api/health-checks/>) and their metrics.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;

use super::query::Query;
use crate::response::{self, Response};

const PROCESS_START_TIME: HeaderName = HeaderName::from_static("process-start-time-unix");
/// The paths under which checks are run.
pub(crate) const PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// The checks before and after the hooks, with whether they are only about liveness or only about readiness.
const FIRST: [(&str, Option<bool>); 6] = [
    ("ping", None),
    ("log", None),
    ("loopback-serving-certificate", Some(false)),
    ("etcd", None),
    ("etcd-readiness", Some(true)),
    ("informer-sync", Some(true)),
];
/// The hooks of a start, which have been run when this server answers. Clients wait for some of them by name.
const HOOKS: [&str; 29] = [
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
    "apiservice-openapi-controller",
    "apiservice-openapiv3-controller",
];
/// The hook that is followed by the check of registered APIServices.
const REGISTRATION: &str = "kube-apiserver-autoregistration";

/// Returns the names of the checks of a path, in Kubernetes' order.
pub(crate) fn checks(path: &str) -> Vec<String> {
    let is_readiness = path == "/readyz";
    let first = FIRST.iter().filter(|(_, only)| only.is_none_or(|readiness| readiness == is_readiness));
    let mut checks: Vec<String> = first.map(|(name, _)| (*name).to_owned()).collect();
    for hook in HOOKS {
        checks.push(format!("poststarthook/{hook}"));
        if hook == REGISTRATION {
            checks.push("autoregister-completion".into());
        }
    }
    checks.extend(is_readiness.then(|| "shutdown".into()));
    checks
}

/// The number of times that the checks of each path were run, in the order of [`PATHS`].
#[derive(Debug, Default)]
pub(crate) struct HealthCounts([AtomicU64; PATHS.len()]);

impl HealthCounts {
    /// Runs the checks of a path, and returns the results that the client wants.
    pub(super) fn respond(&self, path: &str, query: &Query) -> Response {
        for (known, count) in PATHS.iter().zip(&self.0) {
            count.fetch_add(u64::from(*known == path), Ordering::Relaxed);
        }
        let mut response = response::plain(StatusCode::OK, results(path, query));
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    /// Returns `/metrics/slis`, or resets it.
    pub(super) fn metrics(&self, method: &Method, started: Timestamp) -> Response {
        if *method == Method::DELETE {
            self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
            return response::plain(StatusCode::OK, "metrics reset\n".to_owned());
        }
        let mut rows = BTreeSet::new();
        for (path, count) in PATHS.iter().zip(&self.0) {
            let (kind, count) = (path.trim_start_matches('/'), count.load(Ordering::Relaxed));
            rows.extend(checks(path).into_iter().filter(|_| count > 0).map(|check| (check, kind, count)));
        }
        let mut text = String::new();
        if !rows.is_empty() {
            text += "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n\
                     # TYPE kubernetes_healthcheck gauge\n";
            for (check, kind, _) in &rows {
                text += &format!("kubernetes_healthcheck{{name=\"{check}\",type=\"{kind}\"}} 1\n");
            }
            text += "# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.\n\
                     # TYPE kubernetes_healthchecks_total counter\n";
            for (check, kind, count) in &rows {
                let labels = format!("name=\"{check}\",status=\"success\",type=\"{kind}\"");
                text += &format!("kubernetes_healthchecks_total{{{labels}}} {count}\n");
            }
        }
        metrics_text(text, started)
    }
}

/// Returns a response with the text of metrics of a server that was started at a time.
pub(super) fn metrics_text(text: impl Into<crate::body::Body>, started: Timestamp) -> Response {
    let mut response = response::bytes(StatusCode::OK, text);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().insert(PROCESS_START_TIME, HeaderValue::from(started.as_second()));
    response
}

/// Returns the result of one check.
pub(super) fn single() -> Response {
    response::plain(StatusCode::OK, "ok".to_owned())
}

fn results(path: &str, query: &Query) -> String {
    // As in Kubernetes, the value doesn't matter.
    if query.flag("verbose").is_none() {
        return "ok".into();
    }
    let (checks, excluded) = (checks(path), query.values("exclude"));
    let mut text = String::new();
    for check in &checks {
        text += &format!("[+]{check} {}\n", if excluded.contains(&check.as_str()) { "excluded: ok" } else { "ok" });
    }
    let is_known = |name: &str| checks.iter().any(|check| check == name);
    let unknown: BTreeSet<_> = excluded.into_iter().filter(|name| !is_known(name)).collect();
    if !unknown.is_empty() {
        let names = unknown.iter().map(|check| format!("{check:?}")).collect::<Vec<_>>().join(", ");
        text += &format!("warn: some health checks cannot be excluded: no matches for {names}\n");
    }
    text + &format!("{} check passed\n", path.trim_start_matches('/'))
}
