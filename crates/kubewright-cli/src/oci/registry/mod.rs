//! Pushing to a registry, resolving tags, and pulling small images (OCI distribution-spec 1.1).

mod challenge;
mod client;
pub(crate) mod credentials;
mod pull;
pub(crate) mod reference;
mod resolve;
mod sign;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upload;

use http::{Method, StatusCode};
use serde::Deserialize;
use thiserror::Error;

use self::{
    client::{Client, Content, Response},
    credentials::Credentials,
    reference::Reference,
    upload::{Mount, UploadOptions},
};
pub(crate) use self::{pull::pull, resolve::resolve};
use super::{
    layout::{Blob, Bundle, Descriptor, INDEX, Index, Layout},
    signature::{SignatureError, key::SigningKey},
};

/// The error of a failed push or pull. Uploaded blobs are kept, and are not sent again.
#[derive(Debug, Error)]
pub(crate) enum RegistryError {
    /// The registry sent no response.
    #[error("cannot reach {address}: {why}; check the name of the registry, the network and the proxy settings")]
    Unreachable { address: String, why: String },
    /// The registry's name results in no valid URL.
    #[error("{0} is not a valid URL")]
    Address(String),
    /// TLS could not be set up.
    #[error("set up TLS: {0}")]
    Tls(String),
    /// The authentication scheme is not supported.
    #[error("{0} requires an authentication scheme other than basic and bearer, which is not supported")]
    Challenge(String),
    /// Credentials are missing or wrong.
    #[error(
        "authentication required by {registry}: run docker login {registry}, or set DOCKER_CONFIG to a directory with a config.json that has credentials"
    )]
    Login { registry: String },
    /// The credentials have no permission.
    #[error(
        "permission to push to {repository} denied by {registry}: ask its owner for the permission, or run docker login {registry} as another user{reason}"
    )]
    Denied { registry: String, repository: String, reason: String },
    /// The credentials have no permission to read.
    #[error(
        "permission to pull from {repository} denied by {registry}: ask its owner for the permission, or run docker login {registry} as another \
         user{reason}"
    )]
    Unreadable { registry: String, repository: String, reason: String },
    /// There is no such image.
    #[error("{registry} has no image {repository}:{tag}: correct its name, or push it first")]
    NoImage { registry: String, repository: String, tag: String },
    /// The registry did not issue a token.
    #[error("{registry} issued no token{}: try again later", status.map(|status| format!(" ({status})")).unwrap_or_default())]
    Token { registry: String, status: Option<StatusCode> },
    /// The token URL does not use TLS.
    #[error("{registry} uses the token URL {realm} without TLS, to which no password is sent")]
    Clear { registry: String, realm: String },
    /// The registry rejected a request.
    #[error("{registry} rejected {what} ({status}){reason}")]
    Refused { registry: String, what: String, status: StatusCode, reason: String },
    /// The registry received different content.
    #[error("{registry} received {found} instead of {expected}: a proxy may change the content")]
    Changed { registry: String, expected: String, found: String },
    /// The registry sent different content.
    #[error("{registry} sent {found} instead of {expected}: a proxy may change the content")]
    Corrupt { registry: String, expected: String, found: String },
    /// A blob is too large to be pulled.
    #[error(
        "{digest} in {repository} has {size} bytes, but at most {limit} are pulled: check that this is the image of a bundle"
    )]
    TooLarge { repository: String, digest: String, size: u64, limit: u64 },
    /// An upload in chunks failed several times.
    #[error(
        "upload of {digest} to {registry} failed after {sent} of {size} bytes: {why}; check the network, and push again: blobs that are complete are \
         not sent again"
    )]
    Interrupted { registry: String, digest: String, sent: u64, size: u64, why: String },
    /// The image is pushed, but can't be signed.
    #[error("sign {digest} in {repository}, which is pushed: the manifest {tag} cannot be extended")]
    Signature {
        digest: String,
        repository: String,
        tag: String,
        #[source]
        source: SignatureError,
    },
    /// A document is not valid JSON.
    #[error("invalid JSON document")]
    Document(#[from] serde_json::Error),
}

