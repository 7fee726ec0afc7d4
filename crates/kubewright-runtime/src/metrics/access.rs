//! Who may read the metrics: the API server is asked, as by controller-runtime's `WithAuthenticationAndAuthorization`.
//!
//! Whose token is this (`TokenReview`), and may they `get` this path (`SubjectAccessReview`)? What was found out counts for
//! a while, so that scraping costs next to nothing; how much is remembered, and asked at a time, is bounded.

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
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::timeout};

use crate::client::explain;

/// How long a token is known to be someone's, and to be no one's.
const KNOWN: Duration = Duration::from_secs(60);
const UNKNOWN: Duration = Duration::from_secs(10);
/// How long someone is known to have a right, and to lack it.
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);
/// The most answers of a kind to remember.
const MEMORY: usize = 1024;
/// The most questions at a time: anyone may send tokens.
const AT_ONCE: usize = 4;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest token to ask about.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Lets those pass who may.
#[derive(Clone)]
pub(super) struct Gate(Arc<Inner>);

struct Inner {
    client: Client,
    clock: SharedClock,
    /// By the hash of the token, so that none is kept.
    users: Mutex<Memory<[u8; 32], UserInfo>>,
    /// Tokens that are no one's: of these anyone can send any number, so they have a memory of their own.
    strangers: Mutex<Memory<[u8; 32], ()>>,
    rights: Mutex<Memory<Question, bool>>,
    questions: Semaphore,
}

/// May this user, of these groups, do this?
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    user: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    verb: String,
    path: String,
}

/// What was answered, and until when it counts.
struct Memory<K, V>(BTreeMap<K, (Duration, V)>);

impl<K: Ord, V: Clone> Memory<K, V> {
    fn new() -> Mutex<Self> {
        Mutex::new(Self(BTreeMap::new()))
    }

    fn get(&self, key: &K, now: Duration) -> Option<V> {
        self.0.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    fn put(&mut self, key: K, value: V, now: Duration, until: Duration) {
        if self.0.len() >= MEMORY {
            self.0.retain(|_, (until, _)| now < *until);
        }
        if self.0.len() >= MEMORY {
            self.0.clear();
        }
        self.0.insert(key, (until, value));
    }
}

/// Why a request isn't let through.
struct Refusal(StatusCode, String);

impl Refusal {
    fn unauthorized() -> Self {
        Self(StatusCode::UNAUTHORIZED, "Unauthorized".into())
    }

    /// The API server doesn't answer, or not us. What it says stays in the log.
    fn unanswered(what: &str, why: &str) -> Self {
        tracing::error!(
            error = why,
            "can't tell who may read the metrics; it takes the right to create tokenreviews and subjectaccessreviews"
        );
        Self(StatusCode::INTERNAL_SERVER_ERROR, format!("{what} failed"))
    }
}

impl Gate {
    pub(super) fn new(client: Client, clock: SharedClock) -> Self {
        let (users, strangers, rights) = (Memory::new(), Memory::new(), Memory::new());
        Self(Arc::new(Inner { client, clock, users, strangers, rights, questions: Semaphore::new(AT_ONCE) }))
    }

    /// For `axum::middleware::from_fn_with_state`.
    pub(super) async fn check(State(gate): State<Self>, request: Request, next: Next) -> Response {
        let admitted = match bearer(&request).map(str::to_owned) {
            Some(token) => {
                let (verb, path) = (request.method().as_str().to_lowercase(), request.uri().path().to_owned());
                gate.0.admit(&token, verb, path).await
            }
            None => Err(Refusal::unauthorized()),
        };
        match admitted {
            Ok(()) => next.run(request).await,
            Err(Refusal(StatusCode::UNAUTHORIZED, text)) => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
            }
            Err(Refusal(code, text)) => (code, text).into_response(),
        }
    }
}

impl Inner {
    async fn admit(&self, token: &str, verb: String, path: String) -> Result<(), Refusal> {
        let user = self.user(token).await?.ok_or_else(Refusal::unauthorized)?;
        let name = user.username.clone().unwrap_or_default();
        let question = Question {
            user: name.clone(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
            verb,
            path,
        };
        match self.may(question).await? {
            true => Ok(()),
            false => Err(Refusal(StatusCode::FORBIDDEN, format!("Authorization denied for user {name}"))),
        }
    }

    /// Whose token it is; none if no one's.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, Refusal> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let now = self.clock.monotonic();
        if let Some(user) = self.users.lock().get(&digest, now) {
            return Ok(Some(user));
        }
        if self.strangers.lock().get(&digest, now).is_some() {
            return Ok(None);
        }
        let spec = TokenReviewSpec { token: token.into(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.ask(&review).await.map_err(|why| Refusal::unanswered("Authentication", &why))?;
        let status = review.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let now = self.clock.monotonic();
        match &user {
            Some(user) => self.users.lock().put(digest, user.clone(), now, now + KNOWN),
            None => self.strangers.lock().put(digest, (), now, now + UNKNOWN),
        }
        Ok(user)
    }

    async fn may(&self, question: Question) -> Result<bool, Refusal> {
        let found = self.rights.lock().get(&question, self.clock.monotonic());
        if let Some(may) = found {
            return Ok(may);
        }
        let Question { user, groups, extra, verb, path } = question.clone();
        let spec = SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(groups),
            extra: Some(extra),
            non_resource_attributes: Some(NonResourceAttributes { path: Some(path), verb: Some(verb) }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let review = self.ask(&review).await.map_err(|why| Refusal::unanswered("Authorization", &why))?;
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
        match timeout(PATIENCE, asked).await {
            Ok(answer) => answer.map_err(|error| explain(&error)),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        }
    }
}

/// The token of a request.
fn bearer(request: &Request) -> Option<&str> {
    let (scheme, token) = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST_TOKEN).then_some(token)
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
    fn what_is_remembered_ends_and_is_bounded() {
        let second = Duration::from_secs;
        let mut memory = Memory(BTreeMap::new());
        memory.put(0, true, second(0), second(10));
        assert_eq!((memory.get(&0, second(9)), memory.get(&0, second(10))), (Some(true), None));
        for key in 0..3 * MEMORY {
            memory.put(key, false, second(20), second(30));
            assert!(memory.0.len() <= MEMORY);
        }
        assert_eq!(memory.get(&(3 * MEMORY - 1), second(29)), Some(false));
    }

    /// Anyone may send any number of tokens: they take no memory, and push out nobody whom we know.
    #[tokio::test]
    async fn garbage_tokens_take_bounded_memory_and_push_out_no_one() {
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
        let gate = Gate::new(Client::new(server, "default"), SystemClock::shared());
        let admit = async |token: &str| gate.0.admit(token, "get".into(), "/metrics".into()).await.is_ok();
        assert!(admit("good").await);
        assert_eq!(asked.swap(0, Ordering::Relaxed), 2);
        for number in 0..2 * MEMORY {
            assert!(!admit(&format!("garbage {number}")).await);
            assert!(gate.0.strangers.lock().0.len() <= MEMORY);
        }
        assert_eq!(asked.swap(0, Ordering::Relaxed), 2 * MEMORY);
        assert!(!admit(&format!("garbage {}", 2 * MEMORY - 1)).await && admit("good").await);
        assert_eq!(asked.load(Ordering::Relaxed), 0, "both are known");
        assert_eq!((gate.0.users.lock().0.len(), gate.0.rights.lock().0.len()), (1, 1));
    }

    #[test]
    fn a_token_is_a_bearers() {
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
