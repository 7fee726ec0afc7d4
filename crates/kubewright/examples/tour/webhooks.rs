//! Webhooks: names are trimmed before a greeting is stored, and a greeting without names is rejected, or of somebody
//! who is greeted already. The validator reads the manager's cache and records an event about the earlier greeting.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::{Api, Resource};
use kubewright::{
    cache::Cached,
    client::Client,
    event::Recorder,
    prelude::*,
    webhook::{
        AdmissionHandler, AdmissionRule, AdmissionWebhook, Allowed, Denied, Operation, Request, ValidationErrors,
        WebhookServer,
    },
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

/// Nobody is greeted twice.
struct Once {
    greetings: Cached<Greeting>,
    recorder: Recorder,
}

impl Validator<Greeting> for Once {
    async fn validate_create(&self, greeting: &Greeting, request: &Request) -> Result<ValidationErrors, Denied> {
        let mut errors = ValidationErrors::default();
        let others = self.greetings.reader()?.list(request.namespace.as_deref(), &Selector::default());
        for (index, name) in greeting.spec.names.iter().enumerate() {
            let Some(other) = others.iter().find(|other| other.spec.names.contains(name)) else { continue };
            errors.duplicate(format!("spec.names[{index}]"), name);
            if !request.dry_run {
                self.recorder.record(
                    &other.object_ref(&()),
                    Event::warning("GreetedTwice", format!("also by {}", request.name)),
                );
            }
        }
        Ok(errors)
    }
}

/// Statuses are written by the controller only, which has not more than the wanted number of greetings.
struct Honest;

impl AdmissionHandler for Honest {
    async fn handle(&self, request: &Request) -> Result<Allowed, Denied> {
        let Some(greeting) = request.object::<Greeting>() else { return Ok(Allowed::unchanged()) };
        let greeted = greeting.status.map_or(0, |status| status.greeted);
        if greeted > greeting.spec.names.len() {
            return Err(Denied::forbidden(format!("{greeted} have not been greeted")));
        }
        Ok(Allowed::unchanged())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let manager = Manager::new(cluster.client());
    // Handles to what exists while the manager runs. They declare what they use.
    let known = manager.cached::<Greeting>();
    let once = Once { greetings: known.clone(), recorder: manager.recorder("greetings-webhook") };
    let status = AdmissionRule::of::<Greeting>().subresource("status").operations([Operation::Update]);
    let manager = manager
        .webhook(Webhook::<Greeting>::new().defaulting(Tidy).validating(Somebody).validating(once))
        // Subresources, connections and wildcards have no type: they are described by rules.
        .admission(AdmissionWebhook::validating("honest.tour.kubewright.dev", "/validate-status", Honest).rule(status))
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
    known.synced().await?;
    let greeting = |names: &[&str]| {
        Greeting::new("hello", GreetingSpec { names: names.iter().map(ToString::to_string).collect() })
    };
    let refused = greetings.create(&greeting(&[])).await.err().map(|error| error.to_string()).unwrap_or_default();
    anyhow::ensure!(refused.contains("somebody must be greeted"), "it says why: {refused}");
    let stored = greetings.create(&greeting(&[" Ada "])).await?;
    anyhow::ensure!(stored.spec.names == ["ada"], "it is tidied");
    until("it is in the cache", async || known.reader().is_ok_and(|known| known.len() == 1)).await?;
    let mut again = greeting(&["ada"]);
    again.metadata.name = Some("again".into());
    let refused = greetings.create(&again).await.err().map(|error| error.to_string()).unwrap_or_default();
    anyhow::ensure!(refused.contains("Duplicate value: \"ada\""), "it says why: {refused}");
    let boast = serde_json::json!({"status": {"greeted": 9}});
    let refused =
        greetings.status().patch::<Greeting, _>(&ObjectKey::cluster("hello"), &kube::api::Patch::Merge(boast)).await;
    anyhow::ensure!(refused.is_err_and(|error| error.is_forbidden()), "nine have not been greeted");
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
