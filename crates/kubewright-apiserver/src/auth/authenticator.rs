//! Authentication: determines the user of a request from its credentials.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug},
    sync::Arc,
};

use http::{HeaderMap, header, request::Parts};
use jiff::Timestamp;
use kubewright_apimachinery::{clock::SharedClock, status::Status};
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use ring::digest::SHA256;
use serde_json::{Value, json};

use super::{
    secret_token, service_account,
    token::{self, Issuer, TokenError},
    user::UserInfo,
};
use crate::{
    storage::{Key, Store},
    websocket,
};

/// The SHA-256 digest of a token. The time of a lookup doesn't depend on how much of a token is correct.
type TokenDigest = [u8; 32];

fn digest(token: &str) -> TokenDigest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&SHA256, token.as_bytes()).as_ref());
    digest
}

/// Authenticates requests by their connection, by static tokens, and by service account tokens.
pub(crate) struct Authenticator {
    static_tokens: RwLock<BTreeMap<TokenDigest, UserInfo>>,
    issuer: Issuer,
    store: Arc<Store>,
    clock: SharedClock,
    anonymous: Anonymous,
    reviewers: Vec<Arc<dyn TokenReviewer>>,
}

/// Which requests without credentials are those of `system:anonymous`. The others are refused.
#[derive(Clone, Debug, Default)]
pub(crate) enum Anonymous {
    /// All of them.
    #[default]
    Everywhere,
    /// Those for these paths.
    Paths(BTreeSet<String>),
    /// None of them.
    Nowhere,
}

impl Anonymous {
    fn allows(&self, path: &str) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Paths(paths) => paths.contains(&*percent_decode_str(path).decode_utf8_lossy()),
            Self::Nowhere => false,
        }
    }
}

/// Identifies the users of bearer tokens that the server doesn't know.
pub trait TokenReviewer: Debug + Send + Sync + 'static {
    /// Returns the user of a token and the audiences for which it is valid, or `None` if the token is unknown. Without
    /// audiences, it is valid for those of this server. The request waits for the return: an implementation that
    /// blocks must let the other tasks of its thread continue, for example by `tokio::task::block_in_place`.
    ///
    /// # Errors
    /// If the token is refused with a reason, or if there is no answer.
    fn review(&self, token: &str, audiences: &[String]) -> Result<Option<(UserInfo, Vec<String>)>, String>;
}

/// Marks a request whose client certificate is invalid, in its extensions. It is an invalid credential,
/// like an unknown token. If the request also has a token, the token applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InvalidCertificate;

