//! The objects that every namespace has: the ServiceAccount `default`, and the ConfigMap `kube-root-ca.crt` with the
//! API server's CA certificate. Until the server listens there is no certificate, and the value in the ConfigMap is
//! empty.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apimachinery::watch;
use kubewright_apiserver::{ApiServer, ChangeKind, Feed};
use serde_json::{Value, json};

use super::{
    batch::{self, Batch},
    retry::{Retries, until},
};
use crate::{
    object_client::{ObjectClient, ObjectPath, is_gone, is_in_terminating_namespace},
    panics::restarting,
};

const ACCOUNT: &str = "default";
/// The ConfigMap with the certificates of the server.
pub(crate) const CERTIFICATES: &str = "kube-root-ca.crt";

/// The clients that write the objects, which have users of their own.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) accounts: ObjectClient,
    pub(crate) certificates: ObjectClient,
}

/// Maintains these objects for as long as it is polled. `certificate` is in PEM, or empty.
pub(crate) async fn run(api: ApiServer, clients: Clients, clock: SharedClock, certificate: watch::Receiver<String>) {
    let start = || {
        let defaults = NamespaceDefaults {
            clients: clients.clone(),
            clock: clock.clone(),
            feed: api.feed(),
            certificate: certificate.clone(),
            state: State::default(),
            dirty: BTreeSet::new(),
            retries: Retries::default(),
        };
        defaults.run()
    };
    restarting("serviceaccount-controller", clock.clone(), start).await;
}

/// The kinds that the state consists of.
const KINDS: [&str; 3] = ["Namespace", "ServiceAccount", "ConfigMap"];

/// The present state. Pure.
#[derive(Debug, Default)]
struct State {
    /// The namespaces that are not being deleted.
    namespaces: BTreeSet<String>,
    accounts: BTreeSet<String>,
    /// The certificate in each namespace's ConfigMap.
    certificates: BTreeMap<String, Option<String>>,
}

/// The objects that a namespace lacks.
#[derive(Debug, PartialEq, Eq)]
struct MissingDefaults {
    account: bool,
    /// The write that the ConfigMap needs.
    certificate: Option<Write>,
}

#[derive(Debug, PartialEq, Eq)]
enum Write {
    Create,
    Change,
}

impl State {
    /// Processes a change of an object, and returns the affected namespace.
    fn take(&mut self, kind: &str, object: &Value, gone: bool) -> Option<String> {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str()?;
        let namespace = metadata["namespace"].as_str();
        match (kind, name) {
            ("Namespace", _) => {
                if gone || !metadata["deletionTimestamp"].is_null() {
                    self.namespaces.remove(name);
                } else {
                    self.namespaces.insert(name.into());
                }
                Some(name.into())
            }
            ("ServiceAccount", ACCOUNT) => {
                let namespace = namespace?.to_owned();
                if gone {
                    self.accounts.remove(&namespace);
                } else {
                    self.accounts.insert(namespace.clone());
                }
                Some(namespace)
            }
            ("ConfigMap", CERTIFICATES) => {
                let namespace = namespace?.to_owned();
                if gone {
                    self.certificates.remove(&namespace);
                } else {
                    // Other keys are removed again.
                    let alone = object["data"].as_object().is_some_and(|data| data.len() == 1);
                    let text = object["data"]["ca.crt"].as_str().filter(|_| alone).map(Into::into);
                    self.certificates.insert(namespace.clone(), text);
                }
                Some(namespace)
            }
            _ => None,
        }
    }

    fn missing(&self, namespace: &str, certificate: &str) -> MissingDefaults {
        if !self.namespaces.contains(namespace) {
            return MissingDefaults { account: false, certificate: None };
        }
        let write = match self.certificates.get(namespace) {
            None => Some(Write::Create),
            Some(Some(text)) if text == certificate => None,
            Some(_) => Some(Write::Change),
        };
        MissingDefaults { account: !self.accounts.contains(namespace), certificate: write }
    }
}

