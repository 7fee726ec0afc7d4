//! Private keys for signatures: ECDSA P-256, from PEM files of openssl and cosign.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey},
};
use thiserror::Error;

use super::encrypted::{self, EncryptedKeyError};

/// A key that can't be used. No message contains a part of the key or of its password.
#[derive(Debug, Error)]
pub(crate) enum KeyError {
    /// There is no PEM block of a private key.
    #[error("it has no private key in PEM format: {ADVICE}")]
    NoKey,
    /// It is a public key.
    #[error("it is a public key, which verifies signatures: name the file of the private key, such as cosign.key")]
    Public,
    /// It is a key of another format.
    #[error("it is a key of the format {0:?}, which is not supported: {ADVICE}")]
    Format(String),
    /// It is encrypted in the format of PKCS#8.
    #[error(
        "it is encrypted in the format of PKCS#8, which is not supported: decrypt it with openssl pkey -in FILE -out key.pem, or encrypt it for \
         cosign with cosign import-key-pair --key FILE"
    )]
    Encrypted,
    /// It is for another algorithm, or damaged.
    #[error("it is no ECDSA key of the curve P-256 with its public key ({0}): {ADVICE}")]
    Rejected(String),
    /// It can't be decrypted.
    #[error(transparent)]
    Decrypt(#[from] EncryptedKeyError),
    /// The system provides no random numbers.
    #[error("create a signature: no random numbers from the operating system")]
    Random,
}

/// How to get a key that can be used.
const ADVICE: &str = "create one with cosign generate-key-pair, or with openssl genpkey -algorithm EC -pkeyopt \
                      ec_paramgen_curve:P-256 -out key.pem";

/// A private key. The `Debug` output does not contain it.
pub(crate) struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Reads a key from a PEM file; the password is for keys that cosign encrypted.
    pub(crate) fn from_pem(file: &[u8], password: Option<&[u8]>) -> Result<Self, KeyError> {
        // openssl ecparam writes the parameters of the curve before the key.
        let blocks = pem::parse_many(file).map_err(|_| KeyError::NoKey)?;
        let block = blocks.iter().find(|block| block.tag().contains("KEY")).ok_or(KeyError::NoKey)?;
        let decrypted;
        let document = match block.tag() {
            "PRIVATE KEY" => block.contents(),
            "EC PRIVATE KEY" => {
                decrypted = pkcs8(block.contents());
                &decrypted
            }
            "ENCRYPTED SIGSTORE PRIVATE KEY" | "ENCRYPTED COSIGN PRIVATE KEY" => {
                decrypted = encrypted::decrypt(block.contents(), password)?;
                &decrypted
            }
            "ENCRYPTED PRIVATE KEY" => return Err(KeyError::Encrypted),
            tag if tag.ends_with("PUBLIC KEY") => return Err(KeyError::Public),
            tag => return Err(KeyError::Format(tag.into())),
        };
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document, &random);
        Ok(Self { pair: pair.map_err(|rejected| KeyError::Rejected(rejected.to_string()))?, random })
    }

    /// Signs bytes, and returns the signature in base64 of its ASN.1 form.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Result<String, KeyError> {
        let signature = self.pair.sign(&self.random, bytes).map_err(|_| KeyError::Random)?;
        Ok(STANDARD.encode(signature))
    }

    /// Returns whether a signature is by this key.
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: &str) -> bool {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.pair.public_key());
        STANDARD.decode(signature).is_ok_and(|signature| public.verify(bytes, &signature).is_ok())
    }
}

/// Puts a key in the form of SEC 1 into the form of PKCS#8, for the curve P-256.
fn pkcs8(key: &[u8]) -> Vec<u8> {
    /// Version 0, and the algorithm: id-ecPublicKey with prime256v1.
    const ALGORITHM: &[u8] = &[
        0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ];
    element(0x30, &[ALGORITHM, &element(0x04, key)].concat())
}

