//! Who asks: the identity of a request, and what it needs to be served.
//!
//! An authoriser (RBAC) belongs into [`authorize`], the one place that sees every request with its identity.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use kubewright_apimachinery::status::Status;
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

    /// Who a request without a client certificate comes from. An unknown token is an error, no token is anonymous.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<UserInfo, Status> {
        let Some(header) = headers.get(header::AUTHORIZATION) else { return Ok(UserInfo::anonymous()) };
        let token = header.to_str().ok().and_then(|text| text.split_once(' '));
        match token {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                let digest: [u8; 32] = Sha256::digest(token.trim()).into();
                self.0.get(&digest).cloned().ok_or_else(unauthorized)
            }
            _ => Err(unauthorized()),
        }
    }
}

/// Whether this user may do this. Today everyone who is known may do everything, and others may ask for health and version.
pub(crate) fn authorize(user: &UserInfo, route: &Route) -> Result<(), Status> {
    if user.is_anonymous() && !matches!(route, Route::Health { .. } | Route::Version) {
        return Err(unauthorized());
    }
    Ok(())
}

fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}
