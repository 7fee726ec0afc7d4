//! Certificate signing requests
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>).

mod request;

use kubewright_apimachinery::{
    name,
    status::{Cause, Status},
};
use serde_json::{Value, json};

pub(super) use self::request::common_name;
use super::{
    columns::{age, or_none, string},
    validation::{Errors, Path, field, items, optional_int, string as text_field, strings, validate_signer_name},
};
use crate::{
    auth::{Attributes, Requester, UserInfo},
    fields::{each, fill, list, remove, set, text, within},
    registry::{Column, Strategy},
    table::human_duration,
};

const GROUP: &str = "certificates.k8s.io";
/// The signer of certificates for clients of the API server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// The conditions that an update can't remove. Only the `approval` subresource changes the first two.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

/// The usages of keys.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The strategy of certificate signing requests.
#[derive(Debug)]
pub(super) struct SigningRequestStrategy;

impl Strategy for SigningRequestStrategy {
    /// Records who requests the certificate.
    fn attribute(&self, object: &mut Value, user: &UserInfo) {
        within(object, "spec", |spec| {
            for name in ["username", "uid", "groups", "extra"] {
                remove(spec, name);
            }
            let fields = [("username", json!(user.name)), ("uid", json!(user.uid)), ("groups", json!(user.groups))];
            for (name, value) in fields.into_iter().filter(|(_, value)| *value != "" && *value != json!([])) {
                set(spec, name, value);
            }
            if !user.extra.is_empty() {
                set(spec, "extra", json!(user.extra));
            }
        });
        set(object, "status", json!({}));
    }

    fn prepare_update(&self, old: &Value, new: &mut Value) {
        set(new, "spec", old["spec"].clone());
    }

    fn prepare_status(&self, part: &str, old: &Value, new: &mut Value, now: &Value) {
        let before = list(old, "/status/conditions");
        within(new, "status", |status| {
            if part == "status" {
                for kind in ["Approved", "Denied"] {
                    let of_kind = |condition: &&Value| text(condition, "/type") == kind;
                    let kept: Vec<_> = before.iter().filter(of_kind).collect();
                    let places = each(status, "conditions").filter(|condition| text(condition, "/type") == kind);
                    let places: Vec<_> = places.collect();
                    if kept.len() == places.len() {
                        places.into_iter().zip(kept).for_each(|(place, kept)| *place = kept.clone());
                    }
                }
            }
            each(status, "conditions").for_each(|condition| add_times(before, condition, now));
            if part == "approval" {
                let conditions = status.get("conditions").cloned();
                *status = old.get("status").cloned().unwrap_or_else(|| json!({}));
                match conditions {
                    Some(conditions) => set(status, "conditions", conditions),
                    None => drop(remove(status, "conditions")),
                }
            }
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| match old {
            None => validate_request(None, new, errors),
            Some(old) => validate_update(old, new, Change::Nothing, errors),
        })
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_update(old, new, Change::Certificate, errors))
    }

    fn validate_part(&self, _subresource: &str, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_update(old, new, Change::Approval, errors))
    }

    fn check_access(&self, _requester: &Requester<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        if old.is_none() && text(new, "/spec/signerName") == CLIENT_SIGNER && request::is_of_masters(&new["spec"]) {
            let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
            return Err(forbidden(new, &why));
        }
        Ok(())
    }

    fn check_status_access(
        &self,
        requester: &Requester<'_>,
        part: &str,
        old: &Value,
        new: &Value,
    ) -> Result<(), Status> {
        let verb = match part {
            "approval" => "approve",
            _ if old["status"] != new["status"] => "sign",
            _ => return Ok(()),
        };
        let signer = text(old, "/spec/signerName");
        let domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*"));
        let may = |name: &str| {
            requester.may(&Attributes {
                verb: verb.into(),
                group: GROUP.into(),
                resource: "signers".into(),
                name: name.into(),
                ..Attributes::default()
            })
        };
        if may(signer) || domain.is_some_and(|domain| may(&domain)) {
            return Ok(());
        }
        Err(forbidden(new, &format!("user not permitted to {verb} requests with signerName {signer:?}")))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::path_segment
    }
}

