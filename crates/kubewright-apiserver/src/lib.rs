//! The embedded Kubernetes API server: a [`tower::Service`] over multi-version storage.
//!
//! A `kube::Client` can be built straight on the service, so a test needs no socket and can run on a paused clock;
//! a TLS listener is a thin shell for kubectl.
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
mod audit;
mod auth;
mod body;
mod convert;
pub mod discovery;
mod endpoint;
mod feed;
mod handlers;
mod listen;
mod meta;
pub mod openapi;
mod ownership;
mod protobuf;
mod rbac;
pub mod registry;
mod respond;
mod schema_rules;
mod selection;
mod server;
mod storage;
pub mod table;
mod tls;

pub use self::{
    action::{Action, ActionRequest},
    audit::Usage,
    auth::{Access, Attempt, UserInfo},
    body::{Body, BoxError},
    feed::{Change, Feed, Lagged},
    listen::{ListenError, ListenOptions, Listener},
    server::{ApiServer, ApiServerBuilder},
    storage::ChangeKind,
    tls::TlsError,
};
