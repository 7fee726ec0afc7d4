//! Clusters by namespaces with a label.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use parking_lot::Mutex;
use thiserror::Error;

use super::{Clusters, ManagerError, RemoteCluster};
use crate::{
    action::Action,
    context::Context,
    controller::{Controller, Reconciler},
    object::ObjectKey,
    predicate::Predicate,
};

/// The manager can't treat a namespace as a cluster.
#[derive(Debug, Error)]
#[error("the namespace {namespace} can't be treated as a cluster: {source}")]
pub struct NamespaceClusterError {
    namespace: String,
    source: ManagerError,
}

impl Clusters {
    /// Returns a controller of the manager's own cluster, which treats each namespace with this label as a cluster, by
    /// the name of the namespace, as long as it is there and has the label. `client` is for requests in these
    /// namespaces: of the manager's own cluster, or of another one that has the same namespaces.
    ///
    /// A namespace that is being deleted remains a cluster until it is gone, so that finalizers of its objects are
    /// removed.
    ///
    /// ```
    /// # use kubewright_runtime::manager::Manager;
    /// # fn example(client: kube::Client) -> Manager {
    /// let manager = Manager::new(client.clone());
    /// let clusters = manager.clusters();
    /// manager.controller(clusters.labelled_namespaces("example.com/tenant", client))
    /// # }
    /// ```
    pub fn labelled_namespaces(&self, label: &'static str, client: kube::Client) -> Controller<Namespace> {
        let has_label = move |namespace: &Namespace| namespace.labels().contains_key(label);
        Controller::<Namespace>::new(LabelledNamespaces {
            clusters: self.clone(),
            label,
            client,
            known: Arc::default(),
        })
        .name("labelled-namespaces")
        // Each replica works on the clusters, or is about to.
        .needs_leader(false)
        .predicate(Predicate::new(move |change| has_label(change.object()) || change.old().is_some_and(has_label)))
    }
}

struct LabelledNamespaces {
    clusters: Clusters,
    label: &'static str,
    client: kube::Client,
    /// The namespaces that were brought in: not every cluster of such a name is one.
    known: Arc<Mutex<BTreeSet<String>>>,
}

impl Reconciler<Namespace> for LabelledNamespaces {
    type Error = NamespaceClusterError;

    async fn reconcile(&self, namespace: &Namespace, _: &Context<Namespace>) -> Result<Action, NamespaceClusterError> {
        let name = namespace.name_any();
        if !namespace.labels().contains_key(self.label) {
            self.take_out(&name).await;
        } else if !self.known.lock().contains(&name) {
            let cluster = RemoteCluster::new(self.client.clone()).namespaces([&name]);
            let added = self.clusters.add(&name, cluster).await;
            added.map_err(|source| NamespaceClusterError { namespace: name.clone(), source })?;
            self.known.lock().insert(name);
        }
        Ok(Action::await_change())
    }

    async fn deleted(&self, key: &ObjectKey, _: &Context<Namespace>) -> Result<(), NamespaceClusterError> {
        self.take_out(key.name()).await;
        Ok(())
    }
}

impl LabelledNamespaces {
    async fn take_out(&self, name: &str) {
        let is_known = self.known.lock().remove(name);
        if is_known {
            self.clusters.remove(name).await;
        }
    }
}
