//! APIServices of custom kinds, and the availability of those that name a Service.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Api, ResourceExt, api::DeleteParams};

use crate::bare;

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cows.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Cow, plural: cows}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";

const REMOTE: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.ext.example.com}
spec:
  group: ext.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: default, name: ext, port: 1}
";

/// Returns the condition of an APIService: its status and reason.
fn available(services: &[&APIService], name: &str) -> Option<(String, String)> {
    let service = services.iter().find(|service| service.name_any() == name)?;
    let condition = service.status.as_ref()?.conditions.as_ref()?.first()?;
    Some((condition.status.clone(), condition.reason.clone().unwrap_or_default()))
}

fn is(found: Option<(String, String)>, status: &str, reason: &str) -> bool {
    found == Some((status.to_owned(), reason.to_owned()))
}

#[tokio::test]
async fn a_custom_version_has_an_api_service_as_long_as_it_is_served() {
    let cluster = bare().await;
    cluster.apply_yaml(CRD).await.expect("applied");
    let found = cluster
        .expect::<APIService>(|all| is(available(all, "v1.example.com"), "True", "Local"))
        .await
        .expect("an APIService");
    let service = found.iter().find(|service| service.name_any() == "v1.example.com").expect("it is there");
    let spec = service.spec.as_ref().expect("a spec");
    assert_eq!((spec.group_priority_minimum, spec.version_priority), (1000, 100));
    assert_eq!(service.labels()["kube-aggregator.kubernetes.io/automanaged"], "true");
    let definitions: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(cluster.client());
    definitions.delete("cows.example.com", &DeleteParams::default()).await.expect("deleted");
    cluster
        .expect::<APIService>(|all| all.iter().all(|service| service.name_any() != "v1.example.com"))
        .await
        .expect("it is deleted");
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_condition_of_an_api_service_follows_its_service() {
    let cluster = bare().await;
    cluster.apply_yaml(REMOTE).await.expect("applied");
    let until = async |status: &str, reason: &str| {
        let reached = cluster.expect::<APIService>(|all| is(available(all, "v1.ext.example.com"), status, reason));
        reached.await.unwrap_or_else(|error| panic!("{reason}: {error}"));
    };
    until("False", "ServiceNotFound").await;
    let service = |port: u16| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: ext, namespace: default}}, spec: {{ports: [{{port: {port}}}]}}}}"
        )
    };
    cluster.apply_yaml(&service(2)).await.expect("applied");
    until("False", "ServicePortError").await;
    cluster.apply_yaml(&service(1)).await.expect("applied");
    until("False", "EndpointsNotFound").await;
    cluster.shutdown().await;
}
