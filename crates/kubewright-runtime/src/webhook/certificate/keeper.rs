//! Self-managed certificates: the Secret, and the objects that must know its authorities.
//!
//! Every replica does the same, again and again, without a leader: it reads the configurations, then the Secret; renews
//! that if it must; writes the authorities where they are missing; and serves. What two do at once is settled by the API
//! server: one creates the Secret, or updates the version that it has read, and the other uses that. The order matters:
//! the configurations are read first and patched by version, so that nobody overwrites newer authorities by older ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use kubewright_apimachinery::clock::SharedClock;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::sleep;

use super::{
    Pair, Slot,
    authority::{Material, renewed},
    bundle,
};
use crate::{
    client::explain,
    conversion::ConversionDescription,
    metrics::CertificateMetrics,
    webhook::{
        Names, WebhookDescription,
        manifests::{Configurations, Target, configurations, conversion},
    },
};

const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Says that the Secret is ours to change.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "kubewright");
/// How often a write that others are faster with is tried again at once.
const TRIES: usize = 5;
const FIELD_MANAGER: &str = "kubewright-webhooks";

/// Why the certificate can't be looked after now. It is tried again.
#[derive(Debug, Error)]
pub(super) enum KeeperError {
    #[error("can't {verb} {target}: {}", explain(&**source))]
    Request {
        verb: &'static str,
        target: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("secret {0} exists and isn't ours (it has no label {label}={value}): delete it, or choose another name with \
             --webhook-name", label = LABEL.0, value = LABEL.1)]
    Foreign(String),
    #[error("can't make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("others change {0} faster than we can")]
    Busy(String),
    #[error("can't write a webhook configuration: {0}")]
    Encode(#[from] serde_json::Error),
    #[error("secret {0} holds no usable certificate")]
    Unusable(String),
}

impl KeeperError {
    fn request(verb: &'static str, target: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let target = target.into();
        move |source| Self::Request { verb, target, source: Box::new(source) }
    }
}

/// Who looks after the certificate.
pub(in crate::webhook) struct Keeper {
    pub(in crate::webhook) client: Client,
    pub(in crate::webhook) clock: SharedClock,
    pub(in crate::webhook) metrics: CertificateMetrics,
    pub(in crate::webhook) names: Names,
    pub(in crate::webhook) namespace: String,
    pub(in crate::webhook) webhooks: Vec<WebhookDescription>,
    pub(in crate::webhook) conversions: Vec<ConversionDescription>,
    /// Installs the configurations with this URL, and the host in it.
    pub(in crate::webhook) url: Option<(String, String)>,
    pub(in crate::webhook) slot: Slot,
    pub(in crate::webhook) known: Known,
}

/// What is remembered from one look to the next.
#[derive(Default)]
pub(in crate::webhook) struct Known {
    material: Option<Material>,
    /// The certificate that is served, in PEM.
    served: String,
    trouble: String,
    missing: BTreeSet<String>,
}

/// A configuration that should know our authorities, or a definition that should.
struct Configuration {
    api: Api<DynamicObject>,
    name: String,
    /// It is another's, of which only a part is ours.
    is_definition: bool,
    found: Option<Value>,
    /// What it is to be, where we install it.
    wanted: Option<Value>,
}

impl Keeper {
    /// Looks after it for ever. `looked` hears when that was done for the first time, well or not.
    pub(in crate::webhook) async fn follow(mut self, interval: Duration, looked: impl FnOnce()) {
        const SOON: Duration = Duration::from_millis(500);
        let (mut looked, mut failures) = (Some(looked), 0u32);
        loop {
            match self.look().await {
                Ok(()) => {
                    failures = 0;
                    self.known.trouble.clear();
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    match error {
                        // Replicas that start at once: one of them only has to look again.
                        KeeperError::Busy(_) if failures < 3 => tracing::debug!(%error, "looking again"),
                        error => self.tell(&error.to_string()),
                    }
                }
            }
            if let Some(looked) = looked.take() {
                looked();
            }
            let wait = match failures {
                0 => interval,
                failures => interval.min(SOON.saturating_mul(1 << failures.min(8))),
            };
            sleep(wait).await;
        }
    }

    /// The same trouble is told once.
    fn tell(&mut self, trouble: &str) {
        if self.known.trouble != trouble {
            tracing::error!(error = trouble, "can't look after the webhooks' certificate; trying again");
            self.known.trouble = trouble.into();
        }
    }

