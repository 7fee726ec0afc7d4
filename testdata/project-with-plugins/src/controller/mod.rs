//! The controllers, one module per kind.

pub(crate) mod busybox;
pub(crate) mod memcached;
// +kubebuilder:scaffold:modules
