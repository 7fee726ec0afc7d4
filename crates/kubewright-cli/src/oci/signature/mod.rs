//! Signatures of images as `cosign sign --key` makes them, without a transparency log. Pure.
//!
//! The format is that of cosign's SIGNATURE_SPEC.md: a payload names the digest of a manifest, and a second manifest,
//! under a tag made of that digest, lists the payloads with their signatures.

mod encrypted;
pub(crate) mod key;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use self::key::{KeyError, SigningKey};
use super::layout::{Blob, Bundle, MANIFEST};

/// The media type of a payload.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The annotation of a payload with its signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// A failure to sign.
#[derive(Debug, Error)]
pub(crate) enum SignatureError {
    /// The key can't be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Under the tag of the signatures is something else.
    #[error("it is no manifest with a list of layers")]
    Other,
    /// A document cannot be written.
    #[error("write a JSON document")]
    Document(#[from] serde_json::Error),
}

/// The payload. Its fields have the order in which cosign writes them.
#[derive(Serialize)]
struct Payload<'a> {
    critical: Critical<'a>,
    optional: Option<BTreeMap<String, String>>,
}

#[derive(Serialize)]
struct Critical<'a> {
    identity: Identity<'a>,
    image: Image<'a>,
    r#type: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Identity<'a> {
    docker_reference: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Image<'a> {
    docker_manifest_digest: &'a str,
}

/// Returns the tag of the signatures of a manifest.
pub(crate) fn tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

/// Returns the manifest with the signatures of the manifest `digest` in a repository: the existing ones and one by the
/// key. Returns `None` if the key has signed the same payload already.
pub(crate) fn add(
    existing: Option<Value>,
    repository: &str,
    digest: &str,
    key: &SigningKey,
) -> Result<Option<Bundle>, SignatureError> {
    let payload = payload(repository, digest)?;
    let mut manifest =
        existing.unwrap_or_else(|| json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": {}, "layers": []}));
    let media_type = manifest["mediaType"].as_str().unwrap_or(MANIFEST).to_owned();
    let layers = manifest.get_mut("layers").and_then(Value::as_array_mut).ok_or(SignatureError::Other)?;
    let is_signed = |layer: &Value| {
        let signature = layer["annotations"][SIGNATURE].as_str();
        layer["digest"] == payload.descriptor.digest.as_str()
            && signature.is_some_and(|signature| key.has_signed(&payload.bytes, signature))
    };
    if layers.iter().any(is_signed) {
        return Ok(None);
    }
    let mut layer = payload.descriptor.clone();
    layer.annotations.insert(SIGNATURE.into(), key.sign(&payload.bytes)?);
    layers.push(serde_json::to_value(layer)?);
    let diff_ids: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
    let config = config(&diff_ids)?;
    manifest["config"] = serde_json::to_value(&config.descriptor)?;
    let manifest = Blob::json(&media_type, &manifest)?;
    Ok(Some(Bundle { manifest, blobs: vec![config, payload], subject: None }))
}

/// Returns the text that is signed.
fn payload(repository: &str, digest: &str) -> serde_json::Result<Blob> {
    let critical = Critical {
        identity: Identity { docker_reference: repository },
        image: Image { docker_manifest_digest: digest },
        r#type: "cosign container image signature",
    };
    Blob::json(PAYLOAD, &Payload { critical, optional: None })
}

/// Returns the config, which says nothing but that the layers are not compressed: tools for images expect one.
fn config(diff_ids: &[Value]) -> serde_json::Result<Blob> {
    let config = json!({
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    Blob::json("application/vnd.oci.image.config.v1+json", &config)
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::*;

    const DIGEST: &str = "sha256:0123";

    fn key() -> SigningKey {
        SigningKey::from_pem(key::tests::PKCS8.as_bytes(), None).unwrap()
    }

    fn manifest(bundle: &Bundle) -> Value {
        serde_json::from_slice(&bundle.manifest.bytes).unwrap()
    }

    #[test]
    fn a_signature_is_valid_for_the_payload_that_cosign_expects() {
        let signed = add(None, "ghcr.io/me/cow", DIGEST, &key()).unwrap().unwrap();
        let [config, payload] = signed.blobs.as_slice() else { panic!("{:?}", signed.blobs) };
        let expect = r#"{"critical":{"identity":{"docker-reference":"ghcr.io/me/cow"},"image":{"docker-manifest-digest":"sha256:0123"},"type":"cosign container image signature"},"optional":null}"#;
        assert_eq!(String::from_utf8_lossy(&payload.bytes), expect);
        let manifest = manifest(&signed);
        let layer = &manifest["layers"][0];
        assert_eq!(layer["mediaType"], "application/vnd.dev.cosign.simplesigning.v1+json");
        assert_eq!((&layer["digest"], &layer["size"]), (&json!(payload.descriptor.digest), &json!(expect.len())));
        assert_eq!(manifest["config"]["digest"], config.descriptor.digest.as_str());
        let signature = STANDARD.decode(layer["annotations"][SIGNATURE].as_str().unwrap()).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, STANDARD.decode(key::tests::PUBLIC).unwrap());
        public.verify(&payload.bytes, &signature).unwrap();
        assert_eq!(tag(DIGEST), "sha256-0123.sig");
    }

    #[test]
    fn other_signatures_are_kept_and_the_same_is_not_added_twice() {
        let first = manifest(&add(None, "ghcr.io/me/cow", DIGEST, &key()).unwrap().unwrap());
        assert!(add(Some(first.clone()), "ghcr.io/me/cow", DIGEST, &key()).unwrap().is_none());
        // Another key, whose signature is beside one with a certificate.
        let mut others = first.clone();
        let annotations = &mut others["layers"][0]["annotations"];
        annotations[SIGNATURE] = json!("AAAA");
        annotations["dev.sigstore.cosign/certificate"] = json!("certificate");
        others["annotations"] = json!({"a": "b"});
        let both = manifest(&add(Some(others.clone()), "ghcr.io/me/cow", DIGEST, &key()).unwrap().unwrap());
        assert_eq!((&both["layers"][0], &both["annotations"]), (&others["layers"][0], &others["annotations"]));
        assert_eq!(both["layers"].as_array().unwrap().len(), 2);
        // A signature of the same digest in another repository has another payload.
        let moved = manifest(&add(Some(first), "ghcr.io/me/calf", DIGEST, &key()).unwrap().unwrap());
        assert_eq!(moved["layers"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn something_else_under_the_tag_is_not_overwritten() {
        for other in [json!([]), json!({"manifests": []}), json!({"layers": {}})] {
            assert!(matches!(add(Some(other), "a/b", DIGEST, &key()), Err(SignatureError::Other)));
        }
    }
}
