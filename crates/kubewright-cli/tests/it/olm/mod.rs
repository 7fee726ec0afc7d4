//! `kubewright bundle run`, `upgrade` and `cleanup`, on an embedded cluster with OLM's kinds and a stand-in for OLM.

mod stand_in;

use std::{collections::BTreeMap, fs, path::PathBuf, process::Output};

use kubewright_cluster::ImageTable;
use operator_deployed::Deployed;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::stand_in::{Fault, Olm, opm_image};
use crate::registry::{Registry, State};

const DEFINITIONS: &str = include_str!("definitions.yaml");
const OPM: &str = "quay.io/operator-framework/opm";
const CSV: &str = "manifests/cow.clusterserviceversion.yaml";

/// Returns the files of a bundle whose operator sleeps.
fn bundle(version: &str) -> BTreeMap<String, String> {
    let csv = format!(
        "\
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {{name: cow.v{version}, annotations: {{alm-examples: '[]'}}}}
spec:
  displayName: Cow
  version: {version}
  minKubeVersion: 1.29.0
  installModes:
  - {{type: OwnNamespace, supported: true}}
  - {{type: SingleNamespace, supported: true}}
  - {{type: MultiNamespace, supported: false}}
  - {{type: AllNamespaces, supported: false}}
  customresourcedefinitions: {{owned: [{{name: cows.barn.example.com, kind: Cow, version: v1}}]}}
  install:
    strategy: deployment
    spec:
      deployments:
      - name: cow
        spec:
          selector: {{matchLabels: {{app: cow}}}}
          template:
            metadata: {{labels: {{app: cow}}}}
            spec:
              securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}
              containers:
              - {{name: manager, image: 'busybox:{version}', command: [sleep, '1000'],
                  securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}}}
"
    );
    let definition = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cows.barn.example.com}
spec:
  group: barn.example.com
  names: {kind: Cow, listKind: CowList, plural: cows, singular: cow}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";
    let annotations = "\
annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
  operators.operatorframework.io.bundle.package.v1: cow
  operators.operatorframework.io.bundle.channels.v1: beta,stable
";
    [(CSV, csv.as_str()), ("manifests/cows.yaml", definition), ("metadata/annotations.yaml", annotations)]
        .map(|(path, text)| (path.to_owned(), text.to_owned()))
        .into()
}

/// A cluster with the namespace `operators`, and a registry with bundles.
struct Scene {
    folder: TempDir,
    deployed: Deployed,
    registry: Registry,
    images: BTreeMap<String, BTreeMap<String, String>>,
}

impl Scene {
    /// Starts a cluster without OLM.
    async fn bare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let table = ImageTable::default().with(OPM, opm_image(folder.path()));
        let deployed = Deployed::nothing("cow", table).await;
        deployed.kubectl(&["create", "namespace", "operators"]).await;
        let registry = Registry::start(State::default()).await;
        let mut scene = Self { folder, deployed, registry, images: BTreeMap::new() };
        for version in ["0.1.0", "0.2.0"] {
            scene.push(version, bundle(version));
        }
        scene
    }

    /// Starts a cluster with OLM.
    async fn new(fault: Fault) -> (Self, Olm) {
        let scene = Self::bare().await;
        scene.deployed.cluster().apply_yaml(DEFINITIONS).await.unwrap();
        let olm = Olm::start(scene.deployed.cluster().client(), scene.images.clone(), fault);
        (scene, olm)
    }

    fn image(&self, version: &str) -> String {
        format!("{}/me/cow:v{version}", self.registry.address)
    }

    fn push(&mut self, version: &str, files: BTreeMap<String, String>) {
        let labels = json!({"operators.operatorframework.io.bundle.package.v1": "cow"});
        let all: Vec<_> = files.clone().into_iter().collect();
        self.registry.state.lock().unwrap().add_image(&format!("v{version}"), &labels, &all);
        self.images.insert(self.image(version), files);
    }

    /// Writes the files of a bundle to a directory.
    fn directory(&self, files: &BTreeMap<String, String>) -> PathBuf {
        let root = self.folder.path().join("bundle");
        for (path, text) in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        root
    }

    async fn bundle(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.arg("bundle").args(arguments).args(["--namespace", "operators"]).current_dir(self.folder.path());
        command.env("KUBECONFIG", self.deployed.kubeconfig()).env("DOCKER_CONFIG", self.folder.path());
        command.kill_on_drop(true).output().await.unwrap()
    }

    /// Runs the command, which must succeed, and returns its error output.
    async fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.bundle(arguments).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !said.contains('\x1b'), "{said}");
        said
    }

    /// Runs the command, which must fail, and returns its error output.
    async fn fails(&self, arguments: &[&str]) -> String {
        let output = self.bundle(arguments).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the names of objects in the namespace.
    async fn names(&self, kinds: &str) -> Vec<String> {
        let found = self.deployed.kubectl(&["get", kinds, "--namespace", "operators", "-o", "name"]).await;
        found.lines().map(ToOwned::to_owned).collect()
    }

    async fn object(&self, name: &str) -> Value {
        let text = self.deployed.kubectl(&["get", name, "--namespace", "operators", "-o", "json"]).await;
        serde_json::from_str(&text).unwrap()
    }
}

