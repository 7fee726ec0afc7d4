//! Admission webhooks, which set defaults and validate an object before the API server stores it.
//!
//! A [`Webhook`] registers a [`Defaulter`] or a [`Validator`]:
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
//! An [`AdmissionWebhook`] decides about requests without a typed object: subresources, connections, several kinds.
//!
//! Add them to a manager with [`Manager::webhook`](crate::manager::Manager::webhook) and
//! [`Manager::admission`](crate::manager::Manager::admission). The manager serves all webhooks over HTTPS
//! ([`WebhookServer`]) on every replica, independent of leader election, and manages the certificate.
//!
//! # Tests and demos with an embedded cluster in the same process
//!
//! ```no_run
//! # use kubewright_runtime::{manager::Manager, webhook::WebhookServer};
//! # fn example(client: kube::Client) -> Manager {
//! Manager::new(client).webhook_server(WebhookServer::local()) // .webhook(…).controller(…)
//! # }
//! ```
//!
//! The server listens on a free loopback port. Once it is ready, it installs the webhook configurations with that
//! address, and it removes them when the manager ends. To wait until it is ready, wait for the
//! `ValidatingWebhookConfiguration` (or `Mutating…`) with the name that [`WebhookServer::name`] sets. The flags of a
//! program for the same are `--webhook-bind-address=127.0.0.1:9443 --webhook-url=https://127.0.0.1:9443`.
//!
//! # Clusters
//!
//! The webhook configurations and the Service are manifests. [`manifests`] generates them from the manager's
//! description, and `spec.conversion` for the CRDs of [converted](crate::conversion) kinds. The certificate is read
//! from a directory, which for example cert-manager provides, or is created by the manager and stored in a Secret
//! ([`Certificates`]).

mod admission;
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
mod rule;
mod server;
mod simulated;
mod standalone;
mod validation;

use std::{fmt, sync::Arc};

pub use kubewright_apimachinery::status::{Cause, Status};

use self::handler::{Defaulting, Handler, Validating};
pub use self::{
    admission::{AdmissionHandler, AdmissionWebhook, Allowed},
    manifests::{Operation, Role, WebhookDescription},
    options::{ClientAuthoritiesError, WebhookArgs, WebhookServer},
    policies::{FailurePolicy, Policies},
    request::Request,
    rule::AdmissionRule,
    simulated::{ServedCertificate, SimulatedRotation},
    standalone::StandaloneWebhooks,
    validation::{Denied, ValidationErrors},
};
pub(crate) use self::{
    options::Names,
    server::{Dependencies, Running, uncounted_router},
};
pub use crate::tls::{
    Certificates, CipherSuite, KeySource, TlsArgs, TlsOptions, TlsVersion, UnknownCipherSuite, UnknownTlsVersion,
};
use crate::{
    conversion::AnyHub,
    object::{KindName, Object},
};

/// Sets defaults for an object.
pub trait Defaulter<K: Object>: Send + Sync + 'static {
    /// Sets defaults for an object that is created or updated. It must be idempotent, because the API server may call
    /// it again.
    ///
    /// Fields that the type doesn't have are preserved.
    ///
    /// # Errors
    /// An error denies the request.
    fn set_defaults(&self, object: &mut K, request: &Request) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// Validates an object.
pub trait Validator<K: Object>: Send + Sync + 'static {
    /// Validates an object that is created. Returns all errors of the object, which deny the request.
    ///
    /// # Errors
    /// An error denies the request for a reason other than the object's content.
    fn validate_create(
        &self,
        object: &K,
        request: &Request,
    ) -> impl Future<Output = Result<ValidationErrors, Denied>> + Send;

    /// Validates an update from `old` to `new`. Calls [`Validator::validate_create`] with `new` by default.
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

    /// Validates the deletion of an object. It is called only if [`Webhook::deletions`] is set. Allows it by default.
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
    /// Creates a webhook without a defaulter or validator.
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

    /// Adds a defaulter. Several defaulters are called in the order in which they were added.
    pub fn defaulting(mut self, defaulter: impl Defaulter<K>) -> Self {
        self.defaulting.0.push(Arc::new(defaulter));
        self
    }

    /// Adds a validator. The errors of several validators are returned together.
    pub fn validating(mut self, validator: impl Validator<K>) -> Self {
        self.validating.0.push(Arc::new(validator));
        self
    }

    /// Calls the validators for deletions too.
    pub fn deletions(self) -> Self {
        Self { deletions: true, ..self }
    }

    /// Changes how the API server calls the defaulters and validators: failure policy, timeout, selectors, match
    /// conditions.
    pub fn policies(mut self, change: impl FnOnce(&mut Policies)) -> Self {
        change(&mut self.policies);
        self
    }

    /// Sets the path of the defaulter, with a leading slash. The default is kubebuilder's path.
    pub fn defaulting_path(self, path: &str) -> Self {
        Self { defaulting_path: path.into(), ..self }
    }

    /// Sets the path of the validator, with a leading slash. The default is kubebuilder's path.
    pub fn validating_path(self, path: &str) -> Self {
        Self { validating_path: path.into(), ..self }
    }

    /// Returns the endpoints to serve, with their descriptions.
    pub(crate) fn endpoints(self) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        let kind = KindName::of::<K>();
        let mut add = |role, path, operations: &[Operation], handler: Arc<dyn Handler>| {
            let rules = vec![AdmissionRule::kind(&kind).operations(operations.iter().copied())];
            let (name, policies) = (manifests::name(role, &kind), self.policies.clone());
            let description = WebhookDescription { name, role, path, rules, policies };
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
