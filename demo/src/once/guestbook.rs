//! The script of Guestbook, including a guest.

use anyhow::{Context, Result};
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject},
};
use serde_json::Value;

use super::{owned_pods, report::Report, status};
use crate::{environment::Environment, web};

/// The guest's entry, as form data and as text.
const ENTRY: (&str, &str) = ("entry=1+Orchard+Lane", "1 Orchard Lane");

pub(super) async fn has_a_standby_take_over(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("Guestbook: one pod serves, and when it is killed a standby takes over with all entries");
    let guestbook = environment.apply_guestbook().await?;
    report
        .until("one pod is active and two stand by", || async {
            Ok(roles(environment, &guestbook).await?.1.len() == 2)
        })
        .await?;
    let url = environment.url(&guestbook.name_any()).await?;
    report.until(&format!("{url} shows the title"), || async { shows(&url, "The Orchard House").await }).await?;
    web::post(&format!("{url}/entries"), ENTRY.0).await?;
    report.until("an entry is taken and listed", || async { shows(&url, ENTRY.1).await }).await?;
    // The oldest standby that is ready takes over.
    report
        .until("all three are ready", || async { Ok(status(environment, &guestbook).await?["readyReplicas"] == 3) })
        .await?;

    let (active, standby) = roles(environment, &guestbook).await?;
    let oldest = standby.first().context("nothing stands by")?;
    let now = DeleteParams::default().grace_period(0);
    environment.pods().delete(&active, &now).await.with_context(|| format!("kill {active}"))?;
    report
        .until("the oldest standby takes over", || async { Ok(roles(environment, &guestbook).await?.0 == *oldest) })
        .await?;
    report.until("its page has the entry", || async { shows(&url, ENTRY.1).await }).await?;
    report.until("two stand by again", || async { Ok(roles(environment, &guestbook).await?.1.len() == 2) }).await?;

    let (name, pods) = (guestbook.name_any(), environment.pods());
    environment.resources(&guestbook)?.delete(&name, &DeleteParams::default()).await.context("delete the Guestbook")?;
    report.until("its pods are gone with it", || async { Ok(owned_pods(&pods, &guestbook).await?.is_empty()) }).await
}

async fn shows(url: &str, words: &str) -> Result<bool> {
    Ok(web::get(url).await.is_ok_and(|page| page.contains(words)))
}

/// Returns the active pod and the standby pods, oldest first.
async fn roles(environment: &Environment, guestbook: &DynamicObject) -> Result<(String, Vec<String>)> {
    let status = status(environment, guestbook).await?;
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let standby = status["standby"].as_array().map(|all| all.iter().map(name).collect()).unwrap_or_default();
    Ok((name(&status["active"]), standby))
}
