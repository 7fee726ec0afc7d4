//! Blobs, the documents that name them, and the folder or archive that holds them: OCI's image-spec 1.1, as values.

use std::{collections::BTreeMap, fmt::Write as _, io};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The form of an image's manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The form of a list of manifests.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Where tools look for the name of an image in a layout. containerd, and so kind, puts a date before the first, and takes the second as it is.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// `sha256:` and the digest of bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Bytes that are known by their digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    /// What leads to it.
    pub(crate) descriptor: Descriptor,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// What leads to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    /// What it is.
    pub(crate) media_type: String,
    /// `sha256:…`.
    pub(crate) digest: String,
    /// How many bytes it has.
    pub(crate) size: u64,
    /// What a manifest that is no image is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// What an image runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Platform {
    pub(crate) architecture: String,
    pub(crate) os: String,
}

/// A manifest: of an image, or of something that refers to one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) schema_version: u32,
    pub(super) media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// A list of manifests.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u32,
    pub(crate) media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

impl Index {
    pub(crate) fn new(manifests: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: INDEX.into(), manifests }
    }
}

impl Blob {
    pub(crate) fn new(media_type: &str, bytes: Vec<u8>) -> Self {
        let descriptor = Descriptor {
            media_type: media_type.into(),
            digest: digest(&bytes),
            size: bytes.len() as u64,
            artifact_type: None,
            platform: None,
            annotations: BTreeMap::new(),
        };
        Self { descriptor, bytes }
    }

    pub(super) fn json(media_type: &str, document: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self::new(media_type, serde_json::to_vec(document)?))
    }
}

/// A manifest with the blobs that it names, which it needs to be there before it.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    /// The manifest itself.
    pub(crate) manifest: Blob,
    /// What it names: the config first.
    pub(crate) blobs: Vec<Blob>,
    /// Whether it names another as what it is about.
    pub(crate) refers: bool,
}

/// An image, and what refers to it.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The image.
    pub(crate) image: Bundle,
    /// What refers to it, such as the list of what it is made of.
    pub(crate) referrers: Vec<Bundle>,
}

/// A file of a layout: its path and its bytes.
pub(crate) type File = (String, Vec<u8>);

impl Layout {
    /// The digest that the image is known by.
    pub(crate) fn digest(&self) -> &str {
        &self.image.manifest.descriptor.digest
    }

    /// The image, then what refers to it.
    pub(crate) fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        std::iter::once(&self.image).chain(&self.referrers)
    }

    /// The files of the layout, by path. With a name, tools find the image by that.
    pub(crate) fn files(&self, name: Option<&str>) -> serde_json::Result<Vec<File>> {
        files(self.bundles(), name)
    }

    /// The image as a tar archive. Beside it is the list that `docker load` looks for. What refers to the image is left out: containerd would unpack
    /// it as an image, which it isn't, and podman asks which of several is meant.
    pub(crate) fn archive(&self, name: Option<&str>) -> io::Result<Vec<u8>> {
        let mut files = files([&self.image], name)?;
        let [config, layers @ ..] = self.image.blobs.as_slice() else { return Err(io::ErrorKind::InvalidData.into()) };
        let layers: Vec<_> = layers.iter().map(|layer| path(&layer.descriptor)).collect();
        let tags: Vec<_> = name.into_iter().collect();
        let docker = serde_json::json!([{"Config": path(&config.descriptor), "RepoTags": tags, "Layers": layers}]);
        files.push(("manifest.json".into(), serde_json::to_vec(&docker)?));
        files.sort();
        let mut builder = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = tar::Header::new_ustar();
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, path, bytes.as_slice())?;
        }
        builder.into_inner()
    }
}

/// The files of a layout of these, the image first.
fn files<'a>(bundles: impl IntoIterator<Item = &'a Bundle>, name: Option<&str>) -> serde_json::Result<Vec<File>> {
    let mut files = BTreeMap::new();
    let mut manifests = Vec::new();
    for bundle in bundles {
        for blob in bundle.blobs.iter().chain([&bundle.manifest]) {
            files.insert(path(&blob.descriptor), blob.bytes.clone());
        }
        manifests.push(bundle.manifest.descriptor.clone());
    }
    if let (Some(name), Some(image)) = (name, manifests.first_mut()) {
        image.annotations.extend(NAMES.map(|key| (key.to_owned(), name.to_owned())));
    }
    files.insert("index.json".into(), serde_json::to_vec(&Index::new(manifests))?);
    files.insert("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    Ok(files.into_iter().collect())
}

/// Where a blob is in a layout.
fn path(descriptor: &Descriptor) -> String {
    format!("blobs/{}", descriptor.digest.replacen(':', "/", 1))
}
