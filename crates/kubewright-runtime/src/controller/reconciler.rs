//! The trait that holds an operator's logic.

use std::{error::Error, fmt};

use crate::{
    action::{Action, Retry},
    context::Context,
    object::{Object, ObjectKey},
};

/// Brings the world in line with one object of kind `K`.
///
/// A reconcile is told which object to look at, never what happened to it. It reads, decides, writes, and may be cut off
/// or repeated at any point, so it must be idempotent. For one key there is never more than one run at a time.
///
/// Write the methods as `async fn`. [`Context`] says what a run has besides the object.
pub trait Reconciler<K: Object>: Send + Sync + 'static {
    /// The finalizer that [`cleanup`](Self::cleanup) needs, such as `podsets.app.example.com/cleanup`. `None`, the default,
    /// adds none: then objects go at once and their children are collected through their owner references.
    const FINALIZER: Option<&'static str> = None;

    /// What may go wrong. [`retry`](Self::retry) sorts it.
    type Error: Into<Box<dyn Error + Send + Sync>> + fmt::Debug + fmt::Display + Send + 'static;

    /// Brings the world in line with `object`, which exists and is not being deleted.
    fn reconcile(&self, object: &K, ctx: &Context<K>) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Undoes what owner references don't, when the object is being deleted and has [`FINALIZER`](Self::FINALIZER).
    ///
    /// [`Action::await_change`] takes the finalizer off, so that the object can go. Any other action keeps it and looks again.
    ///
    /// Without a finalizer of its own it is called too, while other finalizers keep the object; whether they do is not to
    /// be relied upon.
    fn cleanup(&self, object: &K, ctx: &Context<K>) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        let _ = (object, ctx);
        async { Ok(Action::await_change()) }
    }

    /// The object is gone, or its children are known before it is. It may be missed if the operator wasn't running, so nothing that matters may hang on it: it is
    /// for dropping what is kept in memory for this key. Where replicas [divide the keys](crate::shard), it is called where the key is
    /// worked on by then, and not where it was worked on before: what is kept there must do no harm when the key comes back.
    fn deleted(&self, key: &ObjectKey, ctx: &Context<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (key, ctx);
        async { Ok(()) }
    }

    /// What to do after an error: by default, try again with the key's backoff.
    fn retry(&self, error: &Self::Error) -> Retry {
        let _ = error;
        Retry::Backoff
    }
}
