//! Acting in another's name, by `Impersonate-` headers
//! (<https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/>).

use http::{HeaderMap, HeaderValue};
use kubewright_apimachinery::status::Status;
use percent_encoding::percent_decode_str;

use super::{
    Attempt, authorize,
    user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo, as_service_account, service_account_groups},
};
use crate::server::Inner;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
/// Before the key, percent-encoded.
const EXTRA: &str = "impersonate-extra-";

/// The group of what isn't a user, a group or a service account.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Who a request acts as: whom its headers name, if `asker` may be all that they name, and else `asker`.
///
/// # Errors
/// 403 for what the asker may not be, 500 (as in Kubernetes) for headers that name nobody.
pub(super) fn impersonate(server: &Inner, asker: UserInfo, headers: &HeaderMap) -> Result<UserInfo, Status> {
    let Some(mut user) = wanted(headers)? else { return Ok(asker) };
    if !asker.is_master() {
        for attempt in attempts(&user) {
            authorize(server, &asker, &attempt)?;
        }
    }
    if user.groups.is_empty()
        && let Some((namespace, _)) = as_service_account(&user.name)
    {
        user.groups = service_account_groups(namespace);
    }
    let said = |group: &str| user.groups.iter().any(|one| one == group);
    if user.name == ANONYMOUS {
        if !said(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.into());
        }
    } else if !said(AUTHENTICATED) && !said(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.into());
    }
    Ok(user)
}

/// Whom the headers name; `None` if they name nobody and nothing.
fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut user = UserInfo {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        ..UserInfo::default()
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
            user.extra.entry(key).or_default().push(text(value));
        }
    }
    match (user.name.is_empty(), user == UserInfo::default()) {
        (true, true) => Ok(None),
        (true, false) => {
            let why = format!("requested groups {:?} and more without impersonating a user", user.groups);
            Err(Status::internal(why))
        }
        (false, _) => Ok(Some(user)),
    }
}

/// What one must be allowed to do to be this user.
fn attempts(user: &UserInfo) -> Vec<Attempt> {
    let to_be = |group: &str, resource: &str, name: &str| Attempt {
        verb: "impersonate".into(),
        group: group.into(),
        resource: resource.into(),
        name: name.into(),
        ..Attempt::default()
    };
    let mut attempts = vec![match as_service_account(&user.name) {
        Some((namespace, name)) => Attempt { namespace: namespace.into(), ..to_be("", "serviceaccounts", name) },
        None => to_be("", "users", &user.name),
    }];
    attempts.extend(user.groups.iter().map(|group| to_be("", "groups", group)));
    if !user.uid.is_empty() {
        attempts.push(to_be(AUTHENTICATION, "uids", &user.uid));
    }
    for (key, values) in &user.extra {
        let extra = |value: &String| Attempt { subresource: key.clone(), ..to_be(AUTHENTICATION, "userextras", value) };
        attempts.extend(values.iter().map(extra));
    }
    attempts
}
