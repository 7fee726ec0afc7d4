//! The errors of running simulations.

use kube::core::crd::MergeError;
use kubewright_cluster::{StartError, testing::ApplyError};
use kubewright_manifests::{ConversionError, RoleError};

/// The environment variable with the [`Settings`](crate::Settings), as one object of JSON.
pub const VARIABLE: &str = "KUBEWRIGHT_SIMULATION";

/// An error that prevents a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The tokio runtime can't be built.
    #[error("failed to build a runtime")]
    Runtime(#[source] std::io::Error),
    /// The cluster can't be started.
    #[error("failed to start the cluster: {0}")]
    Cluster(#[source] StartError),
    /// The operator's kinds can't be installed.
    #[error("failed to install the operator's kinds: {0}")]
    Install(#[source] ApplyError),
    /// The operator can't be described.
    #[error("failed to describe the operator")]
    Describe(#[source] serde_json::Error),
    /// A rule of the operator is invalid.
    #[error("failed to read the operator's rights: {0}")]
    Rights(#[source] RoleError),
    /// The versions of a kind don't fit together.
    #[error("failed to merge the versions of a kind")]
    Versions(#[source] MergeError),
    /// The versions between which the operator converts aren't those that it declares.
    #[error("failed to install the conversion of the operator's kinds")]
    Conversions(#[source] ConversionError),
    /// The webhooks of the operator can't be installed.
    #[error("failed to install the operator's webhooks")]
    Webhooks(#[source] kube::Error),
    /// The start of the virtual time is malformed.
    #[error("failed to read the time of the start")]
    Clock(#[source] jiff::Error),
    /// The settings in the environment variable are malformed.
    #[error("failed to read {VARIABLE}: {0}")]
    Settings(#[source] serde_json::Error),
    /// The file for the progress can't be opened.
    #[error("failed to open the file for the progress")]
    Progress(#[source] std::io::Error),
}
