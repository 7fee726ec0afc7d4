//! Authentication: from credentials to a user.

use std::{collections::BTreeMap, fmt, sync::Arc};

use http::{HeaderMap, header, request::Parts};
use jiff::Timestamp;
use kubewright_apimachinery::{clock::SharedClock, status::Status};
use parking_lot::RwLock;
use ring::digest::SHA256;
use serde_json::Value;

use super::{
    service_account,
    token::{self, ISSUER, Issuer, TokenError},
    user::UserInfo,
};
use crate::storage::{Key, Store};

/// The SHA-256 digest of a token. Looking one up takes the same time however much of a token is right.
type TokenDigest = [u8; 32];

fn digest(token: &str) -> TokenDigest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&SHA256, token.as_bytes()).as_ref());
    digest
}

/// Authenticates requests by their connection, by static tokens and by the tokens of service accounts.
pub(crate) struct Authenticator {
    static_tokens: RwLock<BTreeMap<TokenDigest, UserInfo>>,
    issuer: Issuer,
    store: Arc<Store>,
    clock: SharedClock,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// An authenticator without static tokens, that looks for service accounts in `store`.
    pub(crate) fn new(store: Arc<Store>, clock: SharedClock) -> Self {
        Self { static_tokens: RwLock::default(), issuer: Issuer::default(), store, clock }
    }

    /// Makes a bearer token stand for a user.
    pub(crate) fn add_token(&self, token: &str, user: UserInfo) {
        self.static_tokens.write().insert(digest(token), user);
    }

    /// Makes a token that was added invalid.
    pub(crate) fn remove_token(&self, token: &str) {
        self.static_tokens.write().remove(&digest(token));
    }

    /// The user of a request: that of its connection, else that of its bearer token, else `system:anonymous`.
    ///
    /// # Errors
    /// 401 for credentials that are invalid.
    pub(crate) fn authenticate(&self, parts: &Parts) -> Result<UserInfo, Status> {
        if let Some(user) = parts.extensions.get::<UserInfo>() {
            return Ok(user.clone());
        }
        let Some(token) = bearer_token(&parts.headers)? else { return Ok(UserInfo::anonymous()) };
        self.authenticate_token(token, &[]).map(|(user, _)| user).map_err(|error| {
            tracing::debug!(%error, "a bearer token was refused");
            unauthorized()
        })
    }

    /// The user of a bearer token, and those of the audiences that it is valid for; no audiences stand for this server.
    pub(crate) fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(UserInfo, Vec<String>), TokenError> {
        let own = [ISSUER.to_owned()];
        let audiences = if audiences.is_empty() { own.as_slice() } else { audiences };
        if let Some(user) = self.static_tokens.read().get(&digest(token)) {
            return Ok((user.clone(), audiences.to_vec()));
        }
        let now = self.clock.now();
        let claims = self.issuer.verify(token, now)?;
        let audiences = token::audiences(&claims, audiences)?;
        let lookup = |storage: &str, namespace: &str, name: &str| self.lookup(storage, namespace, name);
        let user = service_account::identify(&claims, now, &lookup).map_err(TokenError::Revoked)?;
        Ok((user, audiences))
    }

    /// Signs a token of a service account, valid from `now`, as a `TokenRequest` asks for it. Returns the token and the
    /// request with its defaults.
    ///
    /// # Errors
    /// 400, 404, 409 and 422 for invalid requests; 500 when the system has no randomness.
    pub(crate) fn issue_token(
        &self,
        account: &Value,
        request: &Value,
        id: String,
        now: Timestamp,
    ) -> Result<(String, service_account::TokenSpec), Status> {
        let lookup = |storage: &str, namespace: &str, name: &str| self.lookup(storage, namespace, name);
        let spec = service_account::token_spec(account, request, id, &lookup)?;
        let token = self.issuer.sign(spec.claims.clone(), now, spec.seconds)?;
        Ok((token, spec))
    }

    fn lookup(&self, storage: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(storage, &Key::new(namespace, name)).map(|stored| stored.value())
    }
}

/// The bearer token of a request, if it carries any credentials.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let Some(header) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    match header.to_str().ok().and_then(|text| text.split_once(' ')) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthorized()),
    }
}

/// 401: the credentials are invalid.
pub(crate) fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}
