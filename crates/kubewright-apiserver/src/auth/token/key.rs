//! Keys that sign tokens, as JSON web keys (RFC 7517) have them: ECDSA on P-256 (`ES256`), and RSA (`RS256`).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::{
    digest::{SHA256, digest},
    error::Unspecified,
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
    },
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

/// The length of a coordinate of a public key on P-256.
const COORDINATE: usize = 32;
/// The DER encoding of `AlgorithmIdentifier` for a key on P-256 (RFC 5480).
const P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// The DER encoding of `AlgorithmIdentifier` for an RSA key (RFC 8017).
const RSA: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const INTEGER_ZERO: &[u8] = &[0x02, 0x01, 0x00];

/// A private key.
pub(super) struct Key {
    pair: Pair,
    id: String,
    random: SystemRandom,
}

enum Pair {
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    /// Generates a key on P-256. Secrets come from the operating system, even in a seeded simulation.
    pub(super) fn generate() -> Option<Self> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random)
            .ok()
            .map(|pair| Self::new(Pair::P256(pair)))
    }

    /// Reads a key in PEM, in one of the forms that kube-apiserver reads: PKCS#8, PKCS#1 (`RSA PRIVATE KEY`), or SEC 1
    /// (`EC PRIVATE KEY`).
    pub(super) fn from_pem(pem: &str) -> Option<Self> {
        let random = SystemRandom::new();
        let p256 = |document: &[u8]| {
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document, &random).ok().map(Pair::P256)
        };
        let pair = match PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? {
            PrivateKeyDer::Pkcs8(document) => {
                let document = document.secret_pkcs8_der();
                p256(document).or_else(|| RsaKeyPair::from_pkcs8(document).ok().map(Pair::Rsa))
            }
            PrivateKeyDer::Pkcs1(document) => RsaKeyPair::from_der(document.secret_pkcs1_der()).ok().map(Pair::Rsa),
            PrivateKeyDer::Sec1(document) => {
                let key = der(0x04, &[document.secret_sec1_der()]);
                p256(&der(0x30, &[INTEGER_ZERO, P256, &key]))
            }
            _ => None,
        };
        pair.map(Self::new)
    }

    fn new(pair: Pair) -> Self {
        // As in Kubernetes: the digest of `SubjectPublicKeyInfo`.
        let (algorithm, public) = match &pair {
            Pair::P256(pair) => (P256, pair.public_key().as_ref()),
            Pair::Rsa(pair) => (RSA, pair.public_key().as_ref()),
        };
        let info = der(0x30, &[algorithm, &der(0x03, &[&[0], public])]);
        Self { id: BASE64.encode(digest(&SHA256, &info)), pair, random: SystemRandom::new() }
    }

    /// Returns the name of the algorithm (RFC 7518).
    pub(super) fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::P256(_) => "ES256",
            Pair::Rsa(_) => "RS256",
        }
    }

    /// Returns the key's name in tokens and key sets.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public key as a JSON web key.
    pub(super) fn public(&self) -> Value {
        let mut key = json!({"use": "sig", "kid": self.id, "alg": self.algorithm()});
        let members = match &self.pair {
            Pair::P256(pair) => {
                // An uncompressed point: 4, and both coordinates.
                let (x, y) = pair.public_key().as_ref().get(1..).unwrap_or_default().split_at(COORDINATE);
                vec![("kty", "EC".into()), ("crv", "P-256".into()), ("x", BASE64.encode(x)), ("y", BASE64.encode(y))]
            }
            Pair::Rsa(pair) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = pair.public().into();
                vec![("kty", "RSA".into()), ("n", BASE64.encode(n)), ("e", BASE64.encode(e))]
            }
        };
        for (name, value) in members {
            key[name] = value.into();
        }
        key
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        match &self.pair {
            Pair::P256(pair) => pair.sign(&self.random, message).map(|signature| signature.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature)?;
                Ok(signature)
            }
        }
    }

    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Unspecified> {
        match &self.pair {
            Pair::P256(pair) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref()).verify(message, signature)
            }
            Pair::Rsa(pair) => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref())
                .verify(message, signature),
        }
    }
}

/// Encodes a value in DER.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().position(|&byte| byte != 0).unwrap_or(length.len() - 1)..];
    let mut encoded = vec![tag];
    if content.len() >= 0x80 {
        // At most eight bytes.
        encoded.push(0x80 | length.len() as u8);
    }
    encoded.extend(length);
    encoded.extend(content);
    encoded
}

#[cfg(test)]
mod tests;
