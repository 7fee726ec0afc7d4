//! The certificates of approved signing requests
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>).

pub(crate) mod approver;
pub(crate) mod cleaner;
mod signer;
#[cfg(test)]
mod tests;
mod usage;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::{
    certificate::{CertificateRequest, CertificateTemplate},
    random::Random,
};
use kubewright_apiserver::{CertificateAuthority, Change, ChangeKind};
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject};
use serde_json::{Value, json};

use self::{signer::Signer, usage::Usages};
use super::{
    kind::Kind,
    reconcile::{Controller, Key, Plan, Step},
    value::{condition, list, number, stamp, text},
};

const REQUEST: Kind =
    Kind { group: "certificates.k8s.io", kind: "CertificateSigningRequest", plural: "certificatesigningrequests" };

/// The time for which certificates are valid at most, and if a request doesn't say.
const VALIDITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The shortest time for which certificates are valid.
const MIN_VALIDITY: SignedDuration = SignedDuration::from_mins(10);
/// The time by which certificates are backdated, for holders whose clocks are behind.
const BACKDATING: SignedDuration = SignedDuration::from_mins(5);
/// Certificates that are valid for less than this end as late as requested, although they are backdated.
const SHORT_VALIDITY: SignedDuration = SignedDuration::from_hours(8);
/// The delay after which signing is tried again if it fails.
const RETRY: Duration = Duration::from_secs(60);

/// All signing requests, by name, and what signs them.
#[derive(Debug)]
pub(crate) struct SigningRequests {
    requests: BTreeMap<String, Arc<Value>>,
    authority: Arc<CertificateAuthority>,
    random: Random,
}

impl SigningRequests {
    pub(crate) fn new(authority: Arc<CertificateAuthority>, random: Random) -> Self {
        Self { requests: BTreeMap::new(), authority, random }
    }

    /// Returns the status of a request that is to be signed; `None` if it isn't for these signers.
    ///
    /// # Errors
    /// If the certificate can't be signed.
    fn status(&self, request: &Value, now: Timestamp) -> Result<Option<Value>, String> {
        let Some(signer) = Signer::named(text(request, "/spec/signerName")) else { return Ok(None) };
        // The API server has checked both.
        let Some(requested) = requested(request) else { return Ok(None) };
        let names: Vec<_> = list(request, "/spec/usages").iter().filter_map(Value::as_str).collect();
        let Some(usages) = Usages::named(&names) else { return Ok(None) };
        if let Err(message) = signer.check(&requested, &names) {
            let mut conditions = list(request, "/status/conditions").to_vec();
            conditions.push(json!({
                "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": message,
                "lastUpdateTime": stamp(now),
            }));
            return Ok(Some(json!({"conditions": conditions})));
        }
        let (not_before, not_after) = validity(number(request, "/spec/expirationSeconds"), now)?;
        let template = CertificateTemplate {
            serial: [self.random.u64(), self.random.u64()].map(u64::to_be_bytes).concat(),
            not_before,
            not_after,
            subject: requested.subject,
            public_key_info: requested.public_key_info,
            key_usages: usages.key,
            extended_key_usages: usages.extended,
            alternative_names: requested.alternative_names,
        };
        let certificate = self.authority.sign(&template).map_err(|error| error.to_string())?;
        Ok(Some(json!({"certificate": STANDARD.encode(certificate)})))
    }
}

impl Controller for SigningRequests {
    fn reset(&mut self) {
        self.requests.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        take(&mut self.requests, change)
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(request) = self.requests.get(&key.name).filter(|request| is_waiting(request)) else {
            return Plan::default();
        };
        let mut plan = Plan::of(&REQUEST, request);
        match self.status(request, now) {
            Ok(None) => {}
            Ok(Some(status)) => {
                // An approval must not be lost.
                let metadata = &request["metadata"];
                let known = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
                let patch = json!({"metadata": known, "status": status});
                plan.steps.push(Step::Merge(REQUEST.address("", &key.name), "/status", patch));
            }
            Err(error) => {
                tracing::warn!(error, name = key.name, "failed to sign a certificate");
                plan.requeue_after(RETRY);
            }
        }
        plan
    }
}

/// Processes a change, if it is one of a request.
fn take(requests: &mut BTreeMap<String, Arc<Value>>, change: &Change) -> Vec<Key> {
    if !REQUEST.is_of(change) {
        return Vec::new();
    }
    learn(requests, change.object(), change.kind == ChangeKind::Deleted)
}

/// Keeps a request, or forgets one that is gone. Returns the key of one that is there.
fn learn(requests: &mut BTreeMap<String, Arc<Value>>, request: &Arc<Value>, gone: bool) -> Vec<Key> {
    let name = text(request, "/metadata/name");
    if gone {
        requests.remove(name);
        return Vec::new();
    }
    requests.insert(name.into(), request.clone());
    vec![Key { namespace: String::new(), name: name.into() }]
}

/// Returns whether a request is approved and neither signed nor failed.
fn is_waiting(request: &Value) -> bool {
    let failed = condition(request, "Failed").is_some_and(|failed| matches!(text(failed, "/status"), "" | "True"));
    condition(request, "Approved").is_some() && condition(request, "Denied").is_none() && !failed && !is_issued(request)
}

fn is_issued(request: &Value) -> bool {
    !text(request, "/status/certificate").is_empty()
}

/// Returns the content of a request; `None` if it can't be read.
fn requested(request: &Value) -> Option<CertificateRequest> {
    let pem = STANDARD.decode(text(request, "/spec/request")).ok()?;
    CertificateRequest::parse(&CertificateSigningRequestDer::from_pem_slice(&pem).ok()?)
}

/// Returns the times between which a certificate is valid, for a requested number of seconds.
///
/// # Errors
/// If they can't be expressed.
fn validity(seconds: Option<i64>, now: Timestamp) -> Result<(Timestamp, Timestamp), String> {
    let duration = seconds.map_or(VALIDITY, |seconds| SignedDuration::from_secs(seconds).clamp(MIN_VALIDITY, VALIDITY));
    let end = if duration < SHORT_VALIDITY { duration } else { duration - BACKDATING };
    let at = |offset: SignedDuration| now.checked_add(offset).map_err(|error| error.to_string());
    Ok((at(-BACKDATING)?, at(end)?))
}
