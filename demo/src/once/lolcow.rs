//! The script of Lolcow, including a visitor.

use anyhow::{Context, Result};
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject},
};
use serde_json::json;
use tokio::net::TcpStream;

use super::{edit, report::Report, status};
use crate::{
    environment::{Environment, free_port},
    web,
};

pub(super) async fn says_the_greeting(environment: &Environment, report: &mut Report) -> Result<()> {
    report.title("Lolcow: the page says the greeting, at the port, and both can be changed");
    let lolcow = environment.apply_lolcow().await?;
    let port = lolcow.data["spec"]["port"].as_u64().context("the Lolcow has no port")?;
    let url = format!("http://127.0.0.1:{port}");
    says(environment, report, &lolcow, &url, "this is a message from the lolcow!").await?;

    edit(environment, &lolcow, json!({ "spec": { "greeting": "What, you have never seen a flying cow before?" } }))
        .await?;
    says(environment, report, &lolcow, &url, "never seen a flying cow").await?;

    // Any free port is suitable. The next one may be in use by another demo.
    let moved = free_port(u16::try_from(port)?.saturating_add(2))?;
    edit(environment, &lolcow, json!({ "spec": { "port": moved } })).await?;
    let new = format!("http://127.0.0.1:{moved}");
    says(environment, report, &lolcow, &new, "never seen a flying cow").await?;
    report
        .until("nothing answers at the old port", || async {
            Ok(TcpStream::connect(("127.0.0.1", u16::try_from(port)?)).await.is_err())
        })
        .await?;
    let name = lolcow.name_any();
    environment.resources(&lolcow)?.delete(&name, &DeleteParams::default()).await.context("delete the Lolcow")?;
    report.until("nothing answers once it is deleted", || async { Ok(web::get(&new).await.is_err()) }).await
}

/// Waits until the page at the address in the status contains a text.
async fn says(
    environment: &Environment,
    report: &mut Report,
    lolcow: &DynamicObject,
    url: &str,
    words: &str,
) -> Result<()> {
    report
        .until(&format!("{url} says: {words}"), || async {
            Ok(status(environment, lolcow).await?["url"] == url
                && web::get(url).await.is_ok_and(|page| page.contains(words)))
        })
        .await
}
