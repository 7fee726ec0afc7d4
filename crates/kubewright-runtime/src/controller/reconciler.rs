//! The trait that holds an operator's logic.

use std::{error::Error, fmt};

use crate::{
    action::{Action, Retry},
    context::{Context, ReconcileContext},
    object::{AnyObject, ObjectKey},
};

/// The logic of an operator: makes the cluster match the spec of one object of kind `K`.
///
/// A reconcile is given the object, not the event that woke it. It reads, decides and writes. It may be cancelled at
/// any `await` and is repeated after an error, so it must be idempotent. At most one run per key is in progress at a
/// time.
///
/// Write the methods as `async fn`. [`Context`] has what a run needs besides the object. `C` is the type of the
/// context: [`Context`], or [`DeclaredContext`](crate::context::DeclaredContext), with which the compiler checks that
/// each type that is read from the cache is declared.
pub trait Reconciler<K: AnyObject, C: ReconcileContext<K> = Context<K>>: Send + Sync + 'static {
    /// The finalizer for [`cleanup`](Self::cleanup), such as `podsets.app.example.com/cleanup`. The runtime adds it
    /// before the first reconcile. `None`, the default, adds none: objects are then deleted at once, and their children
    /// are garbage collected through their owner references.
    const FINALIZER: Option<&'static str> = None;

    /// The error of a reconcile. [`error_policy`](Self::error_policy) decides how it is retried.
    type Error: Into<Box<dyn Error + Send + Sync>> + fmt::Debug + fmt::Display + Send + 'static;

    /// Makes the cluster match `object`, which exists and is not being deleted.
    fn reconcile(&self, object: &K, ctx: &C) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Undoes what garbage collection doesn't, when the object is being deleted and has [`FINALIZER`](Self::FINALIZER).
    ///
    /// [`Action::await_change`] removes the finalizer, so that the object can be deleted. Any other action keeps it and
    /// runs `cleanup` again.
    ///
    /// Without a finalizer of its own it is called too while other finalizers keep the object. Don't rely on that:
    /// there may be none.
    fn cleanup(&self, object: &K, ctx: &C) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        let _ = (object, ctx);
        async { Ok(Action::await_change()) }
    }

    /// Drops what is kept in memory for a key whose object is gone, or whose children were seen before the object.
    ///
    /// It is called for each key in the queue that has no object. After a restart, these are only the keys that an
    /// owned or watched object names: an object that was deleted while the operator wasn't running has no key
    /// otherwise. Where replicas [divide the keys](crate::shard) it is called on the replica that has the key then, not
    /// on those that had it before. So state that remains must be harmless when the key is used again.
    fn deleted(&self, key: &ObjectKey, ctx: &C) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (key, ctx);
        async { Ok(()) }
    }

    /// Decides how an error is retried. The default is the key's exponential backoff.
    fn error_policy(&self, error: &Self::Error) -> Retry {
        let _ = error;
        Retry::Backoff
    }
}
