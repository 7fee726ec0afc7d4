//! The annotations of pods that preceded fields.

/// The AppArmor profile of a container, whose name follows.
pub(in crate::registry::builtin) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The seccomp profile of a pod.
pub(in crate::registry::builtin) const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";

/// The seccomp profile of a container, whose name follows.
pub(in crate::registry::builtin) const CONTAINER_SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
