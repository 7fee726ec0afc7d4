//! Service account tokens: JSON web tokens (RFC 7519).
//!
//! This module signs tokens and verifies their signature and time. [`super::service_account`] interprets their claims.

mod key;

use std::{fmt, slice, sync::OnceLock};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use kubewright_apimachinery::status::Status;
use ring::rand::{SystemRandom, generate};
use serde_json::{Value, json};

use key::Key;

/// The issuer of the tokens of service accounts, unless another one is set
/// (`--service-account-issuer` of kube-apiserver).
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// An error of authenticating a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// The token is unknown, malformed or tampered with.
    #[error("invalid bearer token")]
    Unknown,
    /// The token has expired.
    #[error("[invalid bearer token, service account token has expired]")]
    Expired,
    /// The token isn't valid yet.
    #[error("[invalid bearer token, service account token is not valid yet]")]
    NotYetValid,
    /// The token is for other audiences.
    #[error("[invalid bearer token, token audiences {0:?} is invalid for the target audiences {1:?}]")]
    Audience(Vec<String>, Vec<String>),
    /// The program that was asked about the token refuses it, or couldn't be asked.
    #[error("[invalid bearer token, {0}]")]
    Reviewed(String),
    /// The service account of the token, or the object that it is bound to, no longer exists.
    #[error("[invalid bearer token, {0}]")]
    Revoked(String),
}

/// Signs and verifies tokens.
pub(crate) struct Issuer {
    name: String,
    /// The audiences of this server; `None` for the name of the issuer.
    audiences: Option<Vec<String>>,
    /// Unless it is given, the key is generated on first use and lives as long as the server.
    key: OnceLock<Option<Key>>,
}

