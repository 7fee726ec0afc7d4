//! An operator that is deployed as by its users: with `kubectl apply -k`, as a Deployment on the node of an embedded
//! cluster, with its own service account and role. Tests of it run in real time, and need `kubectl` on the `PATH`.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use http::{Request, Uri};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::TokenRequest,
    coordination::v1::Lease,
    core::v1::{Pod, Service, ServiceAccount},
};
use kube::{
    Api, Client, Config, Error, ResourceExt,
    api::{ListParams, PostParams},
};

use kubewright_cluster::{Cluster, ImageTable, Program, testing::RightsUsage};
use tokio::{
    process::Command,
    time::{sleep, timeout},
};

/// The timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The time in which an operator uses all of its permissions. It renews its lease every few seconds.
const USE_TIMEOUT: Duration = Duration::from_secs(20);
/// The name of the Deployment and its service account in the manifests, after the operator's name.
const MANAGER: &str = "controller-manager";

/// A cluster with a deployed operator, for tests: its functions panic if something fails, or takes longer than two
/// minutes.
///
/// The names are those of the manifests that `kubewright init` writes: the Deployment and the service account are
/// called `NAME-controller-manager`, in the namespace `NAME-system`.
pub struct Deployed {
    cluster: Cluster,
    name: &'static str,
    folder: tempfile::TempDir,
}

impl Deployed {
    /// Deploys `config/default` of the operator in `crate_folder`, and waits until it is available. `program` runs in
    /// place of the operator's image, and `images` contains the images of the operator's own pods.
    pub async fn start(
        name: &'static str,
        crate_folder: &str,
        program: &str,
        images: impl FnOnce(ImageTable) -> ImageTable,
    ) -> Self {
        let image = format!("kubewright/{name}");
        let images = images(ImageTable::default()).with(&image, Program::executable(program));
        let config = PathBuf::from(crate_folder).join("config/default");
        Self::install(name, images, &["apply", "-k", &config.to_string_lossy()]).await
    }

    /// Installs an operator with a kubectl command, and waits until it is available. `images` must contain its image.
    pub async fn install(name: &'static str, images: ImageTable, kubectl: &[&str]) -> Self {
        let deployed = Self::nothing(name, images).await;
        deployed.kubectl(kubectl).await;
        deployed.is_available(1).await;
        deployed
    }

    /// Starts a cluster without a deployed operator.
    pub async fn nothing(name: &'static str, images: ImageTable) -> Self {
        let cluster = Cluster::builder().images(images).start().await.unwrap();
        let endpoint = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kubeconfig"), endpoint.kubeconfig()).unwrap();
        Self { cluster, name, folder }
    }

    /// Returns the path of a kubeconfig with all permissions.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the operator's namespace.
    pub fn namespace(&self) -> String {
        format!("{}-system", self.name)
    }

    fn manager(&self) -> String {
        format!("{}-{MANAGER}", self.name)
    }

