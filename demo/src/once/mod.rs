//! `--once`: the scripts of the operators' tutorials, with checks.

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

pub(crate) use self::report::Report;
use crate::environment::Environment;

/// Runs every script, and returns whether all checks passed.
pub(crate) async fn run(environment: &Environment) -> Result<bool> {
    let mut report = Report::new(environment.clock().clone());
    at::in_the_past(environment, &mut report).await?;
    at::ahead(environment, &mut report).await?;
    podset::second_flavour(environment, &mut report).await?;
    podset::first_flavour(environment, &mut report).await?;
    cronjob::runs_and_keeps_its_policies(environment, &mut report).await?;
    cronjob::catches_up(environment, &mut report).await?;
    cronjob::is_refused(environment, &mut report).await?;
    lolcow::says_the_greeting(environment, &mut report).await?;
    guestbook::has_a_standby_take_over(environment, &mut report).await?;
    Ok(report.end())
}

/// Merges a patch into an object, as `kubectl patch --type=merge` does.
async fn edit(environment: &Environment, object: &DynamicObject, patch: Value) -> Result<DynamicObject> {
    let name = object.name_any();
    let edited = environment.resources(object)?.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    edited.with_context(|| format!("edit {name}"))
}

/// Returns the object's current status.
async fn status(environment: &Environment, object: &DynamicObject) -> Result<Value> {
    Ok(environment.resources(object)?.get(&object.name_any()).await?.data["status"].take())
}

/// Returns whether a condition has this status and reason.
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
