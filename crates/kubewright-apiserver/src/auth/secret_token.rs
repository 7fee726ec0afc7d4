//! Service account tokens that are kept in Secrets: their claims, and the users that they identify
//! (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#manual-secret-management-for-serviceaccounts>).
//!
//! They don't expire. Each is valid as long as its Secret contains it.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    service_account::{ACCOUNTS, Lookup, SECRETS},
    user::{UserInfo, service_account_name},
};
use crate::{
    fields::{has, text},
    meta,
};

/// The issuer of these tokens.
pub(crate) const ISSUER: &str = "kubernetes/serviceaccount";
/// The label of a Secret with the date of the last use of its token.
pub(crate) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label of a Secret whose token isn't accepted any more.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// The claims, without the prefix that all of them have.
const PREFIX: &str = "kubernetes.io/serviceaccount/";
const NAMESPACE: &str = "namespace";
const SECRET: &str = "secret.name";
const NAME: &str = "service-account.name";
const UID: &str = "service-account.uid";

/// Returns the claims of the token in a Secret.
pub(crate) fn claims(account: &Value, secret: &Value) -> Value {
    let (namespace, name) = (meta::text(account, "namespace"), meta::text(account, "name"));
    let mut claims = json!({"iss": ISSUER, "sub": service_account_name(namespace, name)});
    let own =
        [(NAMESPACE, namespace), (SECRET, meta::text(secret, "name")), (NAME, name), (UID, meta::text(account, "uid"))];
    for (claim, value) in own {
        claims[format!("{PREFIX}{claim}")] = value.into();
    }
    claims
}

/// Returns the user of a token with these claims, whose signature is valid, and the Secret that contains it.
///
/// # Errors
/// Returns the reason why the token isn't valid any more.
pub(crate) fn identify(claims: &Value, token: &str, lookup: Lookup<'_>) -> Result<(UserInfo, Arc<Value>), String> {
    let claim = |name: &str| claims[format!("{PREFIX}{name}")].as_str().unwrap_or_default();
    let (namespace, name, uid) = (claim(NAMESPACE), claim(NAME), claim(UID));
    if text(claims, "/sub") != service_account_name(namespace, name) {
        return Err("sub claim is invalid".into());
    }
    let is_deleting = |object: &Value| has(object, "/metadata/deletionTimestamp");
    let secret = lookup(SECRETS, namespace, claim(SECRET)).filter(|secret| !is_deleting(secret));
    let secret = secret.ok_or("Token has been invalidated")?;
    if STANDARD.decode(text(&secret, "/data/token")).ok().as_deref() != Some(token.as_bytes()) {
        return Err("Token does not match server's copy".into());
    }
    let account = lookup(ACCOUNTS, namespace, name).ok_or_else(|| format!("serviceaccount {name:?} not found"))?;
    if is_deleting(&account) {
        return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
    }
    let present = meta::text(&account, "uid");
    if present != uid {
        return Err(format!("ServiceAccount UID ({present}) does not match claim ({uid})"));
    }
    if !secret["metadata"]["labels"][INVALID_SINCE].as_str().unwrap_or_default().is_empty() {
        let own = claim(SECRET);
        return Err(format!(
            "the token in secret {namespace}/{own} for service account {namespace}/{name} has been marked invalid"
        ));
    }
    Ok((UserInfo { uid: uid.into(), ..UserInfo::service_account(namespace, name) }, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_as_long_as_its_secret_has_it() {
        let account = json!({"metadata": {"namespace": "n", "name": "robot", "uid": "a"}});
        let secret = json!({"metadata": {"namespace": "n", "name": "s"}, "data": {"token": STANDARD.encode("text")}});
        let claims = claims(&account, &secret);
        assert_eq!((text(&claims, "/iss"), text(&claims, "/sub")), (ISSUER, "system:serviceaccount:n:robot"));
        let check = |token: &str, account: &Value, secret: &Value, expect: Result<&str, &str>| {
            let lookup = |storage: &str, namespace: &str, name: &str| match (storage, namespace, name) {
                (ACCOUNTS, "n", "robot") => Some(Arc::new(account.clone())).filter(|account| !account.is_null()),
                (SECRETS, "n", "s") => Some(Arc::new(secret.clone())).filter(|secret| !secret.is_null()),
                _ => None,
            };
            let found = identify(&claims, token, &lookup).map(|(user, _)| format!("{} {}", user.name, user.uid));
            assert_eq!(found.as_deref().map_err(String::as_str), expect);
        };
        check("text", &account, &secret, Ok("system:serviceaccount:n:robot a"));
        check("other", &account, &secret, Err("Token does not match server's copy"));
        check("text", &account, &Value::Null, Err("Token has been invalidated"));
        check("text", &Value::Null, &secret, Err("serviceaccount \"robot\" not found"));
        let mut other = account.clone();
        other["metadata"]["uid"] = "b".into();
        check("text", &other, &secret, Err("ServiceAccount UID (b) does not match claim (a)"));
        let mut going = secret.clone();
        going["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        check("text", &account, &going, Err("Token has been invalidated"));
        let mut invalid = secret.clone();
        invalid["metadata"]["labels"] = json!({INVALID_SINCE: "2024-01-01"});
        let why = "the token in secret n/s for service account n/robot has been marked invalid";
        check("text", &account, &invalid, Err(why));
    }
}
