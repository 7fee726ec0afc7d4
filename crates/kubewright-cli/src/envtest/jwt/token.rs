//! Tokens in the compact form (RFC 7515), and the claims that OpenID Connect defines.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kubewright_apimachinery::types::json_type;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::key::Algorithm;

/// By how much the clock of an issuer may be ahead.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);

/// A token whose signature isn't verified yet.
#[derive(Debug)]
pub(super) struct Token<'t> {
    algorithm: String,
    /// The name of the key, which may be empty.
    pub(super) key: String,
    pub(super) claims: Map<String, Value>,
    /// The part that is signed.
    pub(super) signed: &'t str,
    pub(super) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that a reader has to understand.
    #[serde(default)]
    crit: Vec<String>,
}

/// Returns the issuer that a token names. Nothing is verified.
pub(super) fn untrusted_issuer(token: &str) -> Option<String> {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let claims: Value = serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()?;
    let issuer = claims.get("iss")?.as_str()?;
    // Google's tokens had this name once.
    Some(if issuer == "accounts.google.com" { "https://accounts.google.com" } else { issuer }.to_owned())
}

impl<'t> Token<'t> {
    /// Reads a token.
    ///
    /// # Errors
    /// If it hasn't the form of a signed token.
    pub(super) fn parse(token: &'t str) -> Result<Self, String> {
        let malformed = |why: &str| format!("oidc: malformed jwt: {why}");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(|| malformed("it has no signature"))?;
        let (header, claims) = signed.split_once('.').ok_or_else(|| malformed("it has no claims"))?;
        let decode = |part: &str| BASE64.decode(part).map_err(|error| malformed(&error.to_string()));
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|error| malformed(&error.to_string()))?;
        if !header.crit.is_empty() {
            return Err(malformed("its critical extensions are unknown"));
        }
        let claims: Map<String, Value> = serde_json::from_slice(&decode(claims)?)
            .map_err(|error| format!("oidc: failed to unmarshal claims: {error}"))?;
        if let Some(subject) = claims.get("sub").filter(|subject| !subject.is_string() && !subject.is_null()) {
            return Err(wrong(subject, "sub"));
        }
        Ok(Self { algorithm: header.alg, key: header.kid, claims, signed, signature: decode(signature)? })
    }

    /// Checks what needs no key: the audience if there is only one, the time and the algorithm.
    ///
    /// # Errors
    /// The reason why the token isn't accepted, in Kubernetes' words.
    pub(super) fn check(
        &self,
        audiences: &[String],
        now: Timestamp,
        accepted: &[Algorithm],
    ) -> Result<Algorithm, String> {
        let own = self.audiences()?;
        if let [audience] = audiences
            && !own.contains(audience)
        {
            return Err(format!("oidc: expected audience {audience:?} got {}", quoted(&own)));
        }
        let expiry = self.time("exp")?;
        if expiry.is_none_or(|expiry| expiry < now) {
            let shown = expiry.map_or_else(|| "0001-01-01 00:00:00 +0000 UTC".to_owned(), shown);
            return Err(format!("oidc: token is expired (Token Expiry: {shown})"));
        }
        if let Some(start) = self.time("nbf")?
            && now.saturating_add(LEEWAY).is_ok_and(|latest| latest < start)
        {
            let (now, start) = (shown(now), shown(start));
            return Err(format!("oidc: current time {now} before the nbf (not before) time: {start}"));
        }
        Algorithm::from_name(&self.algorithm).filter(|algorithm| accepted.contains(algorithm)).ok_or_else(|| {
            let names: Vec<_> = accepted.iter().map(|algorithm| algorithm.name().to_owned()).collect();
            let (names, found) = (quoted(&names), &self.algorithm);
            format!("oidc: id token signed with unsupported algorithm, expected {names} got {found:?}")
        })
    }

    /// Checks that the token is for one of several audiences.
    ///
    /// # Errors
    /// If it is for none of them.
    pub(super) fn check_audiences(&self, audiences: &[String]) -> Result<(), String> {
        let own = self.audiences()?;
        if own.iter().any(|audience| audiences.contains(audience)) {
            return Ok(());
        }
        let mut audiences = audiences.to_vec();
        audiences.sort();
        Err(format!("oidc: expected audience in {} got {}", quoted(&audiences), quoted(&own)))
    }

    /// Returns the audiences: a text, or a list of texts.
    fn audiences(&self) -> Result<Vec<String>, String> {
        match self.claims.get("aud") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(audience)) => Ok(vec![audience.clone()]),
            Some(Value::Array(all)) => {
                let text = |one: &Value| one.as_str().map(str::to_owned).ok_or_else(|| wrong(one, "aud"));
                all.iter().map(text).collect()
            }
            Some(other) => Err(wrong(other, "aud")),
        }
    }

    /// Returns the time of a claim, in seconds since 1970. As in Kubernetes, the number may be a text.
    fn time(&self, claim: &str) -> Result<Option<Timestamp>, String> {
        let seconds = match self.claims.get(claim) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64)),
            Some(Value::String(text)) => {
                text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|seconds| seconds as i64))
            }
            Some(_) => None,
        };
        let seconds = seconds.ok_or_else(|| {
            format!("oidc: failed to unmarshal claims: the claim {claim} is not a time in seconds since 1970")
        })?;
        let farthest = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Ok(Some(Timestamp::from_second(seconds).unwrap_or(farthest)))
    }
}

