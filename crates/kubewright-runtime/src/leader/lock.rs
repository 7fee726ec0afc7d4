//! Where the record of an election is kept: a `Lease` of the cluster, or a store of the operator's own.

use std::{error::Error, fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use thiserror::Error;

/// Keeps the record of a leader election in another place than a `Lease` of the cluster, such as a database that the
/// operator also writes to (client-go: `resourcelock.Interface`).
/// [`Manager::leader_lock`](crate::manager::Manager::leader_lock) sets it.
///
/// The record is a `Lease` in any case. Its `spec` is to be stored as it is. `metadata.resourceVersion` is the version
/// of the stored record: the lock sets it to another value with each write. The writes must be atomic and read nothing
/// but the latest write, or there may be two leaders.
///
/// Write the methods as `async fn`. Each may be cancelled at any `await`, and a write that was cancelled or failed may
/// have taken effect.
///
/// ```
/// # use k8s_openapi::api::coordination::v1::Lease;
/// # use kubewright_runtime::leader::{Lock, LockError};
/// # use parking_lot::Mutex;
/// /// A record in memory, for replicas in one process.
/// #[derive(Default)]
/// struct InMemory(Mutex<(u64, Option<Lease>)>);
///
/// impl InMemory {
///     fn write(&self, record: &Lease) -> Result<Lease, LockError> {
///         let (version, stored) = &mut *self.0.lock();
///         // A record without a version must not exist yet.
///         let seen = stored.as_ref().and_then(|stored| stored.metadata.resource_version.clone());
///         if record.metadata.resource_version != seen {
///             return Err(LockError::Conflict);
///         }
///         *version += 1;
///         let mut record = record.clone();
///         record.metadata.resource_version = Some(version.to_string());
///         Ok(stored.insert(record).clone())
///     }
/// }
///
/// impl Lock for InMemory {
///     async fn read(&self) -> Result<Option<Lease>, LockError> {
///         Ok(self.0.lock().1.clone())
///     }
///
///     async fn create(&self, record: &Lease) -> Result<Lease, LockError> {
///         self.write(record)
///     }
///
///     async fn update(&self, record: &Lease) -> Result<Lease, LockError> {
///         self.write(record)
///     }
/// }
/// ```
pub trait Lock: Send + Sync + 'static {
    /// Returns the stored record, or `None` before the first one.
    fn read(&self) -> impl Future<Output = Result<Option<Lease>, LockError>> + Send;

    /// Stores the first record, and returns it with its version.
    ///
    /// # Errors
    /// [`LockError::Conflict`] if a record is stored already.
    fn create(&self, record: &Lease) -> impl Future<Output = Result<Lease, LockError>> + Send;

    /// Replaces the record whose version is that in `record`, and returns the new one with its version.
    ///
    /// # Errors
    /// [`LockError::Conflict`] if the record has another version, or is gone.
    fn update(&self, record: &Lease) -> impl Future<Output = Result<Lease, LockError>> + Send;
}

/// The error of a [`Lock`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another replica has written the record.
    #[error("the record has changed")]
    Conflict,
    /// The store can't be reached, or doesn't allow the request.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl LockError {
    /// The error of a store, other than a conflict.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}

/// Any [`Lock`].
#[derive(Clone)]
pub(crate) struct AnyLock(Arc<dyn DynLock>);

impl fmt::Debug for AnyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyLock")
    }
}

impl AnyLock {
    pub(crate) fn new(lock: impl Lock) -> Self {
        Self(Arc::new(lock))
    }

    /// The lease of this namespace and name.
    pub(crate) fn lease(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self::new(ApiLock { leases: Api::namespaced(client, namespace), name: name.into() })
    }

    pub(crate) async fn read(&self) -> Result<Option<Lease>, LockError> {
        self.0.read().await
    }

    pub(crate) async fn create(&self, record: &Lease) -> Result<Lease, LockError> {
        self.0.create(record).await
    }

    pub(crate) async fn update(&self, record: &Lease) -> Result<Lease, LockError> {
        self.0.update(record).await
    }
}

/// A [`Lock`] without its type.
trait DynLock: Send + Sync {
    fn read(&self) -> BoxFuture<'_, Result<Option<Lease>, LockError>>;
    fn create<'a>(&'a self, record: &'a Lease) -> BoxFuture<'a, Result<Lease, LockError>>;
    fn update<'a>(&'a self, record: &'a Lease) -> BoxFuture<'a, Result<Lease, LockError>>;
}

impl<L: Lock> DynLock for L {
    fn read(&self) -> BoxFuture<'_, Result<Option<Lease>, LockError>> {
        Lock::read(self).boxed()
    }

    fn create<'a>(&'a self, record: &'a Lease) -> BoxFuture<'a, Result<Lease, LockError>> {
        Lock::create(self, record).boxed()
    }

    fn update<'a>(&'a self, record: &'a Lease) -> BoxFuture<'a, Result<Lease, LockError>> {
        Lock::update(self, record).boxed()
    }
}

/// A lease of the cluster.
struct ApiLock {
    leases: Api<Lease>,
    name: String,
}

impl Lock for ApiLock {
    async fn read(&self) -> Result<Option<Lease>, LockError> {
        self.leases.get_opt(&self.name).await.map_err(refused)
    }

    async fn create(&self, record: &Lease) -> Result<Lease, LockError> {
        self.leases.create(&PostParams::default(), record).await.map_err(refused)
    }

    async fn update(&self, record: &Lease) -> Result<Lease, LockError> {
        self.leases.replace(&self.name, &PostParams::default(), record).await.map_err(refused)
    }
}

fn refused(error: kube::Error) -> LockError {
    match error {
        kube::Error::Api(status) if status.code == 409 => LockError::Conflict,
        error => LockError::failed(error),
    }
}
