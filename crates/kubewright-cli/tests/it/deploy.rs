//! `kubewright install`, `uninstall`, `deploy` and `undeploy`, with the project of the At operator on an embedded
//! cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use kubewright_cluster::{ImageTable, Program};
use operator_deployed::Deployed;
use tempfile::TempDir;

use crate::{
    installer::{copy, golden, project, sample_is_reconciled},
    manifests::example,
};

/// The name of the image in the image table.
const IMAGE: &str = "registry.example.com/me/at:v9";

/// A project and a cluster for it.
struct Scene {
    project: TempDir,
    deployed: Deployed,
}

impl Scene {
    /// Starts a cluster with a program for the image.
    async fn of(program: Program) -> Self {
        let images = ImageTable::default().with("registry.example.com/me/at", program);
        Self { project: project(), deployed: Deployed::nothing("at-operator", images).await }
    }

    /// Starts a cluster for a scaffolded project with a webhook for pods.
    async fn scaffolded() -> Self {
        let project = tempfile::tempdir().unwrap();
        let golden_project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/project");
        copy(&golden_project.join("config"), project.path());
        copy(&golden_project.join("PROJECT"), project.path());
        let images = ImageTable::default().with("controller", golden("project"));
        Self { project, deployed: Deployed::nothing("project", images).await }
    }

    async fn run_as(&self, kubeconfig: PathBuf, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.current_dir(self.project.path()).args(arguments).env("KUBECONFIG", kubeconfig).env_remove("IMG");
        command.kill_on_drop(true).output().await.unwrap()
    }

    /// Runs the command, which must succeed, and returns its error output.
    async fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run_as(self.deployed.kubeconfig(), arguments).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(!said.contains('\x1b'), "no colours where there is no terminal: {said}");
        said
    }

    /// Runs the command, which must fail, and returns its error output.
    async fn fails(&self, arguments: &[&str]) -> String {
        self.fails_as(self.deployed.kubeconfig(), arguments).await
    }

    async fn fails_as(&self, kubeconfig: PathBuf, arguments: &[&str]) -> String {
        let output = self.run_as(kubeconfig, arguments).await;
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        self.deployed.kubectl(arguments).await
    }

    /// Asserts that there are no objects of the operator.
    async fn is_untouched(&self) {
        assert_eq!(self.kubectl(&["get", "crd", "-o", "name"]).await, "");
        assert_eq!(
            self.kubectl(&["get", "namespace", "at-operator-system", "-o", "name", "--ignore-not-found"]).await,
            ""
        );
        let roles = self.kubectl(&["get", "clusterroles,clusterrolebindings", "-o", "name"]).await;
        assert!(!roles.contains("/at-operator-"), "{roles}");
    }
}

fn contains(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word} in\n{said}");
    }
}

#[tokio::test]
async fn an_operator_is_deployed_and_undeployed() {
    let scene = Scene::of(Program::executable(example("at"))).await;
    let said = scene.succeeds(&["deploy", "--image", IMAGE]).await;
    contains(
        &said,
        &[
            "Deploying to context kubewright (https://127.0.0.1:",
            "Waiting",
            "Ready deployment at-operator-controller",
            IMAGE,
        ],
    );
    let (all, created) = said.split_once("Applied ").unwrap().1.split_once(" objects: ").unwrap();
    assert!(created.starts_with(&format!("{all} created, 0 changed, 0 unchanged")), "{said}");
    let deployment = [
        "get",
        "deployment",
        "-n",
        "at-operator-system",
        "at-operator-controller-manager",
        "--show-managed-fields",
        "-o",
    ];
    let managers = "jsonpath={.metadata.managedFields[?(@.operation==\"Apply\")].manager}";
    assert_eq!(scene.kubectl(&[&deployment[..], &[managers]].concat()).await, "kubewright");

    let sample = scene.project.path().join("config/samples/cnat_v1alpha1_at.yaml").display().to_string();
    scene.kubectl(&["apply", "-f", &sample]).await;
    scene.deployed.until(&["get", "at", "-o", "jsonpath={.items[*].status.phase}"], |phase| phase == "DONE").await;

    let again = scene.succeeds(&["deploy", "--image", IMAGE]).await;
    contains(&again, &[&format!("Applied {all} objects: 0 created, 0 changed, {all} unchanged")]);
    assert_eq!(scene.succeeds(&["deploy", "--image", IMAGE, "--quiet"]).await, "");

    let said = scene.succeeds(&["undeploy"]).await;
    contains(
        &said,
        &["Undeploying from context kubewright", &format!("Deleted {all} objects"), "the operator is deleted"],
    );
    scene.is_untouched().await;
    contains(
        &scene.fails(&["undeploy"]).await,
        &["none of the objects exist in context kubewright", "--ignore-not-found"],
    );
    scene.succeeds(&["undeploy", "--ignore-not-found"]).await;
    scene.deployed.stop().await;
}