fn forbidden(request: &Value, why: &str) -> Status {
    Status::forbidden(GROUP, "certificatesigningrequests", text(request, "/metadata/name"), why)
}

/// Adds the times of a condition that it lacks. The time of the transition is that of the same condition before.
fn add_times(before: &[Value], condition: &mut Value, now: &Value) {
    fill(condition, "lastUpdateTime", now.clone());
    let is_same = |old: &&Value| ["type", "status"].iter().all(|name| old[*name] == condition[*name]);
    let mut times = before.iter().filter(is_same).map(|old| &old["lastTransitionTime"]);
    let time = times.find(|time| !time.is_null()).unwrap_or(now).clone();
    fill(condition, "lastTransitionTime", time);
}

/// What an update of a request can change, besides its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Approval,
    Certificate,
}

/// Checks a request. What is wrong with the old one already is allowed.
fn validate_request(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let (spec, path) = (&new["spec"], Path::new("spec"));
    if let Err(why) = request::check(text_field(spec, "request")) {
        errors.invalid(&path.child("request"), text_field(spec, "request"), why);
    }
    let at = path.child("usages");
    if items(spec, "usages").is_empty() {
        errors.required(&at, "");
    }
    // Usages don't change, so those of an old object have been checked.
    for (index, usage) in strings(spec, "usages").enumerate().filter(|_| old.is_none()) {
        if !USAGES.contains(&usage) {
            errors.not_supported(&at.index(index), usage, USAGES);
        }
    }
    let mut seen = Vec::new();
    for (index, usage) in strings(spec, "usages").enumerate().filter(|_| old.is_none()) {
        if seen.contains(&usage) {
            errors.duplicate(&at.index(index), usage);
        }
        seen.push(usage);
    }
    let signer = text_field(spec, "signerName");
    if signer == LEGACY_SIGNER && old.is_none() {
        let why = "the legacy signerName is not allowed via this API version";
        errors.invalid(&path.child("signerName"), signer, why);
    } else {
        validate_signer_name(signer, &path.child("signerName"), errors);
    }
    if let Some(seconds) = optional_int(spec, "expirationSeconds").filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.child("expirationSeconds"), seconds, why);
    }
    validate_conditions(old, new, errors);
    let certificate = text_field(&new["status"], "certificate");
    if old.is_none_or(|old| text_field(&old["status"], "certificate") != certificate)
        && let Err(why) = request::check_certificates(certificate)
    {
        errors.invalid(&Path::new("status.certificate"), "<certificate data>", &why);
    }
}

fn validate_conditions(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let path = Path::new("status.conditions");
    let types = |request: &'_ Value| -> Vec<String> {
        list(request, "/status/conditions").iter().map(|condition| text(condition, "/type").to_owned()).collect()
    };
    let before = old.map(types).unwrap_or_default();
    let had = |kind: &str| before.iter().any(|known| known == kind);
    let had_twice = before.iter().enumerate().any(|(index, kind)| before[..index].contains(kind));
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in list(new, "/status/conditions").iter().enumerate() {
        let path = path.index(index);
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        if kind.is_empty() && !had("") {
            errors.required(&path.child("type"), "");
        }
        let allowed: &[&str] = if FINAL.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.required(&path.child("status"), "");
        } else if !allowed.contains(&status) {
            errors.not_supported(&path.child("status"), status, allowed);
        }
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && seen.contains(&opposite) && !(had("Approved") && had("Denied")) {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(&Path::new("status.conditions"), kind, why);
        }
        if seen.contains(&kind) && !had_twice {
            errors.duplicate(&path.child("type"), kind);
        }
        seen.push(kind);
    }
}

