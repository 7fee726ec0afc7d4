//! Service account tokens: their claims, and the users that they identify
//! (<https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::user::{CREDENTIAL_ID, UserInfo, service_account_name};
use crate::{
    fields::{has, list, text},
    meta,
};

/// The lifetime of a token in seconds: the default, the minimum and the maximum.
const LIFETIME: (i64, i64, i64) = (3_600, 600, 1 << 32);
/// The time for which a token remains valid after the deletion of its object was requested, since pods use it during
/// shutdown.
const DELETION_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// The storage of service accounts, and of Secrets.
pub(super) const ACCOUNTS: &str = "/serviceaccounts";
pub(crate) const SECRETS: &str = "/secrets";
/// The kinds that tokens can be bound to: kind, storage, whether it is namespaced, and the claim that names the object.
const BINDABLE: [(&str, &str, bool, &str); 3] =
    [("Pod", "/pods", true, "pod"), ("Secret", SECRETS, true, "secret"), ("Node", "/nodes", false, "node")];

/// Finds an object by its storage, namespace and name.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Arc<Value>>;

/// The contents of an unsigned token.
#[derive(Debug)]
pub(crate) struct TokenSpec {
    pub(crate) claims: Value,
    /// The request's `spec` with its defaults.
    pub(crate) spec: Value,
    /// The lifetime in seconds.
    pub(crate) seconds: i64,
}

/// Sets the audiences of a `TokenRequest` without any.
pub(crate) fn default_audiences(request: &mut Value, audiences: &[String]) {
    let Some(fields) = request.as_object_mut() else { return };
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    if spec.is_null() {
        *spec = json!({});
    }
    if spec.is_object() && list(spec, "/audiences").is_empty() {
        spec["audiences"] = json!(audiences);
    }
}

/// Returns the contents of the token for a `TokenRequest`, with the default audiences and an identifier.
///
/// # Errors
/// Returns 400, 404, 409 or 422 for invalid requests.
pub(crate) fn token_spec(
    account: &Value,
    request: &Value,
    (audiences, id): (&[String], String),
    lookup: Lookup<'_>,
) -> Result<TokenSpec, Status> {
    let (namespace, name) = (meta::text(account, "namespace"), meta::text(account, "name"));
    let mut request = request.clone();
    default_audiences(&mut request, audiences);
    let mut spec = request["spec"].take();
    if !spec.is_object() {
        return Err(Status::bad_request("the spec of a TokenRequest must be an object"));
    }
    let seconds = seconds(&spec)?;
    spec["expirationSeconds"] = seconds.into();
    let reference = |object: &Value| json!({"name": meta::text(object, "name"), "uid": meta::text(object, "uid")});
    let mut own = json!({"namespace": namespace, "serviceaccount": reference(account)});
    if has(&spec, "/boundObjectRef") {
        let (claim, object) = bound(&spec["boundObjectRef"], namespace, name, lookup)?;
        own[claim] = reference(&object);
        let node = text(&object, "/spec/nodeName");
        if !node.is_empty() {
            own["node"] = lookup("/nodes", "", node).map_or_else(|| json!({"name": node}), |node| reference(&node));
        }
    }
    let claims = json!({
        "aud": spec["audiences"], "jti": id, "sub": service_account_name(namespace, name), "kubernetes.io": own,
    });
    Ok(TokenSpec { claims, spec, seconds })
}

fn seconds(spec: &Value) -> Result<i64, Status> {
    let (default, least, most) = LIFETIME;
    let sent = &spec["expirationSeconds"];
    let wrong = |why: &str| {
        let cause = Cause::invalid("spec.expirationSeconds", sent, why);
        Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", vec![cause]))
    };
    match sent.as_i64() {
        None if sent.is_null() => Ok(default),
        None => Err(Status::bad_request("spec.expirationSeconds must be a whole number")),
        Some(seconds) if seconds < least => wrong("may not specify a duration less than 10 minutes"),
        Some(seconds) if seconds > most => wrong("may not specify a duration larger than 2^32 seconds"),
        Some(seconds) => Ok(seconds),
    }
}

