//! What the demo plays on: a cluster that listens, a kubeconfig for another shell, and the operators in one manager.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use k8s_openapi::{
    api::core::v1::Pod, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use kubewright::prelude::Manager;
use kubewright_apimachinery::clock::{SharedClock, SystemClock};
use kubewright_cluster::{Cluster, Pods};
use tokio::{sync::oneshot, task::JoinHandle};

/// At's sample, as it stands in the operator's folder.
pub(crate) const AT_SAMPLE: &str = include_str!("../../operators/at/config/samples/cnat_v1alpha1_at.yaml");
/// The sample of PodSet's first flavour.
pub(crate) const FIRST_PODSET_SAMPLE: &str =
    include_str!("../../operators/podset/config/samples/k8stest_v1alpha1_podset.yaml");
/// The sample of PodSet's second flavour.
pub(crate) const SECOND_PODSET_SAMPLE: &str =
    include_str!("../../operators/podset/config/samples/app_v1alpha1_podset.yaml");

/// The cluster, the operators, and the way in for kubectl.
pub(crate) struct Stage {
    cluster: Cluster,
    clock: SharedClock,
    user: Client,
    kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<()>>,
}

impl Stage {
    /// Starts the cluster, installs the CRDs, starts the operators.
    pub(crate) async fn set() -> Result<Self> {
        let clock = SystemClock::shared();
        let cluster =
            Cluster::builder().clock(clock.clone()).pods(Pods::Run).start().await.context("start the cluster")?;
        let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen on a free port")?;
        let ready = clock.monotonic();

        let folder = tempfile::Builder::new()
            .prefix("kubewright-demo-")
            .tempdir()
            .context("make a folder for the kubeconfig")?;
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, listener.kubeconfig()).with_context(|| format!("write {}", path.display()))?;
        // Operators and user come in as they would on any cluster: over TLS, by the kubeconfig.
        let user = client(&path).await?;

        for crd in at_operator::crds().into_iter().chain(podset_operator::crds()) {
            let name = crd.name_any();
            let api: Api<CustomResourceDefinition> = Api::all(user.clone());
            api.patch(&name, &PatchParams::apply("kubewright-demo"), &Patch::Apply(&crd))
                .await
                .with_context(|| format!("install the CRD {name}"))?;
        }

        let (stop, stopped) = oneshot::channel();
        let manager =
            podset_operator::register(at_operator::register(Manager::new(client(&path).await?).clock(clock.clone())));
        let manager = tokio::spawn(async move {
            // A dropped sender ends the manager just as a sent word does.
            manager.run_until(async { drop(stopped.await) }).await.context("run the operators")
        });
        println!("cluster ready in {} ms; from another shell: export KUBECONFIG={}", ready.as_millis(), path.display());
        Ok(Self { cluster, clock, user, kubeconfig: path, _folder: folder, stop, manager })
    }

    /// A client such as kubectl is one.
    pub(crate) fn user(&self) -> Client {
        self.user.clone()
    }

    /// The pods of the default namespace.
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.user(), "default")
    }

    /// The resource that an object is one of, in its namespace.
    pub(crate) fn resources(&self, object: &DynamicObject) -> Result<Api<DynamicObject>> {
        let types = object.types.clone().context("the object has no apiVersion and kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).context("read the apiVersion")?);
        let namespace = object.namespace().unwrap_or_else(|| "default".into());
        Ok(Api::namespaced_with(self.user(), &namespace, &resource))
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Applies the operators' samples to the default namespace.
    pub(crate) async fn apply_samples(&self) -> Result<()> {
        for sample in [AT_SAMPLE, FIRST_PODSET_SAMPLE, SECOND_PODSET_SAMPLE] {
            self.apply(sample).await?;
        }
        Ok(())
    }

    /// Applies one manifest as `kubectl apply --server-side` does, and gives the object as it then is.
    pub(crate) async fn apply(&self, manifest: &str) -> Result<DynamicObject> {
        let object: DynamicObject = serde_saphyr::from_str(manifest).context("read the manifest")?;
        self.resources(&object)?
            .patch(&object.name_any(), &PatchParams::apply("kubectl"), &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {}", object.name_any()))
    }

    /// Stops the operators, then the cluster; nothing stays behind.
    pub(crate) async fn clear(self) -> Result<()> {
        // The manager may have ended by itself, with an error that is then reported below.
        let _ = self.stop.send(());
        let operators = self.manager.await.context("the operators panicked")?;
        self.cluster.shutdown().await;
        operators
    }
}

/// A client by this kubeconfig.
async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config =
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.context("use the kubeconfig")?;
    Client::try_from(config).context("make a client")
}