struct NamespaceDefaults {
    clients: Clients,
    clock: SharedClock,
    feed: Feed,
    certificate: watch::Receiver<String>,
    state: State,
    dirty: BTreeSet<String>,
    retries: Retries<String>,
}

impl NamespaceDefaults {
    async fn run(mut self) {
        loop {
            let now = self.clock.monotonic();
            self.dirty.extend(self.retries.due(now));
            if self.feed.is_synced() {
                while let Some(namespace) = self.dirty.pop_first() {
                    match self.complete(&namespace).await {
                        Ok(()) => self.retries.forget(&namespace),
                        Err(error) => {
                            tracing::debug!(%error, namespace, "failed to create the default objects of a namespace");
                            self.retries.failed(namespace, now);
                        }
                    }
                }
            }
            let timer = until(self.retries.next(), now);
            tokio::select! {
                biased;
                batch = batch::next(&mut self.feed) => self.take_all(&batch),
                Ok(()) = self.certificate.changed() => self.dirty.extend(self.state.namespaces.iter().cloned()),
                () = timer => {}
            }
        }
    }

    fn take_all(&mut self, batch: &Batch) {
        if batch.restarted {
            self.state = State::default();
        }
        let concerned = batch.changes.iter().filter(|change| KINDS.contains(&&*change.resource.kind));
        for change in concerned {
            let gone = change.kind == ChangeKind::Deleted;
            self.dirty.extend(self.state.take(&change.resource.kind, change.object(), gone));
        }
    }

    /// Creates or updates the objects that a namespace lacks. If another writer was faster, this fails, and the feed
    /// has delivered its object when it is tried again.
    async fn complete(&self, namespace: &str) -> Result<(), kube::Error> {
        let certificate = self.certificate.borrow().clone();
        let missing = self.state.missing(namespace, &certificate);
        let forgive = |result: Result<Value, kube::Error>| match result {
            Err(error) if !is_gone(&error) && !is_in_terminating_namespace(&error) => Err(error),
            _ => Ok(()),
        };
        if missing.account {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}});
            let accounts = ObjectPath::core("serviceaccounts", Some(namespace), "");
            forgive(self.clients.accounts.create(&accounts, "", &account).await)?;
        }
        let (client, data) = (&self.clients.certificates, json!({"ca.crt": certificate}));
        match missing.certificate {
            None => Ok(()),
            Some(Write::Create) => {
                let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal \
                                   service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
                let body = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": {"name": CERTIFICATES, "annotations": {"kubernetes.io/description": description}},
                });
                forgive(client.create(&ObjectPath::core("configmaps", Some(namespace), ""), "", &body).await)
            }
            Some(Write::Change) => {
                let address = ObjectPath::core("configmaps", Some(namespace), CERTIFICATES);
                let Some(mut map) = client.get(&address).await? else { return Ok(()) };
                map["data"] = data;
                forgive(client.replace(&address, "", &map).await)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_objects_are_found() {
        let mut state = State::default();
        let object = |name: &str, namespace: Option<&str>| json!({"metadata": {"name": name, "namespace": namespace}});
        assert_eq!(state.take("Namespace", &object("shop", None), false).as_deref(), Some("shop"));
        assert_eq!(state.missing("shop", "X"), MissingDefaults { account: true, certificate: Some(Write::Create) });
        state.take("ServiceAccount", &object("default", Some("shop")), false);
        let mut map = object(CERTIFICATES, Some("shop"));
        map["data"] = json!({"ca.crt": "X"});
        state.take("ConfigMap", &map, false);
        assert_eq!(state.missing("shop", "X"), MissingDefaults { account: false, certificate: None });
        assert_eq!(state.missing("shop", "Y"), MissingDefaults { account: false, certificate: Some(Write::Change) });
        state.take("ServiceAccount", &object("default", Some("shop")), true);
        assert!(state.missing("shop", "X").account);
        assert_eq!(state.take("ConfigMap", &object("other", Some("shop")), false), None);
        state.take("Namespace", &object("shop", None), true);
        assert_eq!(state.missing("shop", "X"), MissingDefaults { account: false, certificate: None });
    }
}
