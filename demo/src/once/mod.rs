//! `--once`: the scripts of the operators' sources, walked through and checked.

mod report;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use self::report::Report;
use crate::stage::{AT_SAMPLE, FIRST_PODSET_SAMPLE, SECOND_PODSET_SAMPLE, Stage};

/// The names of the phases an At passes, as its events tell them.
const PHASES: [&str; 3] = ["PENDING", "RUNNING", "DONE"];

/// Walks through every script; whether all of it came out as the sources say.
pub(crate) async fn walk(stage: &Stage) -> Result<bool> {
    let mut report = Report::new(stage.clock().clone());
    at_in_the_past(stage, &mut report).await?;
    at_ahead(stage, &mut report).await?;
    podset_second_flavour(stage, &mut report).await?;
    podset_first_flavour(stage, &mut report).await?;
    Ok(report.end())
}

async fn at_in_the_past(stage: &Stage, report: &mut Report) -> Result<()> {
    report.title("At, a time in the past: it runs at once");
    let at = stage.apply(AT_SAMPLE).await?;
    at_runs(stage, report, &at).await
}

async fn at_ahead(stage: &Stage, report: &mut Report) -> Result<()> {
    report.title("At, three seconds ahead: it waits, then runs");
    // Whole seconds, as a person writes them.
    let due = Timestamp::from_second((stage.clock().now() + SignedDuration::from_secs(3)).as_second())?;
    let manifest = json!({
        "apiVersion": "cnat.d2iq.com/v1alpha1", "kind": "At", "metadata": { "name": "at-soon" },
        "spec": { "schedule": due.to_string(), "command": "echo YAY" },
    });
    let at = stage.apply(&manifest.to_string()).await?;
    let ats = stage.resources(&at)?;
    let name = at.name_any();
    report.until("it is PENDING", || async { Ok(phase(&ats.get(&name).await?) == "PENDING") }).await?;
    let pods = stage.pods();
    let early = pods.get_opt("at-soon-pod").await?;
    report.check("no pod before its time", early.is_none() || stage.clock().now() >= due, || format!("{early:?}"));
    at_runs(stage, report, &at).await?;
    let pod = pods.get("at-soon-pod").await?;
    let created = pod.creation_timestamp().context("the pod has no creation time")?.0;
    report.check("the pod was created at the time or after it", created >= due, || {
        format!("created {created}, due {due}")
    });
    Ok(())
}

/// What every At comes to: its pod has run, its log holds the output, its events tell the phases in order.
async fn at_runs(stage: &Stage, report: &mut Report, at: &DynamicObject) -> Result<()> {
    let (ats, pods) = (stage.resources(at)?, stage.pods());
    let name = at.name_any();
    report.until("it is DONE", || async { Ok(phase(&ats.get(&name).await?) == "DONE") }).await?;

    let pod = pods.get(&format!("{name}-pod")).await?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    report.check("its pod has Succeeded", phase == "Succeeded", || phase.clone());
    let log = pods.logs(&pod.name_any(), &Default::default()).await?;
    report.check("its log says YAY", log == "YAY\n", || format!("{log:?}"));
    let owned = pod
        .owner_references()
        .iter()
        .any(|owner| Some(&owner.uid) == at.uid().as_ref() && owner.controller == Some(true));
    report.check("the pod is owned by the At", owned, || format!("{:?}", pod.owner_references()));

    let events: Api<Event> = Api::namespaced(stage.user(), "default");
    let about = ListParams::default()
        .fields(&format!("involvedObject.uid={},reason=PhaseChange", at.uid().unwrap_or_default()));
    report
        .until("its events say PENDING, RUNNING, DONE", || async {
            let told: Vec<_> = events.list(&about).await?.items.into_iter().filter_map(|event| event.message).collect();
            Ok(PHASES.iter().all(|phase| told.iter().filter(|message| message == phase).count() == 1)
                && told.len() == PHASES.len())
        })
        .await
}

async fn podset_second_flavour(stage: &Stage, report: &mut Report) -> Result<()> {
    report.title("PodSet (app.example.com): 3 pods, patched to 5, one deleted, all gone with it");
    let podset = stage.apply(SECOND_PODSET_SAMPLE).await?;
    let (podsets, pods) = (stage.resources(&podset)?, stage.pods());
    let name = podset.name_any();
    running(stage, report, &podset, 3).await?;
    report
        .until("its status names 3 pods", || async {
            let status = podsets.get(&name).await?.data["status"].take();
            Ok(status["availableReplicas"] == 3 && status["podNames"].as_array().is_some_and(|names| names.len() == 3))
        })
        .await?;

    let patch: Patch<Value> =
        Patch::Json(serde_json::from_value(json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]))?);
    podsets.patch(&name, &PatchParams::default(), &patch).await.context("patch replicas to 5")?;
    running(stage, report, &podset, 5).await?;

    let victim = owned_pods(&pods, &podset).await?.into_iter().next().context("no pod to delete")?.name_any();
    pods.delete(&victim, &DeleteParams::default()).await.with_context(|| format!("delete the pod {victim}"))?;
    report
        .until("a deleted pod is replaced", || async {
            let owned = owned_pods(&pods, &podset).await?;
            Ok(owned.len() == 5 && owned.iter().all(|pod| pod.name_any() != victim && is_running(pod)))
        })
        .await?;
    goes(stage, report, &podset).await
}

async fn podset_first_flavour(stage: &Stage, report: &mut Report) -> Result<()> {
    report.title("PodSet (k8stest.justin0u0.com): 2 pods, all gone with it");
    let podset = stage.apply(FIRST_PODSET_SAMPLE).await?;
    running(stage, report, &podset, 2).await?;
    goes(stage, report, &podset).await
}

async fn running(stage: &Stage, report: &mut Report, podset: &DynamicObject, count: usize) -> Result<()> {
    let pods = stage.pods();
    report
        .until(&format!("{count} pods run"), || async {
            let owned = owned_pods(&pods, podset).await?;
            Ok(owned.len() == count && owned.iter().all(is_running))
        })
        .await
}

async fn goes(stage: &Stage, report: &mut Report, podset: &DynamicObject) -> Result<()> {
    let pods = stage.pods();
    stage.resources(podset)?.delete(&podset.name_any(), &DeleteParams::default()).await.context("delete the PodSet")?;
    report.until("its pods are gone with it", || async { Ok(owned_pods(&pods, podset).await?.is_empty()) }).await
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
