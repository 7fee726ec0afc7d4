//! A Lolcow called `lolcow-pod`, its Deployment and its Service.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt;
use kubewright::simulation::env::{TestEnv, eventually};
use kubewright::{condition, owner::is_controlled_by};
use kubewright_cluster::Pods;
use lolcow_operator::api::v1alpha1::{Lolcow, LolcowSpec, LolcowStatus};
use serde_json::{Value, json};

/// The name of all objects.
pub(crate) const NAME: &str = "lolcow-pod";
/// The first greeting.
pub(crate) const GREETING: &str = "Hello, this is a message from the lolcow!";

pub(crate) async fn env() -> TestEnv {
    TestEnv::with(Pods::Simulate, lolcow_operator::register, lolcow_operator::crds()).await
}

/// A Lolcow called `lolcow-pod`.
pub(crate) fn cow(port: Option<i32>, greeting: Option<&str>) -> Lolcow {
    Lolcow::new(NAME, LolcowSpec { port, greeting: greeting.map(Into::into) })
}

/// The sample of the tutorial.
pub(crate) fn sample() -> Lolcow {
    cow(Some(30685), Some(GREETING))
}

pub(crate) async fn edit(env: &TestEnv, spec: Value) -> Lolcow {
    env.edit::<Lolcow>(NAME, json!({"spec": spec})).await
}

pub(crate) fn status(cow: &Lolcow) -> LolcowStatus {
    cow.status.clone().unwrap_or_default()
}

/// Returns `status reason` of a condition.
pub(crate) fn reported(status: &LolcowStatus, type_: &str) -> String {
    condition::get(&status.conditions, type_).map(|it| format!("{} {}", it.status, it.reason)).unwrap_or_default()
}

pub(crate) fn message(status: &LolcowStatus, type_: &str) -> String {
    condition::get(&status.conditions, type_).map(|it| it.message.clone()).unwrap_or_default()
}

/// Waits until a condition of the present spec is as given (`True Serving`), and returns the status.
pub(crate) async fn reaches(env: &TestEnv, type_: &str, expect: &str) -> LolcowStatus {
    let mut last = LolcowStatus::default();
    eventually(&format!("{type_} is {expect}"), async || {
        let cow = env.get::<Lolcow>(NAME).await;
        last = status(&cow);
        last.observed_generation == cow.metadata.generation && reported(&last, type_) == expect
    })
    .await;
    last
}

/// Waits until the status says that the page shows the spec.
pub(crate) async fn serves(env: &TestEnv) -> LolcowStatus {
    reaches(env, "Ready", "True Serving").await
}

pub(crate) async fn deployment(env: &TestEnv) -> Deployment {
    env.get(NAME).await
}

pub(crate) async fn service(env: &TestEnv) -> Service {
    env.get(NAME).await
}

pub(crate) fn args(deployment: &Deployment) -> Vec<String> {
    let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    pod.containers[0].args.clone().unwrap_or_default()
}

pub(crate) fn node_port(service: &Service) -> i32 {
    service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port.unwrap()
}

/// Checks that both children exist as the spec says.
pub(crate) async fn assert_both(env: &TestEnv) {
    let cow = env.get::<Lolcow>(NAME).await;
    let uid = cow.uid().unwrap();
    let (deployment, service) = (deployment(env).await, service(env).await);
    assert!(is_controlled_by(&deployment, &uid) && is_controlled_by(&service, &uid));
    assert_eq!(args(&deployment), cow.spec.greeting.into_iter().collect::<Vec<_>>());
    assert!(cow.spec.port.is_none_or(|port| port == node_port(&service)));
}

/// A Service with this name and node port and no owner.
pub(crate) fn foreign(name: &str, port: Option<i32>) -> Service {
    let ports = json!([{"port": 80, "nodePort": port}]);
    let spec = json!({"type": "NodePort", "selector": {"app": "other"}, "ports": ports});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}
