//! A view of pods: the cache keeps only the fields of the type.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, api::ObjectMeta};
use kubewright::{client::Client, prelude::*};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Greeting, GreetingStatus, cluster, greet, start, until};

/// The fields of a pod that the controller reads. It can be used wherever a kind can.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
struct PodView {
    #[serde(with = "kubewright::view::without_annotations")]
    metadata: ObjectMeta,
    status: Option<PodPhase>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct PodPhase {
    phase: Option<String>,
}

/// Counts the running pods, and keeps the last one that it read.
#[derive(Clone, Default)]
struct Census(Arc<Mutex<String>>);

impl Reconciler<Greeting> for Census {
    type Error = ClientError;

    async fn reconcile(&self, _: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let pods = ctx.list::<PodView>(&Default::default())?;
        let phase = |pod: &PodView| pod.status.as_ref().and_then(|status| status.phase.clone());
        let running = pods.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
        *self.0.lock() = pods.last().and_then(|pod| serde_json::to_string(pod.as_ref()).ok()).unwrap_or_default();
        ctx.set_status(GreetingStatus { greeted: running }).await?;
        Ok(Action::await_change())
    }
}

const GUEST: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: guest
  annotations: {story: A long one that nobody here wants to hear}
spec:
  containers:
  - name: guest
    image: busybox
    env: [{name: STORY, value: and this is how it goes on}]
    resources: {limits: {cpu: 100m, memory: 64Mi}}
    securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false}
";

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let census = Census::default();
    let controller = Controller::<Greeting>::new(census.clone()).watches(|_: &PodView, greetings| {
        let all = greetings.list(None, &Default::default());
        all.iter().map(|greeting| ObjectKey::of(greeting.as_ref())).collect()
    });
    let manager = start(Manager::new(cluster.client()).controller(controller));
    greet(&cluster, &["ada"]).await?;
    cluster.apply_yaml(GUEST).await?;
    let client = Client::new(cluster.client()).namespace("default");
    let (hello, greetings) = (ObjectKey::cluster("hello"), client.kind::<Greeting>());
    let running = async || greetings.get(&hello).await.ok()??.status.map(|status| status.greeted);
    until("the guest is seen to run", async || running().await == Some(1)).await?;

    let whole = client.kind::<Pod>().get(&ObjectKey::cluster("guest")).await?;
    let (whole, kept) = (serde_json::to_string(&whole)?, census.0.lock().clone());
    println!("  the pod has {} bytes of JSON, and of these {} are kept: {kept}", whole.len(), kept.len());
    anyhow::ensure!(whole.contains("how it goes on") && kept.contains("Running"), "what is decided by is there");
    anyhow::ensure!(kept.len() < whole.len() / 2, "and little else");
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
