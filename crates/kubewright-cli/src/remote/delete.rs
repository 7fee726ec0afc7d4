//! Deleting applied objects, in an order in which each deletion can complete.
//!
//! Definitions are deleted first, while the operator still runs and can remove its finalizers. Then follow the
//! operator's webhook configurations, the operator itself, its roles, and finally the namespace.

use anyhow::{Result, bail};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, PropagationPolicy},
};
use serde_json::Value;

use super::{
    CONCURRENCY, Remote, Wait,
    failure::{explain, is_transient, status},
    kinds::{Kinds, ObjectLocation, defined_resource, is_definition, is_webhook_configuration, text, title},
};
use crate::shell::Shell;

/// The maximum number of remaining instances in an error.
const NAMED: usize = 3;

/// An object that exists in the cluster.
struct Existing<'a> {
    object: &'a Value,
    location: ObjectLocation,
    uid: Option<String>,
}

/// Deletes all objects, and waits until they are gone. If the deletion of one is forbidden, none is deleted.
pub(crate) async fn delete(
    remote: &Remote,
    objects: &[Value],
    ignore_not_found: bool,
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<()> {
    let (present, missing) = find(remote, objects).await?;
    if present.is_empty() && !ignore_not_found {
        bail!("none of the objects exist in {remote}: check the context, or use --ignore-not-found");
    }
    dry_run(remote, &present).await?;
    let works = has_operator(remote, objects).await;
    let mut phases: Vec<Vec<&Existing<'_>>> = Vec::new();
    phases.resize_with(PHASES, Vec::new);
    for present in &present {
        phases[phase(present.object, works)].push(present);
    }
    for phase in phases {
        for present in &phase {
            start(present, shell).await?;
        }
        for present in &phase {
            gone(remote, present, works, wait).await?;
        }
    }
    shell.status("Deleted", format!("{} objects", present.len()));
    if !missing.is_empty() && !ignore_not_found {
        let missing: String = missing.iter().map(|object| format!("\n  {}", title(object))).collect();
        bail!("these objects did not exist (use --ignore-not-found to ignore this):{missing}");
    }
    Ok(())
}

/// Deletes the objects that exist, one after the other, and waits until each is gone. If the deletion of one is
/// forbidden, none is deleted. Returns how many existed. The operator has to run until its definitions are gone, so its
/// own objects come after them.
pub(crate) async fn delete_in_order(
    remote: &Remote,
    objects: &[Value],
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<usize> {
    let (present, _) = find(remote, objects).await?;
    dry_run(remote, &present).await?;
    for present in &present {
        start(present, shell).await?;
        gone(remote, present, true, wait).await?;
        shell.status("Deleted", title(present.object));
    }
    Ok(present.len())
}

/// Starts the deletion of an object.
async fn start(present: &Existing<'_>, shell: &Shell) -> Result<()> {
    let propagation_policy = Some(match text(present.object, "/kind") {
        // Their pods are deleted first.
        "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => PropagationPolicy::Foreground,
        _ => PropagationPolicy::Background,
    });
    let parameters = DeleteParams { propagation_policy, ..DeleteParams::default() };
    match present.location.api.delete(&present.location.name, &parameters).await {
        Ok(_) => shell.detail("Deleting", title(present.object)),
        Err(error) if is_not_found(&error) => {}
        Err(error) => bail!("{}: {}", title(present.object), explain(&error)),
    }
    Ok(())
}

const PHASES: usize = 5;

/// Returns the phase in which an object is deleted. If the operator does not run, webhook configurations come first,
/// since they would block other deletions.
fn phase(object: &Value, has_operator: bool) -> usize {
    match text(object, "/kind") {
        _ if is_webhook_configuration(object) => usize::from(has_operator),
        "CustomResourceDefinition" => 0,
        "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" | "Pod" => 2,
        "Namespace" => 4,
        _ => 3,
    }
}

async fn find<'a>(remote: &Remote, objects: &'a [Value]) -> Result<(Vec<Existing<'a>>, Vec<&'a Value>)> {
    let mut kinds = Kinds::new(&remote.client);
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for object in objects {
        let failed =
            |error: kube::Error| anyhow::anyhow!("{}: {}; nothing was deleted", title(object), explain(&error));
        let Some(location) = kinds.locate(object).await.map_err(failed)? else {
            missing.push(object);
            continue;
        };
        match location.api.get_metadata_opt(&location.name).await.map_err(failed)? {
            Some(found) => present.push(Existing { object, location, uid: found.metadata.uid }),
            None => missing.push(object),
        }
    }
    Ok((present, missing))
}

/// Deletes all objects with `dryRun`.
async fn dry_run(remote: &Remote, present: &[Existing<'_>]) -> Result<()> {
    let parameters = DeleteParams::default().dry_run();
    let asked = stream::iter(present)
        .map(async |present| {
            (present.object, present.location.api.delete(&present.location.name, &parameters).await.err())
        })
        .buffered(CONCURRENCY)
        .collect::<Vec<_>>()
        .await;
    let refused = asked.into_iter().filter_map(|(object, error)| Some((object, error.filter(|it| !is_not_found(it))?)));
    let refused: String =
        refused.map(|(object, error)| format!("\n  {}: {}", title(object), explain(&error))).collect();
    if !refused.is_empty() {
        bail!("{remote} rejects the deletion; nothing was deleted:{refused}");
    }
    Ok(())
}

/// Returns whether one of the Deployments has an available pod.
async fn has_operator(remote: &Remote, objects: &[Value]) -> bool {
    for object in objects.iter().filter(|object| object["kind"] == "Deployment") {
        let deployments: Api<Deployment> = Api::namespaced(remote.client.clone(), text(object, "/metadata/namespace"));
        let found = deployments.get_opt(text(object, "/metadata/name")).await.ok().flatten();
        if found.and_then(|found| found.status?.available_replicas).is_some_and(|available| available > 0) {
            return true;
        }
    }
    false
}

/// Waits until an object is gone. A new object of the same name has another UID, and does not count.
async fn gone(remote: &Remote, present: &Existing<'_>, works: bool, wait: &Wait<'_>) -> Result<()> {
    let (ObjectLocation { api, name }, title) = (&present.location, title(present.object));
    loop {
        let (left, why) = match api.get_opt(name).await {
            Ok(None) => return Ok(()),
            Ok(Some(left)) if left.metadata.uid != present.uid => return Ok(()),
            Ok(Some(left)) => (Some(left), String::new()),
            Err(error) if is_transient(&error) => (None, format!(": {}", explain(&error))),
            Err(error) => bail!("{title}: {}", explain(&error)),
        };
        if !wait.poll_again(&format!("for the deletion of {title}{why}")).await {
            let reasons = match &left {
                Some(left) => blockers(remote, present.object, left, works).await,
                None => why,
            };
            bail!("{title} still exists after {}{reasons}", wait.timeout());
        }
    }
}

/// Lists the reasons why an object still exists, one per line.
async fn blockers(remote: &Remote, object: &Value, left: &DynamicObject, works: bool) -> String {
    let finalizers = left.metadata.finalizers.clone().unwrap_or_default();
    let mut reasons = Vec::new();
    let conditions = left.data.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten().filter(|condition| condition["status"] == "True") {
        let kind = text(condition, "/type");
        let tells =
            ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"].contains(&kind) || kind.contains("Failure");
        if tells {
            reasons.push(text(condition, "/message").to_owned());
        }
    }
    if is_definition(object) {
        for instance in instances(remote, object).await {
            let held = instance.metadata.finalizers.clone().unwrap_or_default();
            let location = instance.metadata.namespace.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
            let name = instance.metadata.name.clone().unwrap_or_default();
            reasons.push(format!("{name}{location} still exists, with finalizers {}", held.join(", ")));
        }
        if !works && !reasons.is_empty() {
            reasons.push(
                "no operator is running to remove them: deploy it again, or remove them with kubectl patch … --type=merge -p \
                 '{\"metadata\":{\"finalizers\":null}}'"
                    .into(),
            );
        }
    } else if reasons.is_empty() && !finalizers.is_empty() {
        reasons.push(format!("it has finalizers {}", finalizers.join(", ")));
    }
    reasons.iter().map(|reason| format!("\n  {reason}")).collect()
}

/// Returns some objects of the kind in a definition.
async fn instances(remote: &Remote, definition: &Value) -> Vec<DynamicObject> {
    let Some(resource) = defined_resource(definition) else { return Vec::new() };
    let api: Api<DynamicObject> = Api::all_with(remote.client.clone(), &resource);
    let found = api.list(&ListParams::default().limit(u32::try_from(NAMED).unwrap_or(u32::MAX))).await;
    found.map(|list| list.items.into_iter().take(NAMED).collect()).unwrap_or_default()
}

fn is_not_found(error: &kube::Error) -> bool {
    status(error).is_some_and(|status| status.code == 404)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_deleted_after_its_objects_and_before_its_roles() {
        let order = |kinds: &[&str], works| {
            kinds.iter().map(|kind| phase(&serde_json::json!({ "kind": kind }), works)).collect::<Vec<_>>()
        };
        let webhook = "ValidatingWebhookConfiguration";
        let kinds = ["CustomResourceDefinition", webhook, "Deployment", "ClusterRole", "Namespace"];
        assert_eq!(order(&kinds, true), [0, 1, 2, 3, 4]);
        assert_eq!(order(&[webhook], false), [0]);
    }
}