    /// One look at everything, which mends what must be.
    async fn look(&mut self) -> Result<(), KeeperError> {
        let mut configurations = self.read_configurations().await?;
        let material = self.settle().await?;
        if self.slot.get().is_none_or(|served| !served.is_valid_at(self.clock.now())) {
            self.serve(&material)?;
        }
        let mut has_changed = false;
        for configuration in &mut configurations {
            has_changed |= self.mend(configuration, &material.authorities).await?;
        }
        // Who has only just been told of an authority may take a moment to hear of it.
        if !has_changed {
            self.serve(&material)?;
        }
        self.known.material = Some(material);
        Ok(())
    }

    fn serve(&mut self, material: &Material) -> Result<(), KeeperError> {
        if self.known.served == material.certificate {
            return Ok(());
        }
        let pair = Pair::read(material.certificate.as_bytes(), material.key.as_bytes());
        self.metrics.read_certificate(pair.is_ok());
        self.slot.set(pair.map_err(|_| KeeperError::Unusable(self.names.secret()))?);
        self.known.served.clone_from(&material.certificate);
        Ok(())
    }

    /// The host names and addresses that the certificate must be for.
    fn hosts(&self) -> Vec<String> {
        let (service, namespace) = (self.names.service(), &self.namespace);
        let mut hosts = vec![
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
            format!("{service}.{namespace}"),
        ];
        hosts.extend(self.url.iter().map(|(_, host)| host.clone()));
        hosts
    }

    /// What the Secret holds, after it was created or renewed if need be, by us or by another.
    async fn settle(&self) -> Result<Material, KeeperError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = self.names.secret();
        let target = format!("secret {}/{name}", self.namespace);
        for _ in 0..TRIES {
            let secret = secrets.get_opt(&name).await.map_err(KeeperError::request("get", &target))?;
            let found = secret.as_ref().map(read);
            let wanted = renewed(found.as_ref(), self.known.material.as_ref(), &self.hosts(), self.clock.now())?;
            let Some(wanted) = wanted else {
                return Ok(found.unwrap_or_default());
            };
            if secret.as_ref().is_some_and(|secret| !is_ours(secret)) {
                return Err(KeeperError::Foreign(format!("{}/{name}", self.namespace)));
            }
            let wrote = match secret {
                None => secrets.create(&PostParams::default(), &write(Secret::default(), &name, &wanted)).await,
                Some(secret) => secrets.replace(&name, &PostParams::default(), &write(secret, &name, &wanted)).await,
            };
            match wrote {
                Ok(_) => {
                    tracing::info!(secret = name, "renewed the webhooks' certificate");
                    return Ok(wanted);
                }
                // Another was faster, or has deleted it: what is there now counts.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(KeeperError::request("write", target)(error)),
            }
        }
        Err(KeeperError::Busy(target))
    }

    async fn read_configurations(&self) -> Result<Vec<Configuration>, KeeperError> {
        let mut configurations = self.made(None)?;
        for configuration in &mut configurations {
            let Configuration { api, name, found, .. } = configuration;
            let object = api.get_opt(name).await.map_err(KeeperError::request("get", name.as_str()))?;
            *found = object.map(serde_json::to_value).transpose()?;
        }
        Ok(configurations)
    }

    /// The configurations there should be, with these authorities.
    fn made(&self, authorities: Option<&str>) -> Result<Vec<Configuration>, KeeperError> {
        let target = match &self.url {
            Some((url, _)) => Target::Url(url.clone()),
            None => Target::Service { namespace: self.namespace.clone(), name: self.names.service() },
        };
        let Configurations { mutating, validating } =
            configurations(&self.webhooks, self.names.base(), &target, authorities);
        let configuration = |resource: &ApiResource, name: String, wanted: Value| {
            let api = Api::all_with(self.client.clone(), resource);
            let wanted = self.url.is_some().then_some(wanted);
            Configuration { api, name, is_definition: false, found: None, wanted }
        };
        let mut made = Vec::new();
        if let Some(mutating) = mutating {
            let resource = ApiResource::erase::<MutatingWebhookConfiguration>(&());
            made.push(configuration(&resource, self.names.mutating(), serde_json::to_value(mutating)?));
        }
        if let Some(validating) = validating {
            let resource = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
            made.push(configuration(&resource, self.names.validating(), serde_json::to_value(validating)?));
        }
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        for description in &self.conversions {
            let wanted = json!({"spec": {"conversion": conversion(&target, authorities)}});
            let configuration = configuration(&resource, description.definition(), wanted);
            made.push(Configuration { is_definition: true, ..configuration });
        }
        Ok(made)
    }

