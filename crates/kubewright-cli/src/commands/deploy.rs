//! `kubewright deploy` and `kubewright undeploy`: all of the operator.

use anyhow::Result;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_manifests::installer::with_image;
use serde_json::Value;

use super::installer::objects;
use crate::{
    project::project_folder,
    remote::{self, Connection, Options, Patience, Plan, is_webhook},
    shell::Shell,
};

/// What to deploy, and where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright image --tag ghcr.io/me/cronjob:v1 --push
  kubewright deploy --image ghcr.io/me/cronjob:v1
  kubewright deploy --image ghcr.io/me/cronjob:v1 --context kind-test --timeout 5m

It renders config/default, by kustomize or kubectl, applies it, and waits until the operator is ready; if it doesn't get ready, its pods'
conditions, events and logs are told. Run kubewright manifests before, if the operator has changed.")]
pub(crate) struct Arguments {
    /// The image of the operator; by default what config/default says
    #[arg(long, value_name = "IMAGE", env = "IMG")]
    image: Option<String>,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    patience: Patience,
}

/// What to take away again, and from where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright undeploy
  kubewright undeploy --ignore-not-found

The definitions go first, and with them all objects of the operator's kinds, while it is there to clean up after them.")]
pub(crate) struct UndeployArguments {
    #[command(flatten)]
    connection: Connection,

    /// What is not there is no failure
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    patience: Patience,
}

/// Applies all of the operator, and waits until it is ready.
pub(crate) async fn run(arguments: Arguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = with_image(objects(&project_folder()?)?, arguments.image.as_deref())?;
    let remote = arguments.connection.connect().await?;
    shell.status("Deploying", format!("to {remote}"));
    let wait = arguments.patience.begin(clock, shell);
    let mut plan = Plan::of(&remote, &objects, &arguments.options).await?;
    // Webhooks come when somebody answers: one for pods would keep the operator's own from being made.
    plan.write(|object| !is_webhook(object), &wait, shell).await?;
    for deployment in objects.iter().filter(|object| object["kind"] == "Deployment") {
        let text = |field: &str| deployment["metadata"][field].as_str().unwrap_or_default();
        remote::ready(&remote, text("namespace"), text("name"), &wait).await?;
        shell.status("Ready", format!("deployment {} in {}: {}", text("name"), text("namespace"), images(deployment)));
    }
    plan.write(is_webhook, &wait, shell).await?;
    shell.status("Finished", "the operator is deployed");
    Ok(())
}

/// Deletes all of the operator, and waits until it is gone.
pub(crate) async fn undeploy(arguments: UndeployArguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = objects(&project_folder()?)?;
    let remote = arguments.connection.connect().await?;
    shell.status("Undeploying", format!("from {remote}"));
    let wait = arguments.patience.begin(clock, shell);
    remote::delete(&remote, &objects, arguments.ignore_not_found, &wait, shell).await?;
    shell.status("Finished", "the operator is gone");
    Ok(())
}

fn images(deployment: &Value) -> String {
    let containers = deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let images = containers.into_iter().flatten().filter_map(|container| container["image"].as_str());
    images.collect::<Vec<_>>().join(", ")
}
