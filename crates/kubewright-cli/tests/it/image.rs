//! `kubewright build` and `kubewright image`: from a project to an image that can start.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Output},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    cluster::kubewright,
    registry::{Registry, State},
};

/// Creates a project without dependencies, which builds in a second.
fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "[package]\nname = \"cow\"\nversion = \"1.2.3\"\nedition = \"2024\"\nlicense = \"Apache-2.0\"\n\
                    description = \"Says moo.\"\n[workspace]\n";
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), "fn main() {\n    println!(\"moo\");\n}\n").unwrap();
    folder
}

fn try_image(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = kubewright();
    command.current_dir(folder).arg("image").args(arguments).env("DOCKER_CONFIG", folder).env_remove("RUSTFLAGS");
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_TARGET_DIR").output().unwrap()
}

fn image(folder: &Path, arguments: &[&str]) -> String {
    let output = try_image(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn refusal(folder: &Path, arguments: &[&str]) -> String {
    let output = try_image(folder, arguments);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_project_becomes_an_image_that_starts() {
    let project = project();
    let digest = image(project.path(), &["--label", "barn=red"]);
    let layout = project.path().join("target/image/cow");
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        layout.join("blobs").join(digest.replace(':', "/"))
    };
    let index = document(&layout.join("index.json"));
    assert_eq!(index["manifests"][0]["digest"], digest.as_str());
    let manifest = document(&blob(&index["manifests"][0]));
    let config = document(&blob(&manifest["config"]));
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], "1.2.3");
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");
    assert_eq!((&labels["org.opencontainers.image.title"], &labels["barn"]), (&"cow".into(), &"red".into()));
    let referrer = document(&blob(&index["manifests"][1]));
    assert_eq!(referrer["subject"]["digest"], digest.as_str());
    let sbom = document(&blob(&referrer["layers"][0]));
    assert_eq!(sbom["metadata"]["component"]["purl"], "pkg:cargo/cow@1.2.3");

    let program = project.path().join("manager");
    let layer = fs::File::open(blob(&manifest["layers"][0])).unwrap();
    for entry in tar::Archive::new(GzDecoder::new(layer)).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap() == Path::new("manager") {
            entry.unpack(&program).unwrap();
        }
    }
    let said = Command::new(&program).env_clear().output().unwrap();
    assert_eq!(said.stdout, b"moo\n");

    let again = image(project.path(), &["--label", "barn=red", "--archive", "cow.tar", "--tag", "cow:v1"]);
    assert_eq!(again, digest, "the same program gives the same digest");
    let mut names = Vec::new();
    let archive = fs::File::open(project.path().join("cow.tar")).unwrap();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        if name == "manifest.json" {
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert!(text.contains("docker.io/library/cow:v1"), "{text}");
        }
        names.push(name);
    }
    assert!(names.contains(&"oci-layout".into()) && names.contains(&"index.json".into()), "{names:?}");

    let built = kubewright().current_dir(project.path()).arg("build").env_remove("CARGO_TARGET_DIR").output().unwrap();
    let path = String::from_utf8(built.stdout).unwrap();
    assert_eq!(fs::read(path.trim_end()).unwrap(), fs::read(&program).unwrap());
}

#[test]
fn a_program_that_cannot_start_in_an_image_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let refused = refusal(folder.path(), &["--program", env!("CARGO_BIN_EXE_kubewright"), "--output", "image"]);
    for word in ["is linked dynamically", "ld-linux", "rustup target add", "C compiler", "musl"] {
        assert!(refused.contains(word), "{word} in\n{refused}");
    }
    fs::write(folder.path().join("script"), "#!/bin/sh\n").unwrap();
    let refused = refusal(folder.path(), &["--program", "script", "--output", "image"]);
    assert!(refused.contains("script is not a program for an image: "), "{refused}");
    assert!(!folder.path().join("image").exists());
}

#[test]
fn wrong_arguments_are_reported_before_the_build() {
    let project = project();
    let refused = refusal(project.path(), &["--tag", "Ghcr.io/Me/cow", "--push"]);
    assert!(refused.contains("invalid image reference"), "{refused}");
    fs::write(project.path().join("config.json"), r#"{"auths": {"ghcr.io": {"auth": "?"}}}"#).unwrap();
    let refused = refusal(project.path(), &["--tag", "ghcr.io/me/cow", "--push"]);
    assert!(refused.contains("run docker login again"), "{refused}");
    let mount = ["--tag", "127.0.0.1:1/me/cow", "--push", "--mount-from", "ghcr.io/me/calf"];
    assert!(refusal(project.path(), &mount).contains("of the registry that is pushed to"));
    let push = ["--tag", "127.0.0.1:1/me/cow", "--push", "--sign-key", "cow.key"];
    assert!(refusal(project.path(), &push).contains("read cow.key: "));
    fs::write(project.path().join("cow.key"), "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").unwrap();
    let refused = refusal(project.path(), &push);
    assert!(refused.contains("cow.key cannot sign images: it is a public key"), "{refused}");
    let refused = refusal(project.path(), &["--target", "m68k-unknown-linux-gnu"]);
    assert!(refused.contains("run rustup target add m68k-unknown-linux-gnu"), "{refused}");
    assert!(!project.path().join("target").exists());
}

/// Starts a registry, whose password is stored in a directory as by docker login.
fn registry(runtime: &Runtime, folder: &Path) -> Registry {
    let registry = runtime.block_on(Registry::start(State::default()));
    let logins = json!({"auths": {&registry.address: {"auth": "bWU6c2VjcmV0"}}});
    fs::write(folder.join("config.json"), logins.to_string()).unwrap();
    registry
}

#[test]
fn an_image_is_pushed_and_signed() {
    let (project, runtime) = (project(), Runtime::new().unwrap());
    let registry = registry(&runtime, project.path());
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(project.path().join("cow.key"), key.serialize_pem()).unwrap();
    let name = format!("{}/me/cow", registry.address);
    let push = ["--tag", &format!("{name}:v1"), "--push", "--sign-key", "cow.key"];
    let pushed = try_image(project.path(), &push);
    let said = String::from_utf8(pushed.stderr).unwrap();
    assert!(pushed.status.success() && said.contains("Signing sha256:"), "{said}");
    let digest = String::from_utf8(pushed.stdout).unwrap().trim_end().replace(&format!("{name}@"), "");

    let state = registry.state.lock().unwrap();
    let (_, manifest) = &state.manifests[&format!("{}.sig", digest.replace(':', "-"))];
    let manifest: Value = serde_json::from_slice(manifest).unwrap();
    let payload = &state.blobs[manifest["layers"][0]["digest"].as_str().unwrap()];
    let signed: Value = serde_json::from_slice(payload).unwrap();
    assert_eq!(signed["critical"]["image"]["docker-manifest-digest"], digest);
    let signature = manifest["layers"][0]["annotations"]["dev.cosignproject.cosign/signature"].as_str().unwrap();
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.public_key_raw());
    public.verify(payload, &STANDARD.decode(signature).unwrap()).unwrap();
}
