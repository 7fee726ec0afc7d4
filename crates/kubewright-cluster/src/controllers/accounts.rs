//! What every namespace has: the ServiceAccount `default`, and the ConfigMap `kube-root-ca.crt` with the certificate that
//! the API server's is signed by. While the server doesn't listen there is none, and the ConfigMap's text is empty.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind, Feed};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    batch::{self, Batch},
    retry::{Retries, until},
};
use crate::access::{Access, Address, is_conflict, is_gone};

const ACCOUNT: &str = "default";
const CONFIG_MAP: &str = "kube-root-ca.crt";

/// Keeps the namespaces complete for as long as it is polled. `certificate` is in PEM, or empty.
pub(crate) async fn run(api: ApiServer, access: Access, clock: SharedClock, certificate: watch::Receiver<String>) {
    let feed = api.feed();
    let retries = Retries::default();
    Keeper { access, clock, feed, certificate, known: Known::default(), dirty: BTreeSet::new(), retries }.run().await;
}

/// What there is. Pure.
#[derive(Debug, Default)]
struct Known {
    /// The namespaces that are not being deleted.
    namespaces: BTreeSet<String>,
    accounts: BTreeSet<String>,
    /// What each namespace's ConfigMap says.
    certificates: BTreeMap<String, Option<String>>,
}

/// What a namespace lacks.
#[derive(Debug, PartialEq, Eq)]
struct Lack {
    account: bool,
    /// The ConfigMap is not there, or says something else.
    certificate: Option<Write>,
}

#[derive(Debug, PartialEq, Eq)]
enum Write {
    Create,
    Change,
}

impl Known {
    /// Takes in an object, and says for which namespace that matters.
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
            ("ConfigMap", CONFIG_MAP) => {
                let namespace = namespace?.to_owned();
                if gone {
                    self.certificates.remove(&namespace);
                } else {
                    let text = object["data"]["ca.crt"].as_str().map(Into::into);
                    self.certificates.insert(namespace.clone(), text);
                }
                Some(namespace)
            }
            _ => None,
        }
    }

    fn lack(&self, namespace: &str, certificate: &str) -> Lack {
        if !self.namespaces.contains(namespace) {
            return Lack { account: false, certificate: None };
        }
        let write = match self.certificates.get(namespace) {
            None => Some(Write::Create),
            Some(Some(text)) if text == certificate => None,
            Some(_) => Some(Write::Change),
        };
        Lack { account: !self.accounts.contains(namespace), certificate: write }
    }
}

struct Keeper {
    access: Access,
    clock: SharedClock,
    feed: Feed,
    certificate: watch::Receiver<String>,
    known: Known,
    dirty: BTreeSet<String>,
    retries: Retries<String>,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            let now = self.clock.monotonic();
            self.dirty.extend(self.retries.due(now));
            if self.feed.is_synced() {
                while let Some(namespace) = self.dirty.pop_first() {
                    match self.complete(&namespace).await {
                        Ok(()) => self.retries.forget(&namespace),
                        Err(error) => {
                            tracing::debug!(%error, namespace, "a namespace can't be completed yet");
                            self.retries.failed(namespace, now);
                        }
                    }
                }
            }
            let timer = until(self.retries.next(), now);
            tokio::select! {
                biased;
                batch = batch::next(&mut self.feed) => self.take_all(&batch),
                Ok(()) = self.certificate.changed() => self.dirty.extend(self.known.namespaces.iter().cloned()),
                () = timer => {}
            }
        }
    }

    fn take_all(&mut self, batch: &Batch) {
        if batch.anew {
            self.known = Known::default();
        }
        for Change { kind, resource, object, .. } in &batch.changes {
            let gone = *kind == ChangeKind::Deleted;
            self.dirty.extend(self.known.take(&resource.kind, object, gone));
        }
    }

    /// Writes what a namespace lacks. What another has written meanwhile arrives with the feed.
    async fn complete(&self, namespace: &str) -> Result<(), kube::Error> {
        let certificate = self.certificate.borrow().clone();
        let lack = self.known.lack(namespace, &certificate);
        let forgive = |result: Result<Value, kube::Error>| match result {
            Err(error) if !is_conflict(&error) && !is_gone(&error) => Err(error),
            _ => Ok(()),
        };
        if lack.account {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}});
            let accounts = Address::core("serviceaccounts", Some(namespace), "");
            forgive(self.access.create(&accounts, "", &account).await)?;
        }
        let data = json!({"ca.crt": certificate});
        match lack.certificate {
            None => Ok(()),
            Some(Write::Create) => {
                let description = "Contains a CA bundle that can be used to verify the kube-apiserver.";
                let body = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": {"name": CONFIG_MAP, "annotations": {"kubernetes.io/description": description}},
                });
                forgive(self.access.create(&Address::core("configmaps", Some(namespace), ""), "", &body).await)
            }
            Some(Write::Change) => {
                let address = Address::core("configmaps", Some(namespace), CONFIG_MAP);
                forgive(self.access.merge(&address, "", &json!({"data": data})).await)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacks() {
        let mut known = Known::default();
        let object = |name: &str, namespace: Option<&str>| json!({"metadata": {"name": name, "namespace": namespace}});
        assert_eq!(known.take("Namespace", &object("shop", None), false).as_deref(), Some("shop"));
        assert_eq!(known.lack("shop", "X"), Lack { account: true, certificate: Some(Write::Create) });
        known.take("ServiceAccount", &object("default", Some("shop")), false);
        let mut map = object(CONFIG_MAP, Some("shop"));
        map["data"] = json!({"ca.crt": "X"});
        known.take("ConfigMap", &map, false);
        assert_eq!(known.lack("shop", "X"), Lack { account: false, certificate: None });
        assert_eq!(known.lack("shop", "Y"), Lack { account: false, certificate: Some(Write::Change) });
        known.take("ServiceAccount", &object("default", Some("shop")), true);
        assert!(known.lack("shop", "X").account);
        assert_eq!(known.take("ConfigMap", &object("other", Some("shop")), false), None);
        known.take("Namespace", &object("shop", None), true);
        assert_eq!(known.lack("shop", "X"), Lack { account: false, certificate: None });
    }
}