impl Default for Issuer {
    fn default() -> Self {
        Self { name: DEFAULT_ISSUER.into(), audiences: None, key: OnceLock::new() }
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns a token of 256 random bits in hexadecimal, or `None` if the operating system fails to generate them. Secrets
/// come from the operating system, even in a seeded simulation.
pub(crate) fn secret() -> Option<String> {
    let bytes: [u8; 32] = generate(&SystemRandom::new()).ok()?.expose();
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Issuer {
    /// Sets the name.
    pub(crate) fn set_name(&mut self, name: String) {
        self.name = name;
    }

    /// Sets the audiences of this server.
    pub(crate) fn set_audiences(&mut self, audiences: Vec<String>) {
        self.audiences = Some(audiences);
    }

    /// Sets the key, in PEM: ECDSA on P-256, or RSA. Returns false if it is another one.
    pub(crate) fn set_key(&mut self, pem: &str) -> bool {
        let key = Key::from_pem(pem);
        let is_key = key.is_some();
        self.key = key.map(|key| OnceLock::from(Some(key))).unwrap_or_default();
        is_key
    }

    /// Returns whether the key was given.
    pub(crate) fn has_key(&self) -> bool {
        self.key.get().is_some()
    }

    /// Returns the audiences of this server, which tokens have by default.
    pub(crate) fn audiences(&self) -> &[String] {
        self.audiences.as_deref().unwrap_or(slice::from_ref(&self.name))
    }

    fn key(&self) -> Option<&Key> {
        self.key.get_or_init(Key::generate).as_ref()
    }

    /// Signs a token with these claims, valid for the given number of seconds from `now`.
    ///
    /// # Errors
    /// Returns 500 if the system provides no randomness.
    pub(crate) fn sign(&self, mut claims: Value, now: Timestamp, seconds: i64) -> Result<String, Status> {
        let start = now.as_second();
        claims["iss"] = self.name.as_str().into();
        for (claim, time) in [("iat", start), ("nbf", start), ("exp", start.saturating_add(seconds))] {
            claims[claim] = time.into();
        }
        self.sign_claims(&claims)
    }

    /// Signs a token with exactly these claims.
    ///
    /// # Errors
    /// Returns 500 if the system provides no randomness.
    pub(crate) fn sign_claims(&self, claims: &Value) -> Result<String, Status> {
        let no_key = || Status::internal("failed to sign the token: the system has no randomness");
        let key = self.key().ok_or_else(no_key)?;
        let encoded = |value: &Value| BASE64.encode(value.to_string());
        let header = json!({"alg": key.algorithm(), "kid": key.id()});
        let text = format!("{}.{}", encoded(&header), encoded(claims));
        let signature = key.sign(text.as_bytes()).map_err(|_| no_key())?;
        Ok(format!("{text}.{}", BASE64.encode(signature)))
    }

    /// Returns the OpenID provider configuration, for a server at this address.
    pub(crate) fn configuration(&self, address: &str) -> Value {
        json!({
            "issuer": self.name, "jwks_uri": format!("https://{address}/openid/v1/jwks"),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self.key().map(Key::algorithm).into_iter().collect::<Vec<_>>(),
        })
    }

    /// Returns the JSON web key set that verifies the tokens.
    pub(crate) fn keys(&self) -> Value {
        json!({"keys": self.key().map(Key::public).into_iter().collect::<Vec<_>>()})
    }

    /// Returns an error unless a token with these claims is valid now.
    pub(crate) fn check_time(claims: &Value, now: Timestamp) -> Result<(), TokenError> {
        let time = |claim: &str| claims[claim].as_i64().ok_or(TokenError::Unknown);
        if now.as_second() >= time("exp")? {
            return Err(TokenError::Expired);
        }
        if now.as_second() < time("nbf")? {
            return Err(TokenError::NotYetValid);
        }
        Ok(())
    }

    /// Returns the claims of a token with a valid signature. Nothing in the token is trusted before verification, not
    /// even its algorithm.
    pub(crate) fn verify(&self, token: &str) -> Result<Value, TokenError> {
        self.signed_claims(token).ok_or(TokenError::Unknown)
    }

    fn signed_claims(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (_, claims) = text.split_once('.')?;
        self.key()?.verify(text.as_bytes(), &BASE64.decode(signature).ok()?).ok()?;
        serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()
    }
}

/// Returns the accepted audiences that a token is for.
///
/// # Errors
/// If it is for none of them.
pub(crate) fn audiences(claims: &Value, accepted: &[String]) -> Result<Vec<String>, TokenError> {
    let own: Vec<String> =
        claims["aud"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let common: Vec<_> = accepted.iter().filter(|one| own.contains(one)).cloned().collect();
    if common.is_empty() { Err(TokenError::Audience(own, accepted.to_vec())) } else { Ok(common) }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn verify(issuer: &Issuer, token: &str, now: Timestamp) -> Result<Value, TokenError> {
        let claims = issuer.verify(token)?;
        Issuer::check_time(&claims, now).map(|()| claims)
    }

    #[test]
    fn tokens_are_verified_by_signature_and_time() {
        let issuer = Issuer::default();
        let token = issuer.sign(json!({"sub": "me"}), at(1000), 600).unwrap();
        assert_eq!(verify(&issuer, &token, at(1000)).unwrap()["sub"], "me");
        assert_eq!(verify(&issuer, &token, at(1599)).unwrap()["exp"], 1600);
        assert_eq!(verify(&issuer, &token, at(1600)), Err(TokenError::Expired));
        assert_eq!(verify(&issuer, &token, at(999)), Err(TokenError::NotYetValid));
        assert_eq!(verify(&Issuer::default(), &token, at(1000)), Err(TokenError::Unknown), "of another server");
        let parts: Vec<_> = token.split('.').collect();
        let forged = BASE64.encode(json!({"sub": "you", "exp": 9999, "nbf": 0}).to_string());
        let none = BASE64.encode(json!({"alg": "none"}).to_string());
        let tampered = [
            format!("{}.{forged}.{}", parts[0], parts[2]),
            format!("{none}.{}.", parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            format!("{token}A"),
            token[..token.len() - 2].to_owned(),
            "a.b.c".into(),
            "..".into(),
            String::new(),
        ];
        for token in tampered {
            assert_eq!(verify(&issuer, &token, at(1000)), Err(TokenError::Unknown), "{token}");
        }
    }

    #[test]
    fn the_key_set_verifies_tokens() {
        let issuer = Issuer::default();
        let token = issuer.sign(json!({"sub": "me"}), at(1000), 600).unwrap();
        let keys = issuer.keys();
        let key = &keys["keys"][0];
        let (text, signature) = token.rsplit_once('.').unwrap();
        let header: Value = serde_json::from_slice(&BASE64.decode(text.split('.').next().unwrap()).unwrap()).unwrap();
        assert_eq!((&header["alg"], &header["kid"]), (&key["alg"], &key["kid"]));
        let coordinate = |name: &str| BASE64.decode(key[name].as_str().unwrap()).unwrap();
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let signature = BASE64.decode(signature).unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(text.as_bytes(), &signature).unwrap();
        assert_eq!(issuer.configuration("a:1")["jwks_uri"], "https://a:1/openid/v1/jwks");
    }

    #[test]
    fn tokens_are_signed_with_the_given_key() {
        let mut issuer = Issuer::default();
        assert!(issuer.set_key(include_str!("key/rsa-pkcs1.pem")));
        let token = issuer.sign(json!({"sub": "me"}), at(1000), 600).unwrap();
        let header: Value = serde_json::from_slice(&BASE64.decode(token.split('.').next().unwrap()).unwrap()).unwrap();
        assert_eq!((&header["alg"], &header["kid"]), (&"RS256".into(), &issuer.keys()["keys"][0]["kid"]));
        assert_eq!(issuer.configuration("a:1")["id_token_signing_alg_values_supported"], json!(["RS256"]));
        assert_eq!(verify(&issuer, &token, at(1000)).unwrap()["sub"], "me");
        assert!(!issuer.set_key("not a key"));
    }

    #[test]
    fn audiences_are_checked() {
        let claims = json!({"aud": ["a", "b"]});
        let wanted = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(audiences(&claims, &wanted(&["x", "b"])), Ok(wanted(&["b"])));
        let error = audiences(&claims, &wanted(&["x"])).unwrap_err().to_string();
        assert!(error.contains(r#"token audiences ["a", "b"] is invalid"#), "{error}");
    }
}
