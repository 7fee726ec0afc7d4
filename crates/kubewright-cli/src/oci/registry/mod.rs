//! Pushing to a registry, by OCI's distribution-spec 1.1.

mod challenge;
mod client;
pub(crate) mod credentials;
pub(crate) mod reference;
#[cfg(test)]
mod tests;

use http::{Method, StatusCode, header};
use serde::Deserialize;
use thiserror::Error;

use self::{client::Answer, client::Client, credentials::Credentials, reference::Reference};
use super::layout::{Blob, Bundle, Descriptor, INDEX, Index, Layout};

/// Why an image isn't at the registry. What was sent before is there, and isn't sent again by another try.
#[derive(Debug, Error)]
pub(crate) enum RegistryError {
    /// There was no answer.
    #[error("{address} can't be asked: {why}. Is the name of the registry right, and can this machine reach it?")]
    Unreachable { address: String, why: String },
    /// The name of the registry makes no address.
    #[error("{0} is no address")]
    Address(String),
    /// TLS itself is not to be had.
    #[error("set up TLS: {0}")]
    Tls(String),
    /// It wants to know who we are, in a way we don't know.
    #[error("{0} asks for credentials in a way that kubewright doesn't know: it takes basic and bearer")]
    Challenge(String),
    /// We are nobody there, or not who we say.
    #[error(
        "{registry} doesn't know who pushes: run docker login {registry}, or set DOCKER_CONFIG to the folder of a config.json that has its credentials"
    )]
    Login { registry: String },
    /// We are known, and may not.
    #[error(
        "{registry} doesn't let these credentials push to {repository}: ask its owner for the right to, or run docker login {registry} as somebody who has it{said}"
    )]
    Denied { registry: String, repository: String, said: String },
    /// There are no tokens.
    #[error("{registry} wants a token, and gives none{}: try again later", status.map(|status| format!(" ({status})")).unwrap_or_default())]
    Token { registry: String, status: Option<StatusCode> },
    /// A password would be read by all on the way.
    #[error("{registry} has tokens given at {realm}, without TLS: no password is sent there")]
    Clear { registry: String, realm: String },
    /// It answers what it shouldn't.
    #[error("{registry} refuses {what} ({status}){said}")]
    Refused { registry: String, what: String, status: StatusCode, said: String },
    /// It has got something else than was sent.
    #[error("{registry} has {found} where {expected} was sent: something on the way changes what is sent")]
    Changed { registry: String, expected: String, found: String },
    /// A document of ours or theirs is none.
    #[error("a document is not what it should be")]
    Document(#[from] serde_json::Error),
}

