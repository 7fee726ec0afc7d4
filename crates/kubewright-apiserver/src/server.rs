//! The server: what is shared by all requests, and the service that answers them.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};
use parking_lot::RwLock;
use serde_json::Value;

use crate::{
    action::{Action, Actions},
    audit::{Audit, Usage},
    auth::{Issuer, Tokens, UserInfo},
    body::BoxError,
    feed::Feed,
    handlers,
    listen::{ListenError, ListenOptions, Listener},
    meta,
    openapi::OpenApi,
    registry::{Registry, Resource, builtin},
    respond::Answer,
    storage::{Decision, Key, Limits, Store},
};

/// The name that the in-process client goes by.
const AGENT: &str = "kubewright";

/// What all requests share.
pub(crate) struct Inner {
    pub(crate) store: Arc<Store>,
    pub(crate) registry: Registry,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) tokens: RwLock<Tokens>,
    pub(crate) issuer: Issuer,
    pub(crate) audit: Audit,
    pub(crate) actions: Actions,
    pub(crate) openapi: OpenApi,
}

impl Inner {
    /// An object by where it is stored, its namespace and its name.
    pub(crate) fn find(&self, storage: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(storage, &Key::new(namespace, name)).map(|stored| stored.value())
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.store.revision()).finish_non_exhaustive()
    }
}

/// The embedded API server. Clones are the same server. It runs no task of its own: requests run in their callers' tasks.
#[derive(Clone, Debug)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

/// Builds an [`ApiServer`].
#[derive(Debug, Default)]
pub struct ApiServerBuilder {
    clock: Option<SharedClock>,
    random: Option<Random>,
    limits: Limits,
    actions: Actions,
}

impl ApiServerBuilder {
    /// Where time comes from; the machine's clock by default.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Where uids and generated names come from; the operating system by default.
    pub fn random(mut self, random: Random) -> Self {
        self.random = Some(random);
        self
    }

    /// How many changes of each resource are kept for watchers and for consistent paging; 10,000 by default.
    pub fn history(mut self, changes: usize) -> Self {
        self.limits.events = changes;
        self
    }

    /// Attaches what answers a subresource, such as `("", "v1", "pods", "log")`. The registry must list the subresource.
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

    /// The server, with the objects that every cluster has.
    pub fn build(self) -> ApiServer {
        let random = self.random.unwrap_or_else(Random::from_entropy);
        let inner = Inner {
            store: Arc::new(Store::new(self.limits)),
            registry: Registry::new(builtin::resources(&random)),
            clock: self.clock.unwrap_or_else(SystemClock::shared),
            random,
            tokens: RwLock::default(),
            issuer: Issuer::default(),
            audit: Audit::default(),
            actions: self.actions,
            openapi: OpenApi::default(),
        };
        bootstrap(&inner);
        ApiServer { inner: Arc::new(inner) }
    }
}

impl ApiServer {
    /// Begins to build a server.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }

    /// A client in this process, without a socket, that may do everything. Call it inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_as(AGENT)
    }

    /// As [`ApiServer::client`], with a `User-Agent` that names the field manager where a request doesn't.
    pub fn client_as(&self, user_agent: &str) -> kube::Client {
        self.in_process(user_agent, UserInfo::admin())
    }

    /// A client in this process, without a socket, that acts as this user: it may do what roles allow.
    pub fn client_of(&self, user: UserInfo) -> kube::Client {
        self.in_process(AGENT, user)
    }

    fn in_process(&self, user_agent: &str, user: UserInfo) -> kube::Client {
        let agent = HeaderValue::from_str(user_agent).unwrap_or(HeaderValue::from_static(AGENT));
        kube::Client::new(InProcess { server: self.clone(), agent, user }, "default")
    }

    /// What a user has tried so far, by its name; nothing is kept of users that may do everything. A thousand users and a
    /// thousand different attempts of each are remembered.
    pub fn usage(&self, user: &str) -> Usage {
        self.inner.audit.of(user)
    }

    /// Every change of every object.
    pub fn feed(&self) -> Feed {
        Feed::new(self.inner.clone())
    }

    /// Listens on a socket, with TLS and new credentials. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When the address can't be had, or isn't a loopback address and `allow_remote` isn't set.
    pub async fn listen(&self, options: impl Into<ListenOptions>) -> Result<Listener, ListenError> {
        Listener::start(self.clone(), options.into()).await
    }

    /// Lets a bearer token stand for a user.
    pub(crate) fn allow(&self, token: &str, user: UserInfo) {
        self.inner.tokens.write().insert(token, user);
    }

    /// Makes a bearer token invalid.
    pub(crate) fn revoke(&self, token: &str) {
        self.inner.tokens.write().remove(token);
    }

    /// The address of the service `kubernetes`, if it has one.
    pub(crate) fn entrance(&self) -> Option<IpAddr> {
        let service = self.inner.store.get("/services", &Key::new("default", "kubernetes"))?.value();
        service["spec"]["clusterIP"].as_str()?.parse().ok()
    }

    /// What is served.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Answers one request. Its identity is the [`UserInfo`] in its extensions, or what its bearer token says.
    pub async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        handlers::serve(self.inner.clone(), request).await
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.inner.clone();
        Box::pin(async move { Ok(handlers::serve(server, request).await) })
    }
}

/// The service behind in-process clients.
#[derive(Clone, Debug)]
struct InProcess {
    server: ApiServer,
    agent: HeaderValue,
    user: UserInfo,
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Answer;
    type Error = Infallible;
    type Future = <ApiServer as tower::Service<Request<kube::client::Body>>>::Future;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<kube::client::Body>) -> Self::Future {
        request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| self.agent.clone());
        request.extensions_mut().insert(self.user.clone());
        self.server.call(request)
    }
}

/// Stores what every cluster has.
fn bootstrap(inner: &Inner) {
    for (group, plural, object) in crate::registry::builtin::bootstrap() {
        plant(inner, group, plural, object);
    }
}

/// Stores an object that the server itself is the author of.
fn plant(inner: &Inner, group: &str, plural: &str, mut object: Value) {
    let Some(resource) = inner.registry.find(group, "v1", plural) else { return };
    let Resource { storage, strategy, .. } = &*resource;
    meta::set(&mut object, "uid", Some(inner.random.uuid().into()));
    meta::set(&mut object, "creationTimestamp", Some(meta::time(inner.clock.now())));
    strategy.default(&mut object);
    strategy.prepare_create(&mut object);
    let key = Key::new(meta::text(&object, "namespace"), meta::text(&object, "name"));
    let mut object = Some(object);
    let decide = |_: Option<&_>| Ok::<_, Infallible>(object.take().map_or(Decision::Keep, Decision::Put));
    // It cannot fail: the decision doesn't.
    let _ = inner.store.transact(storage, &key, decide, |before, after| {
        strategy.committed(&inner.registry, before, after);
    });
}
