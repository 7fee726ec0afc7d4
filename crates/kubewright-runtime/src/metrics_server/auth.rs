//! Authentication and authorization of requests by the API server, as in controller-runtime's
//! `WithAuthenticationAndAuthorization`.
//!
//! A `TokenReview` identifies the user of a token, and a `SubjectAccessReview` checks that the user may `get` the path.
//! Results are cached for a limited time, so that scraping is cheap. The caches and the number of concurrent reviews
//! are bounded.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_connect::crypto_provider;
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::timeout};

use crate::client::explain;

/// The time for which valid and invalid tokens are cached.
const VALID: Duration = Duration::from_secs(60);
const INVALID: Duration = Duration::from_secs(10);
/// The time for which granted and denied accesses are cached.
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);
/// The maximum number of entries of each cache.
const CACHE_SIZE: usize = 1024;
/// The maximum number of concurrent reviews. It is bounded because any client may send tokens.
const CONCURRENT_REVIEWS: usize = 4;
/// The timeout of a review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length in bytes of a token that is reviewed.
const LONGEST_TOKEN: usize = 16 * 1024;

/// The digest of a token.
type Digest = Box<[u8]>;

/// Middleware state for authenticating and authorizing requests.
#[derive(Clone)]
pub(super) struct Auth(Arc<Inner>);

struct Inner {
    client: Client,
    clock: SharedClock,
    /// The users of valid tokens, by the token's hash, so that no token is kept in memory.
    users: Mutex<Cache<Digest, UserInfo>>,
    /// Hashes of invalid tokens. Any client can send any number of them, so they have a separate cache.
    invalid: Mutex<Cache<Digest, ()>>,
    rights: Mutex<Cache<AccessRequest, bool>>,
    questions: Semaphore,
}

/// The user and the access of a `SubjectAccessReview`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AccessRequest {
    user: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    verb: String,
    path: String,
}

/// A cache of results, each with its expiry time.
struct Cache<K, V>(BTreeMap<K, (Duration, V)>);

impl<K: Ord, V: Clone> Cache<K, V> {
    fn new() -> Mutex<Self> {
        Mutex::new(Self(BTreeMap::new()))
    }

    fn get(&self, key: &K, now: Duration) -> Option<V> {
        self.0.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    fn put(&mut self, key: K, value: V, now: Duration, until: Duration) {
        if self.0.len() >= CACHE_SIZE {
            self.0.retain(|_, (until, _)| now < *until);
        }
        if self.0.len() >= CACHE_SIZE {
            self.0.clear();
        }
        self.0.insert(key, (until, value));
    }
}

/// The response to a rejected request.
struct Rejection(StatusCode, String);

impl Rejection {
    fn unauthorized() -> Self {
        Self(StatusCode::UNAUTHORIZED, "Unauthorized".into())
    }

    /// Returns the rejection for a failed review. The error is only logged.
    fn unanswered(what: &str, why: &str) -> Self {
        tracing::error!(
            error = why,
            "can't authenticate a request for metrics: grant the operator the right to create tokenreviews and subjectaccessreviews"
        );
        Self(StatusCode::INTERNAL_SERVER_ERROR, format!("{what} failed"))
    }
}

impl Auth {
    pub(super) fn new(client: Client, clock: SharedClock) -> Self {
        let (users, invalid, rights) = (Cache::new(), Cache::new(), Cache::new());
        Self(Arc::new(Inner { client, clock, users, invalid, rights, questions: Semaphore::new(CONCURRENT_REVIEWS) }))
    }

    /// Checks a request; for `axum::middleware::from_fn_with_state`.
    pub(super) async fn check(State(auth): State<Self>, request: Request, next: Next) -> Response {
        let admitted = match bearer(&request).map(str::to_owned) {
            Some(token) => {
                let (verb, path) = (request.method().as_str().to_lowercase(), request.uri().path().to_owned());
                auth.0.admit(&token, verb, path).await
            }
            None => Err(Rejection::unauthorized()),
        };
        match admitted {
            Ok(()) => next.run(request).await,
            Err(Rejection(StatusCode::UNAUTHORIZED, text)) => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
            }
            Err(Rejection(code, text)) => (code, text).into_response(),
        }
    }
}

