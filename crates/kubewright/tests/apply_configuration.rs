//! Apply configurations by derive, applied to the embedded API server.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use kubewright::{apply_configuration::ApplyConfiguration, client::Client, object::ObjectKey};
use kubewright_cluster::{Cluster, Pods};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A kind with required fields, a nested struct, lists and maps.
#[derive(CustomResource, ApplyConfiguration, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.kubewright.dev", version = "v1", kind = "Fleet", namespaced)]
#[serde(rename_all = "camelCase")]
#[apply_configuration(kind = Fleet)]
pub struct FleetSpec {
    /// The number of ships.
    #[serde(default)]
    ship_count: i32,
    #[serde(default)]
    flag: Option<String>,
    #[serde(default)]
    #[apply_configuration(nested)]
    port: Port,
    #[serde(default)]
    #[apply_configuration(nested)]
    routes: BTreeMap<String, Port>,
    #[serde(default, rename = "crewNames")]
    crew: Vec<String>,
    #[serde(skip)]
    #[schemars(skip)]
    cached: bool,
}

/// A part of it.
#[derive(ApplyConfiguration, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    #[serde(default)]
    name: String,
    #[serde(default)]
    depth: i32,
}

/// The fields of Deployments that a scaler applies.
#[derive(ApplyConfiguration)]
#[apply_configuration(kind = Deployment)]
struct Scaling {
    replicas: i32,
    #[apply_configuration(skip)]
    reason: String,
}

fn written(configuration: &impl Serialize) -> Value {
    serde_json::to_value(configuration).expect("JSON")
}

#[test]
fn only_fields_that_are_set_are_written() {
    assert_eq!(written(&FleetSpecApplyConfiguration::default()), json!({}));
    let port = PortApplyConfiguration::default().depth(0);
    let spec = FleetSpecApplyConfiguration::default().ship_count(0).port(port.clone()).crew(vec![]);
    let spec = spec.routes([("north".to_owned(), port)].into());
    let fleet = FleetApplyConfiguration::new("a").namespace("seas").label("of", "test").spec(spec);
    let expected = json!({
        "apiVersion": "test.kubewright.dev/v1", "kind": "Fleet",
        "metadata": {"name": "a", "namespace": "seas", "labels": {"of": "test"}},
        "spec": {"shipCount": 0, "port": {"depth": 0}, "routes": {"north": {"depth": 0}}, "crewNames": []},
    });
    assert_eq!(written(&fleet), expected, "values that equal the defaults are set, too");
    let read: FleetApplyConfiguration = serde_json::from_value(expected.clone()).expect("it is read again");
    assert_eq!(written(&read), expected);
}

/// Two appliers own different fields, and each takes its own back by leaving them out.
#[tokio::test]
async fn appliers_own_what_they_name() -> anyhow::Result<()> {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await?;
    cluster.apply_yaml(&serde_json::to_string(&Fleet::crd())?).await?;
    let key = ObjectKey::namespaced("default", "a");
    let client = |name: &str| Client::new(cluster.client()).field_owner(name).namespace("default");
    let (admiral, harbour) = (client("admiral"), client("harbour"));
    let apply = async |client: &Client, spec: FleetSpecApplyConfiguration| {
        client.kind::<FleetApplyConfiguration>().apply(&FleetApplyConfiguration::new("a").spec(spec)).await
    };
    let empty = FleetSpecApplyConfiguration::default;
    apply(&admiral, empty().ship_count(3).flag("blue".into())).await?;
    apply(&harbour, empty().port(PortApplyConfiguration::default().depth(9)).crew(vec!["ada".into()])).await?;
    let fleet = admiral.kind::<Fleet>().get(&key).await?.expect("it exists");
    assert_eq!((fleet.spec.ship_count, fleet.spec.port.depth, fleet.spec.crew.len()), (3, 9, 1));
    let owned = |fleet: &Fleet, manager: &str| {
        let entry = fleet.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some(manager));
        entry.and_then(|entry| entry.fields_v1.clone()).map_or(Value::Null, |fields| fields.0["f:spec"].clone())
    };
    assert_eq!(owned(&fleet, "admiral"), json!({"f:flag": {}, "f:shipCount": {}}));
    assert_eq!(owned(&fleet, "harbour"), json!({"f:crewNames": {}, "f:port": {"f:depth": {}}}));
    let conflict = apply(&harbour, empty().ship_count(4)).await.expect_err("it is the admiral's");
    assert!(conflict.is_conflict(), "{conflict}");
    apply(&admiral, empty().ship_count(5)).await?;
    let fleet = admiral.kind::<Fleet>().get(&key).await?.expect("it exists");
    assert_eq!((fleet.spec.ship_count, fleet.spec.flag.as_deref(), fleet.spec.port.depth), (5, None, 9));

    // A built-in kind, of which the operator names one field.
    cluster
        .apply_yaml(
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, \
             template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: busybox}]}}}}",
        )
        .await?;
    let scaling = DeploymentApplyConfiguration::new("web").spec(ScalingApplyConfiguration::default().replicas(2));
    admiral.kind::<DeploymentApplyConfiguration>().apply(&scaling).force().await?;
    let web = admiral.kind::<Deployment>().get(&ObjectKey::cluster("web")).await?.expect("it exists");
    let entry = web.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some("admiral"));
    let fields = entry.and_then(|entry| entry.fields_v1.clone()).map(|fields| fields.0);
    assert_eq!(fields, Some(json!({"f:spec": {"f:replicas": {}}})));
    assert_eq!(web.spec.and_then(|spec| spec.replicas), Some(2));
    cluster.shutdown().await;
    Ok(())
}
