//! The API server: its builder, its clients, and the service that handles requests.

use std::{
    convert::Infallible,
    future::Future,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
    status::Status,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    action::{Action, Actions},
    admission::Admission,
    aggregation::Aggregation,
    audit::AuditLog,
    auth::{Anonymous, Authenticator, Authorization, Issuer, TokenReviewer, UserInfo},
    authorizer::{AlwaysAllow, AlwaysDeny, AuthorizationMode, Reviewed, Step},
    body::BoxError,
    certificate_authority::CertificateAuthority,
    compaction::Compaction,
    decoding,
    feed::Feed,
    handlers,
    kubelet::Kubelets,
    listener::{ListenError, ListenOptions, Listener},
    managed_fields::{Conversions, Manager},
    meta,
    openapi::OpenApi,
    plugins::{AdmissionPlugin, Plugins},
    registry::{
        Registry, Resource,
        builtin::{
            self, BootstrapObject, ServiceRange, pod_security::PodSecurityConfig, resource_metrics::ResourceMetrics,
        },
    },
    response::Response,
    state::State,
    storage::{Checkpoint, DataDirError, DiskOptions, Durability, Key, Limits, Mutation, Store, WriteError},
    tls::{self, ClientCredentials, TlsError},
    usage::Usage,
    webhook_client::WebhookClient,
    webhook_transport::WebhookTransport,
};

/// The `User-Agent` of in-process clients.
const USER_AGENT: &str = "kubewright";

/// The default interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// The embedded API server. Clones share one server. It spawns no tasks: each request runs in its caller's task.
#[derive(Clone, Debug)]
pub struct ApiServer {
    state: Arc<State>,
}

/// Builds an [`ApiServer`].
#[derive(Debug, Default)]
pub struct ApiServerBuilder {
    clock: Option<SharedClock>,
    random: Option<Random>,
    limits: Limits,
    actions: Actions,
    node: Option<String>,
    components: Vec<String>,
    issuer: Issuer,
    durability: Durability,
    service_account_admission: bool,
    anonymous: Anonymous,
    authorization_modes: Option<Vec<AuthorizationMode>>,
    static_tokens: Vec<(String, UserInfo)>,
    token_reviewers: Vec<Arc<dyn TokenReviewer>>,
    node_restriction: bool,
    plugins: Plugins,
    pod_security: PodSecurityConfig,
    audit_log: Option<Arc<AuditLog>>,
    service_range: ServiceRange,
    certificate_authority: CertificateAuthority,
    credentials: Option<ClientCredentials>,
    metrics: Option<Arc<dyn ResourceMetrics>>,
    webhook_transport: Option<Arc<dyn WebhookTransport>>,
    bookmark_interval: Option<Duration>,
    checkpoint: Option<Checkpoint>,
}

/// What a server keeps in its data directory beside the objects.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    authority: String,
    authority_key: String,
    client: ClientCredentials,
    service_account_key: String,
}

impl Kept {
    fn generate() -> Result<Vec<u8>, DataDirError> {
        let make = || {
            let ca = CertificateAuthority::default();
            let (authority, authority_key) = (ca.certificate()?, ca.key()?);
            let client = ClientCredentials::generate(&ca)?;
            Ok::<_, TlsError>(Self {
                authority,
                authority_key,
                client,
                service_account_key: tls::service_account_key()?,
            })
        };
        serde_json::to_vec(&make().map_err(DataDirError::credentials)?).map_err(DataDirError::credentials)
    }
}

impl ApiServerBuilder {
    /// Sets the clock. Defaults to the system clock.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the random source of UIDs and generated names. Defaults to one seeded by the operating system.
    pub fn random(mut self, random: Random) -> Self {
        self.random = Some(random);
        self
    }

    /// Sets the number of changes of each resource that are kept for watches and consistent paging. By default, these
    /// are 10,000, and up to 102,400 of the last five minutes, in at most some 20 MB.
    pub fn history(mut self, changes: usize) -> Self {
        (self.limits.events, self.limits.recent_events) = (changes, changes);
        self
    }

    /// Sets the action that handles a subresource, such as `("", "v1", "pods", "log")`. The registry must contain the
    /// subresource.
    pub fn action(
        mut self,
        group: &str,
        version: &str,
        plural: &str,
        subresource: &str,
        action: Arc<dyn Action>,
    ) -> Self {
        self.actions.insert([group, version, plural, subresource], action);
        self
    }

