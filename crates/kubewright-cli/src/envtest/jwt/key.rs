//! Public keys as JSON web keys (RFC 7517), and the signatures that they verify (RFC 7518).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::Value;

/// An algorithm of signatures that Kubernetes accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Es256,
    Es384,
    /// Its keys are on P-521, which `ring` doesn't have. No signature is valid.
    Es512,
    Ps256,
    Ps384,
    Ps512,
    Rs256,
    Rs384,
    Rs512,
}

impl Algorithm {
    /// All of them.
    pub(super) const ALL: [Self; 9] = [
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
    ];

    /// Returns the name in tokens.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
        }
    }

    /// Returns the algorithm with a name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Self::Es256 | Self::Es384 | Self::Es512 => None,
        }
    }
}

/// A public key of an issuer.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) id: String,
    public: Public,
}

#[derive(Debug)]
enum Public {
    /// Modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// An uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

impl Key {
    /// Returns the keys of a key set that can verify signatures here.
    pub(super) fn all_of(key_set: &Value) -> Vec<Self> {
        key_set["keys"].as_array().into_iter().flatten().filter_map(Self::of).collect()
    }

    fn of(key: &Value) -> Option<Self> {
        let member = |name: &str| BASE64.decode(key[name].as_str()?).ok();
        let point = |length: usize| {
            let (x, y) = (member("x")?, member("y")?);
            // An uncompressed point: 4, and both coordinates.
            (x.len() == length && y.len() == length).then(|| [&[4], &*x, &*y].concat())
        };
        let public = match (key["kty"].as_str()?, key["crv"].as_str()) {
            ("RSA", _) => Public::Rsa(member("n")?, member("e")?),
            ("EC", Some("P-256")) => Public::P256(point(32)?),
            ("EC", Some("P-384")) => Public::P384(point(48)?),
            _ => return None,
        };
        Some(Self { id: key["kid"].as_str().unwrap_or_default().to_owned(), public })
    }

    /// Returns whether a signature of a message is valid. The algorithm must be that of the key.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.public, algorithm) {
            (Public::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Public::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            (Public::Rsa(modulus, exponent), algorithm) => {
                let Some(parameters) = algorithm.rsa() else { return false };
                // Members of other encoders may begin with zeros.
                let [n, e] = [modulus, exponent].map(|bytes| {
                    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
                    &bytes[zeros..]
                });
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use ring::{
        rand::SystemRandom,
        rsa::{KeyPair as RsaKeyPair, PublicKeyComponents},
        signature::{
            ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
            KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
            RSA_PSS_SHA512, RsaEncoding,
        },
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_verify_signatures_of_their_algorithms() {
        let random = SystemRandom::new();
        let pem = include_str!("testdata/rsa.pem");
        let pair = RsaKeyPair::from_pkcs8(pem::parse(pem).unwrap().contents()).unwrap();
        let PublicKeyComponents::<Vec<u8>> { n, e } = pair.public().into();
        let of_rsa = json!({"kty": "RSA", "kid": "a", "n": BASE64.encode([&[0], &*n].concat()), "e": BASE64.encode(e)});
        let encodings: [(Algorithm, &dyn RsaEncoding); 6] = [
            (Algorithm::Rs256, &RSA_PKCS1_SHA256),
            (Algorithm::Rs384, &RSA_PKCS1_SHA384),
            (Algorithm::Rs512, &RSA_PKCS1_SHA512),
            (Algorithm::Ps256, &RSA_PSS_SHA256),
            (Algorithm::Ps384, &RSA_PSS_SHA384),
            (Algorithm::Ps512, &RSA_PSS_SHA512),
        ];
        let mut signed = Vec::new();
        for (algorithm, encoding) in encodings {
            let mut signature = vec![0; pair.public().modulus_len()];
            pair.sign(encoding, &random, b"message", &mut signature).unwrap();
            signed.push((algorithm, of_rsa.clone(), signature));
        }
        let curves: [(Algorithm, &str, &EcdsaSigningAlgorithm); 2] = [
            (Algorithm::Es256, "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
            (Algorithm::Es384, "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ];
        for (algorithm, curve, signing) in curves {
            let document = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).unwrap();
            let point = &pair.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            let key = json!({"kty": "EC", "crv": curve, "x": BASE64.encode(x), "y": BASE64.encode(y)});
            signed.push((algorithm, key, pair.sign(&random, b"message").unwrap().as_ref().to_vec()));
        }
        for (algorithm, key, signature) in signed {
            let [key] = <[_; 1]>::try_from(Key::all_of(&json!({"keys": [key]}))).unwrap();
            for of in Algorithm::ALL {
                assert_eq!(key.verifies(of, b"message", &signature), of == algorithm, "{of:?} {algorithm:?}");
            }
            assert!(!key.verifies(algorithm, b"other", &signature));
        }
    }

    #[test]
    fn unknown_keys_are_left_out() {
        let keys = json!({"keys": [{"kty": "oct", "k": "AA"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "EC", "crv": "P-521"}, 5, {"kty": "RSA", "kid": "b", "n": "AQAB", "e": "AQAB"}]});
        assert_eq!(Key::all_of(&keys).iter().map(|key| &*key.id).collect::<Vec<_>>(), ["b"]);
    }
}
