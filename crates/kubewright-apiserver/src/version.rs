//! The version of Kubernetes that the server corresponds to.

/// The version, as `kubectl version` prints it. It has build metadata instead of a pre-release, so that conditions such
/// as Helm's `kubeVersion: ">=1.25.0"` hold.
pub const VERSION: &str = "v1.36.3+kubewright";
/// The major version.
pub(crate) const MAJOR: &str = "1";
/// The minor version, which is also that of the enabled k8s-openapi feature.
pub(crate) const MINOR: &str = "36";
/// The minor version of the oldest compatible server.
pub(crate) const MIN_COMPATIBILITY_MINOR: &str = "35";
