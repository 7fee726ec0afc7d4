//! `kubewright explain` for a PodSet, whose operator runs in a pod of the embedded cluster.

use std::{fs, path::Path};

use operator_deployed::Deployed;
use tokio::process::Command;

/// Returns the example binary, which cargo builds with all tests, but not with `--test it` alone.
fn podset() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_kubewright")).with_file_name("examples").join("podset");
    assert!(program.exists(), "cargo build -p kubewright-cli --example podset");
    program.display().to_string()
}

/// A PodSet whose pods have an unknown image.
const BROKEN: &str = "
apiVersion: app.example.com/v1alpha1
kind: PodSet
metadata: {name: broken}
spec: {replicas: 1, template: {spec: {containers: [{name: a, image: nosuch}]}}}
";

struct Asker {
    folder: tempfile::TempDir,
}

impl Asker {
    async fn explain(&self, arguments: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.arg("explain").args(arguments).env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        // Requests to loopback addresses never use a proxy.
        for variable in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
            command.env(variable, "http://127.0.0.1:9");
        }
        let output = command.output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_podset_is_explained() {
    let operator = concat!(env!("CARGO_MANIFEST_DIR"), "/../../operators/podset");
    let deployed = Deployed::start("podset-operator", operator, &podset(), |images| images).await;
    let endpoint = deployed.cluster().listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let asker = Asker { folder: tempfile::tempdir().unwrap() };
    fs::write(asker.folder.path().join("kubeconfig"), endpoint.kubeconfig()).unwrap();
    deployed.kubectl(&["apply", "-f", &format!("{operator}/config/samples/app_v1alpha1_podset.yaml")]).await;
    let ready = ["get", "podset.app.example.com", "podset-sample", "-o", "jsonpath={.status.availableReplicas}"];
    deployed.until(&ready, |available| available == "3").await;

    let podset = "podset.app.example.com/podset-sample";
    deployed
        .eventually("a run to be explained", async || {
            // Pods count as available before they are ready.
            let (_, explanation, _) = asker.explain(&[podset]).await;
            ["Ready is True", "The controller podset-app last", "It is idle"]
                .iter()
                .all(|expected| explanation.contains(expected))
        })
        .await;
    let (success, explanation, warnings) = asker.explain(&[podset]).await;
    assert!(success && warnings.is_empty(), "{warnings}");
    assert!(explanation.starts_with("PodSet default/podset-sample exists, created "), "{explanation}");
    for expected in ["Ready is True since", "It succeeded.", "It owns 3 objects of kind Pod, all healthy."] {
        assert!(explanation.contains(expected), "{expected}\nin\n{explanation}");
    }

    let (success, _, refused) = asker.explain(&["podset/podset-sample"]).await;
    assert!(!success && refused.contains("several kinds: choose one of podsets."), "{refused}");
    let (success, _, refused) = asker.explain(&["cow/berta"]).await;
    assert!(!success && refused.contains("has no kind cow"), "{refused}");
    let (success, explanation, _) = asker.explain(&["podset.app.example.com/other"]).await;
    assert!(success && explanation.starts_with("There is no PodSet default/other."), "{explanation}");
    assert!(
        explanation.contains("podset-app does not know such an object either") && !explanation.contains("k8stest"),
        "{explanation}"
    );
    let (success, _, warnings) = asker.explain(&[podset, "--traces", "http://127.0.0.1:1"]).await;
    assert!(success && warnings.contains("--health-probe-bind-address"), "{warnings}");

    let broken = asker.folder.path().join("broken.yaml");
    fs::write(&broken, BROKEN).unwrap();
    deployed.kubectl(&["apply", "-f", &broken.to_string_lossy()]).await;
    deployed
        .eventually("a failing child to be explained", async || {
            let (_, explanation, _) = asker.explain(&["podset.app.example.com/broken"]).await;
            explanation.contains("It owns one Pod, which is unhealthy:")
                && explanation.contains(" a container a that does not start")
        })
        .await;
    deployed.stop().await;
}
