//! The operator in a pod, with exactly its role.

use operator_deployed::Deployed;

/// Permissions for errors, for the renewal of certificates, and for clusters that check owner references.
const SPARE: [&str; 4] = [
    "batch.tutorial.kubebuilder.io cronjobs/finalizers update",
    "batch jobs get",
    "events.k8s.io events patch",
    "- secrets update",
];

#[tokio::test]
async fn it_works_in_a_pod_with_its_own_rights_alone() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let deployed =
        Deployed::start("cronjob-operator", folder, env!("CARGO_BIN_EXE_cronjob-operator"), |images| images).await;
    let sample = format!("{folder}/config/samples/batch_v1_cronjob.yaml");
    // The webhooks answer as soon as the configurations have their authority.
    deployed.eventually("the webhooks answer", async || deployed.try_kubectl(&["apply", "-f", &sample]).await.0).await;
    let name = "cronjobs.batch.tutorial.kubebuilder.io/cronjob-sample";
    let set = async |spec: &str| {
        deployed.kubectl(&["patch", name, "--type=merge", "-p", &format!("{{\"spec\":{spec}}}")]).await;
    };
    let bad = r#"{"spec":{"schedule":"tomorrow","timeZone":"Nowhere/Land"}}"#;
    let (accepted, said) = deployed.try_kubectl(&["patch", name, "--type=merge", "-p", bad]).await;
    assert!(!accepted && said.contains("spec.schedule") && said.contains("spec.timeZone"), "{said}");
    // One run per second, with one Job kept.
    set("{\"schedule\":\"@every 1s\",\"successfulJobsHistoryLimit\":1}").await;
    let last = ["get", name, "-o", "jsonpath={.status.lastSuccessfulTime}"];
    let first = deployed.until(&last, |time| !time.is_empty()).await;
    deployed.hand_over().await;
    deployed.until(&last, |time| time > first.as_str()).await;
    set("{\"suspend\":true}").await;
    let jobs = ["get", "jobs", "-o", "jsonpath={range .items[*]}{.status.completionTime}{\"\\n\"}{end}"];
    deployed.until(&jobs, |times| times.lines().count() == 1 && times.trim().len() > 1).await;
    let logs = deployed.kubectl(&["logs", "-l", "batch.kubernetes.io/job-name"]).await;
    assert!(logs.contains("Hello from the Kubernetes cluster"), "{logs}");
    deployed.kubectl(&["delete", name]).await;
    deployed.until(&["get", "jobs", "-o", "name"], str::is_empty).await;
    deployed.check_metrics().await;
    deployed.check_rights(&SPARE).await;
    deployed.stop().await;
}
