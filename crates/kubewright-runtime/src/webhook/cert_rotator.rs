//! The rotation of self-managed certificates: the Secret that holds them, and the configurations that contain its
//! authorities.
//!
//! Every replica does the same at each interval, without a leader: it reads the configurations, then the Secret; renews
//! the certificates if they are due; writes the authorities where they are missing; and serves the certificate. The API
//! server settles conflicts: one replica creates the Secret or updates the version that it read, and the others use the
//! result. The order matters: configurations are read before the Secret and patched by version, so a replica never
//! replaces newer authorities by older ones. A certificate is served only after the configurations contain its
//! authority, except for the first one of a server that installs its configurations with its own URL: the API server
//! calls it from the first write on.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::join;
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
use tokio::time::{sleep, timeout};

use super::{
    Names, WebhookDescription, ca_bundle,
    manifests::{Configurations, Target, configurations, conversion},
};
use crate::{
    client::{explain, with_deadline},
    conversion::ConversionDescription,
    metrics::CertificateMetrics,
    tls::{
        CertResolver, CertifiedKey,
        authority::{KeyMaterial, Keys, renewed},
    },
};

const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Marks the Secret as managed by us.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "kubewright");
/// The number of immediate retries of a write that conflicts.
const TRIES: usize = 5;
/// How often in a row the configurations may not be writable until a first certificate is served without them.
const UNWRITTEN: u32 = 5;
/// The time for removing configurations. Reviews in flight wait for it when the server stops.
const REMOVAL: Duration = Duration::from_secs(5);
const FIELD_MANAGER: &str = "kubewright-webhooks";