fn validate_update(old: &Value, new: &Value, change: Change, errors: &mut Errors) {
    validate_request(Some(old), new, errors);
    let path = Path::new("status.conditions");
    let of = |request: &'_ Value, kind: &str| -> Vec<Value> {
        let conditions = list(request, "/status/conditions").iter();
        conditions.filter(|condition| text(condition, "/type") == kind).cloned().collect()
    };
    for kind in FINAL {
        if of(new, kind).len() < of(old, kind).len() {
            errors.forbidden(&path, &format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in FINAL[..2].iter().filter(|_| change != Change::Approval) {
        let (before, after) = (of(old, kind), of(new, kind));
        if after.len() > before.len() {
            errors.forbidden(&path, &format!("updates may not add a condition of type {kind:?}"));
        } else if after.len() == before.len() && after != before {
            errors.forbidden(&path, &format!("updates may not modify a condition of type {kind:?}"));
        }
    }
    let [before, after] = [old, new].map(|request| text_field(&request["status"], "certificate"));
    if before != after {
        let path = Path::new("status.certificate");
        if change != Change::Certificate {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !before.is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        age(),
        string("SignerName", |object, _| or_none(text(object, "/spec/signerName")).into()),
        string("Requestor", |object, _| text(object, "/spec/username").into()),
        string("RequestedDuration", |object, _| match optional_int(&object["spec"], "expirationSeconds") {
            Some(seconds) => human_duration(jiff::SignedDuration::from_secs(seconds)).into(),
            None => super::columns::NONE.into(),
        }),
        string("Condition", |object, _| {
            let has = |kind: &str| list(object, "/status/conditions").iter().any(|one| text(one, "/type") == kind);
            let mut state = match (has("Denied"), has("Approved")) {
                (true, _) => "Denied",
                (_, true) => "Approved",
                _ => "Pending",
            }
            .to_owned();
            if has("Failed") {
                state += ",Failed";
            }
            if field(&object["status"], "certificate").is_some() {
                state += ",Issued";
            }
            state.into()
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(conditions: Value, certificate: &str) -> Value {
        json!({
            "spec": {"request": request::tests::valid(), "signerName": "example.com/s", "usages": ["client auth"]},
            "status": {"conditions": conditions, "certificate": certificate},
        })
    }

    #[track_caller]
    fn check(change: Change, old: &Value, new: &Value, expect: &[&str]) {
        let found = Errors::collect(|errors| validate_update(old, new, change, errors));
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn only_the_approval_approves() {
        let (pending, approved) =
            (request(json!([]), ""), request(json!([{"type": "Approved", "status": "True"}]), ""));
        check(Change::Approval, &pending, &approved, &[]);
        let why = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
        check(Change::Certificate, &pending, &approved, &[why]);
        let why = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
        check(Change::Approval, &approved, &pending, &[why]);
        let both = json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]);
        let why = "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
        check(Change::Approval, &pending, &request(both, ""), &[why]);
    }

    #[test]
    fn a_certificate_is_set_once_by_the_status() {
        let pending = request(json!([]), "");
        let why = "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block";
        check(Change::Certificate, &pending, &request(json!([]), "aGVsbG8="), &[why]);
    }

    #[test]
    fn conditions_get_their_times() {
        let now = json!("2026-01-02T00:00:00Z");
        let old = request(json!([{"type": "A", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]), "");
        let mut new = request(json!([{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]), "x");
        SigningRequestStrategy.prepare_status("approval", &old, &mut new, &now);
        let conditions = &new["status"]["conditions"];
        assert_eq!(conditions[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(conditions[1]["lastTransitionTime"], now);
        assert_eq!(new["status"]["certificate"], "");
    }

    #[test]
    fn the_requester_is_recorded() {
        let mut new = json!({"spec": {"username": "other", "groups": ["g"]}});
        SigningRequestStrategy.attribute(&mut new, &UserInfo::new("jane", ["dev"]));
        assert_eq!(new["spec"], json!({"username": "jane", "groups": ["dev"]}));
    }
}
