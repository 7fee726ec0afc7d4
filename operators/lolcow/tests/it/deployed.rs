//! The operator in a pod, with exactly its role.

use kubewright_cluster::Program;
use operator_deployed::Deployed;

/// Permissions for errors, and for clusters that check owner references.
const SPARE: [&str; 4] =
    ["my.domain lolcows/finalizers update", "apps deployments get", "- services get", "events.k8s.io events patch"];

#[tokio::test]
async fn it_works_in_a_pod_with_its_own_rights_alone() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let page = Program::executable(env!("CARGO_BIN_EXE_lolcow-page")).env("LISTEN", "$(POD_IP):8080");
    let operator = env!("CARGO_BIN_EXE_lolcow-operator");
    let deployed = Deployed::start("lolcow-operator", folder, operator, |images| {
        images.with("ghcr.io/vsoch/lolcow-operator", page)
    })
    .await;
    let lolcow = "{apiVersion: my.domain/v1alpha1, kind: Lolcow, metadata: {name: cow}, spec: {}}";
    deployed.cluster().apply_yaml(lolcow).await.unwrap();
    let ready = ["get", "lolcow", "cow", "-o", "jsonpath={.status.readyReplicas}"];
    deployed.until(&ready, |replicas| replicas == "1").await;
    deployed.hand_over().await;
    deployed.kubectl(&["patch", "lolcow", "cow", "--type=merge", "-p", r#"{"spec":{"greeting":"Moo"}}"#]).await;
    let arguments = ["get", "deployment", "cow", "-o", "jsonpath={.spec.template.spec.containers[0].args}"];
    deployed.until(&arguments, |arguments| arguments.contains("Moo")).await;
    deployed.kubectl(&["delete", "lolcow", "cow"]).await;
    deployed.until(&["get", "deployments", "-o", "name"], str::is_empty).await;
    deployed.check_metrics().await;
    deployed.check_rights(&SPARE).await;
    deployed.stop().await;
}
