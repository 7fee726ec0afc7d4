//! Admission webhooks: what sets an object's defaults and what refuses it, before the API server stores it.
//!
//! [`Webhook`] is the wiring, [`Defaulter`] and [`Validator`] the logic:
//!
//! ```
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use kubewright_runtime::webhook::{Denied, ValidationErrors, Request, Validator, Webhook};
//! struct NoSecrets;
//!
//! impl Validator<ConfigMap> for NoSecrets {
//!     async fn validate_create(&self, config: &ConfigMap, _: &Request) -> Result<ValidationErrors, Denied> {
//!         let mut errors = ValidationErrors::default();
//!         for key in config.data.iter().flatten().map(|(key, _)| key) {
//!             if key.contains("password") {
//!                 errors.forbidden(format!("data[{key}]"), "passwords belong into a Secret");
//!             }
//!         }
//!         Ok(errors)
//!     }
//! }
//!
//! let webhook = Webhook::<ConfigMap>::new().validating(NoSecrets);
//! ```
//!
//! [`Manager::webhook`](crate::manager::Manager::webhook) takes it. The manager serves all its webhooks by HTTPS
//! ([`WebhookServer`]), on every replica, whether it leads or not, and looks after the certificate.
//!
//! # In one process with an embedded cluster, in tests and demos
//!
//! ```no_run
//! # use kubewright_runtime::{manager::Manager, webhook::WebhookServer};
//! # fn example(client: kube::Client) -> Manager {
//! Manager::new(client).webhook_server(WebhookServer::local()) // .webhook(…).controller(…)
//! # }
//! ```
//!
//! serves on a free port of loopback and, once it answers, installs the webhook configurations with that address; they
//! go when the manager ends. To wait for it: until the `ValidatingWebhookConfiguration` (or `Mutating…`) that
//! [`WebhookServer::name`] names is there. A binary does the same with `--webhook-bind-address=127.0.0.1:9443
//! --webhook-url=https://127.0.0.1:9443`.
//!
//! # In a cluster
//!
//! The configurations and the Service are manifests: [`manifests`] makes them from the manager's description, and what
//! definitions of [converted](crate::conversion) kinds must say. The
//! certificate is either read from a directory, which cert-manager or another fills, or made here and kept in a Secret
//! ([`Certificates`]).

mod ca_bundle;
mod cert_rotator;
mod handler;
pub mod manifests;
mod options;
mod patch;
mod policies;
mod request;
mod response;
mod review;
mod server;
mod validation;

use std::{fmt, sync::Arc};

pub use kubewright_apimachinery::status::{Cause, Status};

use self::handler::{Defaulting, Handler, Validating};
pub use self::{
    manifests::{Operation, Role, WebhookDescription},
    options::{ClientAuthoritiesError, WebhookArgs, WebhookServer},
    policies::{FailurePolicy, Policies},
    request::Request,
    validation::{Denied, ValidationErrors},
};
pub(crate) use self::{
    options::Names,
    server::{Dependencies, Running},
};
pub use crate::tls::Certificates;
use crate::{
    conversion::AnyHub,
    object::{KindName, Object},
};

/// Sets what an object's author left out.
pub trait Defaulter<K: Object>: Send + Sync + 'static {
    /// Completes an object that is created or updated. Setting the same defaults twice must change nothing: the API server
    /// may ask again.
    ///
    /// What the type doesn't know of the object stays as it is, as does what isn't touched here.
    ///
    /// # Errors
    /// The request is refused with them.
    fn set_defaults(&self, object: &mut K, request: &Request) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// Says what is wrong with an object.
pub trait Validator<K: Object>: Send + Sync + 'static {
    /// Looks at an object that is to be created.
    ///
    /// # Errors
    /// The request is refused with them. What is wrong with the object belongs into the validation errors, all of it.
    fn validate_create(
        &self,
        object: &K,
        request: &Request,
    ) -> impl Future<Output = Result<ValidationErrors, Denied>> + Send;

    /// Looks at an object that is to replace an older state of itself. Without one, as for a creation.
    ///
    /// # Errors
    /// As [`Validator::validate_create`].
    fn validate_update(
        &self,
        old: &K,
        new: &K,
        request: &Request,
    ) -> impl Future<Output = Result<ValidationErrors, Denied>> + Send {
        let _ = old;
        self.validate_create(new, request)
    }

    /// Looks at an object that is to be deleted; only asked with [`Webhook::deletions`]. Without one, it may.
    ///
    /// # Errors
    /// As [`Validator::validate_create`].
    fn validate_delete(
        &self,
        object: &K,
        request: &Request,
    ) -> impl Future<Output = Result<ValidationErrors, Denied>> + Send {
        let _ = (object, request);
        std::future::ready(Ok(ValidationErrors::default()))
    }
}