/// What a bearer token identifies.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub(crate) user: UserInfo,
    /// The requested audiences for which the token is valid.
    pub(crate) audiences: Vec<String>,
    /// The Secret with the token, if it is kept in one.
    pub(crate) secret: Option<Arc<Value>>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Creates an authenticator without static tokens. It looks up service accounts in `store`.
    pub(crate) fn new(issuer: Issuer, store: Arc<Store>, clock: SharedClock) -> Self {
        let (static_tokens, anonymous, reviewers) = (RwLock::default(), Anonymous::default(), Vec::new());
        Self { static_tokens, issuer, store, clock, anonymous, reviewers }
    }

    /// Sets which requests without credentials are those of `system:anonymous`.
    pub(crate) fn allow_anonymous(self, anonymous: Anonymous) -> Self {
        Self { anonymous, ..self }
    }

    /// Asks reviewers about unknown tokens, in this order.
    pub(crate) fn ask(self, reviewers: Vec<Arc<dyn TokenReviewer>>) -> Self {
        Self { reviewers, ..self }
    }

    /// Adds a static bearer token for a user.
    pub(crate) fn add_token(&self, token: &str, user: UserInfo) {
        self.static_tokens.write().insert(digest(token), user);
    }

    /// Removes a static bearer token.
    pub(crate) fn remove_token(&self, token: &str) {
        self.static_tokens.write().remove(&digest(token));
    }

    /// Returns the user of a request: that of its connection, otherwise that of its bearer token, otherwise
    /// `system:anonymous`, if such requests are [allowed](Self::allow_anonymous). Requests for a WebSocket can have the
    /// token among their subprotocols. If the token is kept in a Secret, the Secret is returned, too.
    ///
    /// # Errors
    /// Returns 401 for invalid credentials, and for missing ones if they are needed.
    pub(crate) fn authenticate(&self, parts: &Parts) -> Result<(Arc<UserInfo>, Option<Arc<Value>>), Status> {
        if parts.extensions.get::<InvalidCertificate>().is_some() && !parts.headers.contains_key(header::AUTHORIZATION)
        {
            return Err(unauthorized());
        }
        if let Some(user) = parts.extensions.get::<Arc<UserInfo>>() {
            return Ok((user.clone(), None));
        }
        let Some(token) = bearer_token(&parts.headers)? else {
            let anonymous = || (Arc::new(UserInfo::anonymous()), None);
            return self.anonymous.allows(parts.uri.path()).then(anonymous).ok_or_else(unauthorized);
        };
        self.authenticate_token(&token, &[]).map(|found| (Arc::new(found.user), found.secret)).map_err(|error| {
            tracing::debug!(%error, "a bearer token was refused");
            unauthorized()
        })
    }

    /// Returns the user of a bearer token, and those of the given audiences for which it is valid. Without any, they
    /// are those of this server.
    pub(crate) fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Identified, TokenError> {
        let own = self.issuer.audiences();
        let audiences = if audiences.is_empty() { own } else { audiences };
        if let Some(user) = self.static_tokens.read().get(&digest(token)) {
            let audiences: Vec<_> = audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
            if !audiences.is_empty() {
                return Ok(Identified { user: user.clone(), audiences, secret: None });
            }
        }
        let known = self.authenticate_account(token, audiences, own);
        known.or_else(|refused| review(&self.reviewers, token, audiences, own, refused))
    }

    /// Returns the user of a token of a service account.
    fn authenticate_account(
        &self,
        token: &str,
        audiences: &[String],
        own: &[String],
    ) -> Result<Identified, TokenError> {
        let now = self.clock.now();
        let claims = self.issuer.verify(token)?;
        let lookup = |storage: &str, namespace: &str, name: &str| self.lookup(storage, namespace, name);
        if claims["iss"] == secret_token::ISSUER {
            let audiences = token::audiences(&json!({"aud": own}), audiences)?;
            let (user, secret) = secret_token::identify(&claims, token, &lookup).map_err(TokenError::Revoked)?;
            return Ok(Identified { user, audiences, secret: Some(secret) });
        }
        Issuer::check_time(&claims, now)?;
        let audiences = token::audiences(&claims, audiences)?;
        let user = service_account::identify(&claims, now, &lookup).map_err(TokenError::Revoked)?;
        Ok(Identified { user, audiences, secret: None })
    }

    /// Signs the token that a Secret is to have.
    ///
    /// # Errors
    /// Returns 500 if the system provides no randomness.
    pub(crate) fn sign_secret_token(&self, account: &Value, secret: &Value) -> Result<String, Status> {
        self.issuer.sign_claims(&secret_token::claims(account, secret))
    }

    /// Signs a service account token, valid from `now`, according to a `TokenRequest`. Returns the token and the
    /// request with its defaults.
    ///
    /// # Errors
    /// Returns 400, 404, 409 or 422 for invalid requests, and 500 if the system provides no randomness.
    pub(crate) fn issue_token(
        &self,
        account: &Value,
        request: &Value,
        id: String,
        now: Timestamp,
    ) -> Result<(String, service_account::TokenSpec), Status> {
        let lookup = |storage: &str, namespace: &str, name: &str| self.lookup(storage, namespace, name);
        let spec = service_account::token_spec(account, request, (self.issuer.audiences(), id), &lookup)?;
        let token = self.issuer.sign(spec.claims.clone(), now, spec.seconds)?;
        Ok((token, spec))
    }

    /// Sets the audiences of a `TokenRequest` without any.
    pub(crate) fn default_audiences(&self, request: &mut Value) {
        service_account::default_audiences(request, self.issuer.audiences());
    }

    /// Returns the OpenID configuration of the issuer of service account tokens, for a server at this address.
    pub(crate) fn open_id(&self, address: &str) -> Value {
        self.issuer.configuration(address)
    }

    /// Returns the keys that verify service account tokens, as a JSON web key set.
    pub(crate) fn keys(&self) -> Value {
        self.issuer.keys()
    }

    fn lookup(&self, storage: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(storage, &Key::new(namespace, name)).map(|stored| stored.value())
    }
}

/// Asks reviewers about a token that was refused. The first that knows it for one of the audiences decides.
fn review(
    reviewers: &[Arc<dyn TokenReviewer>],
    token: &str,
    audiences: &[String],
    own: &[String],
    refused: TokenError,
) -> Result<Identified, TokenError> {
    let mut errors = Vec::new();
    for reviewer in reviewers {
        match reviewer.review(token, audiences) {
            Ok(Some((user, valid))) => {
                let valid = if valid.is_empty() { own } else { &valid };
                let audiences: Vec<_> = audiences.iter().filter(|one| valid.contains(one)).cloned().collect();
                if !audiences.is_empty() {
                    return Ok(Identified { user: user.authenticated(), audiences, secret: None });
                }
            }
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Err(refused) } else { Err(TokenError::Reviewed(errors.join(", "))) }
}

/// Returns the bearer token of a request, if it has credentials.
fn bearer_token(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Status> {
    let Some(header) = headers.get(header::AUTHORIZATION) else {
        if !websocket::is_requested(headers) {
            return Ok(None);
        }
        let token = websocket::bearer_token(headers).map_err(|error| {
            tracing::debug!(error, "the subprotocols of a WebSocket were refused");
            unauthorized()
        })?;
        return Ok(token.map(Cow::Owned));
    };
    // Credentials of other schemes identify no user.
    let token = header.to_str().ok().and_then(|text| text.trim().split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
    Ok(token.and_then(|token| token.split(' ').next()).filter(|token| !token.is_empty()).map(Cow::Borrowed))
}

/// 401: the credentials are invalid.
pub(crate) fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_requests_can_be_limited_to_paths() {
        let some = Anonymous::Paths(["/healthz".to_owned()].into());
        assert!(some.allows("/healthz") && some.allows("/%68ealthz"));
        assert!(!some.allows("/healthz/") && !some.allows("/livez"));
        assert!(Anonymous::Everywhere.allows("/livez") && !Anonymous::Nowhere.allows("/livez"));
    }
}
