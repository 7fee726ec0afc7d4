//! The keys of an issuer, which are found by OpenID Connect Discovery.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{HeaderMap, header};
use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    client::{Answer, Client},
    key::{Algorithm, Key},
    token::Token,
};

/// The part of an issuer's URL that leads to what it says about itself.
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// Keys are asked for again when they expire within this time.
const EXPIRY: Duration = Duration::from_secs(30);
/// The number of requests for keys within a time.
const REQUESTS: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

const INVALID: &str = "failed to verify signature: failed to verify id token signature";

/// An issuer of tokens.
pub(super) struct Provider {
    issuer: String,
    discovery: String,
    client: Client,
    clock: SharedClock,
    /// Where the keys are, once it is known.
    keys_url: OnceLock<String>,
    known: Mutex<Known>,
    /// Held while keys are asked for, so that tokens that need them wait for one answer.
    asking: tokio::sync::Mutex<()>,
}

/// The keys that are known.
#[derive(Clone, Default)]
struct Known {
    keys: Arc<Vec<Key>>,
    /// The number of answers so far.
    answers: u64,
    expiry: Duration,
    limit: Limit,
}

/// The requests for keys in a period.
#[derive(Clone, Copy, Default)]
struct Limit {
    beginning: Duration,
    requests: u32,
}

impl Limit {
    /// Counts a request, unless there were too many.
    fn take(&mut self, now: Duration) -> bool {
        if now >= self.beginning + PERIOD {
            *self = Self { beginning: now, requests: 0 };
        }
        let is_free = self.requests < REQUESTS;
        self.requests += u32::from(is_free);
        is_free
    }
}

impl Provider {
    /// Returns an issuer about which nothing is known yet. The discovery URL may be empty.
    pub(super) fn new(issuer: &str, discovery: &str, client: Client, clock: &SharedClock) -> Self {
        let discovery = match discovery {
            "" => format!("{}{DISCOVERY}", issuer.strip_suffix('/').unwrap_or(issuer)),
            discovery => discovery.to_owned(),
        };
        let (keys_url, known, asking) = (OnceLock::new(), Mutex::default(), tokio::sync::Mutex::default());
        Self { issuer: issuer.to_owned(), discovery, client, clock: clock.clone(), keys_url, known, asking }
    }

    /// Returns whether it is known where the keys are.
    pub(super) fn is_known(&self) -> bool {
        self.keys_url.get().is_some()
    }

    /// Asks where the keys are.
    ///
    /// # Errors
    /// If the issuer doesn't answer, or is another one.
    pub(super) async fn discover(&self) -> Result<(), String> {
        let Answer { body, .. } = self.client.get(&self.discovery).await?;
        let document: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        let text = |name: &str| document[name].as_str().unwrap_or_default();
        if text("issuer") != self.issuer {
            let (expected, found) = (&self.issuer, text("issuer"));
            let why = "oidc: issuer did not match the issuer returned by provider";
            return Err(format!("{why}, expected {expected:?} got {found:?}"));
        }
        match text("jwks_uri") {
            "" => Err("provider did not return JWKS URL".to_owned()),
            url => {
                self.keys_url.get_or_init(|| url.to_owned());
                Ok(())
            }
        }
    }

    /// Verifies the signature of a token. Keys that aren't known are asked for, unless the known ones are to be kept
    /// for longer, or keys have been asked for ten times within ten seconds.
    ///
    /// # Errors
    /// If no key verifies it, in Kubernetes' words.
    pub(super) async fn verify(&self, token: &Token<'_>, algorithm: Algorithm) -> Result<(), String> {
        let Some(url) = self.keys_url.get() else { return Err("oidc: authenticator not initialized".to_owned()) };
        let before = self.known.lock().clone();
        if is_valid(&before.keys, token, algorithm) {
            return Ok(());
        }
        if self.clock.monotonic() + EXPIRY <= before.expiry {
            return Err(INVALID.to_owned());
        }
        let asking = self.asking.lock().await;
        let latest = self.known.lock().clone();
        let keys = if latest.answers > before.answers { latest.keys } else { self.ask(url).await? };
        drop(asking);
        if is_valid(&keys, token, algorithm) { Ok(()) } else { Err(INVALID.to_owned()) }
    }

    /// Asks for the keys.
    async fn ask(&self, url: &str) -> Result<Arc<Vec<Key>>, String> {
        let now = self.clock.monotonic();
        if !self.known.lock().limit.take(now) {
            return Err(INVALID.to_owned());
        }
        let failed = |why: String| format!("failed to verify signature: fetching keys oidc: {why}");
        let answer = self.client.get(url).await.map_err(|why| failed(format!("get keys failed: {why}")))?;
        let set: Value =
            serde_json::from_slice(&answer.body).map_err(|error| failed(format!("failed to decode keys: {error}")))?;
        let keys = Arc::new(Key::all_of(&set));
        let mut known = self.known.lock();
        (known.keys, known.expiry) = (keys.clone(), now + lifetime(&answer.headers));
        known.answers += 1;
        Ok(keys)
    }
}

/// Returns whether a key verifies the signature of a token: the one that it names, or any if it names none.
fn is_valid(keys: &[Key], token: &Token<'_>, algorithm: Algorithm) -> bool {
    let mut named = keys.iter().filter(|key| token.key.is_empty() || key.id == token.key);
    named.any(|key| key.verifies(algorithm, token.signed.as_bytes(), &token.signature))
}

/// Returns for how long an answer may be kept: `s-maxage` or `max-age` of its `Cache-Control`. Without them, it isn't.
fn lifetime(headers: &HeaderMap) -> Duration {
    let directives = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives: Vec<_> = directives.flat_map(|value| value.split(',')).map(str::trim).collect();
    let seconds = |name: &str| {
        directives.iter().find_map(|directive| {
            let (found, value) = directive.split_once('=')?;
            if !found.trim().eq_ignore_ascii_case(name) {
                return None;
            }
            value.trim().trim_matches('"').parse::<u32>().ok()
        })
    };
    Duration::from_secs(seconds("s-maxage").or_else(|| seconds("max-age")).unwrap_or(0).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_keys_are_limited() {
        let mut limit = Limit::default();
        let mut take = |seconds: u64| limit.take(Duration::from_secs(seconds));
        assert_eq!((0..25).filter(|_| take(3)).count(), 10);
        assert_eq!((0..25).filter(|_| take(9)).count(), 0);
        assert_eq!((0..25).filter(|_| take(10)).count(), 10);
        assert!(!take(19) && take(20));
    }

    #[test]
    fn keys_are_kept_as_long_as_their_issuer_says() {
        for (value, expect) in [
            ("max-age=60", 60),
            ("public, Max-Age=\"60\"", 60),
            ("max-age=60, s-maxage=5", 5),
            ("no-cache", 0),
            ("max-age=-1", 0),
        ] {
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, value.parse().unwrap())]);
            assert_eq!(lifetime(&headers), Duration::from_secs(expect), "{value}");
        }
        assert_eq!(lifetime(&HeaderMap::new()), Duration::ZERO);
    }
}
