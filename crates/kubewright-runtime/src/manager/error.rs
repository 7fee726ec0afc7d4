//! The errors of managers.

use std::{error::Error as StdError, io, path::PathBuf, time::Duration};

use thiserror::Error;
use tokio::task::JoinError;

use crate::{
    args::ConnectError, controller::ControllerError, http::BindError, leader::LeaderOptionsError, log::LevelError,
    shard::ShardError, webhook::ClientAuthoritiesError,
};

/// An error that ends a manager.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The connection to the cluster can't be set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server can't listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The log level is invalid.
    #[error(transparent)]
    Log(#[from] LevelError),
    /// The signal handlers can't be installed.
    #[error("can't install the signal handlers")]
    Signals(#[source] io::Error),
    /// Two controllers have the same name, so their metrics, events and field ownership would be shared.
    #[error("two controllers have the name {0:?}: rename one with Controller::name")]
    SameName(String),
    /// A controller can't be added to a manager that doesn't run any more.
    #[error("can't add the controller {0:?}: the manager has ended")]
    Ended(String),
    /// Two clusters have the same name.
    #[error("there is a cluster {0:?} already: remove it first, or choose another name")]
    SameCluster(String),
    /// The name of a cluster is invalid.
    #[error("invalid name {0:?} of a cluster: it must not be empty, and without blanks and the characters / @ ? #")]
    BadClusterName(String),
    /// A cluster can't be added to a manager that doesn't run any more.
    #[error("can't add the cluster {0:?}: the manager has ended")]
    ClusterEnded(String),
    /// Two indexes of one kind have the same name.
    #[error(
        "controllers {first:?} and {second:?} both declare the index {index:?} of {kind}: declare it in one of them, or rename one"
    )]
    SameIndex {
        /// The kind.
        kind: String,
        /// The name of the index.
        index: String,
        /// The controller with the first declaration.
        first: String,
        /// The controller with the second declaration, possibly the same controller.
        second: String,
    },
    /// A version of a kind is declared, but not the kind itself.
    #[error(
        "{0} is declared as a version of a kind that is not declared: declare the stored version with Manager::kind"
    )]
    NoKind(String),
    /// A version of a kind is declared twice.
    #[error("{0} is declared twice: declare each version once, and one version of each kind as the stored one")]
    SameKind(String),
    /// The description can't be written.
    #[error("can't write the description to {}, the value of KUBEWRIGHT_DESCRIBE", path.display())]
    Describe {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// Two webhooks have the same path.
    #[error("two webhooks have the path {0:?}: change one with Webhook::defaulting_path or Webhook::validating_path")]
    SamePath(String),
    /// A kind has two hubs.
    #[error("two hubs convert the kind {0}: add all its versions as spokes to one hub")]
    SameHub(String),
    /// Two handlers of the metrics server have the same path, or one has the path of the metrics or traces.
    #[error("two handlers of the metrics server have the path {0:?}: change one")]
    SameMetricsPath(String),
    /// A controller can't continue.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A runnable failed.
    #[error("the runnable {name} failed")]
    Runnable {
        /// The runnable's name.
        name: String,
        /// The error.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A runnable needs a leader, which doesn't exist with sharding.
    #[error(
        "the runnable {0} needs a leader, and with sharding there is none: run it on every replica with Runnable::needs_leader(false)"
    )]
    NoLeader(String),
    /// A controller needs a leader, which doesn't exist with sharding, and its keys are no objects that replicas could
    /// divide.
    #[error(
        "the keys of the controller {0} can't be divided among replicas: run it on every replica with KeyController::needs_leader(false), or elect a leader in place of sharding"
    )]
    Indivisible(String),
    /// The certificate authorities for webhook clients can't be read.
    #[error(transparent)]
    ClientAuthorities(#[from] ClientAuthoritiesError),
    /// Reconciles or runnables didn't end within the [grace period](crate::manager::Manager::graceful_shutdown).
    #[error("not all tasks ended within the grace period of {0:?}: they were aborted")]
    GraceExceeded(Duration),
    /// A task of the manager panicked.
    #[error("a task of the manager panicked")]
    Task(#[source] JoinError),
    /// The path of a handler of the metrics server is invalid.
    #[error(
        "invalid path {0:?} of a metrics handler: begin it with a slash, without braces, blanks, or segments that begin with ':' or '*'"
    )]
    BadMetricsPath(String),
    /// The path of a webhook is invalid.
    #[error(
        "invalid path {0:?} of a webhook: begin it with a slash, without braces, blanks, or segments that begin with ':' or '*'"
    )]
    BadPath(String),
    /// The durations of the leader election are inconsistent.
    #[error(transparent)]
    LeaderOptions(#[from] LeaderOptionsError),
    /// Leader election and sharding are both requested.
    #[error(
        "--leader-elect and --shard exclude each other: with --shard all replicas are active, each for a part of the objects"
    )]
    LeaderAndShards,
    /// The options of sharding are invalid.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// Leadership was lost. The process should exit and be restarted.
    #[error("leadership lost: the lease {lease} could not be renewed in time: {why}")]
    LeadershipLost {
        /// The namespace and name of the lease.
        lease: String,
        /// The last error, or the identity of the new leader.
        why: String,
    },
    /// Membership in the shard group was lost, and the other replicas take over its keys. The process should exit and
    /// be restarted.
    #[error("shard membership lost: the lease {0} could not be renewed in time")]
    ShardLost(String),
}
