//! The operator in a pod, under exactly its role.

use operator_kit::Deployed;

/// What is only needed when something goes wrong (events are only of that), by clusters that check owner references, or
/// for orphans to adopt.
const SPARE: [&str; 6] = [
    "k8stest.justin0u0.com podsets/finalizers update",
    "app.example.com podsets/finalizers update",
    "- pods get",
    "- pods patch",
    "events.k8s.io events create",
    "events.k8s.io events patch",
];

#[tokio::test]
async fn it_works_in_a_pod_with_its_own_rights_alone() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let deployed = Deployed::start("podset", folder, env!("CARGO_BIN_EXE_podset-operator"), |images| images).await;
    for sample in ["app_v1alpha1_podset.yaml", "k8stest_v1alpha1_podset.yaml"] {
        deployed.kubectl(&["apply", "-f", &format!("{folder}/config/samples/{sample}")]).await;
    }
    let running = async |label: &str, wanted: usize| {
        let only = "--field-selector=status.phase=Running";
        let pods = ["get", "pods", "-l", label, only, "-o", "name"];
        deployed.until(&pods, |names| names.lines().count() == wanted).await;
    };
    running("app=podset-sample", 3).await;
    running("podset_cr=podset-sample", 2).await;
    deployed.hand_over().await;
    deployed.kubectl(&["scale", "podset.app.example.com/podset-sample", "--replicas=5"]).await;
    running("app=podset-sample", 5).await;
    deployed.kubectl(&["scale", "podset.app.example.com/podset-sample", "--replicas=1"]).await;
    running("app=podset-sample", 1).await;
    let available = ["get", "podset.app.example.com", "podset-sample", "-o", "jsonpath={.status.availableReplicas}"];
    deployed.until(&available, |available| available == "1").await;
    // Before pods go, it looks at the PodSet.
    deployed.kubectl(&["scale", "podset.k8stest.justin0u0.com/podset-sample", "--replicas=1"]).await;
    running("podset_cr=podset-sample", 1).await;
    deployed.kubectl(&["delete", "podset.k8stest.justin0u0.com", "podset-sample"]).await;
    running("podset_cr=podset-sample", 0).await;
    deployed.check_rights(&SPARE).await;
    deployed.stop().await;
}
