//! The servers that decide about tokens and requests, by the flags of `kube-apiserver`.

use std::{collections::HashMap, fmt, hash::Hash, time::Duration};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::{
    cel::{Composition, MatchConditions, PolicyEnvironment, PolicyInput},
    clock::SharedClock,
};
use kubewright_cluster::{AccessReview, AccessReviewer, Attributes, TokenReviewer, UserInfo};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::flags::Flags;
use crate::{
    audit::go_duration,
    webhook::{PostError, TIMEOUT, Webhook},
};

/// The pause after the first attempt to ask a server that fails.
const BACKOFF: Duration = Duration::from_millis(500);
/// For how long a request stays allowed or forbidden, where nothing else is set.
pub(super) const AUTHORIZED_TTL: Duration = Duration::from_secs(300);
pub(super) const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);
/// The number of answers that are kept.
const MAX_ANSWERS: usize = 8192;

/// A server that is asked, and its latest answers.
pub(super) struct Reviewer<K, A> {
    webhook: Webhook,
    /// The version of the reviews.
    version: &'static str,
    clock: SharedClock,
    /// For how long answers are kept: those that allow, and others.
    keep: [Duration; 2],
    answers: Mutex<HashMap<K, (Duration, A)>>,
}

impl<K, A> fmt::Debug for Reviewer<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A reviewer of tokens with the audiences that are asked for.
pub(super) type Tokens = Reviewer<(String, Vec<String>), Option<(UserInfo, Vec<String>)>>;
/// A reviewer of requests.
#[derive(Debug)]
pub(super) struct Access {
    /// The answers are those to the `spec` of reviews.
    reviewer: Reviewer<String, AccessReview>,
    /// The conditions under which the server is asked.
    conditions: MatchConditions,
    /// Whether requests are denied that the server can't be asked about.
    denies_on_failure: bool,
}

/// The settings of a reviewer of requests.
pub(super) struct AccessSettings<'a> {
    pub(super) kubeconfig: &'a str,
    /// The version of the reviews.
    pub(super) version: &'static str,
    /// For how long answers are kept: those that allow, and others.
    pub(super) keep: [Duration; 2],
    /// The longest wait for an answer.
    pub(super) timeout: Duration,
    pub(super) conditions: MatchConditions,
    pub(super) denies_on_failure: bool,
}

#[derive(Deserialize)]
struct Answer<S> {
    status: S,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
    audiences: Vec<String>,
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

/// Returns the reviewer of `--authentication-token-webhook-config-file`, if there is one.
///
/// # Errors
/// If a flag can't be used.
pub(super) async fn tokens(flags: &Flags, clock: &SharedClock) -> Result<Option<Tokens>> {
    let Some(path) = flags.last("authentication-token-webhook-config-file") else { return Ok(None) };
    let keep = duration(flags, "authentication-token-webhook-cache-ttl", Duration::from_secs(120))?;
    let version = version(flags, "authentication-token-webhook-version")?;
    Reviewer::open(path, version, clock, [keep, keep], TIMEOUT).await.map(Some)
}

/// Returns the reviewer of `--authorization-webhook-config-file`.
///
/// # Errors
/// If a flag can't be used.
pub(super) async fn access(flags: &Flags, clock: &SharedClock) -> Result<Access> {
    let Some(path) = flags.last("authorization-webhook-config-file") else {
        bail!("--authorization-mode=Webhook needs --authorization-webhook-config-file")
    };
    let keep = [
        duration(flags, "authorization-webhook-cache-authorized-ttl", AUTHORIZED_TTL)?,
        duration(flags, "authorization-webhook-cache-unauthorized-ttl", UNAUTHORIZED_TTL)?,
    ];
    let settings = AccessSettings {
        kubeconfig: path,
        version: version(flags, "authorization-webhook-version")?,
        keep,
        timeout: TIMEOUT,
        conditions: MatchConditions::default(),
        denies_on_failure: false,
    };
    Access::open(settings, clock).await
}

fn version(flags: &Flags, flag: &str) -> Result<&'static str> {
    review_version(flags.last(flag).unwrap_or("v1beta1")).with_context(|| format!("read --{flag}"))
}

