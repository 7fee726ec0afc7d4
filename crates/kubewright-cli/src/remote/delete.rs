//! Deleting what was applied, in an order in which all of it can go.
//!
//! Definitions go first, while the operator is there to let go of its objects; then what calls it, then itself, then the rights that it
//! needed until its end, and last the namespace.

use anyhow::{Result, bail};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PropagationPolicy},
};
use serde_json::Value;

use super::{
    AT_ONCE, Remote, Wait,
    failure::{explain, is_transient, status},
    kinds::{Kinds, Located, is_definition, is_webhook, text, title},
};
use crate::shell::Shell;

/// How many objects are named that keep a definition.
const NAMED: usize = 3;

/// An object that is there.
struct Present<'a> {
    object: &'a Value,
    place: Located,
    uid: Option<String>,
}

/// Deletes all objects, or none if one may not be deleted, and waits until they are gone.
pub(crate) async fn delete(
    remote: &Remote,
    objects: &[Value],
    ignore_not_found: bool,
    wait: &Wait<'_>,
    shell: &Shell,
) -> Result<()> {
    let (present, missing) = find(remote, objects).await?;
    if present.is_empty() && !ignore_not_found {
        bail!("nothing of it is in {remote}: is it the right context? --ignore-not-found makes this no failure");
    }
    rehearse(remote, &present).await?;
    let works = has_operator(remote, objects).await;
    let mut phases: Vec<Vec<&Present<'_>>> = Vec::new();
    phases.resize_with(PHASES, Vec::new);
    for present in &present {
        phases[phase(present.object, works)].push(present);
    }
    for phase in phases {
        for present in &phase {
            let propagation_policy = Some(match text(present.object, "/kind") {
                // Whose pods then go first.
                "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => PropagationPolicy::Foreground,
                _ => PropagationPolicy::Background,
            });
            let parameters = DeleteParams { propagation_policy, ..DeleteParams::default() };
            match present.place.api.delete(&present.place.name, &parameters).await {
                Ok(_) => shell.detail("Deleting", title(present.object)),
                Err(error) if is_not_found(&error) => {}
                Err(error) => bail!("{}: {}", title(present.object), explain(&error)),
            }
        }
        for present in &phase {
            gone(remote, present, works, wait).await?;
        }
    }
    shell.status("Deleted", format!("{} objects", present.len()));
    if !missing.is_empty() && !ignore_not_found {
        let missing: String = missing.iter().map(|object| format!("\n  {}", title(object))).collect();
        bail!("these were not there (--ignore-not-found makes this no failure):{missing}");
    }
    Ok(())
}

const PHASES: usize = 5;

/// When a kind's turn is. Where no operator answers any more, its webhooks would refuse what is to go.
fn phase(object: &Value, has_operator: bool) -> usize {
    match text(object, "/kind") {
        _ if is_webhook(object) => usize::from(has_operator),
        "CustomResourceDefinition" => 0,
        "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" | "Pod" => 2,
        "Namespace" => 4,
        _ => 3,
    }
}

async fn find<'a>(remote: &Remote, objects: &'a [Value]) -> Result<(Vec<Present<'a>>, Vec<&'a Value>)> {
    let mut kinds = Kinds::of(&remote.client);
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for object in objects {
        let failed =
            |error: kube::Error| anyhow::anyhow!("{}: {}; nothing was deleted", title(object), explain(&error));
        let Some(place) = kinds.locate(object).await.map_err(failed)? else {
            missing.push(object);
            continue;
        };
        match place.api.get_metadata_opt(&place.name).await.map_err(failed)? {
            Some(found) => present.push(Present { object, place, uid: found.metadata.uid }),
            None => missing.push(object),
        }
    }
    Ok((present, missing))
}

/// Asks whether all may be deleted.
async fn rehearse(remote: &Remote, present: &[Present<'_>]) -> Result<()> {
    let parameters = DeleteParams::default().dry_run();
    let asked = stream::iter(present)
        .map(async |present| (present.object, present.place.api.delete(&present.place.name, &parameters).await.err()))
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let refused = asked.into_iter().filter_map(|(object, error)| Some((object, error.filter(|it| !is_not_found(it))?)));
    let refused: String =
        refused.map(|(object, error)| format!("\n  {}: {}", title(object), explain(&error))).collect();
    if !refused.is_empty() {
        bail!("{remote} would refuse to delete; nothing was deleted:{refused}");
    }
    Ok(())
}

/// Whether one of the Deployments has a pod that works.
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

/// Waits until an object is gone; one that was made anew is another.
async fn gone(remote: &Remote, present: &Present<'_>, works: bool, wait: &Wait<'_>) -> Result<()> {
    let (Located { api, name }, title) = (&present.place, title(present.object));
    loop {
        let (left, why) = match api.get_opt(name).await {
            Ok(None) => return Ok(()),
            Ok(Some(left)) if left.metadata.uid != present.uid => return Ok(()),
            Ok(Some(left)) => (Some(left), String::new()),
            Err(error) if is_transient(&error) => (None, format!(": {}", explain(&error))),
            Err(error) => bail!("{title}: {}", explain(&error)),
        };
        if !wait.goes_on(&format!("{title} is going{why}")).await {
            let reasons = match &left {
                Some(left) => keeps(remote, present.object, left, works).await,
                None => why,
            };
            bail!("{title} is not gone after {}{reasons}", wait.spent());
        }
    }
}

/// What keeps an object, a line for each reason.
async fn keeps(remote: &Remote, object: &Value, left: &DynamicObject, works: bool) -> String {
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
            let place = instance.metadata.namespace.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
            let name = instance.metadata.name.clone().unwrap_or_default();
            reasons.push(format!("{name}{place} is still there, with the finalizers {}", held.join(", ")));
        }
        if !works && !reasons.is_empty() {
            reasons.push(
                "no operator is there to remove them: deploy it again, or remove them yourself (kubectl patch … \
                 --type=merge -p '{\"metadata\":{\"finalizers\":null}}')"
                    .into(),
            );
        }
    } else if reasons.is_empty() && !finalizers.is_empty() {
        reasons.push(format!("it has the finalizers {}", finalizers.join(", ")));
    }
    reasons.iter().map(|reason| format!("\n  {reason}")).collect()
}

/// Some objects of a definition.
async fn instances(remote: &Remote, definition: &Value) -> Vec<DynamicObject> {
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().find(|version| version["served"] == true);
    let Some(version) = served.map(|version| text(version, "/name")) else { return Vec::new() };
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: format!("{group}/{version}"),
        kind: text(definition, "/spec/names/kind").into(),
        plural: plural.into(),
    };
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
    fn the_operator_goes_after_its_objects_and_before_its_rights() {
        let order = |kinds: &[&str], works| {
            kinds.iter().map(|kind| phase(&serde_json::json!({ "kind": kind }), works)).collect::<Vec<_>>()
        };
        let webhook = "ValidatingWebhookConfiguration";
        let kinds = ["CustomResourceDefinition", webhook, "Deployment", "ClusterRole", "Namespace"];
        assert_eq!(order(&kinds, true), [0, 1, 2, 3, 4]);
        assert_eq!(order(&[webhook], false), [0]);
    }
}
