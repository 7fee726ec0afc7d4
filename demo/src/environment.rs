//! The environment of the demo: a cluster that listens, a kubeconfig for use in another shell, and the operators in one
//! manager.

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    config::Kubeconfig,
    core::GroupVersionKind,
    discovery::ApiResource,
};
use kubewright::{prelude::Manager, webhook::WebhookServer};
use kubewright_apimachinery::clock::{Clock, SystemClock, VirtualClock};
use kubewright_cluster::{Cluster, Pods};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::image;

/// The timeout of waits for the operators.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The sample of At.
pub(crate) const AT_SAMPLE: &str = include_str!("../../operators/at/config/samples/cnat_v1alpha1_at.yaml");
/// The sample of PodSet's first flavour.
pub(crate) const FIRST_PODSET_SAMPLE: &str =
    include_str!("../../operators/podset/config/samples/k8stest_v1alpha1_podset.yaml");
/// The sample of PodSet's second flavour.
pub(crate) const SECOND_PODSET_SAMPLE: &str =
    include_str!("../../operators/podset/config/samples/app_v1alpha1_podset.yaml");
/// The sample of CronJob.
pub(crate) const CRONJOB_SAMPLE: &str = include_str!("../../operators/cronjob/config/samples/batch_v1_cronjob.yaml");
/// The sample of Guestbook, with the ConfigMap that it refers to.
pub(crate) const GUESTBOOK_SAMPLE: &str =
    include_str!("../../operators/guestbook/config/samples/webapp_v1_guestbook.yaml");
/// The sample of Lolcow.
pub(crate) const LOLCOW_SAMPLE: &str = include_str!("../../operators/lolcow/config/samples/v1alpha1_lolcow.yaml");

/// The cluster, the operators, and a client in the role of kubectl.
pub(crate) struct Environment {
    cluster: Cluster,
    clock: Arc<VirtualClock>,
    user: Client,
    kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<()>>,
}

impl Environment {
    /// Starts the cluster, installs the CRDs, and starts the operators.
    pub(crate) async fn start() -> Result<Self> {
        // The clock starts at the current time, and can be advanced.
        let clock = VirtualClock::starting_at(SystemClock::shared().now());
        let builder = Cluster::builder().clock(clock.clone()).pods(Pods::Run).images(image::table()?);
        let cluster = builder.start().await.context("start the cluster")?;
        let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen on a free port")?;
        let ready = clock.monotonic();

        let folder = tempfile::Builder::new()
            .prefix("kubewright-demo-")
            .tempdir()
            .context("create a folder for the kubeconfig")?;
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, listener.kubeconfig()).with_context(|| format!("write {}", path.display()))?;
        // The operators and the user connect as to any cluster: over TLS, with the kubeconfig.
        let user = client(&path).await?;

        for crd in crds() {
            let name = crd.name_any();
            let api: Api<CustomResourceDefinition> = Api::all(user.clone());
            api.patch(&name, &PatchParams::apply("kubewright-demo"), &Patch::Apply(&crd))
                .await
                .with_context(|| format!("install the CRD {name}"))?;
        }

