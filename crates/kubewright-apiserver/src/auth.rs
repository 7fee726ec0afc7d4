//! Who asks: the identity of a request, and what it needs to be served.
//!
//! An authoriser (RBAC) belongs below [`authorize`], the one place that sees every request with its identity.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use kubewright_apimachinery::status::Status;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::handlers::Route;

/// Who sent a request. It travels in the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    /// Such as `system:admin`.
    pub name: String,
    /// Such as `system:masters`.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// The identity of in-process clients and of the kubeconfig's credentials: it may do everything.
    pub fn admin() -> Self {
        Self { name: "system:admin".into(), groups: vec!["system:masters".into(), "system:authenticated".into()] }
    }

    /// The identity of requests without credentials.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }
    }

    fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }
}

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

    /// Whose token this is.
    fn find(&self, token: &str) -> Option<UserInfo> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.0.get(&digest).cloned()
    }

    /// Who a request without a client certificate comes from. An unknown token is an error, no token is anonymous.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<UserInfo, Status> {
        let Some(header) = headers.get(header::AUTHORIZATION) else { return Ok(UserInfo::anonymous()) };
        let token = header.to_str().ok().and_then(|text| text.split_once(' '));
        match token {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                self.find(token.trim()).ok_or_else(unauthorized)
            }
            _ => Err(unauthorized()),
        }
    }
}

/// Whether this user may do this. Others than those who may do everything may ask for health and version.
pub(crate) fn authorize(user: &UserInfo, route: &Route) -> Result<(), Status> {
    if !allows(user) && !matches!(route, Route::Health { .. } | Route::Version) {
        return Err(unauthorized());
    }
    Ok(())
}

/// The rule by which requests are let in and access reviews are answered: whoever is known may do everything. An
/// authoriser takes its place, and then needs to be told what is to be done.
fn allows(user: &UserInfo) -> bool {
    !user.is_anonymous()
}

/// What a kind that is a question can find out: who asks, whose token something is, and what someone may do.
#[derive(Debug)]
pub struct Access<'a> {
    user: &'a UserInfo,
    tokens: &'a RwLock<Tokens>,
}

impl<'a> Access<'a> {
    pub(crate) fn new(user: &'a UserInfo, tokens: &'a RwLock<Tokens>) -> Self {
        Self { user, tokens }
    }

    /// Who asks.
    pub fn user(&self) -> &UserInfo {
        self.user
    }

    /// Whose bearer token this is; `None` if it is not known.
    pub fn bearer(&self, token: &str) -> Option<UserInfo> {
        self.tokens.read().find(token)
    }

    /// Whether requests of this user are let in.
    pub fn allows(&self, user: &UserInfo) -> bool {
        allows(user)
    }
}

fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}
