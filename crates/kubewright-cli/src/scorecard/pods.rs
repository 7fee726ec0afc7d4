//! Tests that run as pods: their images' programs get the bundle as a directory, and print their results.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{LogParams, PostParams},
};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::Cluster;
use kubewright_manifests::{
    olm::scorecard::{TestConfiguration, TestStatus},
    yaml,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Settings, examples::install, late};
use crate::shell::Shell;

/// The directory of the bundle in a test's pod.
const BUNDLE: &str = "/bundle";
/// The name of the container of a test.
const CONTAINER: &str = "scorecard-test";
/// The reasons for which a container waits in vain.
const IN_VAIN: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// A cluster for the pods of tests, with the kinds of the bundle.
pub(super) struct TestPods {
    cluster: Cluster,
    /// A copy of the bundle, so that no test can change it.
    bundle: TempDir,
}

impl TestPods {
    /// Starts the cluster.
    pub(super) async fn start(
        settings: &Settings,
        definitions: &[Value],
        clock: &SharedClock,
        shell: &Shell,
    ) -> Result<Self> {
        let bundle = tempfile::tempdir().context("create a directory for the bundle")?;
        copy(&settings.bundle, bundle.path())?;
        let builder = Cluster::builder().clock(clock.clone()).images(settings.images.clone());
        let cluster = builder.start().await.context("start the cluster for the tests")?;
        for error in install(&cluster, definitions).await {
            shell.warning(&format!("the cluster for the tests lacks a kind of the bundle: {error}"));
        }
        let this = Self { cluster, bundle };
        this.prepare(&settings.namespace, &settings.service_account)
            .await
            .context("prepare the cluster for the tests")?;
        Ok(this)
    }

    /// Creates the namespace and the service account. Nobody could give it roles before, so it may do everything.
    async fn prepare(&self, namespace: &str, account: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "scorecard"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        });
        let mut objects =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}), binding];
        if account != "default" {
            let metadata = json!({"name": account, "namespace": namespace});
            objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        }
        self.cluster.apply_yaml(&yaml::documents(&objects)?).await?;
        let is_it =
            |found: &&ServiceAccount| found.name_any() == account && found.namespace().as_deref() == Some(namespace);
        self.cluster.expect::<ServiceAccount>(|all| all.iter().any(is_it)).await?;
        Ok(())
    }

    /// Runs a test, and returns what it printed. It has to end within `left`.
    pub(super) async fn run(
        &self,
        number: usize,
        test: &TestConfiguration,
        settings: &Settings,
        left: Duration,
    ) -> TestStatus {
        match self.run_pod(number, test, settings, left).await {
            Ok(status) => status,
            Err(error) => TestStatus::error(&test.name(), format!("{error:#}"), ""),
        }
    }

    async fn run_pod(
        &self,
        number: usize,
        test: &TestConfiguration,
        settings: &Settings,
        left: Duration,
    ) -> Result<TestStatus> {
        let storage = storage(test, &settings.output)?;
        let pod = pod(number, test, settings, self.bundle.path(), storage.as_deref());
        let name = text(&pod, "/metadata/name").to_owned();
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), &settings.namespace);
        let pod: Pod = serde_json::from_value(pod).context("make the pod of the test")?;
        pods.create(&PostParams::default(), &pod).await.with_context(|| format!("create the pod {name}"))?;
        let of_test = |pod: &Pod| pod.name_any() == name && pod.namespace().as_deref() == Some(&settings.namespace);
        let has_ended = |all: &[&Pod]| all.iter().any(|pod| of_test(pod) && ended(pod).is_some());
        let end = match self.cluster.expect_within::<Pod>(left, has_ended).await {
            Ok(all) => all.iter().find(|pod| of_test(pod)).and_then(ended),
            Err(_) => None,
        };
        let log = match &end {
            Some(End::NotStarted(why)) => return Ok(TestStatus::error(&test.name(), why, "")),
            // A container that has not started yet has no log.
            None => pods.logs(&name, &LogParams::default()).await.unwrap_or_default(),
            Some(_) => pods
                .logs(&name, &LogParams::default())
                .await
                .with_context(|| format!("read the log of the pod {name}"))?,
        };
        let Some(End::Exited(code)) = end else {
            return Ok(TestStatus::error(&test.name(), late(settings.wait_time), &log));
        };
        Ok(TestStatus::read(&log).unwrap_or_else(|error| {
            TestStatus::error(
                &test.name(),
                format!("what the test printed {error} (it ended with exit code {code})"),
                &log,
            )
        }))
    }

    /// Stops the cluster and its pods.
    pub(super) async fn shutdown(self) {
        self.cluster.shutdown().await;
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// How a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// With an exit code.
    Exited(i32),
    /// The container could not be started, and why.
    NotStarted(String),
}