const OLMS: &str = "catalogsources,clusterserviceversions,installplans,operatorgroups,subscriptions";

fn contains(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is not in\n{said}");
    }
}

#[tokio::test]
async fn an_operator_is_installed_upgraded_and_deleted() {
    let (scene, _olm) = Scene::new(Fault::None).await;
    let said = scene.succeeds(&["run", &scene.image("0.1.0"), "--pull-secret-name", "key"]).await;
    contains(
        &said,
        &[
            &format!("Pulling {}", scene.image("0.1.0")),
            "Installing cow.v0.1.0 into operators of context kubewright",
            "Serving the catalog by deployment catalog-cow-",
            "Applied 3 objects: 3 created",
            "Waiting for deployment catalog-cow-",
            "Approved installplan install-cow-v0-1-0: cow.v0.1.0",
            "Finished cow.v0.1.0 is installed in operators",
        ],
    );
    let subscription = scene.object("subscription/cow").await;
    assert_eq!(subscription["spec"]["channel"], "beta");
    let group = scene.object("operatorgroup/kubewright-operator-group").await;
    assert_eq!(group["spec"]["targetNamespaces"], json!(["operators"]));
    let source = scene.object("catalogsource/cow-catalog").await;
    let server = source["spec"]["address"].as_str().unwrap().split('.').next().unwrap().to_owned();
    for kind in ["configmap", "deployment", "service"] {
        let object = scene.object(&format!("{kind}/{server}")).await;
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], source["metadata"]["uid"], "{kind}");
    }
    contains(
        &scene.fails(&["run", &scene.image("0.2.0")]).await,
        &["subscription cow in operators is to package cow already", "use kubewright bundle upgrade"],
    );
    contains(
        &scene.fails(&["upgrade", &scene.image("0.1.0")]).await,
        &["cow.v0.1.0 is already installed in operators"],
    );

    // From a directory, and into a channel that the Subscription doesn't have yet.
    let mut files = scene.images[&scene.image("0.2.0")].clone();
    let annotations = files.get_mut("metadata/annotations.yaml").unwrap();
    *annotations = annotations.replace("beta,stable", "stable");
    let directory = scene.directory(&files).display().to_string();
    let said = scene.succeeds(&["upgrade", &scene.image("0.2.0"), "--directory", &directory]).await;
    contains(
        &said,
        &[
            "Upgrading cow.v0.1.0 to cow.v0.2.0",
            "Approved installplan install-cow-v0-2-0",
            "Deleted deployment.apps/catalog-cow-",
        ],
    );
    assert!(!said.contains("Pulling"), "{said}");
    assert_eq!(scene.object("subscription/cow").await["spec"]["channel"], "stable");
    assert_eq!(scene.object("catalogsource/cow-catalog").await["spec"]["secrets"], json!(["key"]), "it remains");
    assert_eq!(scene.names("clusterserviceversions").await, ["clusterserviceversion.operators.coreos.com/cow.v0.2.0"]);
    let servers = scene.names("configmaps,deployments,services").await;
    let servers: Vec<_> = servers.iter().filter(|name| name.contains("/catalog-cow-")).collect();
    assert!(servers.len() == 3 && servers.iter().all(|name| !name.ends_with(&server)), "{servers:?}");

    let cow = json!({"apiVersion": "barn.example.com/v1", "kind": "Cow", "metadata": {"name": "a", "namespace": "operators"}});
    scene.deployed.cluster().apply_yaml(&cow.to_string()).await.unwrap();
    let said = scene.succeeds(&["cleanup", "cow"]).await;
    let deleted: Vec<_> = said.lines().filter_map(|line| line.trim().strip_prefix("Deleted ")).collect();
    let kinds: Vec<_> = deleted.iter().map(|name| name.split('/').next().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "subscription.operators.coreos.com",
            "customresourcedefinition.apiextensions.k8s.io",
            "clusterserviceversion.operators.coreos.com",
            "catalogsource.operators.coreos.com",
            "deployment.apps",
            "service",
            "configmap",
            "operatorgroup.operators.coreos.com",
        ]
    );
    assert_eq!(scene.names("clusterserviceversions,catalogsources,operatorgroups,subscriptions").await, [""; 0]);
    let crds = scene.deployed.kubectl(&["get", "crd", "-o", "name"]).await;
    assert!(!crds.contains("cows.barn"), "{crds}");
    scene
        .deployed
        .eventually("the operator is collected", async || {
            scene.names(&format!("{OLMS},deployments,pods")).await.is_empty()
        })
        .await;
    contains(
        &scene.fails(&["cleanup", "cow"]).await,
        &["package cow is not installed in operators of context kubewright", "choose the namespace with --namespace"],
    );
    contains(
        &scene.fails(&["upgrade", &scene.image("0.2.0")]).await,
        &["package cow is not installed", "use kubewright bundle run"],
    );
    scene.deployed.stop().await;
}

