//! Several finalizers of one kind, each with its own cleanup.

use std::{error::Error, fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use thiserror::Error;

use crate::{
    client::{ClientError, explain},
    context::Context,
    finalizer,
    object::Object,
};

/// The cleanup behind one finalizer, for [`Finalizers`].
pub trait Finalizer<K: Object>: Send + Sync + 'static {
    /// The error type; the cleanup is repeated after an error.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// Cleans up what belongs to the object, which is being deleted. It may be called again after it has succeeded, if
    /// the process ends before the finalizer is removed.
    fn finalize(&self, object: &K, ctx: &Context<K>) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A [`Finalizer`] of any error type.
trait Cleanup<K: Object>: Send + Sync {
    fn finalize<'a>(&'a self, object: &'a K, ctx: &'a Context<K>) -> BoxFuture<'a, Result<(), BoxError>>;
}

type BoxError = Box<dyn Error + Send + Sync>;

impl<K: Object, F: Finalizer<K>> Cleanup<K> for F {
    fn finalize<'a>(&'a self, object: &'a K, ctx: &'a Context<K>) -> BoxFuture<'a, Result<(), BoxError>> {
        async move { Finalizer::finalize(self, object, ctx).await.map_err(Into::into) }.boxed()
    }
}

/// A set of finalizers of one kind (controller-runtime: `finalizer.Finalizers`), for reconcilers whose parts clean up
/// independently of each other. With one finalizer, use [`Reconciler::FINALIZER`](super::Reconciler::FINALIZER)
/// instead.
///
/// The role needs the right to `patch` the reconciled kind, which [`Controller::rbac`](super::Controller::rbac) adds.
///
/// ```
/// # use std::convert::Infallible;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kubewright_runtime::{action::Action, context::Context};
/// # use kubewright_runtime::controller::{Finalizer, Finalizers, FinalizersError, Reconciler};
/// struct DropBucket;
///
/// impl Finalizer<ConfigMap> for DropBucket {
///     type Error = Infallible;
///
///     async fn finalize(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<(), Infallible> {
///         Ok(()) // delete the bucket of this object
///     }
/// }
///
/// struct Buckets(Finalizers<ConfigMap>);
///
/// impl Reconciler<ConfigMap> for Buckets {
///     type Error = FinalizersError;
///
///     async fn reconcile(&self, map: &ConfigMap, ctx: &Context<ConfigMap>) -> Result<Action, FinalizersError> {
///         self.0.finalize(map, ctx).await?; // adds the finalizers
///         Ok(Action::await_change())
///     }
///
///     async fn cleanup(&self, map: &ConfigMap, ctx: &Context<ConfigMap>) -> Result<Action, FinalizersError> {
///         self.0.finalize(map, ctx).await?; // cleans up, and removes them
///         Ok(Action::await_change())
///     }
/// }
///
/// let reconciler = Buckets(Finalizers::new().register("example.com/bucket", DropBucket));
/// ```
pub struct Finalizers<K> {
    known: Vec<(String, Arc<dyn Cleanup<K>>)>,
}

impl<K> fmt::Debug for Finalizers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|(name, _)| name)).finish()
    }
}

impl<K> Default for Finalizers<K> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<K: Object> Finalizers<K> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a finalizer of this domain-qualified name, such as `example.com/bucket`. Another one of the same name is
    /// replaced.
    pub fn register(mut self, name: &str, finalizer: impl Finalizer<K>) -> Self {
        self.known.retain(|(known, _)| known != name);
        self.known.push((name.into(), Arc::new(finalizer)));
        self
    }

    /// Adds all finalizers to an object that isn't being deleted, by one write if one is missing. For an object that is
    /// being deleted, it calls those that the object still has, in the order of their registration, and removes each
    /// that has succeeded. A failed one doesn't keep the others from running.
    ///
    /// # Errors
    /// [`FinalizersError`] if a write or a finalizer fails.
    pub async fn finalize(&self, object: &K, ctx: &Context<K>) -> Result<(), FinalizersError> {
        if object.meta().deletion_timestamp.is_none() {
            ctx.add_finalizers(object, self.known.iter().map(|(name, _)| name.as_str())).await?;
            return Ok(());
        }
        let (mut current, mut failed) = (object.clone(), Vec::new());
        for (name, cleanup) in &self.known {
            if !finalizer::contains(&current, name) {
                continue;
            }
            match cleanup.finalize(&current, ctx).await {
                Ok(()) => match ctx.remove_own_finalizer(&current, name).await? {
                    Some(changed) => current = changed,
                    None => break,
                },
                Err(error) => failed.push((name.clone(), error)),
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(FinalizersError::Failed(failed)) }
    }
}

/// An error of [`Finalizers::finalize`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FinalizersError {
    /// The finalizers of the object can't be written.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Finalizers failed: their names, with their errors.
    #[error("{}", described(.0))]
    Failed(Vec<(String, Box<dyn Error + Send + Sync>)>),
}

fn described(failed: &[(String, BoxError)]) -> String {
    let describe =
        |(name, error): &(String, BoxError)| format!("the finalizer {name} failed: {}", explain(error.as_ref()));
    failed.iter().map(describe).collect::<Vec<_>>().join("; ")
}
