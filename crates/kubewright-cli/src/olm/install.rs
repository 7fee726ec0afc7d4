//! Installing an operator by its bundle, and replacing it by the next version.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use kubewright_manifests::olm::catalog::{
    CATALOG_LABEL, CatalogBundle, CatalogOptions, CatalogServer, InstallMode, operator_group, subscription, targets_of,
    unsupported,
};
use serde_json::{Value, json};

use super::{
    GROUP, Olm, list,
    progress::{Progress, contents, installed, plan_name, planned, unmet},
    resource,
};
use crate::{
    remote::{self, ApplyOptions, Plan, Wait, explain, is_transient, text},
    shell::Shell,
};

/// Installs the operator of a bundle, and waits until OLM reports success.
pub(crate) async fn install(
    olm: &Olm<'_>,
    bundle: &CatalogBundle,
    mode: Option<&InstallMode>,
    options: CatalogOptions,
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<()> {
    let (package, namespace) = (bundle.package(), olm.namespace());
    if let Some(existing) = olm.subscription(package).await? {
        bail!(
            "subscription {} in {namespace} is to package {package} already: use kubewright bundle upgrade for another version, or kubewright bundle \
             cleanup {package} first",
            text(&existing, "/metadata/name")
        );
    }
    let group = group(olm, bundle, mode).await?;
    let channel = &bundle.channels()[0];
    let server = CatalogServer::new(package, &bundle.catalog(channel, None)?, options);
    let subscribed = group.into_iter().chain([subscription(bundle, channel, namespace)]).collect();
    serve(olm, &server, subscribed, wait, shell).await?;
    complete(olm, bundle, package, "", wait, shell).await?;
    shell.status("Finished", format!("{} is installed in {namespace}", bundle.name()));
    Ok(())
}

/// Replaces an installed operator by that of a bundle.
pub(crate) async fn upgrade(
    olm: &Olm<'_>,
    bundle: &CatalogBundle,
    installed: &Value,
    options: CatalogOptions,
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<()> {
    let (name, current) = (text(installed, "/metadata/name"), current(olm, installed).await?);
    match current.as_str() {
        "" => bail!(
            "subscription {name} has not installed a version yet, which could be replaced: run kubewright bundle cleanup {0} and kubewright \
             bundle run",
            bundle.package()
        ),
        same if same == bundle.name() => bail!("{same} is already installed in {}", olm.namespace()),
        _ => {}
    }
    let subscribed = text(installed, "/spec/channel");
    let channel = bundle.channels().iter().find(|channel| *channel == subscribed).unwrap_or(&bundle.channels()[0]);
    let server = CatalogServer::new(bundle.package(), &bundle.catalog(channel, Some(&current))?, options);
    shell.status("Upgrading", format!("{current} to {}", bundle.name()));
    serve(olm, &server, Vec::new(), wait, shell).await?;
    let source = json!({"channel": channel, "source": server.source_name(), "sourceNamespace": olm.namespace()});
    patch(&olm.api("Subscription"), name, &json!({"spec": source}))
        .await
        .with_context(|| format!("subscription {name}"))?;
    complete(olm, bundle, name, plan_name(installed), wait, shell).await?;
    let others = servers(olm, server.source_name()).await?;
    let others: Vec<_> = others.into_iter().filter(|object| text(object, "/metadata/name") != server.name()).collect();
    remote::delete_in_order(olm.remote, &others, wait, shell).await?;
    shell.status("Finished", format!("{} is installed in {}", bundle.name(), olm.namespace()));
    Ok(())
}

/// Returns the name of the ClusterServiceVersion that a Subscription has installed, or an empty one. OLM records it
/// some time after its success.
async fn current(olm: &Olm<'_>, subscription: &Value) -> Result<String> {
    let (installed, current) = (text(subscription, "/status/installedCSV"), text(subscription, "/status/currentCSV"));
    if !installed.is_empty() || current.is_empty() {
        return Ok(installed.to_owned());
    }
    let found = olm.get("ClusterServiceVersion", current).await;
    let found = found.map_err(|error| anyhow::anyhow!("clusterserviceversion {current}: {}", explain(&error)))?;
    let has_succeeded = found.is_some_and(|csv| text(&csv, "/status/phase") == "Succeeded");
    Ok(if has_succeeded { current.to_owned() } else { String::new() })
}

/// Checks the OperatorGroup of the namespace, or returns a new one.
async fn group(olm: &Olm<'_>, bundle: &CatalogBundle, mode: Option<&InstallMode>) -> Result<Option<Value>> {
    let (groups, namespace) = (olm.list("OperatorGroup").await?, olm.namespace());
    let names = groups.iter().map(|group| text(group, "/metadata/name")).collect::<Vec<_>>().join(", ");
    let targets = match groups.as_slice() {
        [] => {
            let chosen = InstallMode::choose(mode, bundle, namespace)?;
            return Ok(Some(operator_group(namespace, &chosen.targets(namespace))));
        }
        [group] => targets_of(group),
        _ => bail!(
            "{namespace} has several operatorgroups, so OLM installs nothing there: delete all but one of {names}"
        ),
    };
    if let Some(mode) = mode
        && InstallMode::choose(Some(mode), bundle, namespace)?.targets(namespace) != targets
    {
        let targets = if targets.is_empty() { "all namespaces".into() } else { Vec::from_iter(targets).join(", ") };
        bail!(
            "operatorgroup {names} in {namespace} targets {targets}, not {mode}: leave --install-mode out, or use another namespace"
        );
    }
    if let Some(required) = unsupported(&targets, namespace, &bundle.install_modes()) {
        bail!(
            "operatorgroup {names} in {namespace} requires the install mode {required}, but {} supports {} only: use another namespace",
            bundle.name(),
            bundle.install_modes().join(", ")
        );
    }
    Ok(None)
}

/// Serves a catalog, and then creates its CatalogSource and further objects. OLM tries a source that does not answer
/// yet ever more rarely.
async fn serve(
    olm: &Olm<'_>,
    server: &CatalogServer,
    further: Vec<Value>,
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<()> {
    let objects: Vec<_> = server.objects().into_iter().chain([server.source()]).chain(further).collect();
    let options = ApplyOptions::forced();
    let is_olms = |object: &Value| text(object, "/apiVersion").starts_with(GROUP);
    let mut plan = Plan::new(olm.remote, &objects, &options).await?;
    shell.status("Serving", format!("the catalog by deployment {} in {}", server.name(), olm.namespace()));
    plan.write(|object| !is_olms(object), wait, shell).await?;
    let advice =
        "the applied objects stay: fix the problem and run the command again, or run kubewright bundle cleanup";
    remote::ready(olm.remote, olm.namespace(), server.name(), advice, wait).await?;
    plan.write(is_olms, wait, shell).await?;
    adopt(olm, server).await
}

/// Makes the CatalogSource the owner of the objects that serve it, so that they are deleted with it.
async fn adopt(olm: &Olm<'_>, server: &CatalogServer) -> Result<()> {
    let failed = |error: &kube::Error| anyhow::anyhow!("catalogsource {}: {}", server.source_name(), explain(error));
    let source = olm.api("CatalogSource").get(server.source_name()).await.map_err(|error| failed(&error))?;
    let resource = resource("CatalogSource");
    let owner = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "name": server.source_name(), "uid": source.metadata.uid,
    });
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    for api in server_apis(olm) {
        patch(&api, server.name(), &owned)
            .await
            .with_context(|| format!("the objects of catalog {}", server.name()))?;
    }
    Ok(())
}

/// Returns access to the kinds of objects that serve a catalog. Pods are deleted with their Deployment.
fn server_apis(olm: &Olm<'_>) -> [Api<DynamicObject>; 3] {
    server_kinds().map(|kind| Api::namespaced_with(olm.remote.client.clone(), olm.namespace(), &kind))
}

fn server_kinds() -> [ApiResource; 3] {
    [ApiResource::erase::<Deployment>(&()), ApiResource::erase::<Service>(&()), ApiResource::erase::<ConfigMap>(&())]
}

/// Returns what identifies the objects that serve a CatalogSource.
pub(super) async fn servers(olm: &Olm<'_>, source: &str) -> Result<Vec<Value>> {
    let labelled = ListParams::default().labels(&format!("{CATALOG_LABEL}={source}"));
    let mut all = Vec::new();
    for (api, kind) in server_apis(olm).into_iter().zip(server_kinds()) {
        let found = list(&api, &labelled).await;
        let found = found
            .map_err(|error| anyhow::anyhow!("list {} in {}: {}", kind.plural, olm.namespace(), explain(&error)))?;
        all.extend(found.iter().map(|object| {
            let metadata = json!({"name": object["metadata"]["name"], "namespace": olm.namespace()});
            json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})
        }));
    }
    Ok(all)
}

