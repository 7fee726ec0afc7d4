//! The operator in a pod, with exactly its role.

use operator_deployed::Deployed;

/// Permissions for errors, and for clusters that check owner references.
const SPARE: [&str; 3] = ["cnat.d2iq.com ats/finalizers update", "- pods get", "events.k8s.io events patch"];

#[tokio::test]
async fn it_works_in_a_pod_with_its_own_rights_alone() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let deployed = Deployed::start("at-operator", folder, env!("CARGO_BIN_EXE_at-operator"), |images| images).await;
    let sample = format!("{folder}/config/samples/cnat_v1alpha1_at.yaml");
    let name = deployed.kubectl(&["apply", "-f", &sample, "-o", "jsonpath={.metadata.name}"]).await;
    let phase = ["get", "at", &name, "-o", "jsonpath={.status.phase}"];
    deployed.until(&phase, |phase| phase == "DONE").await;
    assert_eq!(deployed.kubectl(&["logs", &format!("{name}-pod")]).await, "YAY\n");
    // Another replica takes over when the leader is gone.
    deployed.hand_over().await;
    deployed.kubectl(&["delete", "at", &name]).await;
    deployed.until(&["get", "pods", "-o", "name"], str::is_empty).await;
    deployed.kubectl(&["apply", "-f", &sample]).await;
    deployed.until(&phase, |phase| phase == "DONE").await;
    deployed.check_metrics().await;
    deployed.check_rights(&SPARE).await;
    deployed.stop().await;
}
