//! `kubewright deploy` and `kubewright undeploy`: create and delete the whole operator, with a Deployment in a cluster.

use anyhow::Result;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_manifests::installer::with_image;
use serde_json::Value;

use super::installer::objects;
use crate::{
    project::project_folder,
    remote::{self, ApplyOptions, Connection, Plan, WaitOptions, is_webhook_configuration},
    shell::Shell,
};

/// Arguments of `kubewright deploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Build and push an image, and deploy it
  kubewright image --tag ghcr.io/me/cronjob:v1 --push
  kubewright deploy --image ghcr.io/me/cronjob:v1

  # Choose the context, and wait for up to five minutes
  kubewright deploy --image ghcr.io/me/cronjob:v1 --context kind-test --timeout 5m

The command renders config/default with kustomize or kubectl, applies it, and waits until the operator is ready. If it does not become ready,
the conditions, events and logs of its pods are printed. Run kubewright manifests first if the operator has changed.")]
pub(crate) struct Arguments {
    /// Image of the operator [default: the image in config/default]
    #[arg(long, value_name = "IMAGE", env = "IMG")]
    image: Option<String>,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    options: ApplyOptions,

    #[command(flatten)]
    wait: WaitOptions,
}

/// Arguments of `kubewright undeploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Delete the operator, its CustomResourceDefinitions and all objects of its kinds
  kubewright undeploy

  # Do not fail if parts of it are already gone
  kubewright undeploy --ignore-not-found

The CustomResourceDefinitions are deleted first, with all objects of their kinds, while the operator still runs and can finalize them.")]
pub(crate) struct UndeployArguments {
    #[command(flatten)]
    connection: Connection,

    /// Ignore missing resources
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    wait: WaitOptions,
}

/// What to do if the operator does not become ready.
const STAYS: &str = "the applied objects stay: fix the problem and run the command again, or run kubewright undeploy";

/// Applies the manifests of the operator, and waits until it is ready.
pub(crate) async fn run(arguments: Arguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = with_image(objects(&project_folder()?)?, arguments.image.as_deref())?;
    let remote = arguments.connection.connect().await?;
    shell.status("Deploying", format!("to {remote}"));
    let wait = arguments.wait.start(clock, shell);
    let mut plan = Plan::new(&remote, &objects, &arguments.options).await?;
    // Webhook configurations are applied last: a webhook for pods would block the creation of the operator's own pods.
    plan.write(|object| !is_webhook_configuration(object), &wait, shell).await?;
    for deployment in objects.iter().filter(|object| object["kind"] == "Deployment") {
        let text = |field: &str| deployment["metadata"][field].as_str().unwrap_or_default();
        remote::ready(&remote, text("namespace"), text("name"), STAYS, &wait).await?;
        shell.status("Ready", format!("deployment {} in {}: {}", text("name"), text("namespace"), images(deployment)));
    }
    plan.write(is_webhook_configuration, &wait, shell).await?;
    shell.status("Finished", "the operator is deployed");
    Ok(())
}

/// Deletes the objects of the operator, and waits until they are gone.
pub(crate) async fn undeploy(arguments: UndeployArguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = objects(&project_folder()?)?;
    let remote = arguments.connection.connect().await?;
    shell.status("Undeploying", format!("from {remote}"));
    let wait = arguments.wait.start(clock, shell);
    remote::delete(&remote, &objects, arguments.ignore_not_found, &wait, shell).await?;
    shell.status("Finished", "the operator is deleted");
    Ok(())
}

fn images(deployment: &Value) -> String {
    let containers = deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let images = containers.into_iter().flatten().filter_map(|container| container["image"].as_str());
    images.collect::<Vec<_>>().join(", ")
}
