//! `kubewright generate kustomize manifests`, `generate bundle` and `bundle validate`, on golden projects.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    folder::Folder,
    registry::{self, Registry, State},
};

/// Copies a golden project, without its sources.
pub(crate) fn golden(name: &str) -> Folder {
    let folder = Folder::new(name);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name);
    for part in ["PROJECT", "Cargo.toml", "config"] {
        assert!(Command::new("cp").arg("-r").arg(from.join(part)).arg(folder.path()).status().unwrap().success());
    }
    folder
}

pub(crate) fn read(folder: &Folder, path: &str) -> Value {
    kubewright_manifests::yaml::read(&folder.read(path)).unwrap().remove(0)
}

/// Asserts that the check fails, and returns its output.
fn invalid(folder: &Folder, line: &str) -> String {
    let output = folder.try_run(line);
    assert_eq!(output.status.code(), Some(1), "{line}");
    format!("{}{}", String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_bundle_contains_the_operator_and_is_valid() {
    let folder = golden("project-conversion");
    assert!(invalid(&folder, "generate bundle").contains("run kubewright generate kustomize manifests first"));
    folder.run("generate kustomize manifests --no-build");
    let base = "config/manifests/bases/project-conversion.clusterserviceversion.yaml";
    let modes = "installModes:\n  - supported: true\n    type: OwnNamespace";
    folder.edit(base, modes, "installModes:\n  - supported: false\n    type: OwnNamespace");
    folder.edit(base, "displayName: Project Conversion", "displayName: Ships # Mine.");
    let edited = folder.read(base);
    folder.run("generate kustomize manifests --no-build");
    assert_eq!(folder.read(base), edited);

    folder.run(
        "generate bundle --version 0.2.0 --image example.com/ship:v2 --channels stable,fast --default-channel stable",
    );
    let csv = read(&folder, "bundle/manifests/project-conversion.clusterserviceversion.yaml");
    assert_eq!(
        (&csv["metadata"]["name"], &csv["spec"]["displayName"]),
        (&"project-conversion.v0.2.0".into(), &"Ships".into())
    );
    let install = &csv["spec"]["install"]["spec"];
    let container = &install["deployments"][0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.com/ship:v2");
    let argument = "--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs";
    assert!(container["args"].as_array().unwrap().iter().any(|found| found == argument));
    assert_eq!(install["clusterPermissions"][0]["serviceAccountName"], "project-conversion-controller-manager");
    let kinds: Vec<_> =
        csv["spec"]["webhookdefinitions"].as_array().unwrap().iter().map(|found| found["type"].clone()).collect();
    assert!(
        kinds.contains(&"ConversionWebhook".into()) && kinds.contains(&"MutatingAdmissionWebhook".into()),
        "{kinds:?}"
    );
    assert_eq!(csv["spec"]["customresourcedefinitions"]["owned"].as_array().unwrap().len(), 5);
    let examples: Vec<Value> =
        serde_json::from_str(csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap()).unwrap();
    assert_eq!(examples.len(), 5);
    let files: Vec<_> =
        fs::read_dir(folder.path().join("bundle/manifests")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let has = |end: &str| files.iter().any(|name| name.to_string_lossy().ends_with(end));
    assert!(has("crew.testproject.org_captains.yaml") && has("metrics-service_v1_service.yaml"), "{files:?}");
    assert!(
        !has("webhook-service_v1_service.yaml") && !has("_deployment.yaml") && !has("_namespace.yaml"),
        "{files:?}"
    );
    assert!(folder.read("bundle/metadata/annotations.yaml").contains("bundle.channels.v1: stable,fast\n"));
    assert!(folder.read("bundle.Dockerfile").contains("COPY bundle/manifests /manifests/\n"));
    let said = folder.run("bundle validate bundle");
    assert!(said.contains("bundle is valid"), "{said}");
    // The same project gives the same files.
    let before = folder.all();
    folder.run(
        "generate bundle --version 0.2.0 --image example.com/ship:v2 --channels stable,fast --default-channel stable",
    );
    assert!(folder.all() == before);
}

#[test]
fn mistakes_in_a_bundle_are_reported_with_file_and_field() {
    let folder = golden("project");
    folder.run("generate kustomize manifests --no-build");
    folder.run("generate bundle --version 0.1.0");
    folder.run("bundle validate bundle");
    let csv = "bundle/manifests/project.clusterserviceversion.yaml";
    let whole = folder.read(csv);
    let said = invalid(&folder, "bundle validate bundle --select-optional name=operatorhub");
    assert!(said.contains("spec.icon: is missing"), "{said}");
    for (from, to, says) in [
        ("version: \"0.1.0\"", "version: one", "spec.version: \"one\" is not a semantic version"),
        ("displayName: Project\n", "displayName: ''\n", "spec.displayName: is missing"),
        ("strategy: deployment", "strategy: pods", "spec.install.strategy: must be deployment"),
        ("supported: true", "supported: false", "spec.installModes: supports no mode"),
        ("type: OwnNamespace", "type: Own", "spec.installModes[0].type: \"Own\" must be one of OwnNamespace"),
        (
            "name: captains.crew.testproject.org",
            "name: boats.crew.testproject.org",
            "the bundle has no CustomResourceDefinition boats",
        ),
        (
            "type: MutatingAdmissionWebhook",
            "type: Webhook",
            "spec.webhookdefinitions[0].type: \"Webhook\" must be one of",
        ),
        (
            "deploymentName: project-controller-manager",
            "deploymentName: other",
            "deploymentName: \"other\" is not a Deployment",
        ),
        ("sideEffects: None", "sideEffects: ''", "sideEffects: is missing"),
        ("kind: ClusterServiceVersion", "kind: Other", "has 0 objects of the kind ClusterServiceVersion"),
    ] {
        assert!(whole.contains(from), "{from}");
        folder.write(csv, &whole.replace(from, to));
        let said = invalid(&folder, "bundle validate bundle");
        assert!(said.contains(says), "{says:?} is not in {said}");
    }
    folder.write(csv, &whole);
    folder.write("bundle/manifests/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n");
    folder.edit("bundle/metadata/annotations.yaml", "registry+v1", "other");
    let said = invalid(&folder, "bundle validate bundle --output json-alpha1");
    assert!(
        said.contains("\"passed\": false") && said.contains("manifests/pod.yaml: kind: Pod is not a kind"),
        "{said}"
    );
    assert!(
        said.contains("metadata/annotations.yaml: annotations.operators.operatorframework.io.bundle.mediatype.v1: is"),
        "{said}"
    );
    assert!(invalid(&folder, "bundle validate src").contains("has no directory manifests"));
    assert_eq!(folder.try_run("bundle validate bundle --select-optional name=other").status.code(), Some(2));
}

#[test]
fn images_of_a_bundle_are_named_by_digest() {
    let (folder, runtime) = (golden("project"), Runtime::new().unwrap());
    folder.run("generate kustomize manifests --no-build");
    let (operator, calf) = (registry::manifest("operator"), registry::manifest("calf"));
    let manifests = [("v1".to_owned(), operator.clone()), ("v2".to_owned(), calf.clone())].into();
    let registry = runtime.block_on(Registry::start(State { manifests, ..State::default() }));
    let logins = json!({"auths": {&registry.address: {"auth": "bWU6c2VjcmV0"}}});
    folder.write("login/config.json", &logins.to_string());
    let name = format!("{}/me/cow", registry.address);
    let variable = |tag: &str| format!("        - name: RELATED_IMAGE_CALF\n          value: {name}:{tag}\n");
    let marker = "        # +kubebuilder:scaffold:managerenv\n";
    folder.edit("config/manager/manager.yaml", marker, &format!("{}{marker}", variable("v3")));
    let generate = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.args(["generate", "bundle", "--version", "0.1.0", "--use-image-digests", "--image"]);
        command.arg(format!("{name}:v1")).current_dir(folder.path());
        command.env("DOCKER_CONFIG", folder.path().join("login")).output().unwrap()
    };

    let failed = generate();
    let said = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{name}:v3 to a digest; nothing was written")), "{said}");
    assert!(said.contains("has no image me/cow:v3: correct its name, or push it first"), "{said}");
    assert!(!folder.path().join("bundle").exists());

    folder.edit("config/manager/manager.yaml", &variable("v3"), &variable("v2"));
    let done = generate();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{said}");
    let csv = read(&folder, "bundle/manifests/project.clusterserviceversion.yaml");
    let pod = &csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"];
    let by_digest = |(_, bytes): &(String, bytes::Bytes)| format!("{name}@{}", registry::digest(bytes));
    assert_eq!(pod["containers"][0]["image"], by_digest(&operator));
    let related =
        json!([{"name": "manager", "image": by_digest(&operator)}, {"name": "calf", "image": by_digest(&calf)}]);
    assert_eq!(csv["spec"]["relatedImages"], related);
    let variables = pod["containers"][0]["env"].as_array().unwrap();
    assert!(variables.contains(&json!({"name": "RELATED_IMAGE_CALF", "value": by_digest(&calf)})), "{variables:?}");
    folder.run("bundle validate bundle");
}
