//! Requests to the API server: a thin layer over kube's client.
//!
//! A [`Client`] holds the settings of requests: field owner, dry run, field validation, namespace, and
//! [interceptors](Client::intercept). A [`KindClient`] sends requests for one kind, which is known at compile time
//! ([`Client::kind`]) or only at run time ([`Client::dynamic`]), for whole objects or only their metadata
//! ([`Client::metadata`]).
//!
//! Nothing is cached or retried here. A reconciler gets its client from
//! [`Context::client`](crate::context::Context::client), which tracks writes so that the next reconcile of the key sees
//! them. Other code creates one:
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use kubewright_runtime::{client::{Client, ClientError}, object::ObjectKey};
//! # async fn example(kube: kube::Client) -> Result<(), ClientError> {
//! let client = Client::new(kube).field_owner("housekeeping");
//! let maps = client.kind::<ConfigMap>();
//! if let Some(mut map) = maps.get(&ObjectKey::namespaced("default", "settings")).await? {
//!     map.data.get_or_insert_default().insert("level".into(), "info".into());
//!     maps.update(&map).await?; // a conflict, if it has changed meanwhile
//! }
//! # Ok(())
//! # }
//! ```

mod call;
mod error;
mod hints;
mod identity;
mod kind;
mod observer;
mod outgoing;
mod patch_from;
mod request;
mod subresource;
mod transport;
mod upsert;
mod warnings;
mod watch_one;
mod workspace;

use std::{fmt, sync::Arc};

use http::HeaderValue;
use kube::{
    api::{ApiResource, DynamicObject, PartialObjectMeta, ValidationDirective},
    core::Status,
};

use self::call::Interceptor;
pub use self::{
    call::{ApiResponse, Call, Next},
    error::{ClientError, FieldConflict},
    identity::Impersonation,
    kind::KindClient,
    patch_from::PatchFrom,
    request::{Apply, Delete},
    subresource::SubresourceClient,
    upsert::OperationResult,
    workspace::{LARGEST_WORKSPACE, WorkspaceError},
};
pub(crate) use self::{
    call::{Operation, ParsedResponse},
    error::{explain, is_conflict, retry_after},
    hints::hint,
    identity::user_agent,
    observer::{ObservedRequest, RequestObserver},
    outgoing::outgoing,
    transport::with_deadline,
    upsert::Change,
};
pub use crate::object::AnyObject;
use crate::object::Object;

/// A client of the API server with request settings. Cheap to clone; each method returns a client that differs in one
/// setting.
///
/// The settings correspond to those of controller-runtime: `NewDryRunClient` is [`Client::dry_run`], `WithFieldOwner`
/// is [`Client::field_owner`], `WithFieldValidation` is [`Client::field_validation`], `NewNamespacedClient` is
/// [`Client::namespace`], and `interceptor` is [`Client::intercept`].
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube::api::ValidationDirective;
/// # use kubewright_runtime::client::{Client, ClientError};
/// # async fn example(client: Client, pod: Pod) -> Result<(), ClientError> {
/// // Would the API server take this pod, to the last field? Nothing is written.
/// client.dry_run().field_validation(ValidationDirective::Strict).kind::<Pod>().create(&pod).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    field_owner: Option<Arc<str>>,
    dry_run: bool,
    validation: Option<ValidationDirective>,
    namespace: Namespace,
    agent: Option<HeaderValue>,
    impersonation: Option<Arc<Impersonation>>,
    interceptors: Arc<[Interceptor]>,
    observers: Arc<[Arc<dyn RequestObserver>]>,
}

