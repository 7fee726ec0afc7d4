//! Tests of pushes to a local registry.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{
    testing::{Mounts, Registry, State, digest},
    *,
};
use crate::oci::{
    Contents, elf, make,
    signature::{self, key},
};

impl Registry {
    /// Pushes an image as the user `me`, and returns the steps.
    async fn push(&self, layout: &Layout, password: Option<&str>) -> Result<Vec<String>, String> {
        self.push_with(layout, password, PushOptions::default()).await
    }

    pub(super) async fn push_with(
        &self,
        layout: &Layout,
        password: Option<&str>,
        options: PushOptions<'_>,
    ) -> Result<Vec<String>, String> {
        let reference = Reference::parse(&format!("{}/me/cow:v1", self.address)).unwrap();
        let credentials =
            password.map(|password| Credentials::Password { user: "me".into(), password: password.into() });
        let mut steps = Vec::new();
        let observe = |step: Step<'_>| {
            steps.push(match step {
                Step::Blob(_) => "blob".to_owned(),
                Step::Sent(..) => "sent".to_owned(),
                Step::Resumed(..) => "resumed".to_owned(),
                Step::Mounted(_) => "mounted".to_owned(),
                Step::Exists(_) => "there".to_owned(),
                Step::Manifest(_) => "manifest".to_owned(),
                Step::Signature(_) => "signature".to_owned(),
                Step::IsSigned(_) => "signed".to_owned(),
            });
        };
        let options = PushOptions { credentials, ..options };
        let pushed = push(layout, &reference, options, observe).await;
        pushed.map(|()| steps).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }
}

/// Returns an image of two platforms.
fn two_platforms() -> Layout {
    let program = elf::tests::program(None);
    let image = |architecture: &'static str| {
        let sbom = Some(json!({"bomFormat": "CycloneDX", "serialNumber": architecture}));
        make(&Contents { program: &program, architecture, labels: BTreeMap::new(), sbom }).unwrap()
    };
    Layout::join(vec![image("amd64"), image("arm64")]).unwrap()
}

fn layout() -> Layout {
    let program = elf::tests::program(None);
    let sbom = Some(json!({"bomFormat": "CycloneDX"}));
    make(&Contents { program: &program, architecture: "amd64", labels: BTreeMap::new(), sbom }).unwrap()
}

#[tokio::test]
async fn the_images_of_an_index_are_pushed_by_digest_before_it() {
    let (registry, layout) = (Registry::start(State::default()).await, two_platforms());
    registry.push(&layout, Some("secret")).await.unwrap();
    let state = registry.state.lock().unwrap();
    let (form, index) = &state.manifests["v1"];
    assert_eq!(form, INDEX);
    let index: Index = serde_json::from_slice(index).unwrap();
    assert_eq!(index.manifests.len(), 2);
    for image in &index.manifests {
        assert!(state.manifests.contains_key(&image.digest));
        // Without the referrers API, a tag for each image lists its bill of materials.
        let (_, referrers) = &state.manifests[&image.digest.replace(':', "-")];
        assert_eq!(serde_json::from_slice::<Index>(referrers).unwrap().manifests.len(), 1);
    }
}

#[tokio::test]
async fn existing_blobs_are_not_sent_again() {
    let (registry, layout) = (Registry::start(State { tracks: true, ..State::default() }).await, layout());
    let steps = registry.push(&layout, Some("secret")).await.unwrap();
    assert_eq!(steps, ["blob", "blob", "manifest", "blob", "blob", "manifest"]);
    {
        let state = registry.state.lock().unwrap();
        let (form, image) = &state.manifests["v1"];
        assert_eq!((form.as_str(), digest(image).as_str()), (super::super::layout::MANIFEST, layout.digest()));
        assert_eq!(state.blobs.len(), 4);
        assert!(state.referred.contains(layout.digest()));
        assert_eq!(state.manifests.len(), 3, "no list for a registry that has its own");
        assert_eq!(state.seen.iter().filter(|line| line.contains("/token")).count(), 1);
    }
    let steps = registry.push(&layout, Some("secret")).await.unwrap();
    assert_eq!(steps, ["there", "there", "manifest", "there", "there", "manifest"]);
}

#[tokio::test]
async fn referrers_are_listed_under_a_tag_without_the_referrers_api() {
    let (registry, layout) = (Registry::start(State::default()).await, layout());
    for _ in 0..2 {
        registry.push(&layout, Some("secret")).await.unwrap();
        let state = registry.state.lock().unwrap();
        let (form, list) = &state.manifests[&layout.digest().replace(':', "-")];
        let list: Index = serde_json::from_slice(list).unwrap();
        assert_eq!((form.as_str(), list.manifests.len()), (INDEX, 1));
        assert_eq!(list.manifests[0], layout.referrers[0].manifest.descriptor);
    }
}

#[tokio::test]
async fn missing_permissions_are_errors_with_a_hint() {
    let (registry, layout) = (Registry::start(State::default()).await, layout());
    let unknown = registry.push(&layout, Some("wrong")).await.unwrap_err();
    assert!(unknown.contains(&format!("run docker login {}", registry.address)), "{unknown}");
    let nobody = registry.push(&layout, None).await.unwrap_err();
    assert!(nobody.contains("push to me/cow denied") && nobody.ends_with("; DENIED: no"), "{nobody}");
    assert!(registry.state.lock().unwrap().blobs.is_empty());
}