/// A failed rotation. It is retried.
#[derive(Debug, Error)]
pub(super) enum RotationError {
    #[error("can't {verb} {target}: {}", explain(&**source))]
    Request {
        verb: &'static str,
        target: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("secret {0} exists without the label {label}={value}: delete it, or choose another name with --webhook-name", label = LABEL.0, value = LABEL.1)]
    Foreign(String),
    #[error("can't make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("gave up on {0} after repeated conflicts")]
    Busy(String),
    #[error("can't write a webhook configuration: {0}")]
    Encode(#[from] serde_json::Error),
    #[error("secret {0} contains no usable certificate")]
    Unusable(String),
}

impl RotationError {
    fn request(verb: &'static str, target: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let target = target.into();
        move |source| Self::Request { verb, target, source: Box::new(source) }
    }
}

/// Rotates the certificate.
pub(super) struct CertRotator {
    pub(super) client: Client,
    pub(super) clock: SharedClock,
    pub(super) metrics: CertificateMetrics,
    pub(super) names: Names,
    pub(super) namespace: String,
    pub(super) webhooks: Vec<WebhookDescription>,
    pub(super) conversions: Vec<ConversionDescription>,
    /// The URL with which to install the configurations, and its host.
    pub(super) url: Option<(String, String)>,
    pub(super) resolver: CertResolver,
    pub(super) keys: Keys,
    pub(super) known: RotationState,
}

/// The state kept between rotations.
#[derive(Default)]
pub(super) struct RotationState {
    material: Option<KeyMaterial>,
    /// The certificate that is served, in PEM.
    served: String,
    /// How often in a row a configuration couldn't be written.
    unwritten: u32,
    /// The last error that was logged.
    error: String,
    missing: BTreeSet<String>,
}

/// A webhook configuration or CustomResourceDefinition that must contain our authorities.
struct Configuration {
    api: Api<DynamicObject>,
    name: String,
    /// Whether it is a CustomResourceDefinition, of which only the conversion is ours.
    is_definition: bool,
    found: Option<Value>,
    /// The wanted content, if we install it.
    wanted: Option<Value>,
}

impl Configuration {
    async fn read(&mut self) -> Result<(), RotationError> {
        let object = self.api.get_opt(&self.name).await.map_err(RotationError::request("get", &self.name))?;
        self.found = object.map(serde_json::to_value).transpose()?;
        Ok(())
    }
}

impl CertRotator {
    /// Rotates the certificate at each interval. It never returns; `looked` is called after the first attempt, whether
    /// it succeeded or not.
    pub(super) async fn follow(mut self, interval: Duration, looked: impl FnOnce()) {
        const SOON: Duration = Duration::from_millis(500);
        self.client = with_deadline(&self.client);
        let (mut looked, mut failures) = (Some(looked), 0u32);
        loop {
            match self.rotate().await {
                Ok(()) => {
                    failures = 0;
                    self.known.error.clear();
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    match error {
                        // Replicas that start together conflict at first.
                        RotationError::Busy(_) if failures < 3 => tracing::debug!(%error, "retrying after a conflict"),
                        error => self.report(&error.to_string()),
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

    /// Logs an error, once while it stays the same.
    fn report(&mut self, error: &str) {
        if self.known.error != error {
            tracing::error!(error, "can't rotate the webhooks' certificate; retrying");
            self.known.error = error.into();
        }
    }

    /// Checks the Secret and all configurations once, and corrects them.
    async fn rotate(&mut self) -> Result<(), RotationError> {
        let (configurations, unread) = self.read_configurations().await?;
        let material = self.material(&self.configured(&configurations)).await?;
        // Behind a Service, a replica without a certificate is not ready, and therefore not called.
        if self.url.is_some() && !self.has_certificate() {
            self.serve(&material)?;
        }
        let has_changed = self.update_all(configurations, &material.authorities).await;
        let has_changed = unread.map_or(has_changed, Err);
        self.known.unwritten = if has_changed.is_ok() { 0 } else { self.known.unwritten.saturating_add(1) };
        let has_certificate = self.has_certificate();
        let is_ready = match has_changed {
            // API servers may take a moment to see a changed configuration. Without a valid certificate, no call
            // succeeds meanwhile either.
            Ok(has_changed) => !has_changed || !has_certificate,
            // They may lack our authority. If that doesn't change, one of several may have it.
            Err(_) => !has_certificate && self.known.unwritten > UNWRITTEN,
        };
        if is_ready {
            self.serve(&material)?;
        }
        has_changed?;
        self.known.material = Some(material);
        Ok(())
    }

    /// Returns whether a valid certificate is served.
    fn has_certificate(&self) -> bool {
        self.resolver.get().is_some_and(|served| served.is_valid_at(self.clock.now()))
    }

    /// Returns the authorities by which the configurations trust us now, in PEM.
    fn configured(&self, configurations: &[Configuration]) -> String {
        let service = self.names.service();
        let is_ours = |client: &Value| match &self.url {
            Some((url, _)) => client["url"].as_str().is_some_and(|target| target.starts_with(url)),
            None => client["service"]["namespace"] == *self.namespace && client["service"]["name"] == *service,
        };
        let found = configurations.iter().filter_map(|configuration| configuration.found.as_ref());
        found.map(|found| ca_bundle::authorities(found, is_ours)).collect()
    }

    /// Writes these authorities into all configurations. Returns whether one was changed.
    ///
    /// # Errors
    /// That of the first one that can't be written. The others are written all the same.
    async fn update_all(
        &mut self,
        configurations: Vec<Configuration>,
        authorities: &str,
    ) -> Result<bool, RotationError> {
        let (mut has_changed, mut failed) = (false, None);
        for mut configuration in configurations {
            match self.update(&mut configuration, authorities).await {
                Ok(was_changed) => has_changed |= was_changed,
                // Conflicts pass: what doesn't is reported rather than those.
                Err(error) if matches!(failed, None | Some(RotationError::Busy(_))) => failed = Some(error),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(has_changed), Err)
    }

    fn serve(&mut self, material: &KeyMaterial) -> Result<(), RotationError> {
        if self.known.served == material.certificate {
            return Ok(());
        }
        let key = CertifiedKey::read(material.certificate.as_bytes(), material.key.as_bytes());
        self.metrics.read_certificate(key.is_ok());
        self.resolver.set(key.map_err(|_| RotationError::Unusable(self.names.secret()))?);
        self.known.served.clone_from(&material.certificate);
        Ok(())
    }

    /// Returns the host names and addresses that the certificate must contain.
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

    /// Returns the content of the Secret, after creating or renewing it if needed. `configured` are the authorities
    /// that the configurations contain.
    async fn material(&self, configured: &str) -> Result<KeyMaterial, RotationError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = self.names.secret();
        let target = format!("secret {}/{name}", self.namespace);
        for _ in 0..TRIES {
            let secret = secrets.get_opt(&name).await.map_err(RotationError::request("get", &target))?;
            let found = secret.as_ref().map(read);
            let (known, hosts, now) = (self.known.material.as_ref(), self.hosts(), self.clock.now());
            let wanted = renewed(&self.keys, found.as_ref(), known, configured, &hosts, now)?;
            let Some(wanted) = wanted else {
                return Ok(found.unwrap_or_default());
            };
            if secret.as_ref().is_some_and(|secret| !is_ours(secret)) {
                return Err(RotationError::Foreign(format!("{}/{name}", self.namespace)));
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
                // Another replica was faster, or the Secret was deleted: read it again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(RotationError::request("write", target)(error)),
            }
        }
        Err(RotationError::Busy(target))
    }

    /// Reads the configurations. Returns those that can be read, and the first error of the others.
    ///
    /// # Errors
    /// If none can be read.
    async fn read_configurations(&self) -> Result<(Vec<Configuration>, Option<RotationError>), RotationError> {
        let (mut read, mut failed) = (Vec::new(), None);
        for mut configuration in self.wanted(None)? {
            match configuration.read().await {
                Ok(()) => read.push(configuration),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if read.is_empty() => Err(error),
            failed => Ok((read, failed)),
        }
    }

    /// Returns the configurations as they should be, with these authorities.
    fn wanted(&self, authorities: Option<&str>) -> Result<Vec<Configuration>, RotationError> {
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

    /// Warns about a configuration, once.
    fn warn(&mut self, name: &str, why: &str) {
        if self.known.missing.insert(name.to_owned()) {
            tracing::warn!("webhook configuration {name} {why}");
        }
    }

    /// Writes these authorities into a configuration. Returns whether it was changed.
    async fn update(&mut self, configuration: &mut Configuration, authorities: &str) -> Result<bool, RotationError> {
        let Configuration { api, name, is_definition, found, wanted } = configuration;
        if *is_definition && found.is_none() {
            let why = "doesn't exist: no versions are converted until it does";
            self.warn(name, why);
            return Ok(false);
        }
        if wanted.is_some() {
            let made = self.wanted(Some(authorities))?.into_iter().find(|made| made.name == *name);
            let wanted = made.and_then(|made| made.wanted).unwrap_or_default();
            if found.as_ref().is_some_and(|found| ca_bundle::contains(found, &wanted)) {
                return Ok(false);
            }
            let (params, patch) = if *is_definition {
                let mut wanted = wanted;
                // A manifest may have set the service, and the API server accepts only one of URL and service.
                wanted["spec"]["conversion"]["webhook"]["clientConfig"]["service"] = Value::Null;
                let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                (params, Patch::Merge(wanted))
            } else {
                (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(wanted))
            };
            api.patch(name, &params, &patch).await.map_err(RotationError::request("apply", name.as_str()))?;
            tracing::info!(configuration = *name, "installed the webhook configuration");
            return Ok(true);
        }
        let service = self.names.service();
        let refers_here = found.as_ref().is_some_and(|found| ca_bundle::refers_to(found, &self.namespace, &service));
        if !refers_here {
            let what = if *is_definition { "doesn't refer" } else { "doesn't exist or doesn't refer" };
            let place = if *is_definition { "config/crd" } else { "config/webhook" };
            let why = format!(
                "{what} to service {}/{service}, so the API server doesn't call these webhooks: apply {place}, or outside \
                 of a cluster use --webhook-url",
                self.namespace
            );
            self.warn(name, &why);
        }
        let Some(operations) = found
            .as_ref()
            .and_then(|found| ca_bundle::patch(found, &self.namespace, &service, authorities))
            .and_then(|operations| serde_json::from_value(operations).ok())
        else {
            return Ok(false);
        };
        let patch: Patch<()> = Patch::Json(operations);
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => {
                tracing::info!(configuration = *name, "wrote the certificate authority into the webhook configuration");
                Ok(true)
            }
            // Changed or deleted since it was read: the next rotation reads it again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                Err(RotationError::Busy(name.clone()))
            }
            Err(error) => Err(RotationError::request("patch", name.as_str())(error)),
        }
    }
}

/// Deletes the configurations that were installed with a URL, which is served no longer. CustomResourceDefinitions keep
/// theirs: a request that needs a conversion must fail rather than return an object that was converted incompletely.
pub(super) async fn remove(client: &Client, names: &Names) {
    let gone = |error: kube::Error| match error {
        kube::Error::Api(status) if status.code == 404 => {}
        error => tracing::warn!(error = %explain(&error), "can't remove a webhook configuration"),
    };
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let (names, params) = ((names.mutating(), names.validating()), DeleteParams::default());
    let removal = async {
        let removed = join(mutating.delete(&names.0, &params), validating.delete(&names.1, &params)).await;
        let _ = (removed.0.map_err(gone), removed.1.map_err(gone));
    };
    if timeout(REMOVAL, removal).await.is_err() {
        tracing::warn!("the webhook configurations may not be removed: no answer for {REMOVAL:?}");
    }
}

fn read(secret: &Secret) -> KeyMaterial {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    };
    KeyMaterial {
        authorities: text(AUTHORITIES),
        authority_key: text(AUTHORITY_KEY),
        certificate: text(CERTIFICATE),
        key: text(KEY),
    }
}

/// Returns whether the Secret has our label, or is empty.
fn is_ours(secret: &Secret) -> bool {
    let label = secret.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL.0));
    label.is_some_and(|value| value == LABEL.1) || secret.data.as_ref().is_none_or(BTreeMap::is_empty)
}

fn write(mut secret: Secret, name: &str, material: &KeyMaterial) -> Secret {
    let KeyMaterial { authorities, authority_key, certificate, key } = material;
    let values = [(AUTHORITIES, authorities), (AUTHORITY_KEY, authority_key), (CERTIFICATE, certificate), (KEY, key)];
    let data = secret.data.get_or_insert_default();
    data.extend(values.map(|(key, value)| (key.to_owned(), ByteString(value.clone().into_bytes()))));
    let ObjectMeta { labels, name: own, .. } = &mut secret.metadata;
    labels.get_or_insert_default().insert(LABEL.0.into(), LABEL.1.into());
    *own = Some(name.into());
    secret.type_.get_or_insert_with(|| "kubernetes.io/tls".into());
    secret
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::{Request, Response};
    use kube::client::Body;
    use kubewright_apimachinery::clock::VirtualClock;
    use prometheus::Registry;
    use tower::service_fn;

    use super::{super::WebhookServer, *};

    /// Returns a client of an API server that receives requests and never answers, and counts them.
    fn silent() -> (Client, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let server = service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        (Client::new(server, "default"), count)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_answered_is_repeated() {
        let (client, count) = silent();
        let rotator = CertRotator {
            client,
            clock: VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH),
            metrics: CertificateMetrics::new(&Registry::new()),
            names: WebhookServer::local().names(),
            namespace: "default".into(),
            webhooks: Vec::new(),
            conversions: Vec::new(),
            url: None,
            resolver: CertResolver::new("webhooks"),
            keys: Keys::System,
            known: RotationState::default(),
        };
        let follow = rotator.follow(Duration::from_secs(60), || ());
        assert!(timeout(Duration::from_secs(600), follow).await.is_err(), "it never returns");
        assert!((4..10).contains(&count.load(Ordering::Relaxed)), "{count:?} requests in ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_does_not_wait_for_an_api_server_that_does_not_answer() {
        let (client, count) = silent();
        let names = WebhookServer::local().names();
        timeout(Duration::from_secs(10), remove(&client, &names)).await.expect("it gives up");
        assert_eq!(count.load(Ordering::Relaxed), 2, "both were to be deleted");
    }
}
