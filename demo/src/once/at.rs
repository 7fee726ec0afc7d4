//! The script of At.

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
use crate::environment::{AT_SAMPLE, Environment};

/// The phases that occur in the events of an At.
const PHASES: [&str; 3] = ["PENDING", "RUNNING", "DONE"];

pub(super) async fn in_the_past(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("At, a time in the past: it runs at once");
    let at = environment.apply(AT_SAMPLE).await?;
    runs(environment, report, &at).await
}

pub(super) async fn ahead(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("At, three seconds ahead: it waits, then runs");
    // Whole seconds, as a user would write them.
    let due = Timestamp::from_second((environment.clock().now() + SignedDuration::from_secs(3)).as_second())?;
    let manifest = json!({
        "apiVersion": "cnat.d2iq.com/v1alpha1", "kind": "At", "metadata": { "name": "at-soon" },
        "spec": { "schedule": due.to_string(), "command": "echo YAY" },
    });
    let at = environment.apply(&manifest.to_string()).await?;
    let ats = environment.resources(&at)?;
    let name = at.name_any();
    report.until("it is PENDING", || async { Ok(phase(&ats.get(&name).await?) == "PENDING") }).await?;
    let pods = environment.pods();
    let early = pods.get_opt("at-soon-pod").await?;
    report
        .check("no pod before its time", early.is_none() || environment.clock().now() >= due, || format!("{early:?}"));
    runs(environment, report, &at).await?;
    let pod = pods.get("at-soon-pod").await?;
    let created = pod.creation_timestamp().context("the pod has no creation time")?.0;
    report.check("the pod was created at the time or after it", created >= due, || {
        format!("created {created}, due {due}")
    });
    Ok(())
}

/// Checks the result of an At: its pod has run, its log contains the output, and its events have the phases in order.
async fn runs(environment: &Environment, report: &mut Report, at: &DynamicObject) -> Result<()> {
    let (ats, pods) = (environment.resources(at)?, environment.pods());
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

    let events: Api<Event> = Api::namespaced(environment.user(), "default");
    let about = ListParams::default()
        .fields(&format!("involvedObject.uid={},reason=PhaseChange", at.uid().unwrap_or_default()));
    report
        .until("its events say PENDING, RUNNING, DONE", || async {
            let reported: Vec<_> =
                events.list(&about).await?.items.into_iter().filter_map(|event| event.message).collect();
            Ok(PHASES.iter().all(|phase| reported.iter().filter(|message| message == phase).count() == 1)
                && reported.len() == PHASES.len())
        })
        .await
}
