//! Admission of requests that have no typed object: subresources, connections, several kinds or all of them.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use serde::Serialize;
use serde_json::Value;

use super::{
    AdmissionRule, Denied, Endpoint, Policies, Request, Role, WebhookDescription, handler::Handler, patch,
    response::AdmissionResponse, review::Review,
};

/// Decides about requests of any kind (controller-runtime: `admission.Handler`).
pub trait AdmissionHandler: Send + Sync + 'static {
    /// Decides about a request. [`Request::object`] is the object, or the body of a subresource such as an `Eviction`,
    /// a `Scale` or the `PodExecOptions` of a connection.
    ///
    /// # Errors
    /// An error denies the request.
    fn handle(&self, request: &Request) -> impl Future<Output = Result<Allowed, Denied>> + Send;
}

/// The decision to allow a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowed {
    object: Option<Value>,
    warnings: Vec<String>,
}

impl Allowed {
    /// Allows the request as it is.
    pub fn unchanged() -> Self {
        Self::default()
    }

    /// Allows the request with this object in place of [`Request::object`]. It has no effect in a validating webhook.
    /// Start from the object as a [`Value`], or fields that a type doesn't have are removed.
    ///
    /// # Errors
    /// If the object can't be represented in JSON, which denies the request.
    pub fn changed(object: &impl Serialize) -> Result<Self, Denied> {
        Ok(Self { object: Some(serde_json::to_value(object)?), ..Self::default() })
    }

    /// Adds a warning, which `kubectl` prints.
    pub fn warn(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }
}

/// A webhook for the requests that its rules describe: subresources such as `pods/exec`, `pods/eviction` and
/// `deployments/scale`, connections, several kinds, or `*`. For one kind, a [`Webhook`](super::Webhook) with a typed
/// [`Validator`](super::Validator) says more.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kubewright_runtime::manager::Manager;
/// use kubewright_runtime::webhook::{AdmissionHandler, AdmissionRule, AdmissionWebhook, Allowed, Denied, Operation, Request};
///
/// struct NoShells;
///
/// impl AdmissionHandler for NoShells {
///     async fn handle(&self, request: &Request) -> Result<Allowed, Denied> {
///         let options: serde_json::Value = request.object().unwrap_or_default(); // PodExecOptions
///         if options["tty"] == true {
///             return Err(Denied::forbidden("no shells in this namespace"));
///         }
///         Ok(Allowed::unchanged())
///     }
/// }
///
/// # fn example(manager: Manager) -> Manager {
/// let exec = AdmissionRule::of::<Pod>().subresource("exec").operations([Operation::Connect]);
/// manager.admission(AdmissionWebhook::validating("exec.example.com", "/validate-exec", NoShells).rule(exec))
/// # }
/// ```
pub struct AdmissionWebhook {
    description: WebhookDescription,
    handler: Arc<dyn Handler>,
}

impl fmt::Debug for AdmissionWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description.fmt(f)
    }
}

impl AdmissionWebhook {
    /// Creates a webhook that may deny requests. The name is that of the configuration's entry, with at least three
    /// parts as in `exec.example.com`; the path begins with a slash. Without a rule it isn't called.
    pub fn validating(name: &str, path: &str, handler: impl AdmissionHandler) -> Self {
        Self::new(Role::Validating, name, path, handler)
    }

    /// Creates a webhook that may change objects and deny requests. It must be idempotent, because the API server may
    /// call it again.
    pub fn mutating(name: &str, path: &str, handler: impl AdmissionHandler) -> Self {
        Self::new(Role::Mutating, name, path, handler)
    }

    fn new(role: Role, name: &str, path: &str, handler: impl AdmissionHandler) -> Self {
        let (name, path, rules) = (name.into(), path.into(), Vec::new());
        let description = WebhookDescription { name, role, path, rules, policies: Policies::default() };
        Self { description, handler: Arc::new(Raw { role, handler }) }
    }

    /// Adds requests for which it is called.
    pub fn rule(mut self, rule: AdmissionRule) -> Self {
        self.description.rules.push(rule);
        self
    }

    /// Changes how the API server calls it, as [`Webhook::policies`](super::Webhook::policies).
    pub fn policies(mut self, change: impl FnOnce(&mut Policies)) -> Self {
        change(&mut self.description.policies);
        self
    }

    pub(crate) fn endpoint(self) -> Endpoint {
        Endpoint { description: self.description, handler: self.handler }
    }
}

/// An [`AdmissionHandler`] as a [`Handler`].
struct Raw<H> {
    role: Role,
    handler: H,
}

impl<H: AdmissionHandler> Handler for Raw<H> {
    fn handle<'a>(&'a self, review: &'a Review) -> BoxFuture<'a, AdmissionResponse> {
        async move {
            match self.handler.handle(&review.request).await {
                Ok(Allowed { object, warnings }) => {
                    let changed = object.filter(|_| self.role == Role::Mutating);
                    let patch = changed.and_then(|changed| patch::operations(&review.object, &changed));
                    AdmissionResponse { patch, warnings, ..AdmissionResponse::allowed() }
                }
                Err(Denied(status)) => AdmissionResponse::denied(*status),
            }
        }
        .boxed()
    }
}
