//! Programs in the place of those that envtest starts (<https://book.kubebuilder.io/reference/envtest>): `etcd`,
//! `kube-apiserver` and `kubectl`, in a directory for `KUBEBUILDER_ASSETS`.
//!
//! Each is a shell script that runs this command. `kube-apiserver` is the embedded API server alone, with the
//! certificates and keys that its flags name. It keeps its objects in the data directory of `etcd`, which only answers
//! health checks beside that.

mod admission;
mod api_server;
mod authorization;
mod authorization_config;
mod etcd;
mod features;
mod flags;
mod jwt;
mod programs;
mod reviewers;
mod tokens;

pub(crate) use self::{api_server::run as run_api_server, etcd::run as run_etcd, programs::write};