#[tokio::test]
async fn kinds_and_groups_that_others_need_stay() {
    let (scene, _olm) = Scene::new(Fault::None).await;
    let group = |name: &str, targets: &str| {
        format!(
            "apiVersion: operators.coreos.com/v1\nkind: OperatorGroup\nmetadata: {{name: {name}, namespace: operators}}\nspec: {{targetNamespaces: [{targets}]}}\n"
        )
    };
    let cluster = scene.deployed.cluster();
    cluster.apply_yaml(&group("all", "")).await.unwrap();
    contains(
        &scene.fails(&["run", &scene.image("0.1.0")]).await,
        &[
            "operatorgroup all in operators requires the install mode AllNamespaces",
            "cow.v0.1.0 supports OwnNamespace, SingleNamespace only",
        ],
    );
    cluster.apply_yaml(&group("other", "operators")).await.unwrap();
    contains(
        &scene.fails(&["run", &scene.image("0.1.0")]).await,
        &["several operatorgroups", "delete all but one of all, other"],
    );
    scene.deployed.kubectl(&["delete", "operatorgroup", "all", "--namespace", "operators"]).await;
    contains(
        &scene.fails(&["run", &scene.image("0.1.0"), "--install-mode", "SingleNamespace=barn"]).await,
        &["operatorgroup other in operators targets operators, not SingleNamespace=barn"],
    );
    assert_eq!(scene.names("catalogsources,subscriptions,deployments").await, [""; 0], "nothing was created");
    scene.deployed.kubectl(&["label", "namespace", "operators", "pod-security.kubernetes.io/enforce=restricted"]).await;
    scene.succeeds(&["run", &scene.image("0.1.0")]).await;
    let source = scene.object("catalogsource/cow-catalog").await;
    assert_eq!(source["spec"]["grpcPodConfig"]["securityContextConfig"], "restricted");

    contains(
        &scene.fails(&["cleanup", "cow", "--delete-all", "--delete-crds=false"]).await,
        &["--delete-all contradicts"],
    );
    let said = scene.succeeds(&["cleanup", "cow", "--delete-crds=false"]).await;
    assert!(!said.contains("customresourcedefinition"), "{said}");
    let crds = scene.deployed.kubectl(&["get", "crd", "-o", "name"]).await;
    assert!(crds.contains("cows.barn"), "{crds}");
    assert_eq!(scene.names("operatorgroups").await, ["operatorgroup.operators.coreos.com/other"]);

    // The same operator in another namespace needs the kind.
    scene.succeeds(&["run", &scene.image("0.1.0"), "--install-mode", "OwnNamespace"]).await;
    scene.deployed.kubectl(&["create", "namespace", "barn"]).await;
    let csv =
        bundle("0.1.0")[CSV].replace("metadata: {name: cow.v0.1.0,", "metadata: {name: cow.v0.1.0, namespace: barn,");
    cluster.apply_yaml(&csv).await.unwrap();
    // The Subscription could also be to a catalog with other packages.
    let source = ["--type=merge", "--patch", "{\"spec\": {\"source\": \"all\", \"sourceNamespace\": \"olm\"}}"];
    let patch = ["patch", "subscription", "cow", "--namespace", "operators"];
    scene.deployed.kubectl(&[&patch[..], &source].concat()).await;
    let said = scene.succeeds(&["cleanup", "cow"]).await;
    contains(&said, &["Keeping catalogsource all in olm, which is not only for cow"]);
    contains(&said, &["customresourcedefinition cows.barn.example.com stays: cow.v0.1.0 in barn owns it, too"]);
    scene.deployed.stop().await;
}

