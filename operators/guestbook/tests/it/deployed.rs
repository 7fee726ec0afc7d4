//! The operator in a pod, with exactly its role.

use kubewright_cluster::Program;
use operator_deployed::Deployed;

/// One of the labels that select the pods.
const LABEL: &str = "app.kubernetes.io/instance";

/// Permissions for repeated events, and for clusters that check owner references.
const SPARE: [&str; 2] = ["webapp.my.domain guestbooks/finalizers update", "events.k8s.io events patch"];

#[tokio::test]
async fn it_works_in_a_pod_with_its_own_rights_alone() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let page = Program::executable(env!("CARGO_BIN_EXE_guestbook-page")).env("LISTEN", "$(POD_IP):8080");
    let operator = env!("CARGO_BIN_EXE_guestbook-operator");
    let deployed =
        Deployed::start("guestbook-operator", folder, operator, |images| images.with("kubewright/guestbook", page))
            .await;
    deployed.kubectl(&["apply", "-k", &format!("{folder}/config/samples")]).await;
    let active = ["get", "guestbook", "guestbook-sample", "-o", "jsonpath={.status.readyReplicas} {.status.active}"];
    let all_ready = |printed: &str| printed.starts_with("3 ") && printed.len() > 2;
    let first = deployed.until(&active, all_ready).await;
    deployed.hand_over().await;

    let pod = first.trim_start_matches("3 ");
    deployed.kubectl(&["delete", "pod", pod, "--wait=false"]).await;
    let second = deployed.until(&active, |printed| all_ready(printed) && printed != first).await;
    let pod = second.trim_start_matches("3 ");
    deployed.kubectl(&["label", "pod", pod, &format!("{LABEL}-")]).await;
    let labels = ["get", "pod", pod, "-o", "jsonpath={.metadata.labels}"];
    deployed.until(&labels, |labels| labels.contains(LABEL)).await;

    let title = r#"{"data":{"title":"Another House"}}"#;
    deployed.kubectl(&["patch", "configmap", "myconfig", "--type=merge", "-p", title]).await;
    deployed.until(&active, |printed| all_ready(printed) && printed != second).await;
    deployed.kubectl(&["delete", "guestbook", "guestbook-sample"]).await;
    deployed.until(&["get", "pods", "-o", "name"], str::is_empty).await;
    deployed.check_metrics().await;
    deployed.check_rights(&SPARE).await;
    deployed.stop().await;
}
