//! Impersonation: requests that act as another user, by `Impersonate-` headers
//! (<https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/>).

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use kubewright_apimachinery::{go_format, status::Status};
use percent_encoding::percent_decode_str;

use super::{
    attributes::Attributes,
    authorization::Authorization,
    user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo, as_service_account, service_account_groups},
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
/// The prefix of the headers for extra fields, followed by the percent-encoded key.
const EXTRA: &str = "impersonate-extra-";

/// The API group of UIDs and extra fields in the attributes of an impersonation.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Returns the effective user of a request: the user that its headers name, if the authenticated user may impersonate
/// that user, or the authenticated user if there are no such headers.
///
/// # Errors
/// Returns 403 if the impersonation is not allowed, and 500 (as in Kubernetes) for headers without a user.
pub(crate) fn impersonate(
    authorization: &Authorization,
    authenticated: Arc<UserInfo>,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, Status> {
    let Some(mut user) = requested(headers)? else { return Ok(authenticated) };
    if !authenticated.is_unrestricted() {
        for attributes in required(&user) {
            authorization.authorize(&authenticated, &attributes)?;
        }
    }
    if user.groups.is_empty()
        && let Some((namespace, _)) = as_service_account(&user.name)
    {
        user.groups = service_account_groups(namespace);
    }
    let has_group = |group: &str| user.groups.iter().any(|one| one == group);
    if user.name == ANONYMOUS {
        if !has_group(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.into());
        }
    } else if !has_group(AUTHENTICATED) && !has_group(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.into());
    }
    Ok(Arc::new(user))
}

/// Returns the user that the headers name, or `None` without such headers.
fn requested(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
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
            // Kubernetes shows its own type.
            let groups = go_format::strings(&user.groups);
            let extra = match user.extra.len() {
                0 => "map[string][]string(nil)".to_owned(),
                _ => {
                    let entries =
                        user.extra.iter().map(|(key, values)| format!("{key:?}:{}", go_format::strings(values)));
                    format!("map[string][]string{{{}}}", entries.collect::<Vec<_>>().join(", "))
                }
            };
            let shown = format!("&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{groups}, Extra:{extra}}}", user.uid);
            Err(Status::bad_request(format!("requested {shown} without impersonating a user name")))
        }
        (false, _) => Ok(Some(user)),
    }
}

/// Returns the attributes of all requests that must be allowed in order to impersonate a user.
fn required(user: &UserInfo) -> Vec<Attributes> {
    let impersonate = |group: &str, resource: &str, name: &str| Attributes {
        verb: "impersonate".into(),
        group: group.into(),
        resource: resource.into(),
        name: name.into(),
        ..Attributes::default()
    };
    let mut all = vec![match as_service_account(&user.name) {
        Some((namespace, name)) => {
            Attributes { namespace: namespace.into(), ..impersonate("", "serviceaccounts", name) }
        }
        None => impersonate("", "users", &user.name),
    }];
    all.extend(user.groups.iter().map(|group| impersonate("", "groups", group)));
    if !user.uid.is_empty() {
        all.push(impersonate(AUTHENTICATION, "uids", &user.uid));
    }
    for (key, values) in &user.extra {
        let extra = |value: &String| Attributes {
            subresource: key.clone(),
            ..impersonate(AUTHENTICATION, "userextras", value)
        };
        all.extend(values.iter().map(extra));
    }
    all
}