async fn patch(api: &Api<DynamicObject>, name: &str, change: &Value) -> Result<()> {
    let parameters = PatchParams { field_manager: Some("kubewright".into()), ..PatchParams::default() };
    match api.patch(name, &parameters, &Patch::Merge(change)).await {
        Ok(_) => Ok(()),
        Err(error) => bail!("{}", explain(&error)),
    }
}

/// Reads an object that is waited for. A transient failure is a reason to wait.
async fn poll(olm: &Olm<'_>, kind: &str, name: &str) -> Result<Result<Option<Value>, String>> {
    match olm.get(kind, name).await {
        Ok(found) => Ok(Ok(found)),
        Err(error) if is_transient(&error) => Ok(Err(explain(&error))),
        Err(error) => bail!("{} {name} in {}: {}", kind.to_lowercase(), olm.namespace(), explain(&error)),
    }
}

/// Approves the InstallPlan of a Subscription, and waits until the ClusterServiceVersion is installed.
async fn complete(
    olm: &Olm<'_>,
    bundle: &CatalogBundle,
    subscription: &str,
    before: &str,
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<()> {
    let (plan, names) = plan(olm, bundle, subscription, before, wait).await?;
    let name = bundle.name();
    let approved = patch(&olm.api("InstallPlan"), &plan, &json!({"spec": {"approved": true}})).await;
    approved.with_context(|| format!("approve installplan {plan} in {}", olm.namespace()))?;
    shell.status("Approved", format!("installplan {plan}: {}", names.join(", ")));
    loop {
        let (plan, csv) = (poll(olm, "InstallPlan", &plan).await?, poll(olm, "ClusterServiceVersion", name).await?);
        let progress = match (&plan, &csv) {
            (Ok(plan), Ok(csv)) => installed(plan.as_ref(), csv.as_ref()),
            (Err(why), _) | (_, Err(why)) => Progress::Pending(why.clone()),
        };
        let (why, has_failed) = match progress {
            Progress::Done(()) => return Ok(()),
            Progress::Failed(why) => (why, true),
            Progress::Pending(why) => (why, false),
        };
        if has_failed || !wait.poll_again(&format!("for clusterserviceversion {name}: {why}")).await {
            let late = if has_failed { "failed".into() } else { format!("has not succeeded after {}", wait.timeout()) };
            let report = report(olm, csv.ok().flatten().as_ref()).await;
            bail!("clusterserviceversion {name} in {} {late}: {why}{report}\n  {}", olm.namespace(), advice(bundle));
        }
    }
}

/// Waits for the InstallPlan of a Subscription with a ClusterServiceVersion. Returns its name, and the names in it.
async fn plan(
    olm: &Olm<'_>,
    bundle: &CatalogBundle,
    subscription: &str,
    before: &str,
    wait: &Wait<'_>,
) -> Result<(String, Vec<String>)> {
    let name = bundle.name();
    let place = format!("subscription {subscription} in {}", olm.namespace());
    loop {
        let why = match poll(olm, "Subscription", subscription).await? {
            Ok(None) => bail!("{place} was deleted"),
            Ok(Some(found)) => {
                let source = poll(olm, "CatalogSource", text(&found, "/spec/source")).await?.unwrap_or_default();
                match planned(&found, source.as_ref(), before) {
                    Progress::Failed(why) => bail!("{place} failed: {why}\n  {}", advice(bundle)),
                    Progress::Pending(why) => why,
                    Progress::Done(plan) => match poll(olm, "InstallPlan", &plan).await? {
                        Ok(Some(found)) => match contents(&found, name) {
                            Some(names) => return Ok((plan, names)),
                            None => format!("installplan {plan} does not contain {name}"),
                        },
                        Ok(None) => format!("installplan {plan} does not exist"),
                        Err(why) => why,
                    },
                }
            }
            Err(why) => why,
        };
        if !wait.poll_again(&format!("for the installplan of subscription {subscription}: {why}")).await {
            bail!("{place} has no installplan for {name} after {}: {why}\n  {}", wait.timeout(), advice(bundle));
        }
    }
}

/// Describes what a ClusterServiceVersion lacks, and its Deployments that are not ready, each line after a line break.
async fn report(olm: &Olm<'_>, csv: Option<&Value>) -> String {
    let Some(csv) = csv else { return String::new() };
    let mut report = unmet(csv);
    let deployments = csv.pointer("/spec/install/spec/deployments").and_then(Value::as_array);
    for deployment in deployments.into_iter().flatten() {
        report += &remote::state_of(olm.remote, olm.namespace(), text(deployment, "/name")).await;
    }
    report
}

fn advice(bundle: &CatalogBundle) -> String {
    format!("the created objects stay: run kubewright bundle cleanup {} before you try again", bundle.package())
}
