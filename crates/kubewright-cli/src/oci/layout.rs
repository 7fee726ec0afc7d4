//! The OCI image layout (image-spec 1.1): blobs, manifests, indexes and their files. Pure.

use std::{collections::BTreeMap, fmt::Write as _, io};

use serde::{Deserialize, Serialize};

/// The media type of a manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The media type of an index.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The annotations with the image name. containerd, and therefore kind, appends a date to the first one, and uses the
/// second one unchanged.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// Returns the digest of bytes, as `sha256:…`.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in ring::digest::digest(&ring::digest::SHA256, bytes).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Content with its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    /// The descriptor.
    pub(crate) descriptor: Descriptor,
    /// The content.
    pub(crate) bytes: Vec<u8>,
}

/// The descriptor of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    /// The media type.
    pub(crate) media_type: String,
    /// The digest, as `sha256:…`.
    pub(crate) digest: String,
    /// The size in bytes.
    pub(crate) size: u64,
    /// The type of an artifact that is not an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The platform of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Platform {
    pub(crate) architecture: String,
    pub(crate) os: String,
}

/// The manifest of an image, or of an artifact that refers to an image.
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

/// An image index.
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

/// A manifest with the blobs that it refers to, which are pushed before it.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    /// The manifest.
    pub(crate) manifest: Blob,
    /// The blobs, the config first.
    pub(crate) blobs: Vec<Blob>,
    /// The digest of its subject, if it refers to one.
    pub(crate) subject: Option<String>,
}

/// An image and its referrers.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The image: a manifest, or the index of an image of several platforms.
    pub(crate) image: Bundle,
    /// The images of the platforms in the index.
    pub(crate) platforms: Vec<Bundle>,
    /// The referrers, such as the software bill of materials.
    pub(crate) referrers: Vec<Bundle>,
}

/// The path and content of a file in a layout.
pub(crate) type File = (String, Vec<u8>);

impl Layout {
    /// Returns the digest of the image.
    pub(crate) fn digest(&self) -> &str {
        &self.image.manifest.descriptor.digest
    }

    /// Returns the bundles in the order in which to push them: what an index lists, the image, and its referrers.
    pub(crate) fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        self.platforms.iter().chain([&self.image]).chain(&self.referrers)
    }

    /// Joins images of several platforms by an index.
    pub(crate) fn join(layouts: Vec<Self>) -> serde_json::Result<Self> {
        let (mut platforms, mut referrers) = (Vec::new(), Vec::new());
        for layout in layouts {
            platforms.push(layout.image);
            referrers.extend(layout.referrers);
        }
        let index = Index::new(platforms.iter().map(|image| image.manifest.descriptor.clone()).collect());
        let image = Bundle { manifest: Blob::json(INDEX, &index)?, blobs: Vec::new(), subject: None };
        Ok(Self { image, platforms, referrers })
    }

    /// Returns the files of the layout. If a name is given, it is included for tools that look it up.
    pub(crate) fn files(&self, name: Option<&str>) -> serde_json::Result<Vec<File>> {
        let mut all = files([&self.image].into_iter().chain(&self.referrers), name)?;
        for blob in self.platforms.iter().flat_map(|image| image.blobs.iter().chain([&image.manifest])) {
            all.push((path(&blob.descriptor), blob.bytes.clone()));
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// Returns the image as a tar archive with the `manifest.json` of `docker load`. Referrers are omitted: containerd
    /// would unpack them as images, and podman would ask which image is meant.
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

/// Returns the files of a layout with some bundles, the image first.
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

/// Returns the path of a blob in a layout.
fn path(descriptor: &Descriptor) -> String {
    format!("blobs/{}", descriptor.digest.replacen(':', "/", 1))
}
