//! One reconcile of one key: finds the object, handles the finalizer, calls the reconciler.

use std::{
    error::Error,
    marker::PhantomData,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use super::{Reconciler, error::ScopeChanged};
use crate::{
    action::{Action, Retry},
    client::{ClientError, explain, is_conflict, retry_after},
    context::{Context, LiveViews, ReconcileContext, Services, WriteTracker},
    finalizer,
    object::{AnyObject, KindName, KindScope, ObjectKey},
};

/// The arguments of a run.
pub(super) struct Run {
    pub(super) services: Arc<Services>,
    pub(super) key: ObjectKey,
    pub(super) views: LiveViews,
    pub(super) tracker: WriteTracker,
    pub(super) cancel: CancellationToken,
}

/// A failed reconcile.
#[derive(Debug)]
pub(super) struct Failure {
    /// The error with its sources.
    pub(super) message: String,
    pub(super) retry: Retry,
    /// The `Retry-After` of the API server.
    pub(super) retry_after: Option<Duration>,
    /// Whether it is a conflict, which is expected and not logged as an error.
    pub(super) is_conflict: bool,
}

impl Failure {
    pub(super) fn new(error: &(dyn Error + 'static), retry: Retry) -> Self {
        Self { message: explain(error), retry, retry_after: retry_after(error), is_conflict: is_conflict(error) }
    }
}

/// A reconciler, without the type of its kind.
pub(super) trait Work: Send + Sync {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<'static, Result<Action, Failure>>;
}

/// A [`Reconciler`] as [`Work`].
pub(super) struct Typed<K: AnyObject, R, C> {
    reconciler: R,
    kind: K::DynamicType,
    name: KindName,
    /// Whether the objects are namespaced. The first one tells, if the kind is known only at run time.
    is_namespaced: OnceLock<bool>,
    context: PhantomData<fn() -> C>,
}

impl<K: AnyObject, R: Reconciler<K, C>, C: ReconcileContext<K>> Work for Typed<K, R, C> {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<'static, Result<Action, Failure>> {
        async move { self.work(run).await }.boxed()
    }
}

impl<K: AnyObject, R: Reconciler<K, C>, C: ReconcileContext<K>> Typed<K, R, C> {
    pub(super) fn new(reconciler: R, kind: K::DynamicType) -> Self {
        let is_namespaced = match KindScope::of::<K>() {
            KindScope::Cluster => false.into(),
            KindScope::Namespaced => true.into(),
            KindScope::Unknown => OnceLock::new(),
        };
        Self { reconciler, name: KindName::named::<K>(&kind), kind, is_namespaced, context: PhantomData }
    }

    async fn work(&self, run: Run) -> Result<Action, Failure> {
        let Run { services, key, views, tracker, cancel } = run;
        let context = Context::<K>::new(services, self.kind.clone(), key, views, cancel, tracker);
        let objects = context.declared::<K>(&self.name).map_err(|error| refused(&error))?;
        let Some(object) = objects.get(context.key()) else {
            let key = context.key().clone();
            let deleted = self.reconciler.deleted(&key, &C::wrap(context)).await;
            return deleted.map(|()| Action::await_change()).map_err(|error| self.failed(error));
        };
        self.check_scope(&context)?;
        let finalized = R::FINALIZER.is_some_and(|finalizer| finalizer::contains(object.as_ref(), finalizer));
        match (R::FINALIZER, object.meta().deletion_timestamp.is_some()) {
            (Some(finalizer), true) if finalized => self.clean_up(&object, context, finalizer).await,
            (None, true) => {
                let context = C::wrap(context.with_object(object.clone()));
                self.reconciler.cleanup(&object, &context).await.map_err(|error| self.failed(error))
            }
            (Some(_), true) => Ok(Action::await_change()),
            (Some(finalizer), false) if !finalized => {
                let object = context.add_own_finalizer(object.as_ref(), finalizer).await;
                let object = Arc::new(object.map_err(|error| refused(&error))?);
                self.reconcile(&object, context).await
            }
            (_, false) => self.reconcile(&object, context).await,
        }
    }

    /// Checks that the object has the scope that the controller was made for: another definition may have replaced that
    /// of the kind.
    fn check_scope(&self, context: &Context<K>) -> Result<(), Failure> {
        let is_namespaced = context.key().namespace().is_some();
        if *self.is_namespaced.get_or_init(|| is_namespaced) == is_namespaced {
            return Ok(());
        }
        let error =
            ScopeChanged { kind: self.name.to_string(), controller: context.controller().into(), is_namespaced };
        Err(Failure::new(&error, Retry::Backoff))
    }

    async fn reconcile(&self, object: &Arc<K>, context: Context<K>) -> Result<Action, Failure> {
        let context = C::wrap(context.with_object(object.clone()));
        self.reconciler.reconcile(object, &context).await.map_err(|error| self.failed(error))
    }

    async fn clean_up(&self, object: &Arc<K>, context: Context<K>, finalizer: &str) -> Result<Action, Failure> {
        let context = C::wrap(context.with_object(object.clone()));
        let action = self.reconciler.cleanup(object, &context).await.map_err(|error| self.failed(error))?;
        if action.requeue.is_none() {
            let removed = context.context().remove_own_finalizer(object.as_ref(), finalizer).await;
            removed.map_err(|error| refused(&error))?;
        }
        Ok(action)
    }

    fn failed(&self, error: R::Error) -> Failure {
        let retry = self.reconciler.error_policy(&error);
        let error: Box<dyn Error + Send + Sync> = error.into();
        Failure::new(error.as_ref(), retry)
    }
}

fn refused(error: &ClientError) -> Failure {
    Failure::new(error, Retry::Backoff)
}
