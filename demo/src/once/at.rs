//! What an At does.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};
use kubewright_apimachinery::clock::Clock;
use serde_json::json;

use super::{phase, report::Report};
use crate::stage::{AT_SAMPLE, Stage};

/// The names of the phases an At passes, as its events tell them.
const PHASES: [&str; 3] = ["PENDING", "RUNNING", "DONE"];

pub(super) async fn in_the_past(stage: &Stage, report: &mut Report) -> Result<()> {
    report.title("At, a time in the past: it runs at once");
    let at = stage.apply(AT_SAMPLE).await?;
    runs(stage, report, &at).await
}

pub(super) async fn ahead(stage: &Stage, report: &mut Report) -> Result<()> {
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
    runs(stage, report, &at).await?;
    let pod = pods.get("at-soon-pod").await?;
    let created = pod.creation_timestamp().context("the pod has no creation time")?.0;
    report.check("the pod was created at the time or after it", created >= due, || {
        format!("created {created}, due {due}")
    });
    Ok(())
}

/// What every At comes to: its pod has run, its log holds the output, its events tell the phases in order.
async fn runs(stage: &Stage, report: &mut Report, at: &DynamicObject) -> Result<()> {
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
