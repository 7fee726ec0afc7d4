//! `--clusters N`: the PodSet operator of one manager works on several clusters, one of which goes away and comes back.
//!
//! Each is an embedded cluster that listens with TLS. A Secret in a further one, the manager's own, has its kubeconfig:
//! that brings it in, and takes it out when it is deleted.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kubewright::prelude::Manager;
use kubewright_apimachinery::clock::{SystemClock, VirtualClock};
use kubewright_cluster::{Cluster, Pods};
use podset_operator::api::app::v1alpha1::{PodSet, PodSetSpec};
use serde_json::json;
use tokio::sync::oneshot;

use crate::once::Report;

/// The label of Secrets that have a kubeconfig.
const LABEL: &str = "demo.kubewright.dev/cluster";
/// The names of the first clusters.
const NAMES: [&str; 4] = ["east", "west", "north", "south"];

/// A cluster that the manager works on.
struct Member {
    name: String,
    cluster: Cluster,
    folder: PathBuf,
    kubeconfig: String,
}

impl Member {
    /// Starts a cluster, or continues the one that was kept in the folder, at the same address.
    async fn start(name: String, folder: PathBuf, clock: &Arc<VirtualClock>) -> Result<Self> {
        let builder = Cluster::builder().clock(clock.clone()).pods(Pods::Simulate).data_dir(&folder);
        let cluster = builder.start().await.with_context(|| format!("start the cluster {name}"))?;
        let endpoint = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let kubeconfig = endpoint.with_context(|| format!("listen for the cluster {name}"))?.kubeconfig();
        Ok(Self { name, cluster, folder, kubeconfig })
    }

    async fn stop(self) -> (String, PathBuf) {
        self.cluster.shutdown().await;
        (self.name, self.folder)
    }

    fn sets(&self) -> Api<PodSet> {
        Api::default_namespaced(self.cluster.client())
    }

    async fn install(&self) -> Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.cluster.client());
        for definition in podset_operator::crds() {
            definitions.create(&PostParams::default(), &definition).await.context("install the CRDs")?;
        }
        Ok(())
    }

    async fn create(&self, replicas: i32) -> Result<()> {
        let set = PodSet::new("web", PodSetSpec { replicas, template: None });
        self.sets().create(&PostParams::default(), &set).await.context("create a PodSet")?;
        Ok(())
    }

    async fn resize(&self, replicas: i32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.sets().patch("web", &PatchParams::default(), &patch).await.context("resize a PodSet")?;
        Ok(())
    }

    /// Returns whether the PodSet has this number of pods, all ready.
    async fn has(&self, replicas: usize) -> Result<bool> {
        let set = self.sets().get("web").await.context("read a PodSet")?;
        let status = set.status.unwrap_or_default();
        let ready = status.conditions.iter().any(|known| known.type_ == "Ready" && known.status == "True");
        Ok(ready && status.pod_names.len() == replicas && status.observed_generation == set.metadata.generation)
    }
}

/// Runs the script, and returns whether all checks passed.
pub(crate) async fn run(count: usize) -> Result<bool> {
    let clock = VirtualClock::starting_at(SystemClock::shared().now());
    let folder = tempfile::Builder::new().prefix("kubewright-demo-").tempdir().context("create a folder")?;
    let home = Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start a cluster")?;
    let members = start(count, folder.path(), &clock).await?;
    let manager = Manager::new(home.client()).clock(clock.clone());
    let clusters = manager.clusters();
    let manager = manager.controller(clusters.kubeconfig_secrets(LABEL));
    let manager = podset_operator::register_by_cluster(manager);
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));

    let mut report = Report::new(clock.clone());
    let secrets: Api<Secret> = Api::default_namespaced(home.client());
    report.title(&format!("one manager works on {count} clusters"));
    for member in &members {
        secrets.create(&PostParams::default(), &secret(member)?).await.context("create a Secret")?;
    }
    let is_in = |count: usize| {
        let clusters = clusters.clone();
        move || std::future::ready(Ok(clusters.names().len() == count))
    };
    report.until("each Secret with a kubeconfig is a cluster", is_in(count)).await?;
    let members = play(members, &clock, &mut report).await?;
    if let Some(last) = members.last() {
        report.title(&format!("the Secret of {} is deleted", last.name));
        secrets.delete(&last.name, &DeleteParams::default()).await.context("delete a Secret")?;
        report.until(&format!("the manager no longer works on {}", last.name), is_in(count - 1)).await?;
    }

    // The manager may have ended with an error, which is reported below.
    let _ = stop.send(());
    manager.await.context("the manager panicked")?.context("run the manager")?;
    for member in members {
        member.stop().await;
    }
    home.shutdown().await;
    Ok(report.end())
}

async fn start(count: usize, folder: &Path, clock: &Arc<VirtualClock>) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for number in 0..count {
        let name = NAMES.get(number).map_or_else(|| format!("cluster-{}", number + 1), ToString::to_string);
        let member = Member::start(name.clone(), folder.join(&name), clock).await?;
        member.install().await?;
        members.push(member);
    }
    Ok(members)
}

/// Has the operator work on all clusters, then without the last one, then on all again.
async fn play(mut members: Vec<Member>, clock: &Arc<VirtualClock>, report: &mut Report) -> Result<Vec<Member>> {
    for member in &members {
        member.create(2).await?;
    }
    for member in &members {
        report.until(&format!("two pods are ready in {}", member.name), || member.has(2)).await?;
    }

    let Some(gone) = members.pop() else { return Ok(members) };
    report.title(&format!("{} goes away", gone.name));
    let (name, folder) = gone.stop().await;
    for member in &members {
        member.resize(3).await?;
    }
    for member in &members {
        report.until(&format!("a third pod is ready in {}", member.name), || member.has(3)).await?;
    }

    report.title(&format!("{name} comes back"));
    let back = Member::start(name, folder, clock).await?;
    report.check("it has what it had", back.has(2).await?, || "another PodSet".into());
    back.resize(3).await?;
    report.until(&format!("a third pod is ready in {}", back.name), || back.has(3)).await?;
    members.push(back);
    Ok(members)
}

fn secret(member: &Member) -> Result<Secret> {
    let metadata = json!({"name": member.name, "labels": {LABEL: ""}});
    let secret = json!({"metadata": metadata, "stringData": {"kubeconfig": member.kubeconfig}});
    serde_json::from_value(secret).context("make a Secret")
}
