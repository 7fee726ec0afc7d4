//! The state shared by all requests.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use kubewright_apimachinery::{clock::SharedClock, random::Random};

use crate::{
    action::Actions,
    admission::Admission,
    aggregation::Aggregation,
    audit::AuditLog,
    auth::{Authenticator, Authorization},
    certificate_authority::CertificateAuthority,
    compaction::Compaction,
    flow_control::FlowControl,
    handlers::HealthCounts,
    kubelet::Kubelets,
    metrics::Metrics,
    openapi::OpenApi,
    plugins::Plugins,
    proxy::ProxyResolver,
    registry::{
        Registry,
        builtin::{NodeRestriction, ServiceRange, pod_security::PodSecurityConfig},
    },
    storage::Store,
    tls::ClientCredentials,
    webhook_client::WebhookClient,
};

/// The state shared by all requests.
pub(crate) struct State {
    pub(crate) store: Arc<Store>,
    pub(crate) compaction: Compaction,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) service_range: ServiceRange,
    /// The credentials of listeners, if they are kept in a data directory.
    pub(crate) credentials: Option<ClientCredentials>,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorization: Authorization,
    /// Signs the certificates of listeners and clients.
    pub(crate) certificate_authority: Arc<CertificateAuthority>,
    /// Limits the changes of nodes, if they are limited.
    pub(crate) node_restriction: Option<NodeRestriction>,
    /// The admission plugins that are on.
    pub(crate) plugins: Arc<Plugins>,
    /// The levels of namespaces without labels, and exemptions.
    pub(crate) pod_security: PodSecurityConfig,
    /// The admission webhooks and policies.
    pub(crate) admission: Arc<Admission>,
    /// The API servers of other versions.
    pub(crate) aggregation: Aggregation,
    pub(crate) audit_log: Option<Arc<AuditLog>>,
    /// Calls webhooks, for admission and for conversion.
    pub(crate) webhook_client: Arc<WebhookClient>,
    pub(crate) actions: Actions,
    pub(crate) kubelets: Arc<Kubelets>,
    /// The interval of a watch's bookmarks.
    pub(crate) bookmark_interval: Duration,
    pub(crate) proxy_resolver: ProxyResolver,
    pub(crate) openapi: OpenApi,
    pub(crate) flow_control: Arc<FlowControl>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: HealthCounts,
    /// The time at which the server was built.
    pub(crate) started: Timestamp,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("revision", &self.store.revision()).finish_non_exhaustive()
    }
}