/// The namespace of requests that don't name one.
#[derive(Clone, Debug, Default)]
enum Namespace {
    /// All namespaces for a list; an error for anything else.
    #[default]
    Any,
    /// The default namespace; requests may name another.
    Usual(Arc<str>),
    /// The only namespace; requests that name another are refused.
    Only(Arc<str>),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field_owner, dry_run, validation, namespace, impersonation, interceptors, .. } = self;
        f.debug_struct("Client")
            .field("field_owner", field_owner)
            .field("dry_run", dry_run)
            .field("validation", validation)
            .field("namespace", namespace)
            .field("impersonation", impersonation)
            .field("interceptors", &interceptors.len())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client for all namespaces, without a field owner. An apply requires a field owner; for other writes
    /// the API server falls back to the name of the program.
    pub fn new(kube: kube::Client) -> Self {
        Self {
            kube,
            field_owner: None,
            dry_run: false,
            validation: None,
            namespace: Namespace::Any,
            agent: None,
            impersonation: None,
            interceptors: Arc::new([]),
            observers: Arc::new([]),
        }
    }

    /// Sets the field manager of writes, of at most 128 characters. See
    /// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers>.
    pub fn field_owner(self, name: &str) -> Self {
        Self { field_owner: Some(name.into()), ..self }
    }

    /// Makes all writes dry runs: the API server validates, defaults and admits as usual, and answers as if it had
    /// written. Webhooks with side effects are not called. See
    /// <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>.
    pub fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// Sets the handling of unknown fields: `Strict` refuses the object, `Warn` and `Ignore` drop them. The API
    /// server's default is `Warn`. See <https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation>.
    pub fn field_validation(self, directive: ValidationDirective) -> Self {
        Self { validation: Some(directive), ..self }
    }

    /// Limits the client to this namespace. It is the default for keys, objects and lists, and requests for another
    /// namespace are refused ([`ClientError::OtherNamespace`]). Cluster-scoped kinds are not affected. A dynamic kind
    /// counts as namespaced, since its scope is unknown.
    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: Namespace::Only(namespace.into()), ..self }
    }

    /// Sets the `User-Agent` of requests, which the audit log of the API server shows. A manager's clients have that of
    /// [`Manager::user_agent`](crate::manager::Manager::user_agent), those of reconciles with the controller's name
    /// behind it.
    pub fn user_agent(self, agent: &str) -> Self {
        Self { agent: Some(identity::agent_header(agent)), ..self }
    }

    /// Sends all requests as another user, whose rights then count.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::client::{Client, ClientError, Impersonation};
    /// # async fn example(client: Client, pod: Pod) -> Result<(), ClientError> {
    /// // May the tenant's account create this pod?
    /// let tenant = client.impersonate(Impersonation::user("system:serviceaccount:shop:tenant"));
    /// tenant.dry_run().kind::<Pod>().create(&pod).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn impersonate(self, user: Impersonation) -> Self {
        Self { impersonation: Some(Arc::new(user)), ..self }
    }

    /// Removes the namespace setting, so that lists cover all namespaces. It undoes [`Client::namespace`] and the
    /// default of a reconcile's client, which is the namespace of the reconciled object.
    pub fn all_namespaces(self) -> Self {
        Self { namespace: Namespace::Any, ..self }
    }

    /// Adds an interceptor of requests, for tests and measurements. It passes each request on with [`Next::send`], or
    /// answers it itself with [`Next::answer`] or [`Next::refuse`]. The interceptor that was added last runs first.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::{client::Client, rbac::Verb};
    /// # fn example(client: Client) {
    /// let without_deletes = client.intercept(|next| async move {
    ///     if next.call().verb() == Verb::Delete {
    ///         return next.refuse(403, "Forbidden", "nothing is deleted today");
    ///     }
    ///     next.send().await
    /// });
    /// # }
    /// ```
    pub fn intercept<F>(self, interceptor: impl Fn(Next) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<ApiResponse, ClientError>> + Send + 'static,
    {
        let interceptor: Interceptor = Arc::new(move |next| Box::pin(interceptor(next)));
        Self { interceptors: self.interceptors.iter().cloned().chain([interceptor]).collect(), ..self }
    }

    /// Returns a client for a kind that is known at compile time.
    pub fn kind<K: Object>(&self) -> KindClient<K> {
        self.kind_with(())
    }

    /// Returns a client for the metadata of a kind that is known at compile time. Responses contain nothing else, and
    /// it can't create or update objects.
    pub fn metadata<K: Object>(&self) -> KindClient<PartialObjectMeta<K>> {
        self.kind_with(())
    }

    /// Returns a client for a kind that is known only at run time. A key without a namespace means a cluster-scoped
    /// object.
    ///
    /// ```no_run
    /// # use kube::{api::ApiResource, core::GroupVersionKind};
    /// # use kubewright_runtime::{client::{Client, ClientError}, object::ObjectKey};
    /// # async fn example(client: Client) -> Result<(), ClientError> {
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// let widget = client.dynamic(&widgets).get(&ObjectKey::namespaced("default", "web")).await?;
    /// let size = widget.map(|widget| widget.data["spec"]["size"].clone());
    /// # Ok(())
    /// # }
    /// ```
    pub fn dynamic(&self, resource: &ApiResource) -> KindClient<DynamicObject> {
        self.kind_with(resource.clone())
    }

    /// Returns a client for any kind; `PartialObjectMeta<DynamicObject>` is the metadata of a kind known only at run
    /// time.
    pub fn kind_with<K: AnyObject>(&self, kind: K::DynamicType) -> KindClient<K> {
        KindClient::new(self.clone(), kind)
    }

    /// Returns kube's client, for requests that this client doesn't support. It ignores field owner, dry run and
    /// interceptors, and the next reconcile doesn't wait until the cache shows its writes.
    pub fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// Adds an observer, which sees each request before the interceptors do.
    pub(crate) fn observed(self, observer: Arc<dyn RequestObserver>) -> Self {
        Self { observers: self.observers.iter().cloned().chain([observer]).collect(), ..self }
    }

    /// Sets the default namespace, unless a namespace is set already.
    pub(crate) fn usually_in(self, namespace: Option<&str>) -> Self {
        match (&self.namespace, namespace) {
            (Namespace::Any, Some(namespace)) => Self { namespace: Namespace::Usual(namespace.into()), ..self },
            _ => self,
        }
    }

    fn owner(&self) -> Option<String> {
        self.field_owner.as_deref().map(Into::into)
    }
}

/// Returns an error with a `Status`, as the API server would send it.
fn refusal(code: u16, reason: &str, message: &str) -> kube::Error {
    let status = Status { code, reason: reason.into(), message: message.into(), ..Status::default() };
    kube::Error::Api(status.boxed())
}
