//! Private keys that cosign encrypted: a JSON document with a secret box of NaCl, whose key is derived from a password
//! by scrypt.

use base64::{Engine, engine::general_purpose::STANDARD};
use crypto_secretbox::{
    KeyInit, Nonce, XSalsa20Poly1305,
    aead::{Aead, generic_array::GenericArray},
};
use serde::Deserialize;
use thiserror::Error;

/// A failure to decrypt a key.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum EncryptedKeyError {
    /// There is no password.
    #[error("it is encrypted: set COSIGN_PASSWORD to its password")]
    NoPassword,
    /// The password is wrong, or the file was changed.
    #[error("it cannot be decrypted: COSIGN_PASSWORD is not its password, or the file is damaged")]
    Password,
    /// The document is not as cosign writes it.
    #[error("its encryption is not that of cosign ({0}): import the key again with cosign import-key-pair")]
    Format(&'static str),
}

/// The memory in bytes that the derivation of a key may use. cosign's takes 64 MiB.
const MEMORY: u64 = 512 << 20;

#[derive(Deserialize)]
struct Document {
    kdf: Derivation,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Deserialize)]
struct Derivation {
    name: String,
    params: Parameters,
    salt: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct Parameters {
    n: u64,
    #[serde(rename = "r")]
    r: u32,
    #[serde(rename = "p")]
    p: u32,
}

#[derive(Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

/// Decrypts a key, and returns it in the form of PKCS#8.
pub(super) fn decrypt(document: &[u8], password: Option<&[u8]>) -> Result<Vec<u8>, EncryptedKeyError> {
    use EncryptedKeyError::Format;
    let document: Document = serde_json::from_slice(document).map_err(|_| Format("invalid document"))?;
    if (document.kdf.name.as_str(), document.cipher.name.as_str()) != ("scrypt", "nacl/secretbox") {
        return Err(Format("other algorithms than scrypt and nacl/secretbox"));
    }
    let bytes = |text: &str| STANDARD.decode(text).map_err(|_| Format("invalid base64"));
    let (salt, nonce, secret) =
        (bytes(&document.kdf.salt)?, bytes(&document.cipher.nonce)?, bytes(&document.ciphertext)?);
    let nonce: [u8; 24] = nonce.try_into().map_err(|_| Format("a nonce of another length than 24"))?;
    let password = password.ok_or(EncryptedKeyError::NoPassword)?;
    let mut key = [0; 32];
    let parameters = document.kdf.params.check().ok_or(Format("invalid parameters of scrypt"))?;
    scrypt::scrypt(password, &salt, &parameters, &mut key).map_err(|_| Format("invalid parameters of scrypt"))?;
    let cipher = XSalsa20Poly1305::new(GenericArray::from_slice(&key));
    cipher.decrypt(Nonce::from_slice(&nonce), secret.as_slice()).map_err(|_| EncryptedKeyError::Password)
}

impl Parameters {
    /// Returns the parameters if they are valid, and take neither too much memory nor too much time.
    fn check(&self) -> Option<scrypt::Params> {
        let memory = self.n.checked_mul(128)?.checked_mul(self.r.into())?;
        if !self.n.is_power_of_two() || memory > MEMORY || self.p > 16 {
            return None;
        }
        let exponent = u8::try_from(self.n.trailing_zeros()).ok()?;
        scrypt::Params::new(exponent, self.r, self.p, 32).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::key::{SigningKey, tests::PKCS8},
        *,
    };

    /// Encrypts a text as cosign does, with less work.
    fn encrypted(text: &[u8], password: &str) -> Value {
        let (salt, nonce, mut key) = ([1; 32], [2; 24], [0; 32]);
        let parameters = scrypt::Params::new(4, 8, 1, 32).unwrap();
        scrypt::scrypt(password.as_bytes(), &salt, &parameters, &mut key).unwrap();
        let cipher = XSalsa20Poly1305::new(GenericArray::from_slice(&key));
        let secret = cipher.encrypt(Nonce::from_slice(&nonce), text).unwrap();
        json!({
            "kdf": {"name": "scrypt", "params": {"N": 16, "r": 8, "p": 1}, "salt": STANDARD.encode(salt)},
            "cipher": {"name": "nacl/secretbox", "nonce": STANDARD.encode(nonce)},
            "ciphertext": STANDARD.encode(secret),
        })
    }

    fn file(document: &Value) -> Vec<u8> {
        pem::encode(&pem::Pem::new("ENCRYPTED SIGSTORE PRIVATE KEY", document.to_string())).into_bytes()
    }

    #[test]
    fn keys_of_cosign_are_read_with_their_password() {
        let plain = pem::parse(PKCS8).unwrap();
        let file = file(&encrypted(plain.contents(), "moo"));
        assert!(SigningKey::from_pem(&file, Some(b"moo")).is_ok());
        let refusal = |password| SigningKey::from_pem(&file, password).unwrap_err().to_string();
        assert!(refusal(None).contains("set COSIGN_PASSWORD"));
        assert!(refusal(Some(b"baa")).contains("COSIGN_PASSWORD is not its password"));
    }

    #[test]
    fn other_encryptions_are_refused() {
        let valid = encrypted(b"moo", "moo");
        assert_eq!(decrypt(valid.to_string().as_bytes(), Some(b"moo")).unwrap(), b"moo");
        for (path, value) in [
            ("/kdf/name", json!("pbkdf2")),
            ("/cipher/name", json!("aes")),
            ("/cipher/nonce", json!("AAAA")),
            ("/ciphertext", json!("?")),
            ("/kdf/params/N", json!(15)),
            ("/kdf/params/N", json!(0)),
            ("/kdf/params/N", json!(1_u64 << 40)),
            ("/kdf/params/p", json!(1000)),
            ("/kdf/params/r", json!(0)),
        ] {
            let mut other = valid.clone();
            *other.pointer_mut(path).unwrap() = value;
            let refused = decrypt(other.to_string().as_bytes(), Some(b"moo")).unwrap_err();
            assert!(matches!(refused, EncryptedKeyError::Format(_)), "{path}: {refused}");
        }
        assert!(decrypt(b"moo", Some(b"moo")).is_err());
    }
}