#[tokio::test]
async fn rejections_and_changed_content_are_errors() {
    let full = Registry::start(State { full: true, ..State::default() }).await;
    let refused = full.push(&layout(), Some("secret")).await.unwrap_err();
    assert!(refused.contains("rejected the manifest v1 (507") && refused.contains("TOOMANYREQUESTS"), "{refused}");
    let broken = Registry::start(State { broken: true, ..State::default() }).await;
    let changed = broken.push(&layout(), Some("secret")).await.unwrap_err();
    assert!(changed.contains("a proxy may change the content"), "{changed}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    let reference = Reference::parse(&format!("{free}/me/cow")).unwrap();
    let silent = push(&layout(), &reference, PushOptions::default(), |_| {}).await.unwrap_err().to_string();
    assert!(silent.contains("cannot reach") && silent.contains("refused"), "{silent}");
}

#[tokio::test]
async fn a_pushed_image_is_signed_with_its_platforms() {
    let key = SigningKey::from_pem(key::tests::PKCS8.as_bytes(), None).unwrap();
    let (registry, layout) = (Registry::start(State::default()).await, two_platforms());
    let push = async || {
        let options = PushOptions { key: Some(&key), ..PushOptions::default() };
        registry.push_with(&layout, Some("secret"), options).await.unwrap()
    };
    let steps = push().await;
    assert_eq!(steps.iter().filter(|step| *step == "signature").count(), 3, "{steps:?}");
    let signatures = |digest: &str| -> Value {
        let state = registry.state.lock().unwrap();
        let (form, manifest) = &state.manifests[&signature::tag(digest)];
        assert_eq!(form, super::super::layout::MANIFEST);
        let manifest: Value = serde_json::from_slice(manifest).unwrap();
        for layer in manifest["layers"].as_array().unwrap() {
            let payload = &state.blobs[layer["digest"].as_str().unwrap()];
            let signed: Value = serde_json::from_slice(payload).unwrap();
            assert_eq!(signed["critical"]["image"]["docker-manifest-digest"], digest);
            let name = format!("{}/me/cow", registry.address);
            assert_eq!(signed["critical"]["identity"]["docker-reference"], name);
        }
        manifest
    };
    let images = layout.platforms.iter().chain([&layout.image]);
    let digests: Vec<_> = images.map(|image| image.manifest.descriptor.digest.clone()).collect();
    let before: Vec<_> = digests.iter().map(|digest| signatures(digest)).collect();

    // The same key does not sign twice, and another one adds its signature.
    let steps = push().await;
    assert_eq!(steps.iter().filter(|step| *step == "signed").count(), 3, "{steps:?}");
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let other = SigningKey::from_pem(other.as_bytes(), None).unwrap();
    let options = PushOptions { key: Some(&other), ..PushOptions::default() };
    registry.push_with(&layout, Some("secret"), options).await.unwrap();
    for (digest, before) in digests.iter().zip(before) {
        let layers = signatures(digest)["layers"].as_array().unwrap().clone();
        assert_eq!((layers.len(), &layers[0]), (2, &before["layers"][0]));
    }
}

#[tokio::test]
async fn blobs_of_another_repository_are_mounted() {
    let layout = layout();
    let calf: BTreeMap<_, _> = layout.image.blobs[1..]
        .iter()
        .map(|blob| (blob.descriptor.digest.clone(), blob.bytes.clone().into()))
        .collect();
    for (mounts, expect, starts) in [
        // The config and the bill of materials are not in the other repository.
        (Mounts::Done, ["blob", "mounted", "manifest", "blob", "blob", "manifest"], 4),
        (Mounts::Upload, ["blob", "blob", "manifest", "blob", "blob", "manifest"], 4),
        (Mounts::NoToken, ["blob", "blob", "manifest", "blob", "blob", "manifest"], 4),
        // After each refusal, an upload is begun.
        (Mounts::Refused, ["blob", "blob", "manifest", "blob", "blob", "manifest"], 8),
    ] {
        let state = State { mounts, calf: calf.clone(), tracks: true, ..State::default() };
        let registry = Registry::start(state).await;
        let options = PushOptions { mount_from: Some("me/calf"), ..PushOptions::default() };
        assert_eq!(registry.push_with(&layout, Some("secret"), options).await.unwrap(), expect, "{mounts:?}");
        let state = registry.state.lock().unwrap();
        assert!(state.manifests.contains_key("v1") && state.blobs.len() == 4, "{mounts:?}");
        let posts = state.seen.iter().filter(|request| request.starts_with("POST")).count();
        assert_eq!(posts, starts, "{mounts:?}");
        assert!(state.tokens[0].contains("scope=repository%3Ame%2Fcalf%3Apull"), "{:?}", state.tokens);
    }
}

#[tokio::test]
async fn something_else_under_the_tag_of_signatures_is_an_error() {
    let key = SigningKey::from_pem(key::tests::PKCS8.as_bytes(), None).unwrap();
    let (registry, layout) = (Registry::start(State::default()).await, layout());
    let tag = signature::tag(layout.digest());
    let index = (INDEX.to_owned(), serde_json::to_vec(&Index::new(Vec::new())).unwrap().into());
    registry.state.lock().unwrap().manifests.insert(tag.clone(), index);
    let options = PushOptions { key: Some(&key), ..PushOptions::default() };
    let refused = registry.push_with(&layout, Some("secret"), options).await.unwrap_err();
    assert!(refused.contains(&tag) && refused.contains("which is pushed"), "{refused}");
    assert!(refused.contains("no manifest with a list of layers"), "{refused}");
}
