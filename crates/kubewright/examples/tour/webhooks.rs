//! Webhooks: names are trimmed before a greeting is stored, and a greeting without names is rejected.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::Api;
use kubewright::{
    client::Client,
    prelude::*,
    webhook::{Denied, Request, ValidationErrors, WebhookServer},
};

use crate::{Greeting, GreetingSpec, cluster, start, until};

struct Tidy;

impl Defaulter<Greeting> for Tidy {
    async fn set_defaults(&self, greeting: &mut Greeting, _: &Request) -> Result<(), Denied> {
        greeting.spec.names.iter_mut().for_each(|name| *name = name.trim().to_lowercase());
        Ok(())
    }
}

struct Somebody;

impl Validator<Greeting> for Somebody {
    async fn validate_create(&self, greeting: &Greeting, _: &Request) -> Result<ValidationErrors, Denied> {
        let mut errors = ValidationErrors::default();
        if greeting.spec.names.is_empty() {
            errors.invalid("spec.names", &greeting.spec.names, "somebody must be greeted");
        }
        Ok(errors)
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let manager = Manager::new(cluster.client())
        .webhook(Webhook::<Greeting>::new().defaulting(Tidy).validating(Somebody))
        // On a free port of this machine, with a certificate of its own. In a cluster: flags, a Service, a Secret.
        .webhook_server(WebhookServer::local());
    let manager = start(manager);
    let installed: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let tidying: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let count = async || {
        let installed = installed.list(&Default::default()).await.map_or(0, |all| all.items.len());
        installed + tidying.list(&Default::default()).await.map_or(0, |all| all.items.len())
    };
    until("the webhooks are asked", async || count().await == 2).await?;

    let greetings = Client::new(cluster.client()).namespace("default").kind::<Greeting>();
    let greeting = |names: &[&str]| {
        Greeting::new("hello", GreetingSpec { names: names.iter().map(ToString::to_string).collect() })
    };
    let refused = greetings.create(&greeting(&[])).await.err().map(|error| error.to_string()).unwrap_or_default();
    anyhow::ensure!(refused.contains("somebody must be greeted"), "it says why: {refused}");
    let stored = greetings.create(&greeting(&[" Ada "])).await?;
    anyhow::ensure!(stored.spec.names == ["ada"], "it is tidied");
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
