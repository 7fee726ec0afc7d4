//! The embedded Kubernetes API server: a [`tower::Service`] over multi-version storage.
//!
//! A `kube::Client` can be built directly on the service, so tests need no socket and can run with a paused clock. A
//! listener with TLS serves kubectl and other processes.
//!
//! ```no_run
//! # async fn run() {
//! use kubewright_apiserver::ApiServer;
//!
//! let api = ApiServer::builder().build();
//! let client: kube::Client = api.client();
//! # }
//! ```

mod action;
mod admission;
mod aggregation;
mod amounts;
mod audit;
mod auth;
mod authentication_config;
mod authorizer;
mod body;
mod certificate_authority;
mod certificate_verifier;
mod codec;
mod compaction;
mod compression;
mod conversion;
pub mod cron;
mod decoding;
mod digest;
mod discovery;
mod embedded;
mod feed;
mod fields;
mod flow_control;
mod group_version;
mod handlers;
mod idle;
mod kubelet;
mod listener;
mod managed_fields;
mod meta;
mod metrics;
mod object_meta;
mod object_size;
mod object_type;
pub mod openapi;
mod peer;
mod plugins;
mod protobuf;
mod proxy;
pub mod registry;
mod response;
mod schema_rules;
mod selection;
mod server;
mod sorted_map;
mod state;
mod storage;
mod strconv;
pub mod streaming;
pub mod table;
mod tls;
mod token_use;
mod usage;
mod version;
mod warning_headers;
mod webhook_client;
mod webhook_transport;
mod websocket;
mod write_batch;

pub use self::{
    action::{Action, ActionRequest},
    aggregation::{Aggregation, Availability},
    amounts::milli_quantity,
    audit::{AuditLog, AuditPolicy, AuditPolicyError, AuditSink},
    auth::{Attributes, DEFAULT_ISSUER, Requester, TokenReviewer, UserInfo},
    authorizer::{AbacPolicies, AbacPolicyError, AccessReview, AccessReviewer, AuthorizationMode},
    body::{Body, BoxError},
    certificate_authority::CertificateAuthority,
    feed::{Change, Feed, FeedSignal, Lagged, StoredObject},
    listener::{ListenError, ListenOptions, Listener},
    peer::{unverified_client_config, verified_client_config},
    plugins::AdmissionPlugin,
    registry::builtin::{
        ServiceRange, ServiceRangeError,
        pod_security::{PodSecurityConfig, PodSecurityConfigError},
        resource_metrics::{Measurement, ResourceMetrics, ResourceUsage},
    },
    server::{ApiServer, ApiServerBuilder},
    storage::{ChangeKind, Checkpoint, DataDirError, Durability},
    tls::{ServerCertificate, TlsError},
    usage::Usage,
    version::VERSION,
    webhook_transport::{ServerTrust, WebhookTransport},
};