        let (stop, stopped) = oneshot::channel();
        let manager = Manager::new(client(&path).await?).clock(clock.clone());
        let manager = operators(manager).webhook_server(WebhookServer::local().name("demo").namespace("default"));
        let manager = tokio::spawn(async move {
            // A dropped sender stops the manager in the same way as a sent message.
            manager.run_until(async { drop(stopped.await) }).await.context("run the operators")
        });
        println!("cluster ready in {} ms; from another shell: export KUBECONFIG={}", ready.as_millis(), path.display());
        Ok(Self { cluster, clock, user, kubeconfig: path, _folder: folder, stop, manager })
    }

    /// Returns a client with the permissions of the kubeconfig.
    pub(crate) fn user(&self) -> Client {
        self.user.clone()
    }

    /// Returns the API of the pods in the default namespace.
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.user(), "default")
    }

    /// Returns the API of an object's kind in its namespace.
    pub(crate) fn resources(&self, object: &DynamicObject) -> Result<Api<DynamicObject>> {
        let types = object.types.clone().context("the object has no apiVersion and kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).context("read the apiVersion")?);
        let namespace = object.namespace().unwrap_or_else(|| "default".into());
        Ok(Api::namespaced_with(self.user(), &namespace, &resource))
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    /// Advances the clock of the cluster and the operators to the next full minute, and returns that time.
    pub(crate) fn to_the_next_minute(&self) -> Result<jiff::Timestamp> {
        let now = self.clock.now();
        let minute = jiff::Timestamp::from_second((now.as_second() / 60 + 1) * 60)?;
        self.clock.jump(minute.duration_since(now) + SignedDuration::from_millis(5));
        Ok(minute)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Applies the operators' samples to the default namespace.
    pub(crate) async fn apply_samples(&self) -> Result<()> {
        for sample in [AT_SAMPLE, FIRST_PODSET_SAMPLE, SECOND_PODSET_SAMPLE, CRONJOB_SAMPLE] {
            self.apply(sample).await?;
        }
        self.apply_lolcow().await?;
        self.apply_guestbook().await?;
        Ok(())
    }

    /// Applies the Lolcow with a node port that is free on this machine, preferably the port in the sample.
    pub(crate) async fn apply_lolcow(&self) -> Result<DynamicObject> {
        let mut lolcow: DynamicObject = serde_saphyr::from_str(LOLCOW_SAMPLE).context("read Lolcow's sample")?;
        let wanted = lolcow.data["spec"]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let port = free_port(wanted.context("Lolcow's sample has no port")?)?;
        lolcow.data["spec"]["port"] = port.into();
        self.apply_object(&lolcow).await
    }

    /// Applies the Guestbook and its ConfigMap, and changes the type of its Service to NodePort: the operator leaves
    /// the type to the user.
    pub(crate) async fn apply_guestbook(&self) -> Result<DynamicObject> {
        let objects: Vec<DynamicObject> =
            serde_saphyr::from_multiple(GUESTBOOK_SAMPLE).context("read Guestbook's sample")?;
        let mut guestbook = None;
        for object in &objects {
            guestbook = Some(self.apply_object(object).await?);
        }
        let guestbook = guestbook.context("Guestbook's sample is empty")?;
        let (services, name) = (self.services(), guestbook.name_any());
        let made = async {
            while services.get_opt(&name).await?.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(TIMEOUT, made).await.with_context(|| format!("no Service {name} was created"))??;
        let patch = Patch::Merge(json!({"spec": {"type": "NodePort"}}));
        services.patch(&name, &PatchParams::default(), &patch).await.context("give the Guestbook a node port")?;
        Ok(guestbook)
    }

    /// Returns the address of a Service in the default namespace.
    pub(crate) async fn url(&self, service: &str) -> Result<String> {
        let service = self.services().get(service).await?;
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let port = ports.iter().find_map(|port| port.node_port).context("the Service has no node port")?;
        Ok(format!("http://127.0.0.1:{port}"))
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.user(), "default")
    }

    /// Applies a manifest as `kubectl apply --server-side` does, and returns the object.
    pub(crate) async fn apply(&self, manifest: &str) -> Result<DynamicObject> {
        self.apply_object(&serde_saphyr::from_str(manifest).context("read the manifest")?).await
    }

    async fn apply_object(&self, object: &DynamicObject) -> Result<DynamicObject> {
        self.resources(object)?
            .patch(&object.name_any(), &PatchParams::apply("kubectl"), &Patch::Apply(object))
            .await
            .with_context(|| format!("apply {}", object.name_any()))
    }

    /// Stops the operators, then the cluster.
    pub(crate) async fn stop(self) -> Result<()> {
        // The manager may have ended with an error, which is reported below.
        let _ = self.stop.send(());
        let operators = self.manager.await.context("the operators panicked")?;
        self.cluster.shutdown().await;
        operators
    }
}

/// Returns the definitions of all kinds.
fn crds() -> impl Iterator<Item = CustomResourceDefinition> {
    at_operator::crds()
        .into_iter()
        .chain(cronjob_operator::crds())
        .chain(guestbook_operator::crds())
        .chain(lolcow_operator::crds())
        .chain(podset_operator::crds())
}

/// Adds all operators to a manager.
fn operators(manager: Manager) -> Manager {
    let manager = podset_operator::register(at_operator::register(manager));
    lolcow_operator::register(guestbook_operator::register(cronjob_operator::register(manager)))
}

/// Returns this node port, or the next one that is free on this machine.
pub(crate) fn free_port(wanted: u16) -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (wanted..wanted.saturating_add(100)).find(is_free).with_context(|| format!("no port from {wanted} on is free"))
}

/// Creates a client with a kubeconfig.
async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = kubewright_connect::config(file, None).await.context("use the kubeconfig")?;
    kubewright_connect::client(config).context("create a client")
}
