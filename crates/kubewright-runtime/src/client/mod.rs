//! Requests to the API server: a thin layer over kube's client.
//!
//! A [`Client`] says how requests are sent: under which field owner, as a dry run, how strictly fields are checked, in which
//! namespace, past which [interceptors](Client::intercept). A [`KindClient`] sends them, for one kind, which is known at
//! compile time ([`Client::kind`]) or only at run time ([`Client::dynamic`]), whole or its metadata alone
//! ([`Client::metadata`]).
//!
//! Nothing here is cached or retried. A reconciler has its client from [`Context::client`](crate::context::Context::client),
//! which remembers what was written, so that its key's next reconcile sees it. Any other program makes one:
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

mod advice;
mod call;
mod error;
mod exchange;
mod kind;
mod request;
mod subresource;
mod upsert;
mod warnings;

use std::{fmt, sync::Arc};

use kube::{
    api::{ApiResource, DynamicObject, PartialObjectMeta, ValidationDirective},
    core::Status,
};

use self::call::Hook;
pub(crate) use self::{
    advice::advice,
    call::Operation,
    error::{explain, is_conflict, retry_after},
    upsert::Change,
    warnings::heeding,
};
pub use self::{
    call::{Answer, Call, Next},
    error::{ClientError, FieldConflict},
    kind::{AnyObject, KindClient},
    request::{Apply, Delete},
    subresource::SubresourceClient,
    upsert::OperationResult,
};
use crate::{context::Journal, object::Object};

/// How requests are sent. Cheap to clone; each method gives a client that differs in one thing.
///
/// The words are controller-runtime's: `NewDryRunClient` is [`Client::dry_run`], `WithFieldOwner` [`Client::field_owner`],
/// `WithFieldValidation` [`Client::field_validation`], `NewNamespacedClient` [`Client::namespace`], and `interceptor`
/// [`Client::intercept`].
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
    hooks: Arc<[Hook]>,
    journal: Option<Journal>,
}

/// Where a request goes whose key or list names no namespace.
#[derive(Clone, Debug, Default)]
enum Namespace {
    /// A list goes to all; anything else is an error.
    #[default]
    Any,
    /// There.
    Usual(Arc<str>),
    /// There, and what names another is refused.
    Only(Arc<str>),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field_owner, dry_run, validation, namespace, hooks, .. } = self;
        f.debug_struct("Client")
            .field("field_owner", field_owner)
            .field("dry_run", dry_run)
            .field("validation", validation)
            .field("namespace", namespace)
            .field("interceptors", &hooks.len())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Requests through kube's client as they are: in all namespaces, without a field owner (the API server then takes the
    /// program's name), which an apply can't do without.
    pub fn new(kube: kube::Client) -> Self {
        Self {
            kube,
            field_owner: None,
            dry_run: false,
            validation: None,
            namespace: Namespace::Any,
            hooks: Arc::new([]),
            journal: None,
        }
    }

    /// Writes under this name, which then owns the fields it has set. At most 128 characters. See
    /// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers>.
    pub fn field_owner(self, name: &str) -> Self {
        Self { field_owner: Some(name.into()), ..self }
    }

    /// Writes nothing: the API server checks, defaults and admits as ever, and answers as if it had written. Webhooks that
    /// have effects of their own are left out. See <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>.
    pub fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// What becomes of fields that the kind doesn't know: `Strict` refuses the object, `Warn` and `Ignore` drop them. Without
    /// it the API server warns. See <https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation>.
    pub fn field_validation(self, directive: ValidationDirective) -> Self {
        Self { validation: Some(directive), ..self }
    }

    /// Works in this namespace alone: keys, objects and lists that name none go there, those that name another are refused
    /// ([`ClientError::OtherNamespace`]). Cluster-scoped kinds are as ever. A dynamic kind counts as namespaced, since
    /// nothing says that it isn't.
    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: Namespace::Only(namespace.into()), ..self }
    }

    /// Works in all namespaces: a list that names none is of all. Undoes [`Client::namespace`], and the namespace of the
    /// reconciled object that a reconcile's client has.
    pub fn all_namespaces(self) -> Self {
        Self { namespace: Namespace::Any, ..self }
    }

    /// Lets `hook` stand between the caller and the API server, for tests and for measuring: it sees each request, sends it
    /// with [`Next::send`], or answers in its place with [`Next::answer`] or [`Next::refuse`]. The last one added sees a
    /// request first.
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
    pub fn intercept<F>(self, hook: impl Fn(Next) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Answer, ClientError>> + Send + 'static,
    {
        let hook: Hook = Arc::new(move |next| Box::pin(hook(next)));
        Self { hooks: self.hooks.iter().cloned().chain([hook]).collect(), ..self }
    }

    /// Requests for a kind that is known at compile time.
    pub fn kind<K: Object>(&self) -> KindClient<K> {
        self.kind_with(())
    }

    /// Requests for the metadata alone of such a kind: answers hold nothing else, whatever the objects' size. It can't
    /// create or update.
    pub fn metadata<K: Object>(&self) -> KindClient<PartialObjectMeta<K>> {
        self.kind_with(())
    }

    /// Requests for a kind that is known only at run time. A key without a namespace means a cluster-scoped object.
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

    /// Requests for any kind; `PartialObjectMeta<DynamicObject>` is the metadata of one that is known only at run time.
    pub fn kind_with<K: AnyObject>(&self, kind: K::DynamicType) -> KindClient<K> {
        KindClient::new(self.clone(), kind)
    }

    /// The client of kube that sends the requests: for what this one has no method for. It knows nothing of field owner,
    /// dry run or interceptors, and what it writes is not waited for by the next reconcile.
    pub fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// Remembers what is written.
    pub(crate) fn journaled(self, journal: Journal) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Goes to this namespace if nothing else is said.
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

/// A refusal as the API server would word it.
fn refusal(code: u16, reason: &str, message: &str) -> kube::Error {
    let status = Status { code, reason: reason.into(), message: message.into(), ..Status::default() };
    kube::Error::Api(status.boxed())
}
