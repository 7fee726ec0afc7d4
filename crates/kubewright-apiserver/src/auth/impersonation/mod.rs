//! Impersonation: requests that act as another user, by `Impersonate-` headers
//! (<https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/>).
//!
//! A role may allow it for certain requests only ([`Mode`]), or for all with the verb `impersonate`.

mod mode;

use std::{collections::HashMap, sync::Arc};

use http::{HeaderMap, HeaderValue};
use kubewright_apimachinery::{go_format, status::Status};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use self::mode::{Mode, node_name};
use super::{
    attributes::Attributes,
    authorization::Authorization,
    user::{ANONYMOUS, UNAUTHENTICATED, UserInfo, as_service_account, service_account_groups},
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
/// The prefix of the headers for extra fields, followed by the percent-encoded key.
const EXTRA: &str = "impersonate-extra-";

/// The API group of UIDs and extra fields in the attributes of an impersonation.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The group of nodes.
const NODES: &str = "system:nodes";
/// The maximum number of users whose last mode is remembered.
const REMEMBERED: usize = 1024;

/// The mode by which each user last impersonated another one; `None` is the verb `impersonate`. It is tried first, and
/// if all modes refuse, the response has its refusal.
#[derive(Debug, Default)]
pub(super) struct LastModes(Mutex<HashMap<String, Option<Mode>>>);

impl LastModes {
    fn of(&self, user: &UserInfo) -> Option<Option<Mode>> {
        self.0.lock().get(&user.name).copied()
    }

    fn set(&self, user: &UserInfo, mode: Option<Mode>) {
        let mut modes = self.0.lock();
        if modes.len() >= REMEMBERED {
            modes.clear();
        }
        modes.insert(user.name.clone(), mode);
    }
}

/// The user as which a request acts.
#[derive(Debug)]
pub(crate) struct Impersonated {
    pub(crate) user: Arc<UserInfo>,
    /// The verb that allowed it, in a mode of constrained impersonation.
    pub(crate) constraint: Option<&'static str>,
}

/// Returns the user that the headers of a request name, if the authenticated user may impersonate that user, and `None`
/// without such headers.
///
/// # Errors
/// Returns 403 if the impersonation is not allowed, and 400 for headers without a user.
pub(crate) fn impersonate(
    authorization: &Authorization,
    authenticated: &UserInfo,
    headers: &HeaderMap,
    request: impl FnOnce() -> Attributes,
) -> Result<Option<Impersonated>, Status> {
    let Some(mut user) = requested(headers)? else { return Ok(None) };
    let mode = allowed_mode(authorization, authenticated, &user, &request())?;
    if user.groups.is_empty() {
        match as_service_account(&user.name) {
            Some((namespace, _)) => user.groups = service_account_groups(namespace),
            None if mode.is_some() && node_name(&user.name).is_some() => user.groups.push(NODES.into()),
            None => {}
        }
    }
    if user.name == ANONYMOUS && !user.groups.iter().any(|group| group == UNAUTHENTICATED) {
        user.groups.push(UNAUTHENTICATED.into());
    }
    Ok(Some(Impersonated { user: Arc::new(user.authenticated()), constraint: mode.map(Mode::verb) }))
}

/// Returns the first mode that allows an impersonation, or `None` if the verb `impersonate` does.
///
/// # Errors
/// Returns the refusal by the mode that was tried first.
fn allowed_mode(
    authorization: &Authorization,
    requester: &UserInfo,
    wanted: &UserInfo,
    request: &Attributes,
) -> Result<Option<Mode>, Status> {
    let last = authorization.last_modes().of(requester);
    let others = Mode::ALL.into_iter().map(Some).chain([None]).filter(|mode| Some(*mode) != last);
    let mut refusal = None;
    for mode in last.into_iter().chain(others) {
        let checked = match mode {
            Some(mode) if !mode.covers(requester, wanted) => continue,
            Some(mode) => mode.check(authorization.authorizer(), requester, request, wanted),
            None if requester.is_unrestricted() => Ok(()),
            None => required(wanted).iter().try_for_each(|attributes| authorization.authorize(requester, attributes)),
        };
        match checked {
            Ok(()) => {
                authorization.last_modes().set(requester, mode);
                return Ok(mode);
            }
            Err(status) => drop(refusal.get_or_insert(status)),
        }
    }
    Err(refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
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

/// Returns the attributes of all requests that must be allowed in order to impersonate a user with the verb
/// `impersonate`.
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