    /// Sets the node whose kubelet is part of this process: actions answer requests for this node and its pods.
    /// Requests for other nodes and their pods are sent to the kubelets of these nodes, over TLS and with a client
    /// certificate of the server's authority. By default, requests for all nodes are.
    pub fn node(mut self, name: &str) -> Self {
        self.node = Some(name.into());
        self
    }

    /// Reports a component of the control plane as healthy in `componentstatuses`: `controller-manager` or `scheduler`.
    pub fn component(mut self, name: &str) -> Self {
        self.components.push(name.into());
        self
    }

    /// Sets the range that addresses of services are allocated from. Addresses of a stored service outside of it are
    /// kept.
    pub fn service_range(mut self, range: ServiceRange) -> Self {
        self.service_range = range;
        self
    }

    /// Serves `metrics.k8s.io`, which `kubectl top` reads, with measurements of a source. By default, the group isn't
    /// served.
    pub fn resource_metrics(mut self, source: Arc<dyn ResourceMetrics>) -> Self {
        self.metrics = Some(source);
        self
    }

    /// Sets the interval at which a watch that asks for bookmarks gets one. Defaults to a minute, as in Kubernetes. A
    /// watch that ends in time gets one then, too.
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.bookmark_interval = Some(interval);
        self
    }

    /// Calls all webhooks through a transport within the process. By default, they are called over HTTPS.
    pub fn webhook_transport(mut self, transport: Arc<dyn WebhookTransport>) -> Self {
        self.webhook_transport = Some(transport);
        self
    }

    /// Sets the issuer of service account tokens. Defaults to `https://kubernetes.default.svc.cluster.local`.
    pub fn service_account_issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer.set_name(issuer.into());
        self
    }

    /// Sets the audiences of this server, as `--api-audiences` of kube-apiserver does: service account tokens have them
    /// by default, and need one of them. Defaults to the issuer.
    pub fn api_audiences(mut self, audiences: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.issuer.set_audiences(audiences.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the key that signs service account tokens, in PEM. By default, the server generates one.
    ///
    /// # Errors
    /// If it isn't a private key for ECDSA on P-256 or for RSA (of 2,048 to 4,096 bits).
    pub fn service_account_key(mut self, pem: &str) -> Result<Self, TlsError> {
        match self.issuer.set_key(pem) {
            true => Ok(self),
            false => Err(TlsError::ServiceAccountKey),
        }
    }

    /// Admits pods by their service accounts, as the admission plugin `ServiceAccount`: a pod without an account gets
    /// `default`, an account that doesn't exist is refused, and a volume with the account's token is added. Defaults to
    /// false, because something has to create the accounts and the ConfigMap `kube-root-ca.crt` of each namespace, as
    /// the cluster's controllers do.
    pub fn service_account_admission(mut self, enabled: bool) -> Self {
        self.service_account_admission = enabled;
        self
    }

    /// Sets whether requests without credentials are those of the user `system:anonymous`, as `--anonymous-auth`; they
    /// are refused with 401 otherwise. Defaults to true.
    pub fn anonymous_auth(mut self, enabled: bool) -> Self {
        self.anonymous = if enabled { Anonymous::Everywhere } else { Anonymous::Nowhere };
        self
    }

    /// Sets the paths for which requests without credentials are those of the user `system:anonymous`, as the
    /// conditions of `anonymous` in an `AuthenticationConfiguration`. They are compared as a whole. Other requests
    /// without credentials are refused with 401.
    pub fn anonymous_paths(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.anonymous = Anonymous::Paths(paths.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the modes of authorization, of which the first that allows a request decides, as `--authorization-mode`.
    /// Users in `system:masters` are always allowed everything. Defaults to [`AuthorizationMode::Rbac`].
    pub fn authorization_modes(mut self, modes: impl IntoIterator<Item = AuthorizationMode>) -> Self {
        self.authorization_modes = Some(modes.into_iter().collect());
        self
    }

    /// Adds a user who is identified by a bearer token, as `--token-auth-file`. Like all users with credentials, it
    /// gets the group `system:authenticated`. The last user with the same token counts.
    pub fn static_token(mut self, token: impl Into<String>, user: UserInfo) -> Self {
        self.static_tokens.push((token.into(), user));
        self
    }

    /// Adds a reviewer of bearer tokens that the server doesn't know, as `--authentication-config` and
    /// `--authentication-token-webhook-config-file`. Reviewers are asked in their order until one knows the token.
    /// Defaults to none.
    pub fn token_reviewer(mut self, reviewer: Arc<dyn TokenReviewer>) -> Self {
        self.token_reviewers.push(reviewer);
        self
    }

    /// Limits nodes to changes of themselves and their pods, whatever they are authorized for, as the admission plugin
    /// `NodeRestriction`. Defaults to false, as in Kubernetes.
    pub fn node_restriction(mut self, enabled: bool) -> Self {
        self.node_restriction = enabled;
        self
    }

    /// Turns an admission plugin off.
    pub fn without_admission_plugin(mut self, plugin: AdmissionPlugin) -> Self {
        self.plugins.turn_off(plugin);
        self
    }

    /// Configures the admission plugin `PodSecurity`: the levels of namespaces without labels, and exemptions. By
    /// default, such namespaces are privileged.
    pub fn pod_security(mut self, config: PodSecurityConfig) -> Self {
        self.pod_security = config;
        self
    }

    /// Records requests in an audit log, as its policy selects them
    /// (<https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/>). Defaults to none.
    ///
    /// ```
    /// use kubewright_apiserver::{ApiServer, AuditLog, AuditPolicy};
    /// use serde_json::json;
    ///
    /// let policy = AuditPolicy::from_value(json!({
    ///     "apiVersion": "audit.k8s.io/v1",
    ///     "kind": "Policy",
    ///     "omitStages": ["RequestReceived"],
    ///     "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch", "delete"]}],
    /// }))?;
    /// let server = ApiServer::builder().audit_log(AuditLog::new(policy, std::io::sink())).build();
    /// # Ok::<(), kubewright_apiserver::AuditPolicyError>(())
    /// ```
    pub fn audit_log(mut self, log: AuditLog) -> Self {
        self.audit_log = Some(Arc::new(log));
        self
    }

    /// Sets what an answered change survives if the server has a [data directory](Self::open). Defaults to
    /// [`Durability::Process`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Starts with the objects of another server, those that every cluster contains among them, instead of creating
    /// these. UIDs and resource versions stay, and resource versions continue. The other server has to have the same
    /// settings. It costs some microseconds for each object, and shares their memory. Only for [`build`](Self::build).
    pub fn checkpoint(mut self, checkpoint: &Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint.clone());
        self
    }

    /// Builds the server, with the objects that every cluster contains. It keeps all objects in memory only.
    pub fn build(self) -> ApiServer {
        let store = match &self.checkpoint {
            Some(checkpoint) => Store::from_checkpoint(checkpoint, self.limits),
            None => Store::new(self.limits),
        };
        let (server, seeded) = self.start(store);
        // A store in memory can't fail.
        debug_assert!(seeded.is_ok(), "{seeded:?}");
        server
    }

    /// Builds a server that keeps its objects in a data directory, which is created if it doesn't exist, readable only
    /// by this user. Blocks while it is read.
    ///
    /// A change is written to the directory before it is answered and before anyone can read it, so it survives that
    /// the process is killed; see [`Durability`] for failures of the machine. Resource versions and UIDs continue: a
    /// watch resumes from the version that it had seen, if the changes since are still in the log, and gets 410
    /// otherwise, as after a compaction of etcd. The authority of certificates, the credentials of listeners, and the
    /// key of service account tokens (unless it is set) are kept too, so kubeconfigs and tokens stay valid. Objects
    /// that every cluster contains are created again if they are missing.
    ///
    /// While a change can't be written, for example because the disk is full, it is answered with 500 and not made.
    ///
    /// # Errors
    /// If another server uses the directory, if a file in it is damaged or was written by a newer version, or if it
    /// can't be read or written. A change that was being written when the process was killed is no damage: it is
    /// undone.
    pub fn open(mut self, data_dir: impl AsRef<Path>) -> Result<ApiServer, DataDirError> {
        self.checkpoint = None;
        let options = DiskOptions { durability: self.durability, ..DiskOptions::new(data_dir.as_ref()) };
        let store = Store::open(self.limits, options)?;
        if let Some(text) = store.credentials(Kept::generate)? {
            let kept: Kept = serde_json::from_slice(&text).map_err(DataDirError::credentials)?;
            if !self.issuer.has_key() {
                self = self.service_account_key(&kept.service_account_key).map_err(DataDirError::credentials)?;
            }
            let authority = CertificateAuthority::restore(kept.authority, &kept.authority_key);
            self.certificate_authority = authority.map_err(DataDirError::credentials)?;
            self.credentials = Some(kept.client);
        }
        let (server, seeded) = self.start(store);
        seeded?;
        Ok(server)
    }

    /// Returns a server, and whether its own objects could be stored.
    fn start(self, store: Store) -> (ApiServer, Result<(), WriteError>) {
        let (is_new, store) = (store.is_new(), Arc::new(store));
        let mut random = self.random.unwrap_or_else(Random::from_entropy);
        if !is_new {
            // A generator with the seed of an earlier start would generate the UIDs of existing objects.
            random = Random::seeded(random.u64() ^ store.revision());
        }
        let clock = self.clock.unwrap_or_else(SystemClock::shared);
        let indexes = builtin::Indexes {
            service_range: self.service_range,
            plugins: Arc::new(self.plugins),
            ..builtin::Indexes::default()
        };
        for component in self.components {
            indexes.components.add(component);
        }
        let has_metrics = self.metrics.is_some();
        if let Some(source) = self.metrics {
            indexes.metrics.set(source);
        }
        if self.service_account_admission {
            indexes.accounts.enable(random.clone());
        }
        let modes = self.authorization_modes.unwrap_or_else(|| vec![AuthorizationMode::Rbac]);
        let always_allows = modes.iter().any(|mode| matches!(mode, AuthorizationMode::AlwaysAllow));
        let anonymous = match self.anonymous {
            Anonymous::Everywhere if always_allows => Anonymous::Nowhere,
            anonymous => anonymous,
        };
        let steps = modes.into_iter().map(|mode| authorization_step(mode, &indexes, &store));
        indexes.authorizer.set_steps(steps.collect());
        let node_restriction = self
            .node_restriction
            .then(|| builtin::NodeRestriction { store: store.clone(), authorizer: indexes.authorizer.clone() });
        let registry = Arc::new(builtin::registry(&random, &indexes));
        let webhook_client = Arc::new(WebhookClient {
            store: store.clone(),
            clock: clock.clone(),
            random: random.clone(),
            resolver: builtin::service_endpoints,
            transport: self.webhook_transport,
        });
        let admission = Arc::new(Admission {
            webhooks: indexes.webhooks,
            policies: indexes.policies,
            client: webhook_client.clone(),
            registry: registry.clone(),
            authorizer: indexes.authorizer.clone(),
        });
        let authorizer = indexes.authorizer.clone();
        let aggregation =
            Aggregation { services: indexes.api_services, front_proxy: Arc::default(), client: webhook_client.clone() };
        let certificate_authority = Arc::new(self.certificate_authority);
        let authenticator = Authenticator::new(self.issuer, store.clone(), clock.clone())
            .allow_anonymous(anonymous)
            .ask(self.token_reviewers);
        for (token, user) in self.static_tokens {
            authenticator.add_token(&token, user.authenticated());
        }
        let state = State {
            registry,
            aggregation,
            kubelets: Arc::new(Kubelets::new(self.node, certificate_authority.clone())),
            credentials: self.credentials,
            authenticator,
            authorization: Authorization::new(indexes.authorizer),
            certificate_authority,
            node_restriction,
            plugins: indexes.plugins,
            pod_security: self.pod_security,
            admission,
            audit_log: self.audit_log,
            webhook_client,
            actions: self.actions,
            bookmark_interval: self.bookmark_interval.unwrap_or(BOOKMARK_INTERVAL),
            proxy_resolver: builtin::proxy_backend,
            openapi: OpenApi::default(),
            flow_control: indexes.flow_control,
            metrics: Arc::default(),
            health: handlers::HealthCounts::default(),
            started: clock.now(),
            compaction: Compaction::new(clock.monotonic()),
            store,
            clock,
            random,
            service_range: self.service_range,
        };
        observe_restored(&state);
        let seeded = match self.checkpoint {
            Some(_) => Ok(()),
            None => {
                settle_restored(&state);
                let mut objects = builtin::bootstrap_objects(self.service_range, has_metrics).into_iter();
                objects.try_for_each(|object| seed(&state, object)).and_then(|()| {
                    let now = state.clock.now();
                    builtin::add_roles(&state.store, &authorizer, &state.random, now, has_metrics)
                })
            }
        };
        // As behind a compacted etcd, a client can't watch how the server created its own objects.
        let forgotten = if is_new { state.store.forget_history() } else { Ok(()) };
        (ApiServer { state: Arc::new(state) }, seeded.and(forgotten))
    }
}

impl ApiServer {
    /// Returns a builder.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }

    /// Returns an in-process client without a socket, with unrestricted access. Must be called inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_of(UserInfo::admin())
    }

    /// Returns an in-process client without a socket that acts as a user, with the permissions of the user's roles.
    pub fn client_of(&self, user: UserInfo) -> kube::Client {
        self.client_as(USER_AGENT, user)
    }

    /// Like [`ApiServer::client_of`], with a `User-Agent`. It names the field manager of requests that don't set one.
    pub fn client_as(&self, user_agent: &str, user: UserInfo) -> kube::Client {
        let user_agent = HeaderValue::from_str(user_agent).unwrap_or(HeaderValue::from_static(USER_AGENT));
        kube::Client::new(InProcess { server: self.clone(), user_agent, user: Arc::new(user) }, "default")
    }

    /// Returns the requests made so far, by user name. Requests of users with unrestricted access aren't recorded.
    ///
    /// The record is bounded: 1,000 users, 1,000 distinct requests allowed and denied of each, 20,000 in total. If it
    /// is full, the least recently active users are removed.
    pub fn usage(&self, user: &str) -> Usage {
        self.state.authorization.usage(user)
    }

    /// Closes the [data directory](ApiServerBuilder::open), so that another server can open it. Further changes are
    /// answered with 500. Blocks until everything is on the disk. A server without a data directory is unaffected;
    /// otherwise, the directory is closed when the last clone and request of the server is dropped.
    pub fn close(&self) {
        self.state.store.close();
    }

    /// Returns all objects as they are now, so that [other servers](ApiServerBuilder::checkpoint) can start with them.
    /// It costs some microseconds.
    pub fn checkpoint(&self) -> Checkpoint {
        self.state.store.checkpoint()
    }

    /// Returns a feed of all changes of all objects.
    pub fn feed(&self) -> Feed {
        Feed::new(self.state.store.clone(), self.state.registry.clone())
    }

    /// Listens on a socket, with TLS and new credentials. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the address can't be bound, or isn't a loopback address and `allow_remote` isn't set.
    pub async fn listen(&self, options: impl Into<ListenOptions>) -> Result<Listener, ListenError> {
        Listener::start(self.state.clone(), options.into()).await
    }

    /// Returns the token of a service account that a Secret of the type `kubernetes.io/service-account-token` is to
    /// contain. It is valid as long as the Secret contains it.
    ///
    /// # Errors
    /// Returns 500 if the system provides no randomness.
    pub fn sign_secret_token(&self, account: &Value, secret: &Value) -> Result<String, Status> {
        self.state.authenticator.sign_secret_token(account, secret)
    }

    /// Returns the range that addresses of services are allocated from.
    pub fn service_range(&self) -> ServiceRange {
        self.state.service_range
    }

    /// Returns the authority whose client certificates all listeners accept.
    pub fn certificate_authority(&self) -> Arc<CertificateAuthority> {
        self.state.certificate_authority.clone()
    }

    /// Returns access to the API servers behind the APIServices that name a Service.
    pub fn aggregation(&self) -> Aggregation {
        self.state.aggregation.clone()
    }

    /// Returns the served resources.
    pub fn registry(&self) -> &Registry {
        &self.state.registry
    }

    /// Handles one request. Its user is the [`Arc`] of a [`UserInfo`] in its extensions or, otherwise, that of its
    /// bearer token.
    pub async fn handle<B>(&self, request: Request<B>) -> Response
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        handlers::handle(self.state.clone(), request).await
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let state = self.state.clone();
        Box::pin(async move { Ok(handlers::handle(state, request).await) })
    }
}

