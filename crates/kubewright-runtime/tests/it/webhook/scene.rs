//! Shared test code: webhooks for ConfigMaps that follow instructions in the object, an API server, and managers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{ConfigMap, Secret, Service},
        discovery::v1::EndpointSlice,
    },
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kubewright_apiserver::ApiServer;
use kubewright_cluster::faults::{Faults, RecordedRequest, Verb};
use kubewright_runtime::{
    clock::{SystemClock, VirtualClock},
    manager::Manager,
    metrics::Metrics,
    probe::{BindAddress, Probes},
    random::Random,
    webhook::{
        self, Defaulter, Denied, ValidationErrors, Validator, Webhook, WebhookServer,
        manifests::{Target, configurations},
    },
};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::world::{Running, own_address, run};

/// Sets `data.default` to the name of the requesting user, and breaks the object as `data.break` says.
pub(super) struct Defaults;

impl Defaulter<ConfigMap> for Defaults {
    async fn set_defaults(&self, config: &mut ConfigMap, request: &webhook::Request) -> Result<(), Denied> {
        let data = config.data.get_or_insert_default();
        data.entry("default".into()).or_insert(request.user.username.clone().unwrap_or_default());
        match data.get("break").map(String::as_str) {
            Some("huge") => drop(data.insert("huge".into(), "x".repeat(7_500_000))),
            Some("label") => drop(config.metadata.labels.insert([("a b".into(), "c d".into())].into())),
            Some("namespace") => config.metadata.namespace = Some("another".into()),
            _ => {}
        }
        Ok(())
    }
}

/// Denies `data.bad` and `data.worse`, panics for `data.panic`, sleeps for `data.slow`, and denies the deletion of
/// objects with `data.keep`.
pub(super) struct Rules;

impl Validator<ConfigMap> for Rules {
    async fn validate_create(
        &self,
        config: &ConfigMap,
        request: &webhook::Request,
    ) -> Result<ValidationErrors, Denied> {
        let mut errors = ValidationErrors::default();
        for (key, value) in config.data.iter().flatten() {
            match key.as_str() {
                "bad" | "worse" => drop(errors.invalid(format!("data.{key}"), value, "must not be")),
                "panic" => panic!("on purpose"),
                "slow" => tokio::time::sleep(Duration::from_secs(3600)).await,
                "odd" => drop(errors.warn(format!("data.odd: dry run {}", request.dry_run))),
                _ => {}
            }
        }
        Ok(errors)
    }

    async fn validate_update(
        &self,
        old: &ConfigMap,
        new: &ConfigMap,
        request: &webhook::Request,
    ) -> Result<ValidationErrors, Denied> {
        let mut errors = self.validate_create(new, request).await?;
        let fixed = |config: &ConfigMap| config.data.as_ref().and_then(|data| data.get("fixed").cloned());
        if fixed(old) != fixed(new) {
            errors.forbidden("data.fixed", "it is");
        }
        Ok(errors)
    }

    async fn validate_delete(&self, config: &ConfigMap, _: &webhook::Request) -> Result<ValidationErrors, Denied> {
        let keep = config.data.as_ref().is_some_and(|data| data.contains_key("keep"));
        if keep { Err(Denied::forbidden("it is to be kept")) } else { Ok(ValidationErrors::default()) }
    }
}

pub(super) const NAME: &str = "tested";
const NAMESPACE: &str = "default";
pub(super) const SECRET: &str = "tested-webhook-server-cert";
pub(super) const DAY: SignedDuration = SignedDuration::from_hours(24);

pub(super) struct Scene {
    pub(super) clock: Arc<VirtualClock>,
    pub(super) server: ApiServer,
    pub(super) client: Client,
}

/// A running manager with access to its state.
pub(super) struct Replica {
    pub(super) metrics: Metrics,
    pub(super) address: SocketAddr,
    probes: Probes,
    faults: Faults,
    running: Running,
}

impl Replica {
    pub(super) async fn stop(self) {
        self.running.stop().await;
    }

    pub(super) async fn crash(self) {
        self.running.crash().await;
    }

    /// Returns the sum of a metric family.
    pub(super) fn count(&self, family: &str) -> f64 {
        let text = self.metrics.encode().unwrap();
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(family));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Returns whether the readiness check `webhook` passes, or `None` if it doesn't exist yet.
    pub(super) async fn check(&self) -> Option<bool> {
        let request = Request::get("/readyz/webhook").body(Body::empty()).unwrap();
        let code = self.probes.router().oneshot(request).await.unwrap().status();
        (code != 404).then_some(code == 200)
    }

    pub(super) async fn is_ready(&self) -> bool {
        self.check().await == Some(true)
    }

    /// Waits until the replica has checked the present state completely, and acted on it.
    pub(super) async fn looks(&self) {
        self.faults.forget();
        let is_look = |seen: &RecordedRequest| seen.request.resource == "secrets" && seen.request.verb == Verb::Get;
        // The first check may have begun before, and a new certificate is served with the check after the one that
        // created it.
        until("it has looked", async || self.faults.requests().iter().filter(|seen| is_look(seen)).count() > 3).await;
    }
}

impl Scene {
    pub(super) fn new() -> Self {
        crate::world::log();
        Self::at("2026-01-30T10:00:00Z".parse().unwrap())
    }

    /// A scene with the current time, for use with other programs.
    pub(super) fn now() -> Self {
        Self::at(SystemClock::shared().now())
    }