/// A step of a push.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// A blob is uploaded.
    Blob(&'a Descriptor),
    /// A blob of another repository is used.
    Mounted(&'a Descriptor),
    /// The registry already has a blob.
    Exists(&'a Descriptor),
    /// A number of the first bytes of a blob is uploaded.
    Sent(&'a Descriptor, u64),
    /// The upload of a blob goes on after a number of its bytes.
    Resumed(&'a Descriptor, u64),
    /// A manifest is uploaded.
    Manifest(&'a Descriptor),
    /// A manifest is signed.
    Signature(&'a Descriptor),
    /// The key has signed a manifest before.
    IsSigned(&'a Descriptor),
}

/// How to push an image.
#[derive(Debug, Default)]
pub(crate) struct PushOptions<'a> {
    /// The credentials for the registry.
    pub(crate) credentials: Option<Credentials>,
    /// Whether to use HTTP without TLS.
    pub(crate) plain: bool,
    /// The key to sign with.
    pub(crate) key: Option<&'a SigningKey>,
    /// A repository of the same registry, whose blobs are used instead of uploads.
    pub(crate) mount_from: Option<&'a str>,
    /// How to upload blobs.
    pub(crate) uploads: UploadOptions,
}

/// Pushes an image and its referrers. Blobs that already exist are not sent. The manifest of the image is tagged. With
/// a key, the manifests of the platforms and that of the image are signed at last.
pub(crate) async fn push(
    layout: &Layout,
    reference: &Reference,
    options: PushOptions<'_>,
    mut observe: impl FnMut(Step<'_>),
) -> Result<(), RegistryError> {
    let client = Client::new(reference, options.credentials, options.plain)?.with_source(options.mount_from);
    let mut pusher = Pusher { client, reference, mount_from: options.mount_from, uploads: options.uploads };
    for bundle in layout.bundles() {
        for blob in &bundle.blobs {
            pusher.blob(blob, &mut observe).await?;
        }
        observe(Step::Manifest(&bundle.manifest.descriptor));
        let is_image = bundle.manifest.descriptor.digest == layout.digest();
        pusher.bundle(bundle, is_image).await?;
    }
    if let Some(key) = options.key {
        for image in layout.platforms.iter().chain([&layout.image]) {
            pusher.sign(&image.manifest.descriptor, key, &mut observe).await?;
        }
    }
    Ok(())
}

struct Pusher<'a> {
    client: Client,
    reference: &'a Reference,
    mount_from: Option<&'a str>,
    uploads: UploadOptions,
}

impl Pusher<'_> {
    async fn blob(&mut self, blob: &Blob, observe: &mut impl FnMut(Step<'_>)) -> Result<(), RegistryError> {
        if self.has(&blob.descriptor.digest).await? {
            observe(Step::Exists(&blob.descriptor));
            return Ok(());
        }
        let upload = match self.mount(blob).await? {
            Mount::Mounted => {
                observe(Step::Mounted(&blob.descriptor));
                return Ok(());
            }
            Mount::Begun(upload) => Some(upload),
            Mount::Refused => None,
        };
        observe(Step::Blob(&blob.descriptor));
        self.upload(blob, upload, observe).await
    }

    /// Returns whether the registry has a blob.
    async fn has(&mut self, digest: &str) -> Result<bool, RegistryError> {
        let address = self.client.address(&format!("blobs/{digest}"));
        let response = self.client.send(&Method::HEAD, &address, None).await?;
        match response.status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(self.refused("the query for blobs", &response)),
        }
    }

    /// Pushes a manifest, under the tag if it is that of the image.
    async fn bundle(&mut self, bundle: &Bundle, is_image: bool) -> Result<(), RegistryError> {
        let digest = &bundle.manifest.descriptor.digest;
        let name = if is_image { &self.reference.tag } else { digest };
        let response = self.manifest(name, &bundle.manifest).await?;
        // A registry with the referrers API indicates that in its response. Otherwise an index under a tag lists the
        // referrers.
        match &bundle.subject {
            Some(subject) if !response.headers.contains_key("oci-subject") => {
                self.list_referrer(&bundle.manifest.descriptor, subject).await
            }
            _ => Ok(()),
        }
    }

    async fn manifest(&mut self, name: &str, manifest: &Blob) -> Result<Response, RegistryError> {
        let address = self.client.address(&format!("manifests/{name}"));
        let content = Content::new(&manifest.descriptor.media_type, manifest.bytes.clone());
        let response = self.client.send(&Method::PUT, &address, Some(content)).await?;
        if response.status != StatusCode::CREATED {
            return Err(self.refused(&format!("the manifest {name}"), &response));
        }
        self.compare(&response, &manifest.descriptor.digest)?;
        Ok(response)
    }

    /// Updates the referrers tag: an index whose tag is derived from the digest of the subject.
    async fn list_referrer(&mut self, referrer: &Descriptor, subject: &str) -> Result<(), RegistryError> {
        let tag = subject.replace(':', "-");
        let address = self.client.address(&format!("manifests/{tag}"));
        let response = self.client.send(&Method::GET, &address, None).await?;
        let mut index = match response.status {
            StatusCode::OK => serde_json::from_slice(&response.body)?,
            StatusCode::NOT_FOUND => Index::new(Vec::new()),
            _ => return Err(self.refused("the query for referrers", &response)),
        };
        if index.manifests.iter().any(|known| known.digest == referrer.digest) {
            return Ok(());
        }
        index.manifests.push(referrer.clone());
        self.manifest(&tag, &Blob::new(INDEX, serde_json::to_vec(&index)?)).await.map(drop)
    }

    /// Compares the digest that the registry reports with the expected one.
    fn compare(&self, response: &Response, expected: &str) -> Result<(), RegistryError> {
        let found = response.headers.get("docker-content-digest").and_then(|found| found.to_str().ok());
        match found {
            // The registry may use another algorithm.
            Some(found) if found != expected && found.starts_with("sha256:") => Err(RegistryError::Changed {
                registry: self.reference.registry.clone(),
                expected: expected.to_owned(),
                found: found.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn refused(&self, what: &str, response: &Response) -> RegistryError {
        let Reference { registry, repository, .. } = self.reference.clone();
        let reason = reason(&response.body);
        match response.status {
            StatusCode::UNAUTHORIZED => RegistryError::Login { registry },
            StatusCode::FORBIDDEN => RegistryError::Denied { registry, repository, reason },
            status => RegistryError::Refused { registry, what: what.to_owned(), status, reason },
        }
    }
}

/// Formats the errors in a response body, which has the format of distribution-spec.
fn reason(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<RegistryMessage>,
    }
    #[derive(Deserialize)]
    struct RegistryMessage {
        code: String,
        #[serde(default)]
        message: String,
    }
    let errors = serde_json::from_slice::<Errors>(body).map(|response| response.errors).unwrap_or_default();
    let clean = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    errors.iter().map(|error| format!("; {}: {}", clean(&error.code), clean(&error.message))).collect()
}
