//! The operator SDK for Rust: what an operator's author depends on.
//!
//! An operator is a [`Reconciler`](controller::Reconciler) for each kind it manages, wired by a
//! [`Controller`](controller::Controller) and run by a [`Manager`](manager::Manager):
//!
//! ```no_run
//! use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
//! use kubewright::prelude::*;
//!
//! struct Keeper;
//!
//! impl Reconciler<ReplicaSet> for Keeper {
//!     type Error = ClientError;
//!
//!     async fn reconcile(&self, set: &ReplicaSet, ctx: &Context<ReplicaSet>) -> Result<Action, ClientError> {
//!         let pods = ctx.children::<Pod>()?; // from the shared cache, our own last writes included
//!         for pod in pods.iter().skip(3) {
//!             ctx.delete(pod.as_ref()).background().await?;
//!         }
//!         Ok(Action::await_change())
//!     }
//! }
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! Manager::from_args()?.controller(Controller::<ReplicaSet>::new(Keeper).owns::<Pod>()).run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # A tour
//!
//! | to | look at |
//! |---|---|
//! | start, stop, serve probes and metrics, read flags | [`manager`], [`args`], [`probe`], [`metrics`], [`log`], [`signal`] |
//! | say what wakes what, how many at once, how often again | [`controller`], [`predicate`], [`queue`] |
//! | write the logic | [`controller::Reconciler`], [`context::Context`], [`action::Action`] |
//! | read what is there | [`context::Context::get`], [`list`](context::Context::list) and [`children`](context::Context::children) from the [`cache`]; [`live`](context::Context::live) past it |
//! | change it | [`context::Context`]: `create_child`, `apply_child`, `patch`, `delete`, `create_or_update`, `set_status`; the rest in [`client`] |
//! | tell of it | [`condition`], [`event`] |
//! | own children, name them, undo what they leave | [`owner`], [`name`], [`create_backoff`], [`finalizer`] |
//! | extend or reduce the generated role | [`rbac`] |
//! | default and check before an object is stored | [`webhook`] |
//! | serve several versions of a kind | [`conversion`] |
//! | say in a CRD what the derives don't | [`schema`] |
//! | run several replicas: one active, or all of them | [`leader`], [`shard`] |
//! | know why a key was reconciled, or why it isn't | [`trace`] |
//! | keep time | [`clock`], [`random`]: virtual and seeded in tests |
//!
//! `cargo run -p kubewright --example tour` runs a short program for each of these. The book in the repository begins at the
//! beginning.
//!
//! The modules are those of the runtime; [`kube`] and [`k8s_openapi`] are the ones it is built with.

pub use k8s_openapi;
pub use kube;
#[cfg(feature = "opentelemetry")]
pub use kubewright_runtime::telemetry;
pub use kubewright_runtime::{
    action, args, cache, client, condition, context, controller, create_backoff, event, finalizer, leader, log,
    manager, metrics, name, object, owner, predicate, probe, queue, rbac, schema, shard, signal, trace, view, webhook,
};
pub use kubewright_runtime::{clock, random};

pub mod conversion {
    //! Several versions of one kind, converted on demand: that of the runtime, and what derives [`Convert`].

    pub use kubewright_macros::Convert;
    pub use kubewright_runtime::conversion::*;
}

/// What most files of an operator need.
pub mod prelude {
    pub use kube::{ResourceExt, core::Selector};
    pub use kubewright_runtime::{
        action::{Action, Retry},
        client::ClientError,
        condition::{ConditionStatus, Conditions},
        context::Context,
        controller::{Controller, Reconciler},
        conversion::{ConversionError, Convertible, Hub},
        event::Event,
        manager::Manager,
        object::{Object, ObjectKey},
        predicate::{Change, Predicate},
        rbac::{PolicyRule, Subresource, Verb},
        webhook::{Defaulter, Denied, Request, ValidationErrors, Validator, Webhook},
    };
}
