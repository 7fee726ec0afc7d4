//! The removal of signing requests that are denied, failed, issued, or pending for long.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::certificate::Certificate;
use kubewright_apiserver::Change;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;

use super::{
    super::{
        reconcile::{Controller, Key, Plan, Step},
        value::{list, text, time},
    },
    REQUEST, is_issued, take,
};

/// The time for which finished requests are kept: issued, denied or failed ones.
const FINISHED: SignedDuration = SignedDuration::from_hours(1);
/// The time for which requests are kept that are waiting for an approval or for the certificate.
const PENDING: SignedDuration = SignedDuration::from_hours(24);

/// All signing requests, by name.
#[derive(Debug, Default)]
pub(crate) struct StaleRequests(BTreeMap<String, Arc<Value>>);

impl Controller for StaleRequests {
    fn reset(&mut self) {
        self.0.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        take(&mut self.0, change)
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(request) = self.0.get(&key.name) else { return Plan::default() };
        let mut plan = Plan::of(&REQUEST, request);
        match deadline(request) {
            Some(deadline) if now > deadline => plan.steps.push(Step::delete(&REQUEST, request)),
            Some(deadline) => {
                let rest = Duration::try_from(deadline.duration_since(now)).unwrap_or_default();
                plan.requeue_after(rest + Duration::from_millis(1));
            }
            None => {}
        }
        plan
    }
}

/// Returns the time after which a request is removed.
fn deadline(request: &Value) -> Option<Timestamp> {
    let conditions = list(request, "/status/conditions");
    if conditions.is_empty() {
        return time(request, "/metadata/creationTimestamp")?.checked_add(PENDING).ok();
    }
    let of_condition = |condition: &Value| {
        let kept = match text(condition, "/type") {
            "Denied" | "Failed" => FINISHED,
            "Approved" if is_issued(request) => FINISHED,
            "Approved" => PENDING,
            _ => return None,
        };
        time(condition, "/lastUpdateTime")?.checked_add(kept).ok()
    };
    let is_approved = conditions.iter().any(|condition| text(condition, "/type") == "Approved");
    let expired = is_approved.then(|| expiry(request)).flatten();
    conditions.iter().filter_map(of_condition).chain(expired).min()
}

/// Returns the time at which the issued certificate expires.
fn expiry(request: &Value) -> Option<Timestamp> {
    let pem = STANDARD.decode(text(request, "/status/certificate")).ok()?;
    Some(Certificate::parse(&CertificateDer::from_pem_slice(&pem).ok()?)?.not_after)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use serde_json::json;

    use super::{super::learn, *};

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// Checks the time at which a request of the beginning of 2026 is removed.
    #[track_caller]
    fn check(status: Value, expect: &str) {
        let metadata = json!({"name": "r", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let mut cleaner = StaleRequests::default();
        let request = Arc::new(json!({"metadata": metadata, "status": status}));
        let keys = learn(&mut cleaner.0, &request, false);
        let plan = cleaner.decide(&keys[0], at(expect));
        assert_eq!((plan.steps, plan.requeue_after), (Vec::new(), Some(Duration::from_millis(1))));
        let plan = cleaner.decide(&keys[0], at(expect) + Duration::from_millis(1));
        assert_eq!(plan.steps, [Step::delete(&REQUEST, &request)]);
        assert_eq!(learn(&mut cleaner.0, &request, true), []);
        assert_eq!(cleaner.decide(&keys[0], at(expect)), Plan::default());
    }

    #[test]
    fn requests_are_removed_after_their_time() {
        let condition =
            |kind: &str| json!([{"type": kind, "status": "True", "lastUpdateTime": "2026-01-02T00:00:00Z"}]);
        check(json!({}), "2026-01-02T00:00:00Z");
        check(json!({"conditions": condition("Denied")}), "2026-01-02T01:00:00Z");
        check(json!({"conditions": condition("Failed")}), "2026-01-02T01:00:00Z");
        check(json!({"conditions": condition("Approved")}), "2026-01-03T00:00:00Z");
        let issued = |end| {
            let mut params = CertificateParams::new(Vec::new()).expect("parameters");
            params.not_after = end;
            let certificate = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
            json!({"conditions": condition("Approved"), "certificate": STANDARD.encode(certificate.pem())})
        };
        check(issued(date_time_ymd(2030, 1, 1)), "2026-01-02T01:00:00Z");
        check(issued(date_time_ymd(2025, 6, 1)), "2025-06-01T00:00:00Z");
    }
}
