//! Conversion between versions by a manager, as seen by the API server, clients and stock kubectl.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use k8s_openapi::{
    api::core::v1::Service, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::crd::merge_crds,
};
use kubewright_apiserver::ListenOptions;
use kubewright_runtime::{
    conversion::{self, ConversionError, Convertible, Hub},
    manager::{Manager, ManagerError},
    webhook::{
        WebhookServer,
        manifests::{self, Target},
    },
};
use serde_json::{Value, json};

use super::scene::{NAME, Scene, until};
use crate::world::{Running, own_address, run};

/// A pane by its size.
pub(super) mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "test.kubewright.dev", version = "v1", kind = "Pane", namespaced)]
    pub(in super::super) struct PaneSpec {
        pub(in super::super) size: String,
    }
}

/// A pane by its sides, and made of something.
pub(super) mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "test.kubewright.dev", version = "v2", kind = "Pane", namespaced)]
    pub(in super::super) struct PaneSpec {
        pub(in super::super) width: u32,
        pub(in super::super) height: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(in super::super) glass: Option<String>,
    }
}

impl Convertible for v1::Pane {
    type Hub = v2::Pane;

    fn convert_to(mut self) -> Result<v2::Pane, ConversionError> {
        let (width, height) = self.spec.size.split_once('x').ok_or("spec.size: use <width>x<height>")?;
        let (width, height) = (width.parse()?, height.parse()?);
        let glass = conversion::take(&mut self.metadata, "v2");
        Ok(v2::Pane { metadata: self.metadata, spec: v2::PaneSpec { width, height, glass } })
    }

    fn convert_from(mut hub: v2::Pane) -> Result<Self, ConversionError> {
        if let Some(glass) = &hub.spec.glass {
            conversion::keep(&mut hub.metadata, "v2", glass)?;
        }
        let size = format!("{}x{}", hub.spec.width, hub.spec.height);
        Ok(Self { metadata: hub.metadata, spec: v1::PaneSpec { size } })
    }
}

pub(super) fn definition(stored: &str) -> CustomResourceDefinition {
    merge_crds(vec![v1::Pane::crd(), v2::Pane::crd()], stored).unwrap()
}

fn manager(scene: &Scene, server: WebhookServer) -> Manager {
    let server = server.name(NAME).interval(std::time::Duration::from_millis(20));
    let hub = Hub::<v2::Pane>::new().spoke::<v1::Pane>();
    Manager::new(scene.client.clone()).clock(scene.clock.clone()).conversion(hub).webhook_server(server)
}

async fn define(scene: &Scene, definition: CustomResourceDefinition) {
    scene.all().create(&PostParams::default(), &definition).await.unwrap();
}

/// Waits until the API server calls the conversion webhook.
async fn until_converted(scene: &Scene) {
    let panes: Api<v1::Pane> = scene.api();
    let probe = v1::Pane::new("probe", v1::PaneSpec { size: "1x1".into() });
    until("conversions are answered", async || panes.create(&PostParams::default(), &probe).await.is_ok()).await;
    panes.delete("probe", &Default::default()).await.unwrap();
}

/// A manager that converts panes, with this storage version.
pub(super) async fn local(scene: &Scene, stored: &str) -> Running {
    define(scene, definition(stored)).await;
    let manager = run(manager(scene, WebhookServer::local()));
    until("the definition leads to the manager", async || {
        let definitions: Api<CustomResourceDefinition> = scene.all();
        let found = definitions.get("panes.test.kubewright.dev").await.unwrap();
        found.spec.conversion.is_some_and(|conversion| conversion.strategy == "Webhook")
    })
    .await;
    manager
}

#[tokio::test]
async fn clients_of_either_version_share_objects_and_lose_nothing() {
    let scene = Scene::new();
    let manager = local(&scene, "v2").await;
    let (old, new): (Api<v1::Pane>, Api<v2::Pane>) = (scene.api(), scene.api());
    let glass = Some("milk".to_owned());
    let spec = v2::PaneSpec { width: 3, height: 4, glass: glass.clone() };
    new.create(&PostParams::default(), &v2::Pane::new("a", spec)).await.unwrap();
    let mut read = old.get("a").await.unwrap();
    assert_eq!(read.spec.size, "3x4");
    read.spec.size = "5x6".into();
    old.replace("a", &PostParams::default(), &read).await.unwrap();
    let stored = new.get("a").await.unwrap();
    assert_eq!(stored.spec, v2::PaneSpec { width: 5, height: 6, glass: glass.clone() }, "v1 has carried it along");
    assert_eq!(stored.metadata.annotations, None);
    // An apply contains fewer fields than were read, and removes no fields of other owners.
    let apply = v1::Pane::new("a", v1::PaneSpec { size: "7x8".into() });
    old.patch("a", &PatchParams::apply("test").force(), &Patch::Apply(apply)).await.unwrap();
    assert_eq!(new.get("a").await.unwrap().spec, v2::PaneSpec { width: 7, height: 8, glass });
    let wrong = old.create(&PostParams::default(), &v1::Pane::new("b", v1::PaneSpec { size: "big".into() })).await;
    let message = wrong.unwrap_err().to_string();
    assert!(message.contains("failed: default/b: spec.size: use <width>x<height>"), "{message}");
    manager.stop().await;
    // The CRD keeps its conversion: an error is better than an incomplete object.
    let unasked = old.create(&PostParams::default(), &v1::Pane::new("c", v1::PaneSpec { size: "1x1".into() })).await;
    assert!(
        unasked.unwrap_err().to_string().contains("conversion webhook for test.kubewright.dev/v1, Kind=Pane failed")
    );
    new.get("a").await.unwrap();
}