/// Returns the object that a token is bound to, and the claim that names it.
fn bound(
    wanted: &Value,
    namespace: &str,
    account: &str,
    lookup: Lookup<'_>,
) -> Result<(&'static str, Arc<Value>), Status> {
    let (kind, version, name, uid) =
        (text(wanted, "/kind"), text(wanted, "/apiVersion"), text(wanted, "/name"), text(wanted, "/uid"));
    let known = BINDABLE.iter().find(|known| known.0 == kind && matches!(version, "" | "v1"));
    let Some((_, storage, namespaced, claim)) = known else {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
        return Err(Status::bad_request(why));
    };
    let object = lookup(storage, if *namespaced { namespace } else { "" }, name);
    let object = object.ok_or_else(|| Status::not_found("", storage.trim_start_matches('/'), name))?;
    if *claim == "pod" && text(&object, "/spec/serviceAccountName") != account {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    if !uid.is_empty() && uid != meta::text(&object, "uid") {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    Ok((claim, object))
}

/// Returns the user of a token with valid claims, if its service account and the object that it is bound to still
/// exist.
///
/// # Errors
/// Names the object that no longer exists.
pub(crate) fn identify(claims: &Value, now: Timestamp, lookup: Lookup<'_>) -> Result<UserInfo, String> {
    let own = &claims["kubernetes.io"];
    let namespace = text(own, "/namespace");
    let account = text(own, "/serviceaccount/name");
    let alive = |what: &str, storage: &str, namespace: &str, reference: &Value| {
        let (name, uid) = (text(reference, "/name"), text(reference, "/uid"));
        let Some(object) = lookup(storage, namespace, name) else { return Err(format!("{what} {name:?} not found")) };
        if uid != meta::text(&object, "uid") {
            let present = meta::text(&object, "uid");
            return Err(format!("{what} UID ({present}) does not match claim ({uid})"));
        }
        let ended = meta::parse_time(&object["metadata"]["deletionTimestamp"]);
        if ended.is_some_and(|ended| now.duration_since(ended) > DELETION_GRACE) {
            return Err(format!("{what} {name:?} has been deleted"));
        }
        Ok(())
    };
    alive("service account", ACCOUNTS, namespace, &own["serviceaccount"])?;
    let mut user = UserInfo::service_account(namespace, account);
    user.uid = text(own, "/serviceaccount/uid").into();
    for (_, storage, namespaced, claim) in BINDABLE {
        let reference = &own[claim];
        // The node of a pod is informational only.
        let informational = claim == "node" && has(own, "/pod");
        if !reference.is_null() && !informational {
            alive(claim, storage, if namespaced { namespace } else { "" }, reference)?;
        }
        for field in ["name", "uid"] {
            let value = reference[field].as_str().filter(|_| claim != "secret");
            user.extra.extend(
                value.map(|value| (format!("authentication.kubernetes.io/{claim}-{field}"), vec![value.to_owned()])),
            );
        }
    }
    user.extra.insert(CREDENTIAL_ID.into(), vec![credential_id(claims)]);
    Ok(user)
}

/// Returns the identifier of the token with these claims.
pub(crate) fn credential_id(claims: &Value) -> String {
    format!("JTI={}", text(claims, "/jti"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(storage: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let object = |extra: Value| Some(Arc::new(extra));
        match (storage, namespace, name) {
            ("/serviceaccounts", "n", "robot") => {
                object(json!({"metadata": {"namespace": "n", "name": "robot", "uid": "a"}}))
            }
            ("/pods", "n", "p") => object(json!({
                "metadata": {"namespace": "n", "name": "p", "uid": "b"},
                "spec": {"serviceAccountName": "robot", "nodeName": "m"},
            })),
            ("/pods", "n", "old") => object(json!({
                "metadata": {"name": "old", "uid": "c", "deletionTimestamp": "2024-01-01T00:00:00Z"},
                "spec": {"serviceAccountName": "robot"},
            })),
            ("/pods", "n", "other") => object(json!({"metadata": {"uid": "d"}, "spec": {"serviceAccountName": "x"}})),
            ("/nodes", "", "m") => object(json!({"metadata": {"name": "m", "uid": "e"}})),
            _ => None,
        }
    }

    fn make(spec: Value) -> Result<TokenSpec, Status> {
        let account = world("/serviceaccounts", "n", "robot").unwrap();
        token_spec(&account, &json!({"spec": spec}), (&["me".to_owned()], "id".into()), &world)
    }

    fn pod(name: &str) -> Value {
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name}})
    }

    #[test]
    fn requests_are_checked() {
        let made = make(json!(null)).unwrap();
        assert_eq!((made.seconds, &made.claims["aud"]), (3600, &json!(["me"])));
        for (spec, code) in [
            (json!({"expirationSeconds": 599}), 422),
            (json!({"expirationSeconds": (1_i64 << 32) + 1}), 422),
            (json!({"expirationSeconds": "x"}), 400),
            (json!([]), 400),
            (pod("nowhere"), 404),
            (pod("other"), 400),
            (json!({"boundObjectRef": {"kind": "Job", "apiVersion": "batch/v1", "name": "j"}}), 400),
            (json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "z"}}), 409),
        ] {
            assert_eq!(make(spec.clone()).unwrap_err().code, code, "{spec}");
        }
    }

    #[test]
    fn a_token_is_valid_as_long_as_its_account_and_bound_object_exist() {
        let now = "2024-01-01T00:00:30Z".parse().unwrap();
        let claims = make(pod("p")).unwrap().claims;
        let user = identify(&claims, now, &world).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:n:robot", "a"));
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]);
        let extra: Vec<_> = user.extra.iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
        let expect = ["credential-id=JTI=id", "node-name=m", "node-uid=e", "pod-name=p", "pod-uid=b"];
        assert_eq!(extra, expect.map(|one| format!("authentication.kubernetes.io/{one}")));
        let without = |storage: &'static str| {
            let lookup = move |at: &str, namespace: &str, name: &str| {
                if at == storage { None } else { world(at, namespace, name) }
            };
            identify(&claims, now, &lookup)
        };
        assert_eq!(without("/serviceaccounts").unwrap_err(), "service account \"robot\" not found");
        assert_eq!(without("/pods").unwrap_err(), "pod \"p\" not found");
        assert!(without("/nodes").is_ok());
        let going = make(pod("old")).unwrap().claims;
        assert!(identify(&going, now, &world).is_ok());
        let later = "2024-01-01T00:01:01Z".parse().unwrap();
        assert_eq!(identify(&going, later, &world).unwrap_err(), "pod \"old\" has been deleted");
        let mut older = claims.clone();
        older["kubernetes.io"]["pod"]["uid"] = "z".into();
        assert_eq!(identify(&older, now, &world).unwrap_err(), "pod UID (b) does not match claim (z)");
    }
}