/// Returns the version of reviews with a name.
pub(super) fn review_version(name: &str) -> Result<&'static str> {
    match name {
        "v1beta1" => Ok("v1beta1"),
        "v1" => Ok("v1"),
        other => bail!("{other:?} is not supported: use v1 or v1beta1"),
    }
}

fn duration(flags: &Flags, flag: &str, default: Duration) -> Result<Duration> {
    let Some(text) = flags.last(flag) else { return Ok(default) };
    go_duration(text).map_err(anyhow::Error::msg).with_context(|| format!("read --{flag}={text}"))
}

impl<K: Clone + Eq + Hash, A: Clone> Reviewer<K, A> {
    async fn open(
        path: &str,
        version: &'static str,
        clock: &SharedClock,
        keep: [Duration; 2],
        timeout: Duration,
    ) -> Result<Self> {
        let webhook = Webhook::open(path.into(), BACKOFF).await?.timeout(timeout);
        Ok(Self { webhook, version, clock: clock.clone(), keep, answers: Mutex::default() })
    }

    /// Returns the answer that is kept for a key, or that of the server.
    fn answer<S: for<'de> Deserialize<'de>>(
        &self,
        key: &K,
        review: &Value,
        read: impl FnOnce(S) -> Result<(A, bool), String>,
    ) -> Result<A, String> {
        let now = self.clock.monotonic();
        if let Some((until, answer)) = self.answers.lock().get(key)
            && now < *until
        {
            return Ok(answer.clone());
        }
        let body = review.to_string();
        let posted = self.webhook.post(&body, PostError::is_temporary);
        // Other requests, perhaps of the server that is asked, go on in other threads meanwhile.
        let answer = tokio::task::block_in_place(|| Handle::current().block_on(posted));
        let answer = answer.map_err(|error| error.to_string())?;
        let Answer { status } = serde_json::from_slice::<Answer<S>>(&answer).map_err(|error| error.to_string())?;
        let (answer, allows) = read(status)?;
        let mut answers = self.answers.lock();
        if answers.len() >= MAX_ANSWERS {
            answers.clear();
        }
        answers.insert(key.clone(), (now + self.keep[usize::from(!allows)], answer.clone()));
        Ok(answer)
    }
}

impl TokenReviewer for Tokens {
    fn review(&self, token: &str, audiences: &[String]) -> Result<Option<(UserInfo, Vec<String>)>, String> {
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": format!("authentication.k8s.io/{}", self.version),
            "metadata": {},
            "spec": {"token": token, "audiences": audiences},
            "status": {"user": {}},
        });
        self.answer(&(token.to_owned(), audiences.to_vec()), &review, |status: TokenStatus| match status {
            TokenStatus { authenticated: true, user: User { username, uid, groups, extra }, audiences, .. } => {
                let mut user = UserInfo::new(username, groups);
                (user.uid, user.extra) = (uid, extra);
                Ok((Some((user, audiences)), true))
            }
            TokenStatus { error, .. } if error.is_empty() => Ok((None, false)),
            TokenStatus { error, .. } => Err(error),
        })
    }
}

impl AccessReviewer for Access {
    fn review(&self, user: &UserInfo, attributes: &Attributes) -> AccessReview {
        match self.is_asked_about(user, attributes) {
            Ok(false) => AccessReview::default(),
            Ok(true) => self.ask(user, attributes).unwrap_or_else(|error| self.failed(error)),
            Err(error) => self.failed(error),
        }
    }
}

