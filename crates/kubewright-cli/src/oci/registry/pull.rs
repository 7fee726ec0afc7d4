//! Pulling an image.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    RegistryError,
    client::Client,
    credentials::Credentials,
    reason,
    reference::{Reference, is_digest},
    resolve::refused,
};
use crate::oci::layout::{Descriptor, digest};

/// The most bytes of a blob. Those of bundles have some kilobytes.
const LARGEST: u64 = 64 << 20;

/// A pulled image.
#[derive(Debug)]
pub(crate) struct PulledImage {
    /// The labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// The layers, as they are stored, from the lowest to the highest.
    pub(crate) layers: Vec<Vec<u8>>,
}

/// An image, or an index of images.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Index { manifests: Vec<Descriptor> },
    Image { config: Descriptor, layers: Vec<Descriptor> },
}

/// Pulls an image, and checks the digests of all its parts. Of an index, the image for `linux/amd64` is pulled, or else
/// the first.
pub(crate) async fn pull(
    reference: &Reference,
    credentials: Option<Credentials>,
    plain: bool,
) -> Result<PulledImage, RegistryError> {
    let client = Client::new(reference, credentials, plain)?.for_reading();
    let mut puller = Puller { client, reference };
    let missing = || RegistryError::NoImage {
        registry: reference.registry.clone(),
        repository: reference.repository.clone(),
        tag: reference.tag.clone(),
    };
    let (config, layers) = match puller.manifest(&reference.tag).await? {
        Document::Image { config, layers } => (config, layers),
        Document::Index { manifests } => match puller.manifest(choose(&manifests).ok_or_else(missing)?).await? {
            Document::Image { config, layers } => (config, layers),
            Document::Index { .. } => return Err(missing()),
        },
    };
    let config: Value = serde_json::from_slice(&puller.blob(&config).await?)?;
    let labels = config.pointer("/config/Labels").filter(|labels| !labels.is_null()).cloned();
    let labels = labels.map(serde_json::from_value).transpose()?.unwrap_or_default();
    let mut image = PulledImage { labels, layers: Vec::new() };
    for layer in &layers {
        image.layers.push(puller.blob(layer).await?);
    }
    Ok(image)
}

/// Returns the digest of one of the images in an index. Attestations have an unknown platform.
fn choose(manifests: &[Descriptor]) -> Option<&str> {
    let platform = |manifest: &Descriptor| {
        manifest.platform.as_ref().map(|platform| (platform.os.clone(), platform.architecture.clone()))
    };
    let usual = Some(("linux".to_owned(), "amd64".to_owned()));
    let is_image = |manifest: &&Descriptor| platform(manifest).is_none_or(|(os, _)| os != "unknown");
    let chosen = manifests.iter().find(|manifest| platform(manifest) == usual);
    chosen.or_else(|| manifests.iter().find(is_image)).map(|manifest| manifest.digest.as_str())
}

struct Puller<'a> {
    client: Client,
    reference: &'a Reference,
}