#[tokio::test]
async fn a_definition_in_a_cluster_learns_the_authority() {
    let scene = Scene::new();
    let address = own_address();
    let server =
        WebhookServer::new(kubewright_runtime::probe::BindAddress::Host(address.ip().to_string(), address.port()));
    let manager = run(manager(&scene, server));
    let name = format!("{NAME}-webhook-service");
    let service: Service =
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 443}]}})).unwrap();
    scene.api().create(&PostParams::default(), &service).await.unwrap();
    scene.lead_to(&[address]).await;
    let mut definition = definition("v2");
    definition.spec.conversion =
        Some(manifests::conversion(&Target::Service { namespace: "default".into(), name }, None));
    define(&scene, definition).await;
    until_converted(&scene).await;
    let authority = scene.held("ca.crt").await;
    let definitions: Api<CustomResourceDefinition> = scene.all();
    let found = definitions.get("panes.test.kubewright.dev").await.unwrap();
    let client = found.spec.conversion.unwrap().webhook.unwrap().client_config.unwrap();
    assert_eq!(client.ca_bundle.map(|bundle| String::from_utf8(bundle.0).unwrap()), Some(authority));
    manager.stop().await;
}

#[tokio::test]
async fn a_kind_has_one_hub() {
    let scene = Scene::new();
    let manager = manager(&scene, WebhookServer::local()).conversion(Hub::<v1::Pane>::new());
    let conversions = manager.describe().conversions;
    assert_eq!((conversions[0].definition().as_str(), &*conversions[0].spokes[0]), ("panes.test.kubewright.dev", "v1"));
    let refused = manager.run_until(std::future::pending()).await.unwrap_err();
    assert!(matches!(refused, ManagerError::SameHub(kind) if kind == "Pane.test.kubewright.dev"));
}

/// Runs kubectl, which must succeed, and returns its output.
async fn kubectl(config: &std::path::Path, arguments: &str, input: Option<Value>) -> String {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(config).args(arguments.split(' ')).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let arguments = arguments.to_owned();
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("kubectl is installed, as CONTRIBUTING.md wants it");
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(input.unwrap_or_default().to_string().as_bytes()).unwrap();
        drop(pipe);
        child.wait_with_output().unwrap()
    });
    let output = ran.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "kubectl {arguments}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_kubectl_works_with_both_versions() {
    let scene = Scene::now();
    let manager = local(&scene, "v2").await;
    let listener = scene.server.listen(ListenOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    std::fs::write(&config, listener.kubeconfig()).unwrap();
    let pane = |version: &str, spec: Value| {
        let version = format!("test.kubewright.dev/{version}");
        json!({"apiVersion": version, "kind": "Pane", "metadata": {"name": "a"}, "spec": spec})
    };
    kubectl(&config, "apply -f -", Some(pane("v1", json!({"size": "3x4"})))).await;
    let width = "get panes.v2.test.kubewright.dev a -o jsonpath={.spec.width}";
    assert_eq!(kubectl(&config, width, None).await, "3");
    kubectl(&config, "apply -f -", Some(pane("v2", json!({"width": 5, "height": 4, "glass": "milk"})))).await;
    let size = "get panes.v1.test.kubewright.dev -o jsonpath={.items[*].spec.size}";
    assert_eq!(kubectl(&config, size, None).await, "5x4");
    kubectl(&config, "apply --server-side --force-conflicts -f -", Some(pane("v1", json!({"size": "6x4"})))).await;
    let patch = r#"patch panes.v1.test.kubewright.dev a --type=merge -p {"spec":{"size":"7x4"}}"#;
    kubectl(&config, patch, None).await;
    let all = "get panes.v2.test.kubewright.dev a -o jsonpath={.spec}";
    let spec: Value = serde_json::from_str(&kubectl(&config, all, None).await).unwrap();
    assert_eq!(spec, json!({"width": 7, "height": 4, "glass": "milk"}));
    assert!(kubectl(&config, "explain pane.spec --api-version=test.kubewright.dev/v1", None).await.contains("size"));
    kubectl(&config, "delete panes.v1.test.kubewright.dev a", None).await;
    listener.shutdown().await;
    manager.stop().await;
}