/// The service of in-process clients.
#[derive(Clone, Debug)]
struct InProcess {
    server: ApiServer,
    user_agent: HeaderValue,
    user: Arc<UserInfo>,
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response;
    type Error = Infallible;
    type Future = <ApiServer as tower::Service<Request<kube::client::Body>>>::Future;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<kube::client::Body>) -> Self::Future {
        request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| self.user_agent.clone());
        request.extensions_mut().insert(self.user.clone());
        self.server.call(request)
    }
}

/// Returns the authorizer of a mode.
fn authorization_step(mode: AuthorizationMode, indexes: &builtin::Indexes, store: &Arc<Store>) -> Step {
    match mode {
        AuthorizationMode::Rbac => Step::Roles,
        AuthorizationMode::Node => {
            let references = indexes.references.clone();
            references.enable();
            Step::Extension(Arc::new(builtin::NodeAuthorizer { references, store: store.clone() }))
        }
        AuthorizationMode::Abac(policies) => Step::Extension(Arc::new(policies)),
        AuthorizationMode::Webhook(reviewer) => Step::Extension(Arc::new(Reviewed(reviewer))),
        AuthorizationMode::AlwaysAllow => Step::Extension(Arc::new(AlwaysAllow)),
        AuthorizationMode::AlwaysDeny => Step::Extension(Arc::new(AlwaysDeny)),
    }
}

