//! Who asks, and whether they may: the identity of a request, and what it needs to be served.
//!
//! A request is let in by [`admit`]: credentials make a [`UserInfo`], which may act in another's name where its rights say
//! so, and the roles that are bound to it ([`crate::rbac`]) say whether it may do what it wants to do.

mod attempt;
mod impersonation;
mod token;
mod user;

use std::collections::BTreeMap;

use http::{HeaderMap, header, request::Parts};
use kubewright_apimachinery::status::Status;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

pub use self::{attempt::Attempt, user::UserInfo};
pub(crate) use self::{
    token::{ISSUER, Issuer, TokenError},
    user::service_account_name,
};
use crate::{
    handlers::{Query, Route},
    rbac::{Held, Rule, Verdict},
    registry::builtin,
    server::Inner,
};

/// A token in a request's extensions: when it is cancelled, the server wants streams to end.
#[derive(Clone, Debug)]
pub(crate) struct Closing(pub(crate) CancellationToken);

/// The bearer tokens that are known, by their digests: looking one up takes the same time however much of it is right.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<[u8; 32], UserInfo>);

impl Tokens {
    pub(crate) fn insert(&mut self, token: &str, user: UserInfo) {
        self.0.insert(Sha256::digest(token).into(), user);
    }

    pub(crate) fn remove(&mut self, token: &str) {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.0.remove(&digest);
    }

    /// Whose token this is.
    fn find(&self, token: &str) -> Option<UserInfo> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.0.get(&digest).cloned()
    }
}

/// Who a request comes from: what the connection has proved, else whose bearer token it shows. An unknown token is an
/// error, no token is anonymous.
fn authenticate(server: &Inner, parts: &Parts) -> Result<UserInfo, Status> {
    match parts.extensions.get::<UserInfo>() {
        Some(user) => Ok(user.clone()),
        None => match bearer(&parts.headers) {
            Ok(None) => Ok(UserInfo::anonymous()),
            Ok(Some(token)) => by_token(server, token, &[]).map(|(user, _)| user).map_err(|why| {
                tracing::debug!(%why, "a bearer token is refused");
                unauthorized()
            }),
            Err(status) => Err(status),
        },
    }
}

/// The bearer token of a request, if it has any credentials.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let Some(header) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    match header.to_str().ok().and_then(|text| text.split_once(' ')) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthorized()),
    }
}

/// Whose bearer token this is, and for which of the wanted audiences it is good; none wanted means this server.
fn by_token(server: &Inner, token: &str, wanted: &[String]) -> Result<(UserInfo, Vec<String>), TokenError> {
    let own = [ISSUER.to_owned()];
    let wanted = if wanted.is_empty() { own.as_slice() } else { wanted };
    if let Some(user) = server.tokens.read().find(token) {
        return Ok((user, wanted.to_vec()));
    }
    let now = server.clock.now();
    let claims = server.issuer.verify(token, now)?;
    let audiences = token::audiences(&claims, wanted)?;
    let lookup = |storage: &str, namespace: &str, name: &str| server.find(storage, namespace, name);
    let user = builtin::identify_token(&claims, now, &lookup).map_err(TokenError::Void)?;
    Ok((user, audiences))
}

/// Lets a request in, and says in whose name it acts.
///
/// # Errors
/// 401 for credentials that are not known, 403 for what the user may not do.
pub(crate) fn admit(server: &Inner, parts: &Parts, route: &Route) -> Result<UserInfo, Status> {
    let user = authenticate(server, parts)?;
    let user = impersonation::impersonate(server, user, &parts.headers)?;
    // Most requests are the cluster's own, or its administrator's.
    if !user.is_master() {
        let query = Query::parse(parts.uri.query());
        let attempt = match route {
            Route::Resource(target) => Attempt::resource(&parts.method, target, &query),
            Route::Unknown(path) => Attempt::unknown(&parts.method, path, &query)
                .unwrap_or_else(|| Attempt::path(&parts.method, parts.uri.path())),
            _ => Attempt::path(&parts.method, parts.uri.path()),
        };
        authorize(server, &user, &attempt)?;
    }
    Ok(user)
}

/// Whether this user may do this. The attempt is remembered.
///
/// # Errors
/// 403 with Kubernetes' own text.
pub(crate) fn authorize(server: &Inner, user: &UserInfo, attempt: &Attempt) -> Result<(), Status> {
    let Verdict { allowed, reason } = server.registry.grants().decide(user, attempt);
    server.audit.record(user, attempt, allowed);
    if allowed { Ok(()) } else { Err(attempt.forbidden(user, &reason)) }
}

/// What the strategy of a kind can find out about rights: who asks, whose token something is, what someone may do.
#[derive(Debug)]
pub struct Access<'a> {
    user: &'a UserInfo,
    server: &'a Inner,
}

impl<'a> Access<'a> {
    pub(crate) fn new(user: &'a UserInfo, server: &'a Inner) -> Self {
        Self { user, server }
    }

    /// Who asks.
    pub fn user(&self) -> &UserInfo {
        self.user
    }

    /// Whose bearer token this is, and for which of these audiences it is good; none means this server.
    pub(crate) fn bearer(&self, token: &str, audiences: &[String]) -> Result<(UserInfo, Vec<String>), TokenError> {
        by_token(self.server, token, audiences)
    }

    /// Whether a user may do something, and why.
    pub(crate) fn decide(&self, user: &UserInfo, attempt: &Attempt) -> Verdict {
        self.server.registry.grants().decide(user, attempt)
    }

    /// Whether who asks may do something.
    pub(crate) fn may(&self, attempt: &Attempt) -> bool {
        self.decide(self.user, attempt).allowed
    }

    /// What a user may do in a namespace, or with an empty one everywhere.
    pub(crate) fn held(&self, user: &UserInfo, namespace: &str) -> Held {
        self.server.registry.grants().held(user, namespace)
    }

    /// The rules of a role: in a namespace, or of the whole cluster.
    pub(crate) fn role(&self, namespace: Option<&str>, name: &str) -> Option<Vec<Rule>> {
        self.server.registry.grants().role(namespace.unwrap_or_default(), name)
    }
}

/// 401: the credentials are not good.
pub(crate) fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}
