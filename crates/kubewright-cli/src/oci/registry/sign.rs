//! Signatures in a registry.

use http::{Method, StatusCode};

use super::{Pusher, RegistryError, Step, client::Response};
use crate::oci::{
    layout::Descriptor,
    signature::{self, key::SigningKey},
};

impl Pusher<'_> {
    /// Adds a signature of a manifest to those that the registry has.
    pub(super) async fn sign(
        &mut self,
        manifest: &Descriptor,
        key: &SigningKey,
        observe: &mut impl FnMut(Step<'_>),
    ) -> Result<(), RegistryError> {
        let digest = &manifest.digest;
        let tag = signature::tag(digest);
        let address = self.client.address(&format!("manifests/{tag}"));
        let response = self.client.send(&Method::GET, &address, None).await?;
        let existing = match response.status {
            StatusCode::OK => Some(document(&response)?),
            StatusCode::NOT_FOUND => None,
            _ => return Err(self.refused("the query for signatures", &response)),
        };
        let signed = signature::add(existing, &self.reference.signed_name(), digest, key);
        let signed = signed.map_err(|source| RegistryError::Signature {
            digest: digest.clone(),
            repository: self.reference.repository.clone(),
            tag: tag.clone(),
            source,
        })?;
        let Some(signed) = signed else {
            observe(Step::IsSigned(manifest));
            return Ok(());
        };
        observe(Step::Signature(manifest));
        for blob in &signed.blobs {
            self.blob(blob, &mut |_| {}).await?;
        }
        self.manifest(&tag, &signed.manifest).await.map(drop)
    }
}

/// Returns a manifest. If it doesn't say its media type, the registry does.
fn document(response: &Response) -> Result<serde_json::Value, RegistryError> {
    let mut manifest: serde_json::Value = serde_json::from_slice(&response.body)?;
    let media_type = response.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if let (Some(manifest), Some(media_type)) = (manifest.as_object_mut(), media_type) {
        manifest.entry("mediaType").or_insert(media_type.into());
    }
    Ok(manifest)
}