/// What a push is about to do.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// It sends a blob.
    Blob(&'a Descriptor),
    /// The registry has this one.
    There(&'a Descriptor),
    /// It sends a manifest.
    Manifest(&'a Descriptor),
}

/// Sends an image, and what refers to it. Blobs that are there are not sent again; the image's manifest has the tag.
pub(crate) async fn push(
    layout: &Layout,
    reference: &Reference,
    credentials: Option<Credentials>,
    plain: bool,
    mut tell: impl FnMut(Step<'_>),
) -> Result<(), RegistryError> {
    let client = Client::new(reference, credentials, plain)?;
    let mut pusher = Pusher { client, reference };
    for bundle in layout.bundles() {
        for blob in &bundle.blobs {
            pusher.blob(blob, &mut tell).await?;
        }
        tell(Step::Manifest(&bundle.manifest.descriptor));
        pusher.bundle(bundle, layout).await?;
    }
    Ok(())
}

struct Pusher<'a> {
    client: Client,
    reference: &'a Reference,
}

impl Pusher<'_> {
    async fn blob(&mut self, blob: &Blob, tell: &mut impl FnMut(Step<'_>)) -> Result<(), RegistryError> {
        let digest = &blob.descriptor.digest;
        let address = self.client.address(&format!("blobs/{digest}"));
        let answer = self.client.send(&Method::HEAD, &address, None).await?;
        match answer.status {
            StatusCode::OK => {
                tell(Step::There(&blob.descriptor));
                return Ok(());
            }
            StatusCode::NOT_FOUND => {}
            _ => return Err(self.refused("to say which blobs it has", &answer)),
        }
        tell(Step::Blob(&blob.descriptor));
        let address = self.client.address("blobs/uploads/");
        let answer = self.client.send(&Method::POST, &address, None).await?;
        let location = answer.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
        let Some(location) = location.filter(|_| answer.status == StatusCode::ACCEPTED) else {
            return Err(self.refused("to begin an upload", &answer));
        };
        let location = self.client.follow(location);
        let joint = if location.contains('?') { '&' } else { '?' };
        let address = format!("{location}{joint}{}", challenge::query(&[("digest", digest)]));
        let content = ("application/octet-stream", blob.bytes.clone().into());
        let answer = self.client.send(&Method::PUT, &address, Some(content)).await?;
        if answer.status != StatusCode::CREATED {
            return Err(self.refused(&format!("the blob {digest}"), &answer));
        }
        self.compare(&answer, digest)
    }

    async fn bundle(&mut self, bundle: &Bundle, layout: &Layout) -> Result<(), RegistryError> {
        let digest = &bundle.manifest.descriptor.digest;
        let name = if bundle.refers { digest } else { &self.reference.tag };
        let answer = self.manifest(name, &bundle.manifest).await?;
        // A registry that keeps track of what refers to what says so; for others there is a list under a tag.
        if bundle.refers && !answer.headers.contains_key("oci-subject") {
            self.list_referrer(&bundle.manifest.descriptor, layout.digest()).await?;
        }
        Ok(())
    }

    async fn manifest(&mut self, name: &str, manifest: &Blob) -> Result<Answer, RegistryError> {
        let address = self.client.address(&format!("manifests/{name}"));
        let content = (manifest.descriptor.media_type.as_str(), manifest.bytes.clone().into());
        let answer = self.client.send(&Method::PUT, &address, Some(content)).await?;
        if answer.status != StatusCode::CREATED {
            return Err(self.refused(&format!("the manifest {name}"), &answer));
        }
        self.compare(&answer, &manifest.descriptor.digest)?;
        Ok(answer)
    }

    /// The referrers tag schema: a list of manifests, whose tag is made of the digest that they refer to.
    async fn list_referrer(&mut self, referrer: &Descriptor, subject: &str) -> Result<(), RegistryError> {
        let tag = subject.replace(':', "-");
        let address = self.client.address(&format!("manifests/{tag}"));
        let answer = self.client.send(&Method::GET, &address, None).await?;
        let mut index = match answer.status {
            StatusCode::OK => serde_json::from_slice(&answer.body)?,
            StatusCode::NOT_FOUND => Index::new(Vec::new()),
            _ => return Err(self.refused("to say what refers to the image", &answer)),
        };
        if index.manifests.iter().any(|known| known.digest == referrer.digest) {
            return Ok(());
        }
        index.manifests.push(referrer.clone());
        self.manifest(&tag, &Blob::new(INDEX, serde_json::to_vec(&index)?)).await.map(drop)
    }

    /// What the registry has got is what was sent.
    fn compare(&self, answer: &Answer, expected: &str) -> Result<(), RegistryError> {
        let found = answer.headers.get("docker-content-digest").and_then(|found| found.to_str().ok());
        match found {
            // Another algorithm may be the registry's choice.
            Some(found) if found != expected && found.starts_with("sha256:") => Err(RegistryError::Changed {
                registry: self.reference.registry.clone(),
                expected: expected.to_owned(),
                found: found.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn refused(&self, what: &str, answer: &Answer) -> RegistryError {
        let Reference { registry, repository, .. } = self.reference.clone();
        let said = said(&answer.body);
        match answer.status {
            StatusCode::UNAUTHORIZED => RegistryError::Login { registry },
            StatusCode::FORBIDDEN => RegistryError::Denied { registry, repository, said },
            status => RegistryError::Refused { registry, what: what.to_owned(), status, said },
        }
    }
}

/// The errors of an answer, as distribution-spec has them.
fn said(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Told>,
    }
    #[derive(Deserialize)]
    struct Told {
        code: String,
        #[serde(default)]
        message: String,
    }
    let errors = serde_json::from_slice::<Errors>(body).map(|answer| answer.errors).unwrap_or_default();
    let clean = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    errors.iter().map(|told| format!("; it says {}: {}", clean(&told.code), clean(&told.message))).collect()
}