/// Encodes an element of DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut bytes = vec![tag];
    match significant {
        [] => bytes.push(0),
        [short @ 0..0x80] => bytes.push(*short),
        long => {
            // There are at most eight bytes.
            bytes.push(0x80 | long.len() as u8);
            bytes.extend(long);
        }
    }
    bytes.extend(content);
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A key of openssl genpkey.
    pub(crate) const PKCS8: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgwJNODzT4qLSSoQhM\n\
        FbrBSPMeNUxsO+Tg0zjNUs4cp1+hRANCAARkADN87n0/R7oKH3rTVdHXHyqMR6r3\n\
        Y5h3X6DyPz7E8BtXAePZIa/uc44mC8TFyGQlLcaVBRIlO3+xpUyUxSc6\n\
        -----END PRIVATE KEY-----";

    /// The same key, as of openssl ecparam -genkey.
    const SEC1: &str = "-----BEGIN EC PARAMETERS-----\n\
        BggqhkjOPQMBBw==\n\
        -----END EC PARAMETERS-----\n\
        -----BEGIN EC PRIVATE KEY-----\n\
        MHcCAQEEIMCTTg80+Ki0kqEITBW6wUjzHjVMbDvk4NM4zVLOHKdfoAoGCCqGSM49\n\
        AwEHoUQDQgAEZAAzfO59P0e6Ch9601XR1x8qjEeq92OYd1+g8j8+xPAbVwHj2SGv\n\
        7nOOJgvExchkJS3GlQUSJTt/saVMlMUnOg==\n\
        -----END EC PRIVATE KEY-----";

    /// Its public key: an uncompressed point, in base64.
    pub(crate) const PUBLIC: &str =
        "BGQAM3zufT9HugofetNV0dcfKoxHqvdjmHdfoPI/PsTwG1cB49khr+5zjiYLxMXIZCUtxpUFEiU7f7GlTJTFJzo=";

    /// A key of the curve P-384.
    const P384: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDBS0YlgT9e4RH0yEpt+\n\
        cvynmyvPJEo/vI3ZopVVsK4pDdlONUfORTDF/PKfyDQKzhWhZANiAAT5yMV8celX\n\
        injmiaUvprnSxYA1TDWiEAEQu3h9BtlB7kC5RV1I5ETo0KDW2tkWHjVPY4QYpYJj\n\
        31QtpHTZqbJj2lG11qei6KiP6G7TnB0xvqltHz0921eIk+7lAozDwOI=\n\
        -----END PRIVATE KEY-----";

    /// Returns the message of a refusal.
    fn refusal(file: &str) -> String {
        SigningKey::from_pem(file.as_bytes(), None).unwrap_err().to_string()
    }

    #[test]
    fn keys_of_openssl_are_read() {
        let public = STANDARD.decode(PUBLIC).unwrap();
        for file in [PKCS8, SEC1] {
            let key = SigningKey::from_pem(file.as_bytes(), None).unwrap();
            assert_eq!(key.pair.public_key().as_ref(), public);
            let signature = key.sign(b"moo").unwrap();
            assert!(key.has_signed(b"moo", &signature) && !key.has_signed(b"baa", &signature));
            assert!(!key.has_signed(b"moo", "?"));
            assert_eq!(format!("{key:?}"), "SigningKey { .. }");
        }
    }

    #[test]
    fn other_keys_are_refused_with_advice() {
        let block = |tag: &str| format!("-----BEGIN {tag}-----\nAAAA\n-----END {tag}-----\n");
        for (file, says) in [
            (String::new(), "no private key in PEM format: create one with cosign generate-key-pair"),
            ("{}".into(), "no private key in PEM format"),
            (block("CERTIFICATE"), "no private key in PEM format"),
            (block("PUBLIC KEY"), "name the file of the private key"),
            (block("RSA PRIVATE KEY"), "format \"RSA PRIVATE KEY\", which is not supported: create one"),
            (block("ENCRYPTED PRIVATE KEY"), "decrypt it with openssl pkey"),
            (block("PRIVATE KEY"), "no ECDSA key of the curve P-256"),
            (block("EC PRIVATE KEY"), "no ECDSA key of the curve P-256"),
            (P384.into(), "no ECDSA key of the curve P-256"),
        ] {
            let refused = refusal(&file);
            assert!(refused.contains(says), "{says:?} is not in {refused}");
        }
    }

    #[test]
    fn lengths_are_encoded_as_der() {
        for (length, expect) in
            [(0, vec![4, 0]), (127, vec![4, 127]), (128, vec![4, 0x81, 128]), (256, vec![4, 0x82, 1, 0])]
        {
            let encoded = element(4, &vec![7; length]);
            assert_eq!((&encoded[..expect.len()], encoded.len()), (expect.as_slice(), expect.len() + length));
        }
    }
}
