//! A context whose cached reads the compiler checks.

use std::{fmt, marker::PhantomData, ops::Deref, sync::Arc};

use kube::core::Selector;

use super::Context;
use crate::{
    cache::Reader,
    client::ClientError,
    object::{AnyObject, Object, ObjectKey},
};

/// A list of types that a reconciler reads from the cache, made by [`reads!`](crate::reads).
pub trait DeclaredReads: Send + Sync + 'static {
    /// Passes each type to `declare`.
    fn declare(declare: &mut impl DeclareRead);
}

/// Takes the types of a [list](DeclaredReads). A [`Controller`](crate::controller::Controller) does.
pub trait DeclareRead {
    /// Declares that objects of kind `T` are read.
    fn declare_read<T: Object>(&mut self);
}

/// Implemented by a [list](DeclaredReads) for each of its types.
#[diagnostic::on_unimplemented(
    message = "`{T}` isn't among the types that `{Self}` declares",
    label = "not declared",
    note = "add it to the list of `reads!`"
)]
pub trait Reads<T>: DeclaredReads {}

/// Declares the types that a reconciler reads from the cache, so that a read of any other type doesn't compile.
///
/// It makes a type without values, the list, for [`DeclaredContext`]. A reconciler with that context in its
/// [`Reconciler`](crate::controller::Reconciler) brings the declarations with it:
/// [`Controller::new`](crate::controller::Controller::new) declares each type as
/// [`Controller::reads`](crate::controller::Controller::reads) does. What wakes the reconciler is declared by
/// [`Controller::owns`](crate::controller::Controller::owns) and
/// [`Controller::watches`](crate::controller::Controller::watches). A reconciler that reads objects of its own kind
/// lists that kind too.
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{Pod, Secret}};
/// use kubewright_runtime::{action::Action, client::ClientError, context::DeclaredContext, controller::{Controller, Reconciler}, reads};
///
/// reads! {
///     /// What the reconciler reads.
///     pub enum RolloutReads: Pod, Secret;
/// }
///
/// type Context = DeclaredContext<Deployment, RolloutReads>;
///
/// struct Rollout;
///
/// impl Reconciler<Deployment, Context> for Rollout {
///     type Error = ClientError;
///
///     async fn reconcile(&self, deployment: &Deployment, ctx: &Context) -> Result<Action, ClientError> {
///         let pods = ctx.children::<Pod>()?;
///         let secret = ctx.get::<Secret>(&ctx.key().sibling("credentials"))?;
///         # drop((deployment, pods, secret));
///         Ok(Action::await_change())
///     }
/// }
///
/// let controller = Controller::<Deployment>::new(Rollout).owns::<Pod>();
/// ```
///
/// A type that isn't in the list is an error of the compiler:
///
/// ```compile_fail,E0277
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Pod}};
/// # use kubewright_runtime::{client::ClientError, context::DeclaredContext, reads};
/// # reads! { enum RolloutReads: Pod; }
/// fn settings(ctx: &DeclaredContext<Deployment, RolloutReads>) -> Result<(), ClientError> {
///     let settings = ctx.get::<ConfigMap>(ctx.key())?;
///     # drop(settings);
///     Ok(())
/// }
/// ```
#[macro_export]
macro_rules! reads {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident: $($kind:ty),+ $(,)?;) => {
        $(#[$attribute])*
        $visibility enum $name {}

        impl $crate::context::DeclaredReads for $name {
            fn declare(declare: &mut impl $crate::context::DeclareRead) {
                $(declare.declare_read::<$kind>();)+
            }
        }

        $(impl $crate::context::Reads<$kind> for $name {})+
    };
}

/// A [`Context`] that reads from the cache only the types of the list `R`, which [`reads!`](crate::reads) makes. A read
/// of another type doesn't compile.
///
/// It has all other methods of [`Context`] by dereferencing, and may be passed as `&Context<K>`. Through that, the
/// reads are checked at run time, as always.
pub struct DeclaredContext<K: AnyObject, R> {
    context: Context<K>,
    reads: PhantomData<R>,
}

impl<K: AnyObject, R> fmt::Debug for DeclaredContext<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.context.fmt(f)
    }
}

impl<K: AnyObject, R> Deref for DeclaredContext<K, R> {
    type Target = Context<K>;

    fn deref(&self) -> &Context<K> {
        &self.context
    }
}

// The bounds are on the methods: were they on the impl, a read of another type would be the method of `Context`.
impl<K: AnyObject, R> DeclaredContext<K, R> {
    /// [`Context::children`] of a type in the list.
    ///
    /// # Errors
    /// None that a program can meet: the controller has declared the type.
    pub fn children<T: Object>(&self) -> Result<Vec<Arc<T>>, ClientError>
    where
        R: Reads<T>,
    {
        self.context.children()
    }

    /// [`Context::get`] of a type in the list.
    ///
    /// # Errors
    /// As [`DeclaredContext::children`].
    pub fn get<T: Object>(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, ClientError>
    where
        R: Reads<T>,
    {
        self.context.get(key)
    }

    /// [`Context::list`] of a type in the list.
    ///
    /// # Errors
    /// As [`DeclaredContext::children`].
    pub fn list<T: Object>(&self, selector: &Selector) -> Result<Vec<Arc<T>>, ClientError>
    where
        R: Reads<T>,
    {
        self.context.list(selector)
    }

    /// [`Context::cached`] of a type in the list.
    ///
    /// # Errors
    /// As [`DeclaredContext::children`].
    pub fn cached<T: Object>(&self) -> Result<Reader<T>, ClientError>
    where
        R: Reads<T>,
    {
        self.context.cached()
    }
}

/// The type of the context in a [`Reconciler`](crate::controller::Reconciler): [`Context`], or [`DeclaredContext`] with
/// a list of the types that it reads.
pub trait ReconcileContext<K: AnyObject>: sealed::Wrap<K> {}

impl<K: AnyObject> ReconcileContext<K> for Context<K> {}

impl<K: AnyObject, R: DeclaredReads> ReconcileContext<K> for DeclaredContext<K, R> {}

mod sealed {
    //! What the runtime does with the context of a reconciler.

    use super::{AnyObject, Context, DeclareRead, DeclaredContext, DeclaredReads, PhantomData};

    /// Wraps the plain context.
    pub trait Wrap<K: AnyObject>: Send + Sync + Sized + 'static {
        /// Makes a context of this type.
        fn wrap(context: Context<K>) -> Self;

        /// Returns the context in it.
        fn context(&self) -> &Context<K>;

        /// Adds what this type of context declares.
        fn declare(declare: &mut impl DeclareRead);
    }

    impl<K: AnyObject> Wrap<K> for Context<K> {
        fn wrap(context: Self) -> Self {
            context
        }

        fn context(&self) -> &Self {
            self
        }

        fn declare(_: &mut impl DeclareRead) {}
    }

    impl<K: AnyObject, R: DeclaredReads> Wrap<K> for DeclaredContext<K, R> {
        fn wrap(context: Context<K>) -> Self {
            Self { context, reads: PhantomData }
        }

        fn context(&self) -> &Context<K> {
            self
        }

        fn declare(declare: &mut impl DeclareRead) {
            R::declare(declare);
        }
    }
}
