//! The script of PodSet, for both flavours.

use anyhow::{Context, Result};
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{is_running, owned_pods, report::Report};
use crate::environment::{Environment, FIRST_PODSET_SAMPLE, SECOND_PODSET_SAMPLE};

pub(super) async fn second_flavour(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("PodSet (app.example.com): 3 pods, patched to 5, one deleted, all gone with it");
    let podset = environment.apply(SECOND_PODSET_SAMPLE).await?;
    let (podsets, pods) = (environment.resources(&podset)?, environment.pods());
    let name = podset.name_any();
    running(environment, report, &podset, 3).await?;
    report
        .until("its status names 3 pods", || async {
            let status = podsets.get(&name).await?.data["status"].take();
            Ok(status["availableReplicas"] == 3 && status["podNames"].as_array().is_some_and(|names| names.len() == 3))
        })
        .await?;

    let patch: Patch<Value> =
        Patch::Json(serde_json::from_value(json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]))?);
    podsets.patch(&name, &PatchParams::default(), &patch).await.context("patch replicas to 5")?;
    running(environment, report, &podset, 5).await?;

    let victim = owned_pods(&pods, &podset).await?.into_iter().next().context("no pod to delete")?.name_any();
    pods.delete(&victim, &DeleteParams::default()).await.with_context(|| format!("delete the pod {victim}"))?;
    report
        .until("a deleted pod is replaced", || async {
            let owned = owned_pods(&pods, &podset).await?;
            Ok(owned.len() == 5 && owned.iter().all(|pod| pod.name_any() != victim && is_running(pod)))
        })
        .await?;
    goes(environment, report, &podset).await
}

pub(super) async fn first_flavour(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("PodSet (k8stest.justin0u0.com): 2 pods, all gone with it");
    let podset = environment.apply(FIRST_PODSET_SAMPLE).await?;
    running(environment, report, &podset, 2).await?;
    goes(environment, report, &podset).await
}

async fn running(environment: &Environment, report: &mut Report, podset: &DynamicObject, count: usize) -> Result<()> {
    let pods = environment.pods();
    report
        .until(&format!("{count} pods run"), || async {
            let owned = owned_pods(&pods, podset).await?;
            Ok(owned.len() == count && owned.iter().all(is_running))
        })
        .await
}

async fn goes(environment: &Environment, report: &mut Report, podset: &DynamicObject) -> Result<()> {
    let pods = environment.pods();
    environment
        .resources(podset)?
        .delete(&podset.name_any(), &DeleteParams::default())
        .await
        .context("delete the PodSet")?;
    report.until("its pods are gone with it", || async { Ok(owned_pods(&pods, podset).await?.is_empty()) }).await
}
