//! What a Guestbook does, seen by a guest.

use anyhow::{Context, Result};
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject},
};
use serde_json::Value;

use super::{owned_pods, report::Report, status};
use crate::{stage::Stage, web};

/// What the guest leaves, as a form and as it is read.
const ENTRY: (&str, &str) = ("entry=1+Orchard+Lane", "1 Orchard Lane");

pub(super) async fn has_a_standby_take_over(stage: &Stage, report: &mut Report) -> Result<()> {
    report.title("Guestbook: one pod serves, and when it is killed a standby takes over with all entries");
    let guestbook = stage.apply_guestbook().await?;
    report
        .until("one pod is active and two stand by", || async { Ok(roles(stage, &guestbook).await?.1.len() == 2) })
        .await?;
    let url = stage.url(&guestbook.name_any()).await?;
    report.until(&format!("{url} shows the title"), || async { shows(&url, "The Orchard House").await }).await?;
    web::post(&format!("{url}/entries"), ENTRY.0).await?;
    report.until("an entry is taken and listed", || async { shows(&url, ENTRY.1).await }).await?;

    let (active, standby) = roles(stage, &guestbook).await?;
    let oldest = standby.first().context("nothing stands by")?;
    let now = DeleteParams::default().grace_period(0);
    stage.pods().delete(&active, &now).await.with_context(|| format!("kill {active}"))?;
    report
        .until("the oldest standby takes over", || async { Ok(roles(stage, &guestbook).await?.0 == *oldest) })
        .await?;
    report.until("its page has the entry", || async { shows(&url, ENTRY.1).await }).await?;
    report.until("two stand by again", || async { Ok(roles(stage, &guestbook).await?.1.len() == 2) }).await?;

    let (name, pods) = (guestbook.name_any(), stage.pods());
    stage.resources(&guestbook)?.delete(&name, &DeleteParams::default()).await.context("delete the Guestbook")?;
    report.until("its pods are gone with it", || async { Ok(owned_pods(&pods, &guestbook).await?.is_empty()) }).await
}

async fn shows(url: &str, words: &str) -> Result<bool> {
    Ok(web::get(url).await.is_ok_and(|page| page.contains(words)))
}

/// The pod that serves, and those that stand by, oldest first.
async fn roles(stage: &Stage, guestbook: &DynamicObject) -> Result<(String, Vec<String>)> {
    let status = status(stage, guestbook).await?;
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let standby = status["standby"].as_array().map(|all| all.iter().map(name).collect()).unwrap_or_default();
    Ok((name(&status["active"]), standby))
}