impl Puller<'_> {
    /// Reads a manifest by tag or digest.
    async fn manifest<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, RegistryError> {
        let address = self.client.address(&format!("manifests/{name}"));
        let response = self.client.send(&Method::GET, &address, None).await?;
        if response.status != StatusCode::OK {
            return Err(refused(self.reference, &response));
        }
        if is_digest(name) {
            self.compare(&response.body, name)?;
        }
        Ok(serde_json::from_slice(&response.body)?)
    }

    async fn blob(&mut self, descriptor: &Descriptor) -> Result<Vec<u8>, RegistryError> {
        let Reference { registry, repository, .. } = self.reference.clone();
        let (digest, size) = (descriptor.digest.clone(), descriptor.size);
        let bytes = usize::try_from(size).ok().filter(|_| size <= LARGEST);
        let Some(bytes) = bytes else {
            return Err(RegistryError::TooLarge { repository, digest, size, limit: LARGEST });
        };
        let address = self.client.address(&format!("blobs/{digest}"));
        let response = self.client.download(&address, bytes).await?;
        if response.status != StatusCode::OK {
            let (what, reason) = (format!("the download of {digest}"), reason(&response.body));
            return Err(RegistryError::Refused { registry, what, status: response.status, reason });
        }
        self.compare(&response.body, &digest)?;
        Ok(response.body.to_vec())
    }

    fn compare(&self, bytes: &[u8], expected: &str) -> Result<(), RegistryError> {
        let found = digest(bytes);
        if found == expected {
            return Ok(());
        }
        Err(RegistryError::Corrupt { registry: self.reference.registry.clone(), expected: expected.to_owned(), found })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::testing::{Registry, State, digest as digest_of},
        *,
    };
    use crate::oci::unpack::unpack;

    async fn ask(registry: &Registry, name: &str) -> Result<PulledImage, String> {
        let reference = Reference::parse_pulled(&format!("{}/me/cow{name}", registry.address)).unwrap();
        pull(&reference, None, false).await.map_err(|error| error.to_string())
    }

    fn state() -> (State, String) {
        let mut state = State::default();
        let files = [("manifests/cow.yaml".to_owned(), "kind: Cow\n".to_owned())];
        let digest = state.add_image("v1", &json!({"barn": "red"}), &files);
        (state, digest)
    }

    #[tokio::test]
    async fn an_image_is_pulled_by_tag_digest_and_index() {
        let (mut state, digest) = state();
        let entry = |digest: &str, os: &str, architecture: &str| {
            let platform = json!({"os": os, "architecture": architecture});
            json!({"mediaType": "", "digest": digest, "size": 1, "platform": platform})
        };
        let index = json!({"manifests": [entry("sha256:0", "unknown", "unknown"), entry(&digest, "linux", "arm64")]});
        state.manifests.insert("all".into(), (String::new(), index.to_string().into()));
        let registry = Registry::start(state).await;
        for name in [":v1", ":all", &format!("@{digest}")] {
            let image = ask(&registry, name).await.unwrap();
            assert_eq!(image.labels["barn"], "red");
            let files = unpack(&image.layers, |_| true).unwrap();
            assert_eq!(files["manifests/cow.yaml"], b"kind: Cow\n", "{name}");
        }
        let state = registry.state.lock().unwrap();
        assert!(state.tokens.iter().all(|query| !query.contains("push")), "{:?}", state.tokens);
    }

    #[tokio::test]
    async fn redirections_are_followed_without_the_token() {
        let (state, _) = state();
        let registry = Registry::start(state).await;
        let host = registry.address.replace("127.0.0.1", "localhost");
        registry.state.lock().unwrap().redirects = Some(host);
        assert_eq!(ask(&registry, ":v1").await.unwrap().layers.len(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_pulled_is_an_error_with_advice() {
        let (mut state, digest) = state();
        state.corrupts = true;
        let (_, manifest) = state.manifests["v1"].clone();
        let mut large: Value = serde_json::from_slice(&manifest).unwrap();
        large["config"]["size"] = json!(LARGEST + 1);
        state.manifests.insert("large".into(), (String::new(), large.to_string().into()));
        state.manifests.insert(digest.clone(), (String::new(), "{}".into()));
        let registry = Registry::start(state).await;
        let other = digest_of(b"{}");
        for (name, says) in [
            (":v2".to_owned(), "has no image me/cow:v2: correct its name, or push it first".to_owned()),
            (":v1".to_owned(), format!("sent {} instead of", digest_of(b"else"))),
            (format!("@{digest}"), format!("sent {other} instead of {digest}")),
            (":large".to_owned(), "check that this is the image of a bundle".to_owned()),
        ] {
            let said = ask(&registry, &name).await.unwrap_err();
            assert!(said.contains(&says), "{said}");
        }
    }
}
