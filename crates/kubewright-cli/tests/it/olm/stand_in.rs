//! A stand-in for the two operators of OLM, and one for the program `opm` in the pod of a catalog. They do what
//! `kubewright bundle` relies on, and no more: there are no dependencies, permissions or webhooks.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    net::{IpAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use kubewright_cluster::Program;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpStream, task::JoinHandle, time::sleep};

/// The variable with the address at which `opm` listens.
const ADDRESS: &str = "OPM_ADDRESS";
const VERSION: &str = "operators.coreos.com/v1alpha1";

/// Returns the image of `opm`: a script that checks its arguments, and runs the test below.
pub(super) fn opm_image(folder: &Path) -> Program {
    let program = env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = 'serve /configs --port=50051' ] || exit 2\nexec {} --ignored --exact olm::stand_in::opm --nocapture\n",
        program.display()
    );
    fs::write(folder.join("opm"), script).unwrap();
    fs::set_permissions(folder.join("opm"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    Program::host_tools().env("PATH", path).env(ADDRESS, "$(POD_IP):50051")
}

/// The program of catalog pods: it serves the catalogs in `/configs`. It isn't a test, but a function by which the test
/// program can run as the image.
#[test]
#[ignore = "not a test: the program of catalog pods"]
fn opm() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let configs = Path::new(&env::var("KUBEWRIGHT_ROOT").unwrap()).join("configs");
    let mut catalog = String::new();
    for folder in fs::read_dir(configs).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            catalog += &fs::read_to_string(file.unwrap().path()).unwrap();
        }
    }
    assert_eq!(catalog.matches("\"schema\":\"olm.package\"").count(), 1, "a package is there once: {catalog}");
    let listener = TcpListener::bind(address).unwrap();
    for connection in listener.incoming() {
        // The readiness probe only connects.
        let _ = connection.unwrap().write_all(catalog.as_bytes());
    }
}

/// What OLM can't do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    /// It can do everything.
    #[default]
    None,
    /// It finds no solution for Subscriptions.
    Resolution,
    /// It can't unpack bundles.
    Unpack,
    /// It lacks permissions for the steps of InstallPlans.
    Plan,
    /// It finds that a requirement of ClusterServiceVersions is not met, and gives up.
    Requirements,
}

/// The stand-in for OLM's operators.
pub(super) struct Olm {
    task: JoinHandle<()>,
}