/// Lets the kinds observe the objects of a data directory: built-in kinds first, since some of their objects add kinds.
fn observe_restored(state: &State) {
    let entry = |storage: &str| state.registry.first(|entry| *entry.storage == *storage);
    let (_, restored) = state.store.everything();
    let (built_in, custom): (Vec<_>, Vec<_>) = restored.into_iter().partition(|(storage, _)| entry(storage).is_some());
    for (storage, objects) in built_in.into_iter().chain(custom) {
        let Some(resource) = entry(&storage) else { continue };
        for (_, object) in objects.iter() {
            resource.strategy.committed(None, Some(&object.value()));
        }
    }
}

/// Completes what an earlier process has begun: it may have ended between the write of an object and that of its
/// status.
fn settle_restored(state: &State) {
    for resource in state.registry.all().iter().filter(|resource| resource.strategy.settles()) {
        for (key, _) in state.store.snapshot(&resource.storage).objects.iter() {
            settle_logged(state, resource, key);
        }
    }
}

fn settle_logged(state: &State, resource: &Resource, key: &Key) {
    if let Err(error) = handlers::settle(state, resource, key) {
        tracing::error!(%error, "failed to write the status of an object");
    }
}

/// Stores an object that the server itself creates, if it doesn't exist.
fn seed(state: &State, bootstrap: BootstrapObject) -> Result<(), WriteError> {
    let BootstrapObject { group, plural, mut object, manager: creator, assigned, applied } = bootstrap;
    let Some(resource) = state.registry.find(group, "v1", plural) else { return Ok(()) };
    let Resource { storage, strategy, .. } = &*resource;
    let key = Key::new(meta::text(&object, "namespace"), meta::text(&object, "name"));
    if state.store.get(storage, &key).is_some() {
        return Ok(());
    }
    let (now, conversions) = (state.clock.now(), &Conversions::default());
    let manager = |name, applies| Manager { name, subresource: "", applies, force: false, now, conversions };
    strategy.default(&mut object);
    let mut created = object.clone();
    strategy.prepare_create(&mut created);
    for field in assigned {
        object["spec"][field] = created["spec"][field].take();
    }
    decoding::complete(&resource, &mut object);
    object = manager(creator, false).track(&resource, None, object);
    if let Some((name, config)) = applied {
        match manager(name, true).apply(&resource, Some(&object), &config) {
            Ok(applied) => object = applied,
            Err(error) => tracing::error!(%error, "failed to complete an object of the server"),
        }
    }
    meta::set(&mut object, "uid", Some(state.random.uuid().into()));
    meta::set(&mut object, "creationTimestamp", Some(meta::time(now)));
    strategy.prepare_create(&mut object);
    decoding::complete(&resource, &mut object);
    // One write is enough, since no client can have read the object before.
    match handlers::settled(state, &resource, &object) {
        Ok(Some(settled)) => object = settled,
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "failed to complete the status of an object of the server"),
    }
    decoding::complete(&resource, &mut object);
    let mut object = Some(object);
    let decide = |_: Option<&_>| Ok::<_, WriteError>(object.take().map_or(Mutation::Keep, Mutation::Put));
    state.store.transact(storage, &key, decide, |before, after| strategy.committed(before, after))?;
    Ok(())
}
