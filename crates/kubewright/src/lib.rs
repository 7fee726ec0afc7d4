//! The operator SDK for Rust.
//!
//! An operator has a [`Reconciler`](controller::Reconciler) for each kind that it manages. A
//! [`Controller`](controller::Controller) wires it to watches, and a [`Manager`](manager::Manager) runs the
//! controllers:
//!
//! ```no_run
//! use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
//! use kubewright::prelude::*;
//!
//! struct Trimmer;
//!
//! impl Reconciler<ReplicaSet> for Trimmer {
//!     type Error = ClientError;
//!
//!     async fn reconcile(&self, set: &ReplicaSet, ctx: &Context<ReplicaSet>) -> Result<Action, ClientError> {
//!         let pods = ctx.children::<Pod>()?; // from the shared cache, which has this key's own writes
//!         for pod in pods.iter().skip(3) {
//!             ctx.delete(pod.as_ref()).background().await?;
//!         }
//!         Ok(Action::await_change())
//!     }
//! }
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! Manager::from_args()?.controller(Controller::<ReplicaSet>::new(Trimmer).owns::<Pod>()).run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Overview
//!
//! | task | modules |
//! |---|---|
//! | start, stop, serve probes and metrics, parse flags | [`manager`], [`args`], [`probe`], [`metrics`], [`metrics_server`], [`log`], [`signal`], [`exit`] |
//! | declare watches, concurrency and retries | [`controller`], [`predicate`], [`queue`] |
//! | have the compiler check what is read from the cache | [`reads!`], [`context::DeclaredContext`] |
//! | write the logic | [`controller::Reconciler`], [`context::Context`], [`action::Action`] |
//! | read objects | [`context::Context::get`], [`list`](context::Context::list) and [`children`](context::Context::children) from the [`cache`]; [`live`](context::Context::live) from the API server |
//! | write objects | [`context::Context`]: `create_child`, `apply_child`, `patch`, `delete`, `create_or_update`, `set_status`; more in [`client`] |
//! | own only the fields that are named | [`macro@apply_configuration::ApplyConfiguration`] |
//! | report state | [`condition`], [`event`] |
//! | manage children | [`owner`], [`name`], [`create_backoff`], [`finalizer`] |
//! | extend or reduce the generated role | [`rbac`] |
//! | default and validate objects | [`webhook`] |
//! | serve several versions of a kind | [`conversion`] |
//! | add schema properties that the derives don't cover | [`schema`] |
//! | run several replicas, one or all of them active | [`leader`], [`shard`] |
//! | find out why a key was reconciled | [`trace`] |
//! | wait for the state of an object, in tests and at the start | [`wait`] |
//! | use time and randomness that tests control | [`clock`], [`random`] |
//!
//! `cargo run -p kubewright --example tour` runs a short program for each of these. The book in the repository is the
//! guide for beginners.
//!
//! The modules are those of the crate `kubewright-runtime`. [`kube`] and [`k8s_openapi`] are the versions that it uses.

pub use k8s_openapi;
pub use kube;
#[cfg(feature = "profiling")]
pub use kubewright_runtime::profile;
#[cfg(feature = "opentelemetry")]
pub use kubewright_runtime::telemetry;
pub use kubewright_runtime::{
    action, args, cache, client, condition, context, controller, create_backoff, event, exit, finalizer, leader, log,
    manager, metrics, metrics_server, name, object, owner, predicate, probe, queue, rbac, schema, shard, signal, trace,
    view, wait, webhook,
};
pub use kubewright_runtime::{clock, random, reads};

pub mod apply_configuration {
    //! Apply configurations: the derive macro [`ApplyConfiguration`], and the runtime's module.

    pub use kubewright_macros::ApplyConfiguration;
    pub use kubewright_runtime::apply_configuration::*;
}

pub mod conversion {
    //! Conversion between versions of a kind: the runtime's module, and the derive macro [`Convert`].

    pub use kubewright_macros::Convert;
    pub use kubewright_runtime::conversion::*;
}

#[cfg(feature = "simulation")]
pub mod simulation {
    //! Simulation of an operator: the crate `kubewright-simulation`, and the attribute [`macro@scenario`], which makes
    //! a test of a scenario.

    pub use kubewright_macros::scenario;
    pub use kubewright_simulation::*;
}

/// The items that most files of an operator use.
pub mod prelude {
    pub use kube::{
        ResourceExt,
        core::{Expression, Selector},
    };
    pub use kubewright_runtime::{
        action::{Action, Retry},
        client::ClientError,
        condition::{ConditionStatus, Conditions},
        context::Context,
        controller::{Controller, Reconciler},
        conversion::{ConversionError, Convertible, Hub},
        event::Event,
        exit::MainError,
        manager::Manager,
        object::{Object, ObjectKey},
        predicate::{Change, Predicate},
        rbac::{PolicyRule, Subresource, Verb},
        webhook::{Defaulter, Denied, Request, ValidationErrors, Validator, Webhook},
    };
}

/// The example in the repository's README, which `cargo test` compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