    /// Runs kubectl with all permissions, and returns its output. Panics if it fails.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        let (succeeded, printed) = self.try_kubectl(arguments).await;
        assert!(succeeded, "kubectl {}: {printed}", arguments.join(" "));
        printed
    }

    /// Runs kubectl, and returns whether it succeeded, with its output or error output.
    pub async fn try_kubectl(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new("kubectl");
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).env("HOME", self.folder.path());
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = timeout(TIMEOUT, output).await.expect("kubectl should end in time");
        let output = output.expect("kubectl runs");
        let printed = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
    }

    /// Waits until a condition holds.
    pub async fn eventually(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let came = timeout(TIMEOUT, async {
            while !so().await {
                sleep(Duration::from_millis(50)).await;
            }
        });
        if came.await.is_err() {
            let pods = self.kubectl(&["get", "pods", "-A", "-o", "wide"]).await;
            let logs = self.kubectl(&["logs", "-n", &self.namespace(), "-l", "control-plane", "--tail=40"]).await;
            panic!("timed out waiting until {what}; pods:\n{pods}\nlogs:\n{logs}");
        }
    }

    /// Waits until the output of kubectl meets a condition.
    pub async fn until(&self, arguments: &[&str], wished: impl Fn(&str) -> bool) -> String {
        let mut printed = String::new();
        self.eventually(&format!("kubectl {} prints the expected output", arguments.join(" ")), async || {
            printed = self.kubectl(arguments).await;
            wished(&printed)
        })
        .await;
        printed
    }

    /// Waits until exactly `replicas` replicas of the operator are up to date and available.
    pub async fn is_available(&self, replicas: i32) {
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.client(), &self.namespace());
        self.eventually(&format!("{replicas} replicas are available"), async || {
            let status = deployments.get(&self.manager()).await.unwrap().status.unwrap_or_default();
            status.available_replicas == Some(replicas)
                && status.updated_replicas == Some(replicas)
                && status.replicas == Some(replicas)
        })
        .await;
    }

    /// Returns the pods of the operator itself.
    pub async fn replicas(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), &self.namespace());
        pods.list(&ListParams::default().labels("control-plane=controller-manager")).await.unwrap().items
    }

    /// Returns the name of the pod that holds the lease.
    pub async fn leader(&self) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client(), &self.namespace());
        let leases = leases.list(&ListParams::default()).await.unwrap().items;
        let holder = leases.into_iter().find_map(|lease| lease.spec?.holder_identity)?;
        self.replicas().await.iter().map(ResourceExt::name_any).find(|name| holder.starts_with(name.as_str()))
    }

    /// Scales the operator to two replicas, deletes the leader, and waits until the other replica leads and two are
    /// available again.
    pub async fn hand_over(&self) {
        let deployment = format!("deployment/{}", self.manager());
        self.kubectl(&["scale", &deployment, "-n", &self.namespace(), "--replicas=2"]).await;
        self.is_available(2).await;
        let first = self.leader().await.expect("one of them leads");
        self.kubectl(&["delete", "pod", &first, "-n", &self.namespace(), "--wait=false"]).await;
        self.eventually("another leads", async || self.leader().await.is_some_and(|leader| leader != first)).await;
        self.is_available(2).await;
    }

    /// Checks that the metrics are served over HTTPS as the manifests specify, only to clients whose token grants
    /// access, and that the reader role in the manifests grants it.
    pub async fn check_metrics(&self) {
        let (stranger, reader) = (self.token("stranger").await, self.token("reader").await);
        let role = format!("--clusterrole={}-metrics-reader", self.name);
        self.kubectl(&["create", "clusterrolebinding", "reader", &role, "--serviceaccount=default:reader"]).await;
        let services: Api<Service> = Api::namespaced(self.cluster.client(), &self.namespace());
        let service = services.get(&format!("{}-metrics-service", self.manager())).await.unwrap();
        let address = format!("{}:8443", service.spec.and_then(|spec| spec.cluster_ip).unwrap());
        // Any pod of the service may answer, and it may not listen yet.
        let answer = async |token: Option<&str>, wanted: Result<(), u16>| {
            let mut page = String::new();
            self.eventually(&format!("{address} answers {wanted:?}"), async || {
                let answer = metrics(&address, token).await;
                page = answer.as_ref().cloned().unwrap_or_default();
                answer.map(drop) == wanted
            })
            .await;
            page
        };
        answer(None, Err(401)).await;
        answer(Some("nobody's"), Err(401)).await;
        answer(Some(&stranger), Err(403)).await;
        let page = answer(Some(&reader), Ok(())).await;
        for family in ["controller_runtime_max_concurrent_reconciles", "workqueue_depth", "rest_client_requests_total"]
        {
            assert!(page.contains(family), "{family} in\n{page}");
        }
    }

    /// Creates a service account in the namespace `default`, and returns a token for it.
    pub async fn token(&self, account: &str) -> String {
        self.kubectl(&["create", "serviceaccount", account]).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.client(), "default");
        let (parameters, request) = (PostParams::default(), TokenRequest::default());
        let made = accounts.create_token_request(account, &parameters, &request).await.unwrap();
        made.status.unwrap().token.unwrap()
    }

    /// Checks that the operator was never denied a request, and has used all of its permissions except `spare` (`group
    /// resource verb`, with `-` for the core group), which are for situations that don't occur in the test.
    pub async fn check_rights(&self, spare: &[&str]) {
        let rights = async || self.cluster.rights_of(&self.namespace(), &self.manager()).await.unwrap();
        let unused = |rights: &RightsUsage| -> Vec<_> {
            rights.unused().filter(|right| !spare.contains(right)).map(str::to_owned).collect()
        };
        let uses_all = async {
            // Some are used a while after the operator is ready, such as that of renewing its lease.
            while !unused(&rights().await).is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let _elapsed = timeout(USE_TIMEOUT, uses_all).await;
        let rights = rights().await;
        assert!(rights.denied.is_empty(), "the operator was denied {:#?}", rights.denied);
        assert!(!rights.used.is_empty(), "the operator should use its own account");
        let unused = unused(&rights);
        assert!(unused.is_empty(), "the role grants unused permissions: {unused:#?}");
        let strangers: Vec<_> = spare.iter().filter(|right| !rights.granted.contains(**right)).collect();
        assert!(strangers.is_empty(), "no role grants these: {strangers:?}");
    }

    /// Stops the cluster, and the operator with it.
    pub async fn stop(self) {
        self.cluster.shutdown().await;
    }
}

/// Requests the metrics at an address without verifying its certificate. The error is the status code, or 0 if there
/// was no response.
pub async fn metrics(address: &str, token: Option<&str>) -> Result<String, u16> {
    let url: Uri = format!("https://{address}").parse().unwrap();
    let mut config = Config::new(url);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info = serde_json::from_value(serde_json::json!({ "token": token })).unwrap();
    let client = Client::try_from(config).unwrap();
    client.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.map_err(|error| match error {
        Error::Api(status) => status.code,
        _ => 0,
    })
}
