//! `kubewright build-installer` and `kubewright helm`, on the project of the At operator.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use kubewright_cluster::{ImageTable, Program};
use operator_deployed::Deployed;
use tempfile::TempDir;

use crate::{cluster::operator_file, manifests::example};

/// Copies the project of the operator without its sources, which the commands do not need.
pub(crate) fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../operators/at");
    copy(&at.join("config"), folder.path());
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), "").unwrap();
    fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"at\"\nversion = \"0.3.0\"\n").unwrap();
    folder
}

pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
    command.current_dir(folder.path()).args(arguments).output().unwrap()
}

/// Runs the command, which must succeed, and returns its error output.
fn succeeds(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

/// Permissions that are used only after failures, or in clusters that check owner references.
const SPARE: [&str; 5] = [
    "cnat.d2iq.com ats/finalizers update",
    "- pods get",
    "events.k8s.io events patch",
    "authentication.k8s.io tokenreviews create",
    "authorization.k8s.io subjectaccessreviews create",
];

#[tokio::test]
async fn an_operator_is_installed_by_one_file_under_the_generated_role() {
    let folder = project();
    succeeds(&folder, &["build-installer", "--image", "registry.example.com/me/at:v9"]);
    let images = ImageTable::default().with("registry.example.com/me/at", Program::executable(example("at")));
    let file = folder.path().join("dist/install.yaml");
    let deployed = Deployed::install("at-operator", images, &["apply", "-f", &file.to_string_lossy()]).await;
    let sample = folder.path().join("config/samples/cnat_v1alpha1_at.yaml");
    deployed.kubectl(&["apply", "-f", &sample.to_string_lossy()]).await;
    deployed.until(&["get", "at", "-o", "jsonpath={.items[*].status.phase}"], |phase| phase == "DONE").await;
    deployed.check_rights(&SPARE).await;
    deployed.stop().await;
}

/// Returns a program that runs a scaffolded operator.
pub(crate) fn golden(project: &str) -> Program {
    Program::executable(example("golden")).env("GOLDEN", project)
}

#[tokio::test]
async fn a_scaffolded_project_is_installed_by_kustomize_and_by_one_file() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/project-multigroup");
    let install = async |command: &[&str]| {
        let images = ImageTable::default().with("controller", golden("multigroup"));
        let deployed = Deployed::nothing("project-multigroup", images).await;
        // One of its kinds is defined in another crate.
        deployed.kubectl(&["apply", "-f", &operator_file("podset", "config/crd/bases")]).await;
        deployed.kubectl(command).await;
        deployed.is_available(1).await;
        deployed
    };
    let tree = project.join("config/default");
    let deployed = install(&["apply", "-k", &tree.to_string_lossy()]).await;
    sample_is_reconciled(&deployed, &project).await;
    deployed.stop().await;

    let folder = tempfile::tempdir().unwrap();
    copy(&project.join("config"), folder.path());
    copy(&project.join("PROJECT"), folder.path());
    succeeds(&folder, &["build-installer"]);
    let file = folder.path().join("dist/install.yaml");
    let once = fs::read(&file).unwrap();
    succeeds(&folder, &["build-installer"]);
    assert_eq!(fs::read(&file).unwrap(), once, "the same project gives the same file");
    let deployed = install(&["apply", "-f", &file.to_string_lossy()]).await;
    sample_is_reconciled(&deployed, &project).await;
    deployed.stop().await;
}

/// Waits until the sample is reconciled, which includes calls of the webhooks.
pub(crate) async fn sample_is_reconciled(deployed: &Deployed, project: &Path) {
    let sample = project.join("config/samples/crew_v1_captain.yaml");
    deployed
        .eventually("the webhooks let the sample in", async || {
            deployed.try_kubectl(&["apply", "-f", &sample.to_string_lossy()]).await.0
        })
        .await;
    let reason = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].reason}"#;
    deployed.until(&["get", "captains", "-o", reason], |reason| reason == "NotImplemented").await;
}

#[test]
fn manifests_that_cannot_be_rendered_are_an_error() {
    let folder = project();
    fs::remove_file(folder.path().join("config/rbac/role.yaml")).unwrap();
    let said = String::from_utf8(run(&folder, &["build-installer"]).stderr).unwrap();
    assert!(said.contains("cannot render ") && said.contains("config/default") && said.contains("role.yaml"), "{said}");
    fs::remove_dir_all(folder.path().join("config/default")).unwrap();
    let said = String::from_utf8(run(&folder, &["build-installer"]).stderr).unwrap();
    assert!(said.contains("has no kustomization.yaml"), "{said}");
    assert!(!folder.path().join("dist").exists());
}

#[test]
fn a_chart_is_generated_and_linted_if_helm_is_installed() {
    let folder = project();
    let chart = folder.path().join("dist/chart");
    fs::create_dir_all(chart.join("templates")).unwrap();
    fs::write(chart.join("templates/old.yaml"), "kind: ConfigMap\n").unwrap();
    let said = String::from_utf8(run(&folder, &["helm"]).stderr).unwrap();
    assert!(said.contains("warning: dist/chart/templates/old.yaml is not generated from this project"), "{said}");
    fs::remove_file(chart.join("templates/old.yaml")).unwrap();
    let said = succeeds(&folder, &["helm", "--image", "registry.example.com/me/at:v9"]);
    assert!(!said.contains("warning"), "{said}");
    let read = |file: &str| fs::read_to_string(chart.join(file)).unwrap();
    assert!(read("Chart.yaml").contains("name: at\n") && read("Chart.yaml").contains("version: \"0.3.0\""));
    let values = read("values.yaml");
    assert!(values.contains("repository: registry.example.com/me/at\n") && values.contains("tag: v9\n"), "{values}");
    let deployment = read("templates/deployment-at-operator-controller-manager.yaml");
    assert!(deployment.contains("replicas: {{ .Values.manager.replicas }}\n"), "{deployment}");
    // Edits of the values are kept, and an image that is asked for is changed.
    fs::write(chart.join("values.yaml"), format!("# Mine.\n{}", values.replace("replicas: 1", "replicas: 2"))).unwrap();
    let said = succeeds(&folder, &["helm"]);
    assert!(said.contains("Kept dist/chart/values.yaml") && read("values.yaml").starts_with("# Mine.\n"), "{said}");
    succeeds(&folder, &["helm", "--image", "registry.example.com/me/at:v10"]);
    assert!(read("values.yaml").contains("tag: v10\n") && read("values.yaml").contains("replicas: 2\n"));
    succeeds(&folder, &["helm", "--force"]);
    assert!(read("values.yaml").contains("replicas: 1\n"));
    succeeds(&folder, &["helm", "--output-dir", "charts"]);
    assert!(folder.path().join("charts/chart/Chart.yaml").is_file());
    for arguments in [["lint"].as_slice(), &["template", "at", "--namespace", "elsewhere"]] {
        // Helm is not always installed.
        let Ok(output) = Command::new("helm").args(arguments).arg(&chart).output() else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(arguments[0] == "lint" || said.contains("namespace: elsewhere"), "{said}");
    }
}

#[test]
fn a_missing_project_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let said = String::from_utf8(run(&folder, &["build-installer"]).stderr).unwrap();
    assert!(said.contains("create one with kubewright init"), "{said}");
}