impl Drop for Olm {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Olm {
    /// Starts it. The cluster can pull the images of bundles, with their files.
    pub(super) fn start(client: Client, images: BTreeMap<String, BTreeMap<String, String>>, fault: Fault) -> Self {
        let state = State { client, images, fault };
        let task = tokio::spawn(async move {
            loop {
                // Objects may be deleted meanwhile. The next round tries again.
                let _ = state.run().await;
                sleep(Duration::from_millis(50)).await;
            }
        });
        Self { task }
    }
}

struct State {
    client: Client,
    images: BTreeMap<String, BTreeMap<String, String>>,
    fault: Fault,
}

fn resource(version: &str, kind: &str) -> ApiResource {
    let (group, version) = version.split_once('/').unwrap();
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl State {
    fn api(&self, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = resource(version, kind);
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    async fn list(&self, version: &str, kind: &str, namespace: &str) -> Result<Vec<Value>> {
        let found = self.api(version, kind, namespace).list(&ListParams::default()).await.context(kind.to_owned())?;
        Ok(found.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect())
    }

    async fn set_status(&self, kind: &str, object: &Value, status: Value) -> Result<()> {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let patch = Patch::Merge(json!({"status": status}));
        self.api(VERSION, kind, namespace).patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn run(&self) -> Result<()> {
        let mut catalogs = BTreeMap::new();
        for source in self.list(VERSION, "CatalogSource", "").await? {
            let catalog = self.read(&source).await;
            let state = if catalog.is_ok() { "READY" } else { "CONNECTING" };
            self.set_status("CatalogSource", &source, json!({"connectionState": {"lastObservedState": state}})).await?;
            if let Ok(catalog) = catalog {
                catalogs.insert(text(&source, "/metadata/name").to_owned(), catalog);
            }
        }
        for subscription in self.list(VERSION, "Subscription", "").await? {
            if let Some(catalog) = catalogs.get(text(&subscription, "/spec/source")) {
                self.resolve(&subscription, catalog).await?;
            }
        }
        for plan in self.list(VERSION, "InstallPlan", "").await? {
            if plan["spec"]["approved"] == true && text(&plan, "/status/phase") == "RequiresApproval" {
                self.execute(&plan).await?;
            }
        }
        for csv in self.list(VERSION, "ClusterServiceVersion", "").await? {
            self.observe(&csv).await?;
        }
        Ok(())
    }

    /// Reads the catalog at the address of a CatalogSource. There is no DNS.
    async fn read(&self, source: &Value) -> Result<Vec<Value>> {
        let (host, port) = text(source, "/spec/address").split_once(':').context("no address")?;
        let [name, namespace, "svc"] = host.split('.').collect::<Vec<_>>()[..] else { bail!("{host}") };
        let service = Api::<Service>::namespaced(self.client.clone(), namespace).get(name).await?;
        let address: IpAddr = service.spec.and_then(|spec| spec.cluster_ip).context("no cluster IP")?.parse()?;
        let mut text = String::new();
        TcpStream::connect((address, port.parse()?)).await?.read_to_string(&mut text).await?;
        if text.is_empty() {
            bail!("no catalog");
        }
        text.lines().map(|line| serde_json::from_str(line).context("not JSON")).collect()
    }

    /// Creates an InstallPlan for the next version in the channel of a Subscription.
    async fn resolve(&self, subscription: &Value, catalog: &[Value]) -> Result<()> {
        let spec = &subscription["spec"];
        let failed =
            |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "message": "as the test wants"}]});
        match self.fault {
            Fault::Resolution => {
                return self.set_status("Subscription", subscription, failed("ResolutionFailed")).await;
            }
            Fault::Unpack => return self.set_status("Subscription", subscription, failed("BundleUnpackFailed")).await,
            _ => {}
        }
        let namespace = text(subscription, "/metadata/namespace");
        if self.list("operators.coreos.com/v1", "OperatorGroup", namespace).await?.len() != 1 {
            bail!("{namespace} needs one OperatorGroup");
        }
        let find = |schema: &str, name: &Value| {
            catalog.iter().find(|document| document["schema"] == schema && document["name"] == *name).cloned()
        };
        let channel = find("olm.channel", &spec["channel"]).context("no channel")?;
        assert_eq!((&channel["package"], &spec["installPlanApproval"]), (&spec["name"], &json!("Manual")));
        let (before, entries) = (text(subscription, "/status/installedCSV"), channel["entries"].as_array().unwrap());
        let next = match before {
            "" => entries.iter().find(|entry| entry["name"] == spec["startingCSV"]),
            before => entries.iter().find(|entry| entry["replaces"] == before),
        };
        let Some(next) = next else { return Ok(()) };
        let bundle = find("olm.bundle", &next["name"]).context("no bundle")?;
        let name = format!("install-{}", text(next, "/name").replace('.', "-"));
        let plan = json!({
            "apiVersion": VERSION, "kind": "InstallPlan",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner(subscription, "Subscription")]},
            "spec": {"approval": "Manual", "approved": false, "clusterServiceVersionNames": [next["name"]]},
            "image": bundle["image"], "subscription": subscription["metadata"]["name"],
        });
        let plan: DynamicObject = serde_json::from_value(plan)?;
        let created = self.api(VERSION, "InstallPlan", namespace).create(&PostParams::default(), &plan).await;
        if created.is_ok() {
            let plan = serde_json::to_value(plan)?;
            self.set_status("InstallPlan", &plan, json!({"phase": "RequiresApproval"})).await?;
            let reference = json!({"installPlanRef": {"name": name}, "currentCSV": next["name"]});
            self.set_status("Subscription", subscription, reference).await?;
        }
        Ok(())
    }

    /// Creates the objects of a bundle.
    async fn execute(&self, plan: &Value) -> Result<()> {
        if self.fault == Fault::Plan {
            let condition =
                json!({"type": "Installed", "status": "False", "message": "no permission, as the test wants"});
            return self.set_status("InstallPlan", plan, json!({"phase": "Failed", "conditions": [condition]})).await;
        }
        let namespace = text(plan, "/metadata/namespace");
        let image = text(plan, "/image");
        let files = self.images.get(image).with_context(|| format!("no image {image}"))?;
        for text in files.iter().filter(|(path, _)| path.starts_with("manifests/")).map(|(_, text)| text) {
            let object = kubewright_manifests::yaml::read(text)?.remove(0);
            let parameters = PatchParams::apply("olm");
            if object["kind"] == "CustomResourceDefinition" {
                let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
                let name = object["metadata"]["name"].as_str().unwrap();
                definitions.patch(name, &parameters, &Patch::Apply(&object)).await?;
            } else {
                self.install(&object, namespace).await?;
            }
        }
        let subscription = json!({"metadata": {"name": plan["subscription"], "namespace": namespace}});
        let installed = json!({"installedCSV": plan["spec"]["clusterServiceVersionNames"][0]});
        self.set_status("Subscription", &subscription, installed).await?;
        self.set_status("InstallPlan", plan, json!({"phase": "Complete"})).await
    }

    /// Creates a ClusterServiceVersion with its Deployments, and deletes the others, which it replaces.
    async fn install(&self, csv: &Value, namespace: &str) -> Result<()> {
        let versions = self.api(VERSION, "ClusterServiceVersion", namespace);
        let name = text(csv, "/metadata/name");
        let created = versions.patch(name, &PatchParams::apply("olm"), &Patch::Apply(csv)).await?;
        let owner = owner(&serde_json::to_value(created)?, "ClusterServiceVersion");
        for deployment in csv["spec"]["install"]["spec"]["deployments"].as_array().unwrap() {
            let object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": deployment["name"], "ownerReferences": [owner]}, "spec": deployment["spec"],
            });
            let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
            let parameters = PatchParams::apply("olm").force();
            deployments.patch(text(deployment, "/name"), &parameters, &Patch::Apply(&object)).await?;
        }
        for other in self.list(VERSION, "ClusterServiceVersion", namespace).await? {
            if text(&other, "/metadata/name") != name {
                versions.delete(text(&other, "/metadata/name"), &kube::api::DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Sets the phase of a ClusterServiceVersion.
    async fn observe(&self, csv: &Value) -> Result<()> {
        let name = text(csv, "/spec/install/spec/deployments/0/name");
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), text(csv, "/metadata/namespace"));
        let status = deployments.get_opt(name).await?.and_then(|deployment| deployment.status);
        let phase = match status.and_then(|status| status.available_replicas) {
            _ if self.fault == Fault::Requirements => "Failed",
            Some(1) => "Succeeded",
            _ => "Installing",
        };
        let requirement =
            json!({"kind": "ServiceAccount", "name": "cow", "status": "NotPresent", "message": "it is missing"});
        let status = json!({
            "phase": phase, "reason": "Test", "message": format!("waiting for {name}"), "requirementStatus": [requirement],
        });
        if text(csv, "/status/phase") != phase {
            self.set_status("ClusterServiceVersion", csv, status).await?;
        }
        Ok(())
    }
}

fn owner(object: &Value, kind: &str) -> Value {
    let metadata = &object["metadata"];
    json!({"apiVersion": VERSION, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]})
}