#[tokio::test]
async fn what_olm_reports_is_printed() {
    for (fault, timeout, says) in [
        (
            Fault::Resolution,
            "4s",
            &[
                "subscription cow in operators has no installplan for cow.v0.1.0 after 4s: ResolutionFailed: as the test wants",
            ][..],
        ),
        (Fault::Unpack, "1m", &["subscription cow in operators failed: BundleUnpackFailed: as the test wants"]),
        (
            Fault::Plan,
            "1m",
            &[
                "clusterserviceversion cow.v0.1.0 in operators failed: installplan install-cow-v0-1-0 failed: no permission",
            ],
        ),
        (
            Fault::Requirements,
            "1m",
            &[
                "clusterserviceversion cow.v0.1.0 in operators failed: Test: waiting for cow",
                "\n  serviceaccount cow is NotPresent: it is missing",
            ],
        ),
    ] {
        let (scene, _olm) = Scene::new(fault).await;
        let said = scene.fails(&["run", &scene.image("0.1.0"), "--timeout", timeout]).await;
        contains(&said, says);
        contains(&said, &["\n  the created objects stay: run kubewright bundle cleanup cow before you try again"]);
        scene.succeeds(&["cleanup", "cow"]).await;
        scene.deployed.eventually("nothing is left", async || scene.names(OLMS).await.is_empty()).await;
        scene.deployed.stop().await;
    }
}

#[tokio::test]
async fn pods_that_do_not_start_are_described() {
    let (mut scene, olm) = Scene::new(Fault::None).await;
    let said = scene.fails(&["run", &scene.image("0.1.0"), "--index-image", "example.com/none:v1"]).await;
    contains(
        &said,
        &["deployment catalog-cow-", "is not ready: ", "example.com/none:v1", "run kubewright bundle cleanup"],
    );
    assert_eq!(scene.names(OLMS).await, [""; 0]);

    drop(olm);
    let mut files = bundle("0.3.0");
    let csv = files.get_mut(CSV).unwrap();
    *csv = csv.replace("busybox:0.3.0", "example.com/missing:v1");
    scene.push("0.3.0", files);
    let _olm = Olm::start(scene.deployed.cluster().client(), scene.images.clone(), Fault::None);
    let said = scene.fails(&["run", &scene.image("0.3.0"), "--timeout", "10s"]).await;
    contains(
        &said,
        &[
            "clusterserviceversion cow.v0.3.0 in operators has not succeeded after 10s",
            "\n  deployment cow: 0 of 1 replicas are available",
            "example.com/missing:v1",
        ],
    );
    scene.succeeds(&["cleanup", "cow"]).await;
    assert_eq!(
        scene.names("configmaps").await.iter().filter(|name| name.contains("catalog-")).count(),
        0,
        "both are deleted"
    );
    scene.deployed.stop().await;
}

#[tokio::test]
async fn nothing_is_changed_without_olm_or_a_valid_bundle() {
    let mut scene = Scene::bare().await;
    for arguments in [&["run", &scene.image("0.1.0")][..], &["cleanup", "cow"]] {
        contains(
            &scene.fails(arguments).await,
            &[
                "the Operator Lifecycle Manager is not installed in context kubewright",
                "it has no catalogsources.operators.coreos.com",
                "install it first",
            ],
        );
    }
    scene.deployed.cluster().apply_yaml(DEFINITIONS).await.unwrap();
    let mut files = bundle("0.4.0");
    let csv = files.get_mut(CSV).unwrap();
    *csv = csv.replace("strategy: deployment", "strategy: other");
    scene.push("0.4.0", files);
    contains(
        &scene.fails(&["run", &scene.image("0.4.0")]).await,
        &[
            "is not valid; nothing was changed",
            "cow.clusterserviceversion.yaml: spec.install.strategy: must be deployment",
        ],
    );
    scene.push("0.5.0", BTreeMap::from([("manager".to_owned(), String::new())]));
    contains(
        &scene.fails(&["run", &scene.image("0.5.0")]).await,
        &["is not the image of a bundle", "build it with bundle.Dockerfile"],
    );
    contains(
        &scene.fails(&["run", &scene.image("0.6.0")]).await,
        &["pull the bundle", "has no image me/cow:v0.6.0", "--directory"],
    );
    assert_eq!(scene.bundle(&["run", "a", "--install-mode", "None"]).await.status.code(), Some(2));
    assert_eq!(scene.names(&format!("{OLMS},deployments")).await, [""; 0]);
    scene.deployed.stop().await;
}