/// Returns how a pod ended; `None` if it has not.
fn ended(pod: &Pod) -> Option<End> {
    let status = pod.status.as_ref()?;
    let container: Option<&ContainerStatus> = status.container_statuses.iter().flatten().next();
    let state = container.and_then(|container| container.state.as_ref());
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        return IN_VAIN
            .contains(&reason)
            .then(|| End::NotStarted(format!("the container did not start: {reason}: {message}")));
    }
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    match state.and_then(|state| state.terminated.as_ref()) {
        Some(end) if end.reason.as_deref() == Some("StartError") => {
            let message = end.message.as_deref().unwrap_or_default();
            Some(End::NotStarted(format!("the container did not start: {message}")))
        }
        Some(end) => Some(End::Exited(end.exit_code)),
        None => {
            let message = status.message.as_deref().unwrap_or_default();
            Some(End::NotStarted(format!("the pod failed: {} {message}", status.reason.as_deref().unwrap_or_default())))
        }
    }
}

/// Returns the pod of a test.
fn pod(number: usize, test: &TestConfiguration, settings: &Settings, bundle: &Path, storage: Option<&Path>) -> Value {
    let volume = |name: &str, path: &Path| json!({"name": name, "hostPath": {"path": path, "type": "Directory"}});
    let mut volumes = vec![volume("bundle", bundle)];
    let mut mounts = vec![json!({"name": "bundle", "mountPath": BUNDLE, "readOnly": true})];
    if let Some(path) = storage {
        volumes.push(volume("storage", path));
        mounts.push(json!({"name": "storage", "mountPath": test.storage.path()}));
    }
    let namespace =
        json!({"name": "SCORECARD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}});
    json!({
        "metadata": {"name": format!("scorecard-test-{number}"), "labels": {"app": "scorecard-test"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": settings.service_account,
            "containers": [{
                "name": CONTAINER, "image": test.image, "command": test.entrypoint,
                "env": [namespace], "volumeMounts": mounts,
            }],
            "volumes": volumes,
        },
    })
}

/// Creates the directory for the files that a test writes, if it writes any: below `output`, by suite and test.
fn storage(test: &TestConfiguration, output: &Path) -> Result<Option<PathBuf>> {
    if test.storage.path().is_empty() {
        return Ok(None);
    }
    let mut path = std::path::absolute(output).context("find the directory for the files of tests")?;
    let name = test.name();
    let suite = test.labels.get("suite").map(String::as_str);
    for part in suite.into_iter().chain([name.as_str()]) {
        path.push(part.replace(['/', ' '], "_").trim_start_matches('.'));
    }
    fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
    Ok(Some(path))
}

/// Copies the files of a directory. Links to directories are left out.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("copy {}", from.display());
    for entry in fs::read_dir(from).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().with_context(failed)?.is_dir() {
            fs::create_dir(&target).with_context(|| format!("create {}", target.display()))?;
            copy(&path, &target)?;
        } else if path.is_file() {
            fs::copy(&path, &target).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_end_with_an_exit_code_or_are_not_started() {
        let of = |status: Value| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap();
            ended(&pod)
        };
        let state = |phase: &str, state: Value| {
            of(
                json!({"phase": phase, "containerStatuses": [{"name": "a", "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}),
            )
        };
        assert_eq!(of(json!({"phase": "Pending"})), None);
        assert_eq!(state("Pending", json!({"waiting": {"reason": "ContainerCreating"}})), None);
        assert_eq!(state("Running", json!({"running": {}})), None);
        assert_eq!(state("Failed", json!({"terminated": {"exitCode": 3, "reason": "Error"}})), Some(End::Exited(3)));
        let not_started = |why: &str| Some(End::NotStarted(format!("the container did not start: {why}")));
        let waiting = json!({"waiting": {"reason": "CreateContainerError", "message": "no volume"}});
        assert_eq!(state("Pending", waiting), not_started("CreateContainerError: no volume"));
        let terminated = json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}});
        assert_eq!(state("Failed", terminated), not_started("no such file"));
    }

    #[test]
    fn files_of_tests_are_kept_by_suite_and_test() {
        let folder = tempfile::tempdir().unwrap();
        let test = |path: &str, labels: Value| -> TestConfiguration {
            let storage = json!({"spec": {"mountPath": {"path": path}}});
            serde_json::from_value(json!({"image": "a", "labels": labels, "storage": storage})).unwrap()
        };
        assert_eq!(storage(&test("", json!({})), folder.path()).unwrap(), None);
        let path =
            storage(&test("/files", json!({"suite": "mine", "test": "../one"})), folder.path()).unwrap().unwrap();
        assert_eq!(path, folder.path().join("mine/_one"));
        assert!(path.is_dir());
    }
}