/// The webhooks of kind `K`.
///
/// Their paths are kubebuilder's: `/mutate-<group>-<version>-<kind>` and `/validate-<group>-<version>-<kind>`, in lower
/// case, with dashes for dots.
pub struct Webhook<K: Object> {
    defaulting: Defaulting<K>,
    validating: Validating<K>,
    defaulting_path: String,
    validating_path: String,
    deletions: bool,
    policies: Policies,
}

impl<K: Object> fmt::Debug for Webhook<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("kind", &KindName::of::<K>()).finish_non_exhaustive()
    }
}

impl<K: Object> Default for Webhook<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Object> Webhook<K> {
    /// No webhook yet.
    pub fn new() -> Self {
        let kind = KindName::of::<K>();
        Self {
            defaulting: Defaulting::default(),
            validating: Validating::default(),
            defaulting_path: manifests::path(Role::Mutating, &kind),
            validating_path: manifests::path(Role::Validating, &kind),
            deletions: false,
            policies: Policies::default(),
        }
    }

    /// Sets defaults. Called again, a further defaulter, which sees what the ones before it have set.
    pub fn defaulting(mut self, defaulter: impl Defaulter<K>) -> Self {
        self.defaulting.0.push(Arc::new(defaulter));
        self
    }

    /// Validates. Called again, a further validator; what all of them find is told together.
    pub fn validating(mut self, validator: impl Validator<K>) -> Self {
        self.validating.0.push(Arc::new(validator));
        self
    }

    /// Has the validators asked about deletions, too.
    pub fn deletions(self) -> Self {
        Self { deletions: true, ..self }
    }

    /// How the API server asks, both the defaulters and the validators.
    pub fn policies(mut self, change: impl FnOnce(&mut Policies)) -> Self {
        change(&mut self.policies);
        self
    }

    /// Another path for the defaulter than kubebuilder's; it begins with a slash.
    pub fn defaulting_path(self, path: &str) -> Self {
        Self { defaulting_path: path.into(), ..self }
    }

    /// Another path for the validator than kubebuilder's; it begins with a slash.
    pub fn validating_path(self, path: &str) -> Self {
        Self { validating_path: path.into(), ..self }
    }

    /// What there is to serve, and how it describes itself.
    pub(crate) fn endpoints(self) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        let kind = KindName::of::<K>();
        let mut add = |role, path, operations: &[Operation], handler: Arc<dyn Handler>| {
            let (operations, policies) = (operations.to_vec(), self.policies.clone());
            let description = WebhookDescription { kind: kind.clone(), role, path, operations, policies };
            endpoints.push(Endpoint { description, handler });
        };
        let mut operations = vec![Operation::Create, Operation::Update];
        if !self.defaulting.0.is_empty() {
            add(Role::Mutating, self.defaulting_path, &operations, Arc::new(self.defaulting));
        }
        if self.deletions {
            operations.push(Operation::Delete);
        }
        if !self.validating.0.is_empty() {
            add(Role::Validating, self.validating_path, &operations, Arc::new(self.validating));
        }
        endpoints
    }
}

/// All that a webhook server serves.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    pub(crate) webhooks: Vec<Endpoint>,
    pub(crate) hubs: Vec<Arc<dyn AnyHub>>,
}

impl Registrations {
    pub(crate) fn is_empty(&self) -> bool {
        self.webhooks.is_empty() && self.hubs.is_empty()
    }

    /// Each path that is served, as often as it is claimed.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        let convert = (!self.hubs.is_empty()).then_some(manifests::CONVERT);
        self.webhooks.iter().map(|webhook| &*webhook.description.path).chain(convert)
    }
}

/// One webhook of any kind: where it is, and what answers.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) description: WebhookDescription,
    handler: Arc<dyn Handler>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description.fmt(f)
    }
}