    fn at(start: Timestamp) -> Self {
        let clock = VirtualClock::starting_at(start);
        let api = ApiServer::builder().clock(clock.clone()).random(Random::seeded(7)).build();
        Self { clock, client: api.client(), server: api }
    }

    /// Returns a manager with the webhooks, which is not running yet.
    pub(super) fn manager(&self, server: WebhookServer) -> Manager {
        self.manager_of(self.client.clone(), server)
    }

    /// Returns a manager with the webhooks and this client, which is not running yet.
    pub(super) fn manager_of(&self, client: Client, server: WebhookServer) -> Manager {
        let webhook = Webhook::<ConfigMap>::new().defaulting(Defaults).validating(Rules).deletions();
        let server = server.name(NAME).interval(Duration::from_millis(20));
        Manager::new(client).clock(self.clock.clone()).webhook(webhook).webhook_server(server)
    }

    /// Runs a manager whose server listens on a separate address.
    pub(super) fn start(&self, change: impl FnOnce(WebhookServer) -> WebhookServer) -> Replica {
        let address = own_address();
        let server = WebhookServer::new(BindAddress::Host(address.ip().to_string(), address.port()));
        let metrics = Metrics::new(self.clock.clone());
        let faults = Faults::new();
        let manager = self.manager_of(faults.client(&self.client), change(server)).metrics(metrics.clone());
        let probes = manager.probes().clone();
        Replica { metrics, address, probes, faults, running: run(manager) }
    }

    /// Installs the webhook configurations as the manifests do: they refer to the service, which gets these endpoints.
    pub(super) async fn install(&self, endpoints: &[SocketAddr]) {
        let target = Target::Service { namespace: NAMESPACE.into(), name: format!("{NAME}-webhook-service") };
        let webhooks = self.manager(WebhookServer::local()).describe().webhooks;
        let made = configurations(&webhooks, NAME, &target, None);
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": format!("{NAME}-webhook-service")}, "spec": {"ports": [{"port": 443}]},
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &service).await.unwrap();
        self.lead_to(endpoints).await;
        self.all().create(&PostParams::default(), &made.mutating.unwrap()).await.unwrap();
        self.all().create(&PostParams::default(), &made.validating.unwrap()).await.unwrap();
    }

    /// Sets the endpoints of the service, of which the first that responds is used.
    pub(super) async fn lead_to(&self, endpoints: &[SocketAddr]) {
        let addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.ip().to_string()).collect();
        let slice: EndpointSlice = serde_json::from_value(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "hooks", "labels": {"kubernetes.io/service-name": format!("{NAME}-webhook-service")}},
            "addressType": "IPv4", "ports": [{"name": "", "port": endpoints[0].port()}],
            "endpoints": addresses.iter().map(|address| json!({"addresses": [address]})).collect::<Vec<_>>(),
        }))
        .unwrap();
        let params = PatchParams::apply("test").force();
        self.api::<EndpointSlice>().patch("hooks", &params, &Patch::Apply(slice)).await.unwrap();
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(super) fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Creates a ConfigMap with this data.
    pub(super) async fn create(&self, name: &str, data: Value) -> kube::Result<ConfigMap> {
        let config = serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap();
        self.api::<ConfigMap>().create(&PostParams::default(), &config).await
    }

    /// Creates a ConfigMap that must be denied; returns the status code and message.
    pub(super) async fn refused(&self, name: &str, data: Value) -> (u16, String) {
        match self.create(name, data).await.expect_err("it is refused") {
            kube::Error::Api(status) => (status.code, status.message),
            error => panic!("{error}"),
        }
    }

    /// Waits until the webhooks are called, by creating a valid ConfigMap, which is deleted afterwards.
    pub(super) async fn until_asked(&self) {
        until("the webhooks are asked", async || {
            let made = self.create("probe", json!({})).await;
            let asked =
                made.as_ref().is_ok_and(|made| made.data.as_ref().is_some_and(|data| data.contains_key("default")));
            if made.is_ok() {
                let _ = self.api::<ConfigMap>().delete("probe", &DeleteParams::default()).await;
            }
            asked
        })
        .await;
    }

    pub(super) async fn secret(&self) -> Option<Secret> {
        self.api::<Secret>().get_opt(SECRET).await.unwrap()
    }

    /// Returns the value of a key of the Secret.
    pub(super) async fn held(&self, key: &str) -> String {
        let secret = self.secret().await.expect("the secret");
        let ByteString(bytes) = secret.data.unwrap_or_default().remove(key).expect("the key");
        String::from_utf8(bytes).unwrap()
    }

    /// Returns the CA bundles of the two configurations.
    pub(super) async fn bundles(&self) -> Vec<String> {
        let bundle = |config: &k8s_openapi::api::admissionregistration::v1::WebhookClientConfig| {
            let bytes = config.ca_bundle.clone().unwrap_or_default().0;
            String::from_utf8(bytes).unwrap()
        };
        let mutating: MutatingWebhookConfiguration =
            self.all().get(&format!("{NAME}-mutating-webhook-configuration")).await.unwrap();
        let validating: ValidatingWebhookConfiguration =
            self.all().get(&format!("{NAME}-validating-webhook-configuration")).await.unwrap();
        let mutating = mutating.webhooks.into_iter().flatten().map(|webhook| bundle(&webhook.client_config));
        let validating = validating.webhooks.into_iter().flatten().map(|webhook| bundle(&webhook.client_config));
        mutating.chain(validating).collect()
    }
}

/// Waits for a condition, up to a minute of real time.
pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), holds).await.unwrap_or_else(|_| panic!("it never came: {what}"));
}
