//! Conversion and migration with the files that `kubewright manifests` generates, and only the permissions granted by
//! them.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::Service, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::PostParams};
use kubewright_apiserver::UserInfo;
use kubewright_cluster::{Cluster, Pods};
use kubewright_manifests::{File, Options, generate};
use kubewright_runtime::{
    conversion::{Hub, Migrator},
    manager::Manager,
    probe::BindAddress,
    webhook::WebhookServer,
};
use serde_json::json;

use super::{
    conversion::{definition, v1, v2},
    scene::until,
};
use crate::world::{own_address, run};

/// The names in the files, before kustomize adds a prefix.
const NAMESPACE: &str = "system";
const ACCOUNT: &str = "controller-manager";
const SERVICE: &str = "webhook-service";

/// The scaffolded objects that are not generated.
fn scaffold(endpoint: std::net::SocketAddr) -> String {
    let binding = |kind: &str, role_kind: &str, name: &str, place: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}, metadata: {{name: {name}binding{place}}}, \
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role_kind}, name: {name}}}, \
             subjects: [{{kind: ServiceAccount, name: {ACCOUNT}, namespace: {NAMESPACE}}}]}}"
        )
    };
    let own = format!(", namespace: {NAMESPACE}");
    let slice = format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
         metadata: {{name: hooks, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: {SERVICE}}}}}, \
         ports: [{{name: '', port: {}}}], endpoints: [{{addresses: ['{}'], conditions: {{ready: true}}}}]}}",
        endpoint.port(),
        endpoint.ip(),
    );
    [
        binding("ClusterRoleBinding", "ClusterRole", "manager-role", ""),
        binding("ClusterRoleBinding", "ClusterRole", "webhook-role", ""),
        binding("RoleBinding", "Role", "webhook-role", &own),
        slice,
    ]
    .join("\n---\n")
}

#[tokio::test]
async fn conversions_and_migrations_need_what_their_manifests_say() {
    let cluster = Cluster::builder().pods(Pods::None).start().await.unwrap();
    let address = own_address();
    let manager = |client| {
        let server = WebhookServer::new(BindAddress::Host(address.ip().to_string(), address.port()));
        let server = server.name("").namespace(NAMESPACE).interval(Duration::from_millis(20));
        let hub = Hub::<v2::Pane>::new().spoke::<v1::Pane>();
        Manager::new(client)
            .kind::<v2::Pane>()
            .version::<v1::Pane>()
            .conversion(hub)
            .webhook_server(server)
            .runnable(Migrator::of::<v2::Pane>().runnable())
    };
    let account = UserInfo::service_account(NAMESPACE, ACCOUNT);
    let operator = manager(cluster.api().client_of(account));

    // The state before the second version existed.
    cluster.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: system}}").await.unwrap();
    cluster.install([definition("v1")]).await.unwrap();
    let old: Api<v1::Pane> = Api::default_namespaced(cluster.client());
    old.create(&PostParams::default(), &v1::Pane::new("a", v1::PaneSpec { size: "3x4".into() })).await.unwrap();

    let files = generate(&operator.describe().document().unwrap(), &Options::default()).unwrap().files;
    for File { text, .. } in &files {
        cluster.apply_yaml(text).await.unwrap();
    }
    let service: Service =
        serde_json::from_value(json!({"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": 443}]}})).unwrap();
    Api::namespaced(cluster.client(), NAMESPACE).create(&PostParams::default(), &service).await.unwrap();
    cluster.apply_yaml(&scaffold(address)).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let found = async || definitions.get("panes.test.kubewright.dev").await.unwrap();
    let stored = async || found().await.status.unwrap().stored_versions.unwrap();
    let said = found().await.spec.conversion.unwrap();
    let service = said.webhook.unwrap().client_config.unwrap().service.unwrap();
    assert_eq!((service.name.as_str(), service.namespace.as_str()), (SERVICE, NAMESPACE));
    assert_eq!(stored().await, ["v1", "v2"]);

    let operator = run(operator);
    until("the old version is stored no more", async || stored().await == ["v2"]).await;
    let new: Api<v2::Pane> = Api::default_namespaced(cluster.client());
    assert_eq!(new.get("a").await.unwrap().spec, v2::PaneSpec { width: 3, height: 4, glass: None });
    assert_eq!(old.get("a").await.unwrap().spec.size, "3x4");
    operator.stop().await;

    let rights = cluster.rights_of(NAMESPACE, ACCOUNT).await.unwrap();
    assert!(rights.denied.is_empty(), "{:?}", rights.denied);
    // For when the certificate is renewed, and for clusters with StorageVersionMigrations.
    let migrations =
        ["create", "delete", "get"].map(|verb| format!("storagemigration.k8s.io storageversionmigrations {verb}"));
    let unused = rights.unused().collect::<Vec<_>>();
    assert_eq!(
        unused.iter().filter(|rule| !migrations.iter().any(|it| it == *rule)).collect::<Vec<_>>(),
        [&"- secrets update"]
    );
    assert_eq!(unused.len(), 4, "{unused:?}");
    cluster.shutdown().await;
}