    /// Says what a configuration lacks, once.
    fn miss(&mut self, name: &str, why: &str) {
        if self.known.missing.insert(name.to_owned()) {
            tracing::warn!("webhook configuration {name} {why}");
        }
    }

    /// Makes a configuration know these authorities. Says whether it was changed.
    async fn mend(&mut self, configuration: &mut Configuration, authorities: &str) -> Result<bool, KeeperError> {
        let Configuration { api, name, is_definition, found, wanted } = configuration;
        if *is_definition && found.is_none() {
            let why = "is not there: no version is converted before it is";
            self.miss(name, why);
            return Ok(false);
        }
        if wanted.is_some() {
            let made = self.made(Some(authorities))?.into_iter().find(|made| made.name == *name);
            let wanted = made.and_then(|made| made.wanted).unwrap_or_default();
            if found.as_ref().is_some_and(|found| bundle::has(found, &wanted)) {
                return Ok(false);
            }
            let (params, patch) = if *is_definition {
                let mut wanted = wanted;
                // Manifests may have said otherwise, and one of the two is all there may be.
                wanted["spec"]["conversion"]["webhook"]["clientConfig"]["service"] = Value::Null;
                let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                (params, Patch::Merge(wanted))
            } else {
                (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(wanted))
            };
            api.patch(name, &params, &patch).await.map_err(KeeperError::request("apply", name.as_str()))?;
            tracing::info!(configuration = *name, "installed the webhook configuration");
            return Ok(true);
        }
        let service = self.names.service();
        let leads_here = found.as_ref().is_some_and(|found| bundle::leads_to(found, &self.namespace, &service));
        if !leads_here {
            let what = if *is_definition { "doesn't lead" } else { "is not there, or doesn't lead" };
            let place = if *is_definition { "config/crd" } else { "config/webhook" };
            let why = format!(
                "{what} to service {}/{service}: the API server won't ask these webhooks; apply {place}, or outside of a \
                 cluster use --webhook-url",
                self.namespace
            );
            self.miss(name, &why);
        }
        let Some(operations) = found
            .as_ref()
            .and_then(|found| bundle::patch(found, &self.namespace, &service, authorities))
            .and_then(|operations| serde_json::from_value(operations).ok())
        else {
            return Ok(false);
        };
        let patch: Patch<()> = Patch::Json(operations);
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => {
                tracing::info!(configuration = *name, "the webhook configuration knows our certificate's authority");
                Ok(true)
            }
            // Changed since it was read, or gone: the next look sees what is there then.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                Err(KeeperError::Busy(name.clone()))
            }
            Err(error) => Err(KeeperError::request("patch", name.as_str())(error)),
        }
    }
}

/// Takes away the configurations that were installed with a URL, since no one will answer there. Definitions keep theirs: who
/// reads an object without its conversion is better refused than shown half of it.
pub(in crate::webhook) async fn remove(client: &Client, names: &Names) {
    let gone = |error: kube::Error| match error {
        kube::Error::Api(status) if status.code == 404 => {}
        error => tracing::warn!(error = %explain(&error), "can't remove a webhook configuration"),
    };
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let _ = mutating.delete(&names.mutating(), &DeleteParams::default()).await.map_err(gone);
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let _ = validating.delete(&names.validating(), &DeleteParams::default()).await.map_err(gone);
}

fn read(secret: &Secret) -> Material {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    };
    Material {
        authorities: text(AUTHORITIES),
        authority_key: text(AUTHORITY_KEY),
        certificate: text(CERTIFICATE),
        key: text(KEY),
    }
}

/// Whether it has our label, or nothing to lose.
fn is_ours(secret: &Secret) -> bool {
    let label = secret.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL.0));
    label.is_some_and(|value| value == LABEL.1) || secret.data.as_ref().is_none_or(BTreeMap::is_empty)
}

fn write(mut secret: Secret, name: &str, material: &Material) -> Secret {
    let Material { authorities, authority_key, certificate, key } = material;
    let values = [(AUTHORITIES, authorities), (AUTHORITY_KEY, authority_key), (CERTIFICATE, certificate), (KEY, key)];
    let data = secret.data.get_or_insert_default();
    data.extend(values.map(|(key, value)| (key.to_owned(), ByteString(value.clone().into_bytes()))));
    let ObjectMeta { labels, name: own, .. } = &mut secret.metadata;
    labels.get_or_insert_default().insert(LABEL.0.into(), LABEL.1.into());
    *own = Some(name.into());
    secret.type_.get_or_insert_with(|| "kubernetes.io/tls".into());
    secret
}
