//! The selection of controllers.

use std::time::Duration;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Event, Namespace, Pod, ServiceAccount},
        rbac::v1::ClusterRole,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, ResourceExt};
use kubewright_cluster::{Cluster, Pods};

use crate::{background, crds::WIDGETS};

const WORKLOADS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: busybox}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: lone}
spec:
  selector: {matchLabels: {app: lone}}
  template:
    metadata: {labels: {app: lone}}
    spec: {containers: [{name: main, image: busybox}]}
";

#[tokio::test]
async fn an_api_server_alone_leaves_objects_as_they_are() {
    let cluster = Cluster::builder().api_only().start().await.expect("a cluster");
    cluster.apply_yaml(WORKLOADS).await.expect("applied");
    Api::<Namespace>::all(cluster.client()).delete("shop", &background()).await.expect("accepted");
    // Custom kinds are removed by kube-apiserver itself.
    cluster.apply_yaml(WIDGETS).await.expect("defined");
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client());
    definitions.delete("widgets.example.com", &background()).await.expect("accepted");
    cluster.expect::<CustomResourceDefinition>(|all| all.is_empty()).await.expect("deleted");

    cluster.expect::<Namespace>(|all| all.iter().any(|one| one.name_any() == "shop")).await.expect("it stays");
    cluster.expect::<ReplicaSet>(|all| all.len() == 1).await.expect("none of the Deployment");
    cluster.expect::<Pod>(|all| all.is_empty()).await.expect("no pod");
    cluster.expect::<ServiceAccount>(|all| all.is_empty()).await.expect("no account");
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_has_all_rules_of_its_aggregated_roles() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let roles = Api::<ClusterRole>::all(cluster.client());
    let versions = async || {
        let mut versions = Vec::new();
        for name in ["admin", "edit", "view"] {
            let role = roles.get(name).await.expect("found");
            let rules = role.rules.as_deref().unwrap_or_default();
            let metrics =
                rules.iter().filter(|rule| rule.api_groups.as_deref() == Some(&["metrics.k8s.io".to_owned()]));
            assert_eq!(metrics.count(), 1, "{name}");
            versions.push(role.metadata.resource_version);
        }
        versions
    };
    let before = versions().await;
    // The controllers have done what they have to do when the clock goes on.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(versions().await, before, "the controller has nothing to write");
}

/// Writes the user who creates a pod, a ReplicaSet or an event about pods into an annotation.
const CREATORS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: creators}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ['', apps, events.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [pods, replicasets, events]}
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{annotations: {\"creator\": request.userInfo.username}}}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: creators}
spec: {policyName: creators}
";

#[tokio::test]
async fn components_write_under_their_own_names() {
    let cluster = Cluster::builder().start().await.expect("a cluster");
    cluster.apply_yaml(CREATORS).await.expect("applied");
    cluster.apply_yaml(WORKLOADS).await.expect("applied");
    let creator = |metadata: &ObjectMeta| metadata.annotations.as_ref().and_then(|all| all.get("creator").cloned());
    let account = |name: &str| Some(format!("system:serviceaccount:kube-system:{name}"));
    let sets = cluster.expect::<ReplicaSet>(|all| all.len() == 2).await.expect("both ReplicaSets");
    let of_deployment = sets.iter().find(|set| set.name_any() != "lone").expect("the Deployment's");
    assert_eq!(creator(&of_deployment.metadata), account("deployment-controller"));
    for pod in cluster.expect::<Pod>(|all| all.len() == 2).await.expect("both pods") {
        assert_eq!(creator(&pod.metadata), account("replicaset-controller"));
        let managers = pod.metadata.managed_fields.unwrap_or_default();
        assert_eq!(managers[0].manager.as_deref(), Some("kube-controller-manager"));
    }
    let expected = [
        ("ScalingReplicaSet", account("deployment-controller")),
        ("SuccessfulCreate", account("replicaset-controller")),
        ("Scheduled", Some("system:kube-scheduler".into())),
        ("Pulled", Some("system:node:kubewright".into())),
    ];
    for (reason, user) in expected {
        let is_it = |event: &Event| event.reason.as_deref() == Some(reason);
        let events = cluster.expect::<Event>(|all| all.iter().any(|event| is_it(event))).await.expect(reason);
        let event = events.iter().find(|event| is_it(event)).expect(reason);
        assert_eq!(creator(&event.metadata), user, "{reason}");
    }
}

#[tokio::test]
async fn controllers_have_service_accounts() {
    let controllers = "job-controller,daemonset-controller".parse().expect("a list");
    let cluster = Cluster::builder().pods(Pods::None).controllers(controllers).start().await.expect("a cluster");
    let accounts = cluster.expect::<ServiceAccount>(|all| all.len() == 2).await.expect("both");
    let names: Vec<_> = accounts.iter().map(|account| (account.namespace(), account.name_any())).collect();
    let expected = ["daemon-set-controller", "job-controller"].map(|name| (Some("kube-system".into()), name.into()));
    assert_eq!(names, expected);
}

#[tokio::test]
async fn controllers_can_be_left_out() {
    let controllers = "-deployment-controller".parse().expect("a list");
    let cluster = Cluster::builder().pods(Pods::None).controllers(controllers).start().await.expect("a cluster");
    cluster.apply_yaml(WORKLOADS).await.expect("applied");
    cluster.expect::<Pod>(|all| all.len() == 1).await.expect("the ReplicaSet's pod");
    let deployments = cluster.expect::<Deployment>(|all| all.len() == 1).await.expect("the Deployment");
    assert_eq!(deployments[0].status.as_ref().and_then(|status| status.observed_generation), None);
    cluster.expect::<ReplicaSet>(|all| all.len() == 1).await.expect("none of the Deployment");
}
