//! OCI images of operators, without a container engine or a base image.
//!
//! Except for [`registry`], which pushes and pulls images, these modules do no I/O. Builds are reproducible: the same
//! program results in the same digest, since an image contains nothing about the time, the machine or the directory of
//! its build.

pub(crate) mod elf;
mod layer;
pub(crate) mod layout;
pub(crate) mod registry;
pub(crate) mod sbom;
pub(crate) mod signature;
pub(crate) mod unpack;

use std::{collections::BTreeMap, io};

use serde::Serialize;
use serde_json::Value;

use self::layout::{Blob, Bundle, Layout, MANIFEST, Manifest, Platform};

/// The contents of an image.
#[derive(Clone, Debug)]
pub(crate) struct Contents<'a> {
    /// The program.
    pub(crate) program: &'a [u8],
    /// The architecture of the program.
    pub(crate) architecture: &'a str,
    /// The labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// The software bill of materials, in CycloneDX format.
    pub(crate) sbom: Option<Value>,
}

#[derive(Serialize)]
struct Config<'a> {
    architecture: &'a str,
    os: &'a str,
    created: &'a str,
    config: Execution<'a>,
    rootfs: Rootfs<'a>,
    history: [History<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Execution<'a> {
    user: String,
    entrypoint: [&'a str; 1],
    env: [String; 2],
    working_dir: &'a str,
    labels: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Rootfs<'a> {
    r#type: &'a str,
    diff_ids: [&'a str; 1],
}

#[derive(Serialize)]
struct History<'a> {
    created: &'a str,
    created_by: &'a str,
}

/// The time of all entries.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// Assembles the image and its referrers.
pub(crate) fn make(contents: &Contents<'_>) -> io::Result<Layout> {
    let layer = layer::pack(contents.program)?;
    let config = Config {
        architecture: contents.architecture,
        os: "linux",
        created: EPOCH,
        config: Execution {
            user: format!("{0}:{0}", layer::USER),
            entrypoint: [layer::PROGRAM],
            env: ["PATH=/".into(), format!("SSL_CERT_FILE={}", layer::CERTIFICATES)],
            working_dir: "/",
            labels: &contents.labels,
        },
        rootfs: Rootfs { r#type: "layers", diff_ids: [&layer.diff_id] },
        history: [History { created: EPOCH, created_by: "kubewright image" }],
    };
    let config = Blob::json("application/vnd.oci.image.config.v1+json", &config)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST.into(),
        artifact_type: None,
        config: config.descriptor.clone(),
        layers: vec![layer.blob.descriptor.clone()],
        subject: None,
        annotations: contents.labels.clone(),
    };
    let mut manifest = Blob::json(MANIFEST, &manifest)?;
    let subject = manifest.descriptor.clone();
    manifest.descriptor.platform = Some(Platform { architecture: contents.architecture.into(), os: "linux".into() });
    let image = Bundle { manifest, blobs: vec![config, layer.blob], subject: None };
    let referrers = match &contents.sbom {
        Some(sbom) => vec![referrer(sbom, subject)?],
        None => Vec::new(),
    };
    Ok(Layout { image, platforms: Vec::new(), referrers })
}

/// Assembles the referrer with the software bill of materials.
fn referrer(sbom: &Value, subject: layout::Descriptor) -> io::Result<Bundle> {
    let digest = subject.digest.clone();
    let list = Blob::json(sbom::MEDIA_TYPE, sbom)?;
    let empty = Blob::new("application/vnd.oci.empty.v1+json", b"{}".to_vec());
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST.into(),
        artifact_type: Some(sbom::MEDIA_TYPE.into()),
        config: empty.descriptor.clone(),
        layers: vec![list.descriptor.clone()],
        subject: Some(subject),
        annotations: BTreeMap::new(),
    };
    let mut manifest = Blob::json(MANIFEST, &manifest)?;
    manifest.descriptor.artifact_type = Some(sbom::MEDIA_TYPE.into());
    Ok(Bundle { manifest, blobs: vec![empty, list], subject: Some(digest) })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::json;

    use super::*;
    use crate::oci::layout::{Index, digest};

    fn layout() -> Layout {
        let program = elf::tests::program(None);
        let labels = BTreeMap::from([("org.opencontainers.image.title".to_owned(), "cow".to_owned())]);
        let sbom = Some(json!({"bomFormat": "CycloneDX"}));
        make(&Contents { program: &program, architecture: "amd64", labels, sbom }).unwrap()
    }

    /// Follows the references from the index to each blob, as specified in image-spec.
    #[test]
    fn references_lead_to_all_blobs() {
        let files: BTreeMap<_, _> = layout().files(Some("registry.example/cow:v1")).unwrap().into_iter().collect();
        let document = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(document(&files["oci-layout"]), json!({"imageLayoutVersion": "1.0.0"}));
        let follow = |descriptor: &layout::Descriptor| {
            let bytes = &files[&format!("blobs/{}", descriptor.digest.replace(':', "/"))];
            assert_eq!((digest(bytes), bytes.len() as u64), (descriptor.digest.clone(), descriptor.size));
            bytes.as_slice()
        };
        let index: Index = serde_json::from_slice(&files["index.json"]).unwrap();
        let [image, sbom] = index.manifests.as_slice() else { panic!("{index:?}") };
        for key in ["org.opencontainers.image.ref.name", "io.containerd.image.name"] {
            assert_eq!(image.annotations[key], "registry.example/cow:v1");
        }
        let manifest: Manifest = serde_json::from_slice(follow(image)).unwrap();
        let config = document(follow(&manifest.config));
        let ran = &config["config"];
        assert_eq!((&config["os"], &config["architecture"]), (&json!("linux"), &json!("amd64")));
        assert_eq!((&ran["User"], &ran["Entrypoint"]), (&json!("65532:65532"), &json!(["/manager"])));
        assert_eq!(ran["Labels"]["org.opencontainers.image.title"], "cow");
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(follow(&manifest.layers[0])).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest(&layer)]));

        let referrer: Manifest = serde_json::from_slice(follow(sbom)).unwrap();
        assert_eq!(referrer.subject.map(|subject| subject.digest).as_ref(), Some(&image.digest));
        assert_eq!(referrer.artifact_type.as_deref(), Some(sbom::MEDIA_TYPE));
        assert_eq!(follow(&referrer.config), b"{}");
        assert_eq!(document(follow(&referrer.layers[0])), json!({"bomFormat": "CycloneDX"}));
        assert_eq!(files.len(), 2 + 6, "nothing else is there");
    }

    #[test]
    fn an_index_lists_the_images_of_all_platforms() {
        let program = elf::tests::program(None);
        let image = |architecture: &'static str| {
            let sbom = Some(json!({"bomFormat": "CycloneDX"}));
            make(&Contents { program: &program, architecture, labels: BTreeMap::new(), sbom }).unwrap()
        };
        let joined = Layout::join(vec![image("amd64"), image("arm64")]).unwrap();
        let files: BTreeMap<_, _> = joined.files(Some("registry.example/cow:v1")).unwrap().into_iter().collect();
        let document = |digest: &str| -> Value {
            serde_json::from_slice(&files[&format!("blobs/{}", digest.replace(':', "/"))]).unwrap()
        };
        let index: Index = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!((index.manifests[0].digest.as_str(), index.manifests.len()), (joined.digest(), 3));
        assert_eq!(index.manifests[0].media_type, layout::INDEX);
        let platforms = document(joined.digest());
        for (position, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            let entry = &platforms["manifests"][position];
            assert_eq!(entry["platform"], json!({"architecture": architecture, "os": "linux"}));
            let manifest = document(entry["digest"].as_str().unwrap());
            assert_eq!(document(manifest["config"]["digest"].as_str().unwrap())["architecture"], architecture);
            let referrer = document(&index.manifests[position + 1].digest);
            assert_eq!(referrer["subject"]["digest"], entry["digest"]);
        }
        assert_eq!(joined.digest(), Layout::join(vec![image("amd64"), image("arm64")]).unwrap().digest());
    }

    #[test]
    fn the_same_program_gives_the_same_digest_and_archive() {
        assert_eq!(layout().digest(), layout().digest());
        let name = Some("registry.example/cow:v1");
        assert_eq!(layout().archive(name).unwrap(), layout().archive(name).unwrap());
        let archive = layout().archive(name).unwrap();
        let mut archive = tar::Archive::new(archive.as_slice());
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        let docker: Value = serde_json::from_slice(&files.remove("manifest.json").unwrap()).unwrap();
        assert_eq!(docker[0]["RepoTags"], json!(["registry.example/cow:v1"]));
        assert!(files.contains_key(docker[0]["Layers"][0].as_str().unwrap()));
        assert!(files.contains_key(docker[0]["Config"].as_str().unwrap()));
        let image = Layout { referrers: Vec::new(), ..layout() };
        assert_eq!(files, image.files(name).unwrap().into_iter().collect(), "referrers are not in the archive");
    }
}
