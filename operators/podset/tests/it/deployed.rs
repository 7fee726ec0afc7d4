//! The operator in a pod, with exactly its role.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt, api::ListParams};
use operator_deployed::{Deployed, metrics};

/// Permissions for errors (the only events), for clusters that check owner references, and for orphans.
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
    let deployed =
        Deployed::start("podset-operator", folder, env!("CARGO_BIN_EXE_podset-operator"), |images| images).await;
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
    // Before it deletes pods, it reads the PodSet.
    deployed.kubectl(&["scale", "podset.k8stest.justin0u0.com/podset-sample", "--replicas=1"]).await;
    running("podset_cr=podset-sample", 1).await;
    deployed.kubectl(&["delete", "podset.k8stest.justin0u0.com", "podset-sample"]).await;
    running("podset_cr=podset-sample", 0).await;
    deployed.check_metrics().await;
    deployed.check_rights(&SPARE).await;
    deployed.stop().await;
}

/// Permissions in `config/sharded` for situations that don't occur in the test: elections, and a lease that another
/// replica has changed.
const SPARE_OF_SHARDS: [&str; 10] = [
    "k8stest.justin0u0.com podsets get",
    "app.example.com podsets get",
    "k8stest.justin0u0.com podsets/finalizers update",
    "app.example.com podsets/finalizers update",
    "k8stest.justin0u0.com podsets/status patch",
    "- pods get",
    "- pods patch",
    "- pods delete",
    "events.k8s.io events create",
    "events.k8s.io events patch",
];

/// One leader is replaced by two replicas that divide the PodSets, and one of these is replaced.
#[tokio::test]
async fn replicas_divide_the_podsets_with_the_rights_of_its_overlay() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let deployed =
        Deployed::start("podset-operator", folder, env!("CARGO_BIN_EXE_podset-operator"), |images| images).await;
    deployed.kubectl(&["apply", "-k", &format!("{folder}/config/sharded")]).await;
    deployed.is_available(2).await;
    let leases: Api<Lease> = Api::namespaced(deployed.cluster().client(), &deployed.namespace());
    let members = async || {
        let group = ListParams::default().labels("shard.kubewright.dev/group=podset-operator");
        let members = leases.list(&group).await.unwrap().items.into_iter();
        members.filter_map(|lease| lease.spec?.holder_identity).collect::<Vec<_>>()
    };
    deployed.eventually("two are members", async || members().await.len() == 2).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        let podset = format!(
            "{{apiVersion: app.example.com/v1alpha1, kind: PodSet, metadata: {{name: {name}}}, spec: {{replicas: 1}}}}"
        );
        deployed.cluster().apply_yaml(&podset).await.unwrap();
    }
    let running = ["get", "pods", "--field-selector=status.phase=Running", "-o", "name"];
    deployed.until(&running, |names| names.lines().count() == 6).await;
    // Each has a share of all keys.
    deployed.check_metrics().await;
    let token = deployed.token("watcher").await;
    let role = "--clusterrole=podset-operator-metrics-reader";
    deployed.kubectl(&["create", "clusterrolebinding", "watcher", role, "--serviceaccount=default:watcher"]).await;
    let fractions = async || {
        let mut fractions = Vec::new();
        for pod in deployed.replicas().await {
            let address = format!("{}:8443", pod.status.and_then(|status| status.pod_ip).unwrap_or_default());
            let page = metrics(&address, Some(&token)).await.unwrap_or_default();
            let lines =
                page.lines().filter_map(|line| line.strip_prefix("kubewright_shard_fraction")?.split_once("} "));
            fractions.extend(lines.filter_map(|(_, fraction)| fraction.parse::<f64>().ok()));
        }
        fractions
    };
    let is_divided = async || {
        let fractions = fractions().await;
        let sum: f64 = fractions.iter().sum();
        fractions.len() == 2 && fractions.iter().all(|part| (0.2..0.8).contains(part)) && (sum - 1.0).abs() < 0.001
    };
    deployed.eventually("each has its part", is_divided).await;

    // One replica is replaced, and its lease is deleted once it is no longer needed.
    let first = deployed.replicas().await[0].name_any();
    deployed.kubectl(&["delete", "pod", &first, "-n", &deployed.namespace(), "--wait=false"]).await;
    deployed
        .eventually("its lease is cleared away", async || {
            let members = members().await;
            // A released lease names no holder.
            members.len() == 2 && members.iter().all(|member| !member.is_empty() && !member.starts_with(&first))
        })
        .await;
    deployed.is_available(2).await;
    deployed.eventually("each has its part again", is_divided).await;
    deployed.check_rights(&SPARE_OF_SHARDS).await;
    deployed.stop().await;
}