#[tokio::test]
async fn an_operator_with_a_webhook_for_pods_is_deployed_and_undeployed() {
    let scene = Scene::scaffolded().await;
    let said = scene.succeeds(&["deploy"]).await;
    contains(&said, &["Ready deployment project-controller-manager", "Applied 2 objects: 2 created"]);
    sample_is_reconciled(&scene.deployed, scene.project.path()).await;
    scene.succeeds(&["undeploy"]).await;
    assert_eq!(scene.kubectl(&["get", "crd", "-o", "name"]).await, "");
    let left = ["get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name"];
    assert_eq!(scene.kubectl(&left).await, "");
    scene.deployed.stop().await;
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_reported_with_events() {
    let scene = Scene::of(Program::host_tools()).await;
    let said = scene.fails(&["deploy", "--image", "registry.example.com/me/other:v1"]).await;
    contains(
        &said,
        &[
            "error: deployment at-operator-controller-manager in at-operator-system is not ready: ImagePullBackOff",
            "  pod at-operator-controller-manager-",
            "Ready is false: ContainersNotReady",
            "container manager is waiting: ImagePullBackOff",
            "event Failed",
            "registry.example.com/me/other:v1",
            "kubewright image --tag IMAGE --push",
            "the applied objects stay",
        ],
    );
    scene.succeeds(&["undeploy"]).await;
    scene.is_untouched().await;
    scene.deployed.stop().await;
}

#[tokio::test]
async fn an_operator_that_exits_is_reported_with_its_log() {
    let script = ["/bin/sh", "-c", "echo no barn at $HOSTNAME >&2; exit 3", "manager"];
    let scene = Scene::of(Program::entrypoint(script)).await;
    let said = scene.fails(&["deploy", "--image", IMAGE, "--timeout", "1m"]).await;
    contains(
        &said,
        &[
            "is not ready: CrashLoopBackOff: back-off",
            "container manager exited with code 3 (Error)",
            "event BackOff",
            "last lines of the log of manager:\n      no barn at at-operator-controller-manager-",
            "see its log for the reason",
        ],
    );
    scene.deployed.stop().await;
}

#[tokio::test]
async fn a_failed_dry_run_changes_nothing() {
    let scene = Scene::of(Program::host_tools()).await;
    let token = scene.deployed.token("stranger").await;
    let stranger = scene.project.path().join("stranger");
    let config = fs::read_to_string(scene.deployed.kubeconfig()).unwrap();
    let lines = config.lines().filter(|line| !line.contains("client-key-data")).map(|line| {
        let is_secret = line.contains("client-certificate-data");
        if is_secret { format!("    token: {token}\n") } else { format!("{line}\n") }
    });
    fs::write(&stranger, lines.collect::<String>()).unwrap();
    let said = scene.fails_as(stranger.clone(), &["deploy", "--image", IMAGE]).await;
    contains(
        &said,
        &[
            "rejects the objects; nothing was changed:",
            "  customresourcedefinition.apiextensions.k8s.io/ats.cnat.d2iq.com: ",
            "system:serviceaccount:default:stranger",
            "cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"at-operator-system\"",
            "ask an administrator for this permission",
        ],
    );
    scene.is_untouched().await;

    let manager = scene.project.path().join("config/manager/manager.yaml");
    let written = fs::read_to_string(&manager).unwrap();
    fs::write(&manager, written.replace("replicas: 1", "replicas: -1")).unwrap();
    scene.kubectl(&["create", "namespace", "at-operator-system"]).await;
    let said = scene.fails(&["deploy"]).await;
    contains(
        &said,
        &["nothing was changed", "deployment.apps/at-operator-controller-manager in at-operator-system", "-1"],
    );
    scene.kubectl(&["delete", "namespace", "at-operator-system"]).await;
    scene.is_untouched().await;

    contains(
        &scene.fails(&["install", "--context", "other"]).await,
        &["context: other", "kubectl config get-contexts"],
    );
    contains(&scene.fails(&["undeploy", "--kubeconfig", "none"]).await, &["choose another file with --kubeconfig"]);
    scene.succeeds(&["install"]).await;
    contains(&scene.fails_as(stranger, &["uninstall"]).await, &["cannot get resource", "nothing was deleted"]);
    assert_ne!(scene.kubectl(&["get", "crd", "-o", "name"]).await, "");
    scene.deployed.stop().await;
}

#[tokio::test]
async fn fields_of_other_managers_are_taken_over_only_by_force() {
    let scene = Scene::of(Program::host_tools()).await;
    let said = scene.succeeds(&["install"]).await;
    contains(&said, &["Applied 1 object: 1 created", "the definitions are established"]);
    let rename = r#"{"spec": {"names": {"shortNames": ["atat"]}}}"#;
    let patch = ["patch", "crd", "ats.cnat.d2iq.com", "--type=merge", "--field-manager=walker", "-p", rename];
    let kind = scene.project.path().join("config/crd/bases/cnat.d2iq.com_ats.yaml");
    let text = fs::read_to_string(&kind).unwrap();
    fs::write(&kind, text.replace("    - cnat\n", "    - once\n")).unwrap();
    scene.kubectl(&patch).await;
    let said = scene.fails(&["install"]).await;
    contains(&said, &["nothing was changed", "walker", "use --force-conflicts to take over these fields"]);
    contains(&scene.succeeds(&["install", "--force-conflicts"]).await, &["1 changed"]);
    let names = ["get", "crd", "ats.cnat.d2iq.com", "-o", "jsonpath={.spec.names.shortNames}"];
    assert_eq!(scene.kubectl(&names).await, r#"["once"]"#);

    let sample = scene.project.path().join("config/samples/cnat_v1alpha1_at.yaml").display().to_string();
    let name = scene.kubectl(&["apply", "-f", &sample, "-o", "jsonpath={.metadata.name}"]).await;
    let finalizers = |text: &str| format!(r#"{{"metadata": {{"finalizers": {text}}}}}"#);
    let held = finalizers(r#"["cnat.d2iq.com/hold"]"#);
    scene.kubectl(&["patch", "at", &name, "--type=merge", "-p", &held]).await;
    let said = scene.fails(&["uninstall", "--timeout", "2s"]).await;
    contains(
        &said,
        &[
            "customresourcedefinition.apiextensions.k8s.io/ats.cnat.d2iq.com still exists after 2s",
            &format!("{name} in default still exists, with finalizers cnat.d2iq.com/hold"),
            "no operator is running to remove them",
        ],
    );
    scene.kubectl(&["patch", "at", &name, "--type=merge", "-p", &finalizers("null")]).await;
    scene.succeeds(&["uninstall", "--ignore-not-found"]).await;
    assert_eq!(scene.kubectl(&["get", "crd", "-o", "name"]).await, "");
    contains(&scene.fails(&["uninstall"]).await, &["none of the objects exist in"]);
    scene.deployed.stop().await;
}