/// Returns the error of Go's decoder about a claim of the wrong type.
fn wrong(value: &Value, claim: &str) -> String {
    let found = json_type(value);
    let place = format!("Go struct field idToken.{claim} of type string");
    format!("oidc: failed to unmarshal claims: json: cannot unmarshal {found} into {place}")
}

/// Returns texts in the form of Go.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<_> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// Returns a time in the form of Go.
fn shown(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(header: &Value, claims: &Value) -> String {
        let encoded = |value: &Value| BASE64.encode(value.to_string());
        format!("{}.{}.{}", encoded(header), encoded(claims), BASE64.encode("signature"))
    }

    #[test]
    fn the_issuer_is_known_before_the_signature() {
        let of = |claims: Value| untrusted_issuer(&token(&json!({}), &claims));
        assert_eq!(of(json!({"iss": "https://a"})).as_deref(), Some("https://a"));
        assert_eq!(of(json!({"iss": "accounts.google.com"})).as_deref(), Some("https://accounts.google.com"));
        assert_eq!(of(json!({"iss": 1})), None);
        assert_eq!(of(json!([])), None);
        for text in ["", "a", "a.b.c", "a.b.c.d", "{\"payload\": \"\"}"] {
            assert_eq!(untrusted_issuer(text), None, "{text}");
        }
    }

    #[test]
    fn tokens_are_for_an_audience_and_a_time() {
        let now = Timestamp::from_second(1000).unwrap();
        let check = |audiences: &[&str], claims: Value| {
            let text = token(&json!({"alg": "ES256", "kid": "k"}), &claims);
            let token = Token::parse(&text)?;
            let audiences: Vec<_> = audiences.iter().map(ToString::to_string).collect();
            token.check(&audiences, now, &[Algorithm::Es256])?;
            token.check_audiences(&audiences)
        };
        for (audiences, claims) in [
            (["a"].as_slice(), json!({"aud": "a", "exp": 1000})),
            (&["a"], json!({"aud": "a", "exp": "1000"})),
            (&["a"], json!({"aud": ["b", "a"], "exp": 1000.5, "nbf": 1060})),
            (&["b", "a"], json!({"aud": ["c", "a"], "exp": 9e20})),
        ] {
            assert_eq!(check(audiences, claims), Ok(()));
        }
        for (audiences, claims, expect) in [
            (["a"].as_slice(), json!({"aud": "b"}), r#"oidc: expected audience "a" got ["b"]"#),
            (
                &["b", "a"],
                json!({"aud": ["c", "d"], "exp": 1000}),
                r#"oidc: expected audience in ["a" "b"] got ["c" "d"]"#,
            ),
            (
                &["a"],
                json!({"aud": [1]}),
                "oidc: failed to unmarshal claims: json: cannot unmarshal number into Go struct field idToken.aud of \
                 type string",
            ),
            (
                &["a"],
                json!({"aud": "a", "sub": true}),
                "cannot unmarshal bool into Go struct field idToken.sub of type",
            ),
            (&["a"], json!({"aud": "a"}), "oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)"),
            (
                &["a"],
                json!({"aud": "a", "exp": 999}),
                "oidc: token is expired (Token Expiry: 1970-01-01 00:16:39 +0000 UTC)",
            ),
            (
                &["a"],
                json!({"aud": "a", "exp": 2000, "nbf": 1061}),
                "oidc: current time 1970-01-01 00:16:40 +0000 UTC before the nbf (not before) time: \
                 1970-01-01 00:17:41 +0000 UTC",
            ),
            (&["a"], json!({"aud": "a", "exp": "soon"}), "exp is not a time in seconds"),
        ] {
            let error = check(audiences, claims).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn algorithms_have_to_be_accepted() {
        let claims = json!({"aud": "a", "exp": 1000});
        for algorithm in ["none", "HS256", "RS256", ""] {
            let text = token(&json!({"alg": algorithm}), &claims);
            let now = Timestamp::from_second(1000).unwrap();
            let error = Token::parse(&text).unwrap().check(&["a".into()], now, &[Algorithm::Es256]).unwrap_err();
            assert!(error.ends_with(&format!("expected [\"ES256\"] got {algorithm:?}")), "{error}");
        }
        let critical = token(&json!({"alg": "ES256", "crit": ["b64"]}), &claims);
        assert!(Token::parse(&critical).unwrap_err().contains("critical extensions"));
    }
}