impl Inner {
    async fn admit(&self, token: &str, verb: String, path: String) -> Result<(), Rejection> {
        let user = self.user(token).await?.ok_or_else(Rejection::unauthorized)?;
        let name = user.username.clone().unwrap_or_default();
        let question = AccessRequest {
            user: name.clone(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
            verb,
            path,
        };
        match self.may(question).await? {
            true => Ok(()),
            false => Err(Rejection(StatusCode::FORBIDDEN, format!("Authorization denied for user {name}"))),
        }
    }

    /// Returns the user of a token; `None` if the token is invalid.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, Rejection> {
        let digest = digest(token);
        let now = self.clock.monotonic();
        if let Some(user) = self.users.lock().get(&digest, now) {
            return Ok(Some(user));
        }
        if self.invalid.lock().get(&digest, now).is_some() {
            return Ok(None);
        }
        let spec = TokenReviewSpec { token: token.into(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.ask(&review).await.map_err(|why| Rejection::unanswered("Authentication", &why))?;
        let status = review.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let now = self.clock.monotonic();
        match &user {
            Some(user) => self.users.lock().put(digest, user.clone(), now, now + VALID),
            None => self.invalid.lock().put(digest, (), now, now + INVALID),
        }
        Ok(user)
    }

    async fn may(&self, question: AccessRequest) -> Result<bool, Rejection> {
        let found = self.rights.lock().get(&question, self.clock.monotonic());
        if let Some(may) = found {
            return Ok(may);
        }
        let AccessRequest { user, groups, extra, verb, path } = question.clone();
        let spec = SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(groups),
            extra: Some(extra),
            non_resource_attributes: Some(NonResourceAttributes { path: Some(path), verb: Some(verb) }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let review = self.ask(&review).await.map_err(|why| Rejection::unanswered("Authorization", &why))?;
        let may = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let now = self.clock.monotonic();
        self.rights.lock().put(question, may, now, now + if may { ALLOWED } else { DENIED });
        Ok(may)
    }

    async fn ask<T>(&self, review: &T) -> Result<T, String>
    where
        T: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let asked = async {
            let _turn = self.questions.acquire().await;
            Api::<T>::all(self.client.clone()).create(&PostParams::default(), review).await
        };
        match timeout(REVIEW_TIMEOUT, asked).await {
            Ok(answer) => answer.map_err(|error| explain(&error)),
            Err(_) => Err(format!("no answer within {REVIEW_TIMEOUT:?}")),
        }
    }
}

/// Returns the bearer token of a request.
fn bearer(request: &Request) -> Option<&str> {
    let (scheme, token) = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST_TOKEN).then_some(token)
}

/// Returns a digest of a token, by the hash function of a TLS 1.3 cipher suite.
fn digest(token: &str) -> Digest {
    let provider = crypto_provider();
    let suite = provider.cipher_suites.iter().find_map(|suite| suite.tls13()).expect("a provider has TLS 1.3");
    Digest::from(suite.common.hash_provider.hash(token.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;
    use kube::client::Body;
    use kubewright_apimachinery::clock::SystemClock;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    #[test]
    fn cached_answers_expire_and_are_bounded() {
        let second = Duration::from_secs;
        let mut cache = Cache(BTreeMap::new());
        cache.put(0, true, second(0), second(10));
        assert_eq!((cache.get(&0, second(9)), cache.get(&0, second(10))), (Some(true), None));
        for key in 0..3 * CACHE_SIZE {
            cache.put(key, false, second(20), second(30));
            assert!(cache.0.len() <= CACHE_SIZE);
        }
        assert_eq!(cache.get(&(3 * CACHE_SIZE - 1), second(29)), Some(false));
    }

    #[tokio::test]
    async fn invalid_tokens_take_bounded_memory_and_displace_no_valid_ones() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let server = service_fn(move |request: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect().await?.to_bytes();
                let mut review: serde_json::Value = serde_json::from_slice(&body)?;
                let is_good = review["spec"]["token"] == "good";
                review["status"] = match review["kind"] == "TokenReview" {
                    true => json!({"authenticated": is_good, "user": {"username": "prometheus"}}),
                    false => json!({"allowed": true}),
                };
                Ok::<_, BoxError>(Response::new(Body::from(serde_json::to_vec(&review)?)))
            }
        });
        let auth = Auth::new(Client::new(server, "default"), SystemClock::shared());
        let admit = async |token: &str| auth.0.admit(token, "get".into(), "/metrics".into()).await.is_ok();
        assert!(admit("good").await);
        assert_eq!(asked.swap(0, Ordering::Relaxed), 2);
        for number in 0..2 * CACHE_SIZE {
            assert!(!admit(&format!("garbage {number}")).await);
            assert!(auth.0.invalid.lock().0.len() <= CACHE_SIZE);
        }
        assert_eq!(asked.swap(0, Ordering::Relaxed), 2 * CACHE_SIZE);
        assert!(!admit(&format!("garbage {}", 2 * CACHE_SIZE - 1)).await && admit("good").await);
        assert_eq!(asked.load(Ordering::Relaxed), 0, "both are cached");
        assert_eq!((auth.0.users.lock().0.len(), auth.0.rights.lock().0.len()), (1, 1));
    }

    #[test]
    fn a_token_is_read_from_a_bearer_header() {
        let token = |value: &str| {
            let request = Request::get("/metrics").header(header::AUTHORIZATION, value);
            bearer(&request.body(axum::body::Body::empty()).unwrap()).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        for none in ["Basic abc", "Bearer", "Bearer ", "abc", &format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1))] {
            assert_eq!(token(none), None);
        }
    }
}
