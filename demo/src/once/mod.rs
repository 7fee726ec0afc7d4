//! `--once`: the scripts of the operators' sources, walked through and checked.

mod at;
mod cronjob;
mod guestbook;
mod lolcow;
mod podset;
mod report;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::Value;

use self::report::Report;
use crate::stage::Stage;

/// Walks through every script; whether all of it came out as the sources say.
pub(crate) async fn walk(stage: &Stage) -> Result<bool> {
    let mut report = Report::new(stage.clock().clone());
    at::in_the_past(stage, &mut report).await?;
    at::ahead(stage, &mut report).await?;
    podset::second_flavour(stage, &mut report).await?;
    podset::first_flavour(stage, &mut report).await?;
    cronjob::runs_and_keeps_its_policies(stage, &mut report).await?;
    cronjob::catches_up(stage, &mut report).await?;
    cronjob::is_refused(stage, &mut report).await?;
    lolcow::says_what_it_is_told(stage, &mut report).await?;
    guestbook::has_a_standby_take_over(stage, &mut report).await?;
    Ok(report.end())
}

/// Merges a patch into an object, as `kubectl patch --type=merge` does.
async fn edit(stage: &Stage, object: &DynamicObject, patch: Value) -> Result<DynamicObject> {
    let name = object.name_any();
    let edited = stage.resources(object)?.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    edited.with_context(|| format!("edit {name}"))
}

/// The object's status as it is now.
async fn status(stage: &Stage, object: &DynamicObject) -> Result<Value> {
    Ok(stage.resources(object)?.get(&object.name_any()).await?.data["status"].take())
}

/// Whether a condition of this status has this value and reason.
fn has_condition(status: &Value, type_: &str, value: &str, reason: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|it| (&it["type"], &it["status"], &it["reason"]) == (&type_.into(), &value.into(), &reason.into()))
    })
}

async fn owned_pods(pods: &Api<Pod>, owner: &DynamicObject) -> Result<Vec<Pod>> {
    let uid = owner.uid().unwrap_or_default();
    let mut owned = pods.list(&ListParams::default()).await?.items;
    owned.retain(|pod| pod.owner_references().iter().any(|reference| reference.uid == uid));
    Ok(owned)
}

fn is_running(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn phase(object: &DynamicObject) -> &str {
    object.data["status"]["phase"].as_str().unwrap_or_default()
}