impl Access {
    /// Returns the reviewer of requests with these settings.
    ///
    /// # Errors
    /// If the kubeconfig can't be used.
    pub(super) async fn open(settings: AccessSettings<'_>, clock: &SharedClock) -> Result<Self> {
        let AccessSettings { kubeconfig, version, keep, timeout, conditions, denies_on_failure } = settings;
        let reviewer = Reviewer::open(kubeconfig, version, clock, keep, timeout).await?;
        Ok(Self { reviewer, conditions, denies_on_failure })
    }

    /// Returns the decision about a request that the server can't be asked about.
    fn failed(&self, evaluation_error: String) -> AccessReview {
        AccessReview { denied: self.denies_on_failure, evaluation_error, ..AccessReview::default() }
    }

    /// Returns whether all conditions hold.
    fn is_asked_about(&self, user: &UserInfo, attributes: &Attributes) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let request = PolicyInput::new(Some(&full_spec(user, attributes)));
        let (environment, composition) = (PolicyEnvironment::new([("request", request)]), Composition::default());
        let holds = self.conditions.hold(&environment, &composition);
        tokio::task::block_in_place(|| Handle::current().block_on(holds))
    }

    fn ask(&self, user: &UserInfo, attributes: &Attributes) -> Result<AccessReview, String> {
        let version = self.reviewer.version;
        let spec = spec(version, user, attributes);
        let review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": format!("authorization.k8s.io/{version}"),
            "metadata": {},
            "spec": spec,
            "status": {"allowed": false},
        });
        self.reviewer.answer(&spec.to_string(), &review, |AccessStatus { allowed, denied, reason }| {
            Ok((AccessReview { allowed, denied, reason, ..AccessReview::default() }, allowed))
        })
    }
}

/// Returns the `spec` of a review in a version.
fn spec(version: &str, user: &UserInfo, attributes: &Attributes) -> Value {
    let mut spec = full_spec(user, attributes);
    for of in ["resourceAttributes", "nonResourceAttributes"] {
        spec.get_mut(of).into_iter().for_each(leave_out_empty);
    }
    leave_out_empty(&mut spec);
    if version != "v1"
        && let Some(groups) = spec.as_object_mut().and_then(|fields| fields.remove("groups"))
    {
        spec["group"] = groups;
    }
    spec
}

fn leave_out_empty(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.retain(|_, value| ![json!(""), json!([]), json!({})].contains(value));
}

/// Returns the `spec` of a review with all fields of the user and all attributes that are text, also empty ones, as
/// match conditions see it.
fn full_spec(user: &UserInfo, attributes: &Attributes) -> Value {
    let Attributes { verb, group, resource, subresource, namespace, name, path, fields } = attributes;
    let mut spec = json!({"user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
    if !path.is_empty() {
        spec["nonResourceAttributes"] = json!({"path": path, "verb": verb});
        return spec;
    }
    spec["resourceAttributes"] = json!({
        "namespace": namespace,
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
    });
    if !fields.is_empty() {
        let fields = fields.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
        spec["resourceAttributes"]["fieldSelector"] = json!({"requirements": fields.collect::<Vec<_>>()});
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_conditions_see_empty_fields_that_reviews_leave_out() {
        let attributes = Attributes { verb: "list".into(), resource: "nodes".into(), ..Attributes::default() };
        let user = UserInfo::new("u", Vec::<String>::new());
        let of_resource = json!({"verb": "list", "resource": "nodes"});
        assert_eq!(spec("v1", &user, &attributes), json!({"user": "u", "resourceAttributes": of_resource}));
        let full = full_spec(&user, &attributes);
        assert_eq!([&full["uid"], &full["resourceAttributes"]["namespace"]], [&json!(""); 2]);
        assert_eq!((&full["groups"], &full["extra"]), (&json!([]), &json!({})));
        let path = Attributes { verb: "get".into(), path: "/healthz".into(), ..Attributes::default() };
        let user = UserInfo::new("u", vec!["a".to_owned()]);
        assert_eq!(
            spec("v1beta1", &user, &path),
            json!({"user": "u", "group": ["a"], "nonResourceAttributes": {"path": "/healthz", "verb": "get"}})
        );
    }
}
