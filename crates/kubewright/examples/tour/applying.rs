//! Server-side apply of the fields that are named: two appliers share one object.

use kubewright::{apply_configuration::ApplyConfiguration, client::Client, prelude::*};
use serde::{Deserialize, Serialize};

use crate::{Greeting, cluster, greet};

/// The part of a greeting that this program applies. On a type of one's own the derive stands beside `CustomResource`.
#[derive(ApplyConfiguration, Clone, Debug, Serialize, Deserialize)]
#[apply_configuration(kind = Greeting)]
pub(crate) struct Names {
    names: Vec<String>,
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    greet(&cluster, &["ada"]).await?;
    let client = |name: &str| Client::new(cluster.client()).field_owner(name).namespace("default");
    let (herald, labeller) = (client("herald"), client("labeller"));
    // Only a label: the names, which the type requires, are neither sent nor owned.
    let labelled = GreetingApplyConfiguration::new("hello").label("tour", "yes");
    labeller.kind::<GreetingApplyConfiguration>().apply(&labelled).await?;
    let named =
        GreetingApplyConfiguration::new("hello").spec(NamesApplyConfiguration::default().names(vec!["bob".into()]));
    let refused = herald.kind::<GreetingApplyConfiguration>().apply(&named).await;
    anyhow::ensure!(refused.is_err_and(|error| error.is_conflict()), "another manager owns the names");
    herald.kind::<GreetingApplyConfiguration>().apply(&named).force().await?;
    let hello = herald.kind::<Greeting>().get(&ObjectKey::cluster("hello")).await?;
    let hello = hello.ok_or_else(|| anyhow::anyhow!("it exists"))?;
    anyhow::ensure!(hello.spec.names == ["bob"] && hello.labels()["tour"] == "yes", "each has its part");
    cluster.shutdown().await;
    Ok(())
}
