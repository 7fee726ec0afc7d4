//! Clusters by Secrets with kubeconfigs.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use kube::config::Kubeconfig;
use parking_lot::Mutex;
use thiserror::Error;

use super::{Clusters, ManagerError, RemoteCluster};
use crate::{
    action::Action,
    args::{ConnectError, ManagerArgs},
    context::Context,
    controller::{Controller, Reconciler},
    event::Event,
    object::ObjectKey,
    predicate::Predicate,
};

/// The entries of a Secret that may have the kubeconfig; the second one is that of Cluster API.
const ENTRIES: [&str; 2] = ["kubeconfig", "value"];

/// An error of a Secret with a kubeconfig.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KubeconfigSecretError {
    /// The Secret has no kubeconfig.
    #[error("the secret {0} has no entry `kubeconfig` or `value`: put a kubeconfig there")]
    Missing(ObjectKey),
    /// The kubeconfig can't be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The kubeconfig makes the operator run programs or read files.
    #[error(
        "the kubeconfig of the secret {secret} has {field}, which is not allowed in a secret: put the credentials themselves there"
    )]
    Refused {
        /// The Secret.
        secret: ObjectKey,
        /// The field.
        field: &'static str,
    },
    /// The manager can't work on the cluster.
    #[error("the cluster of the secret {secret}: {source}")]
    Manager {
        /// The Secret.
        secret: ObjectKey,
        /// The error.
        source: ManagerError,
    },
}

impl Clusters {
    /// Returns a controller of the manager's own cluster, which brings in a cluster for each Secret with this label, by
    /// the name of the Secret, as long as there is one. The kubeconfig is in the entry `kubeconfig`, or `value` as
    /// Cluster API has it.
    ///
    /// A changed kubeconfig replaces the cluster. A Secret that can't be used leaves the clusters of all others
    /// unaffected: its reconcile fails, and an event about it says why. Kubeconfigs in Secrets mustn't name programs or
    /// files. Two Secrets of the same name, in different namespaces, can't be used at once.
    ///
    /// ```
    /// # use kubewright_runtime::manager::Manager;
    /// # fn example(manager: Manager) -> Manager {
    /// let clusters = manager.clusters();
    /// manager.controller(clusters.kubeconfig_secrets("example.com/cluster"))
    /// # }
    /// ```
    pub fn kubeconfig_secrets(&self, label: &'static str) -> Controller<Secret> {
        let known = Arc::default();
        let has_label = move |secret: &Secret| secret.metadata.labels.iter().flatten().any(|(name, _)| name == label);
        Controller::<Secret>::new(KubeconfigSecrets { clusters: self.clone(), label, known })
            .name("kubeconfig-secrets")
            // Each replica works on the clusters, or is about to.
            .needs_leader(false)
            .predicate(Predicate::new(move |change| has_label(change.object()) || change.old().is_some_and(has_label)))
    }
}

struct KubeconfigSecrets {
    clusters: Clusters,
    label: &'static str,
    /// The clusters that were brought in, each with its kubeconfig.
    known: Arc<Mutex<BTreeMap<ObjectKey, Vec<u8>>>>,
}

impl Reconciler<Secret> for KubeconfigSecrets {
    type Error = KubeconfigSecretError;

    async fn reconcile(&self, secret: &Secret, ctx: &Context<Secret>) -> Result<Action, KubeconfigSecretError> {
        let is_wanted = secret.metadata.labels.iter().flatten().any(|(name, _)| name == self.label);
        if !is_wanted {
            self.take_out(ctx.key()).await;
            return Ok(Action::await_change());
        }
        let result = self.bring_in(secret, ctx.key()).await;
        if let Err(error) = &result {
            ctx.record(Event::warning("BadKubeconfig", error.to_string()));
        }
        result.map(|()| Action::await_change())
    }

    async fn cleanup(&self, _: &Secret, ctx: &Context<Secret>) -> Result<Action, KubeconfigSecretError> {
        self.take_out(ctx.key()).await;
        Ok(Action::await_change())
    }

    async fn deleted(&self, key: &ObjectKey, _: &Context<Secret>) -> Result<(), KubeconfigSecretError> {
        self.take_out(key).await;
        Ok(())
    }
}

impl KubeconfigSecrets {
    async fn bring_in(&self, secret: &Secret, key: &ObjectKey) -> Result<(), KubeconfigSecretError> {
        let data = secret.data.as_ref();
        let kubeconfig = ENTRIES.iter().find_map(|entry| data?.get(*entry)).map(|entry| entry.0.clone());
        if kubeconfig.is_some() && self.known.lock().get(key) == kubeconfig.as_ref() {
            return Ok(());
        }
        // The old credentials are no longer wanted, even if the new ones are of no use.
        self.take_out(key).await;
        let kubeconfig = kubeconfig.ok_or_else(|| KubeconfigSecretError::Missing(key.clone()))?;
        let cluster = connect(&kubeconfig, key).await?;
        let added = self.clusters.add(key.name(), cluster).await;
        added.map_err(|source| KubeconfigSecretError::Manager { secret: key.clone(), source })?;
        self.known.lock().insert(key.clone(), kubeconfig);
        Ok(())
    }

    async fn take_out(&self, key: &ObjectKey) {
        let is_known = self.known.lock().remove(key).is_some();
        if is_known {
            self.clusters.remove(key.name()).await;
        }
    }
}

async fn connect(kubeconfig: &[u8], key: &ObjectKey) -> Result<RemoteCluster, KubeconfigSecretError> {
    let from = format!("the secret {key}");
    let text = String::from_utf8_lossy(kubeconfig);
    let kubeconfig =
        Kubeconfig::from_yaml(&text).map_err(|error| ConnectError::Kubeconfig { from: from.clone(), error })?;
    if let Some(field) = forbidden(&kubeconfig) {
        return Err(KubeconfigSecretError::Refused { secret: key.clone(), field });
    }
    Ok(RemoteCluster::new(ManagerArgs::client_of(kubeconfig, from).await?))
}

/// Returns a field that makes the operator run a program or read a file, which whoever may write Secrets mustn't
/// decide.
fn forbidden(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let of_users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref()).find_map(|user| {
        let fields = [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (user.token_file.is_some(), "tokenFile"),
            (user.client_certificate.is_some(), "client-certificate"),
            (user.client_key.is_some(), "client-key"),
        ];
        fields.into_iter().find(|(is_set, _)| *is_set).map(|(_, field)| field)
    });
    let mut clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    of_users
        .or_else(|| clusters.any(|cluster| cluster.certificate_authority.is_some()).then_some("certificate-authority"))
}
