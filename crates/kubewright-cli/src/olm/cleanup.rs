//! Deleting an operator that was installed by a bundle.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use kube::{Api, api::ListParams};
use kubewright_manifests::olm::catalog::{MANAGED_BY, catalog_name};
use serde_json::{Value, json};

use super::{Olm, install::servers, list, resource};
use crate::{
    remote::{self, Wait, explain, status, text},
    shell::Shell,
};

/// The label of ClusterServiceVersions that OLM copies into the namespaces that an operator works in.
const COPIED: &str = "olm.copiedFrom";
/// The OperatorGroup that operator-sdk creates.
const SDK_GROUP: &str = "operator-sdk-og";

/// What to delete besides the operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleanupOptions {
    /// Its definitions, and all objects of its kinds.
    pub(crate) definitions: bool,
    /// OperatorGroups that are not needed any more.
    pub(crate) groups: bool,
}

/// Deletes all that belongs to a package, and waits until it is gone.
pub(crate) async fn cleanup(
    olm: &Olm<'_>,
    package: &str,
    options: CleanupOptions,
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<()> {
    let source = catalog_name(package);
    let mut objects = Vec::new();
    if let Some(subscription) = olm.subscription(package).await? {
        // Without it, nothing is installed again.
        objects.push(olm.reference("Subscription", text(&subscription, "/metadata/name")));
        let versions = versions(olm, &subscription).await?;
        if options.definitions {
            // The operator still runs, and can remove its finalizers.
            objects.extend(definitions(olm, &versions, shell).await?);
        }
        let names = versions.iter().map(|csv| text(csv, "/metadata/name"));
        objects.extend(names.map(|name| olm.reference("ClusterServiceVersion", name)));
        let (name, namespace) = (text(&subscription, "/spec/source"), text(&subscription, "/spec/sourceNamespace"));
        if (name, namespace) != (&source, olm.namespace()) {
            shell.status("Keeping", format!("catalogsource {name} in {namespace}, which is not only for {package}"));
        }
    }
    objects.push(olm.reference("CatalogSource", &source));
    objects.extend(servers(olm, &source).await?);
    let deleted = remote::delete_in_order(olm.remote, &objects, wait, shell).await?;
    if deleted == 0 {
        bail!(
            "package {package} is not installed in {} of {}: there is no subscription to it and no catalogsource {source}; choose the \
             namespace with --namespace",
            olm.namespace(),
            olm.remote
        );
    }
    if options.groups {
        remote::delete_in_order(olm.remote, &groups(olm).await?, wait, shell).await?;
    }
    shell.status("Finished", format!("{package} is deleted from {}", olm.namespace()));
    Ok(())
}

/// Returns the ClusterServiceVersions of a Subscription: two during an upgrade.
async fn versions(olm: &Olm<'_>, subscription: &Value) -> Result<Vec<Value>> {
    let names: BTreeSet<_> =
        ["/status/installedCSV", "/status/currentCSV"].map(|field| text(subscription, field)).into();
    let mut all = Vec::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let found = olm.get("ClusterServiceVersion", name).await;
        all.extend(found.map_err(|error| anyhow::anyhow!("clusterserviceversion {name}: {}", explain(&error)))?);
    }
    Ok(all)
}

fn owned(csv: &Value) -> BTreeSet<&str> {
    let all = csv.pointer("/spec/customresourcedefinitions/owned").and_then(Value::as_array);
    all.into_iter().flatten().map(|entry| text(entry, "/name")).collect()
}

/// Returns the definitions that ClusterServiceVersions own, without those that the same operator in another namespace
/// owns, too.
async fn definitions(olm: &Olm<'_>, versions: &[Value], shell: &Shell) -> Result<Vec<Value>> {
    let everywhere = Api::all_with(olm.remote.client.clone(), &resource("ClusterServiceVersion"));
    let others = match list(&everywhere, &ListParams::default().labels(&format!("!{COPIED}"))).await {
        Ok(all) => all.into_iter().filter(|csv| text(csv, "/metadata/namespace") != olm.namespace()).collect(),
        // A user of one namespace can't see the others.
        Err(error) if status(&error).is_some_and(|status| status.code == 403) => Vec::new(),
        Err(error) => bail!("list clusterserviceversions: {}", explain(&error)),
    };
    let mut all = Vec::new();
    for name in versions.iter().flat_map(owned).collect::<BTreeSet<_>>() {
        match others.iter().find(|csv| owned(csv).contains(name)) {
            Some(csv) => shell.warning(&format!(
                "customresourcedefinition {name} stays: {} in {} owns it, too",
                text(csv, "/metadata/name"),
                text(csv, "/metadata/namespace")
            )),
            None => all.push(json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            })),
        }
    }
    Ok(all)
}

/// Returns the OperatorGroups of the namespace that a command created, if OLM manages no operator there any more.
async fn groups(olm: &Olm<'_>) -> Result<Vec<Value>> {
    let is_copied = |csv: &Value| csv["metadata"]["labels"].get(COPIED).is_some();
    let is_used = !olm.list("Subscription").await?.is_empty()
        || olm.list("ClusterServiceVersion").await?.iter().any(|csv| !is_copied(csv));
    let (label, value) = MANAGED_BY;
    let is_ours =
        |group: &Value| group["metadata"]["labels"][label] == value || text(group, "/metadata/name") == SDK_GROUP;
    let groups = if is_used { Vec::new() } else { olm.list("OperatorGroup").await? };
    let ours = groups.iter().filter(|group| is_ours(group));
    Ok(ours.map(|group| olm.reference("OperatorGroup", text(group, "/metadata/name"))).collect())
}
