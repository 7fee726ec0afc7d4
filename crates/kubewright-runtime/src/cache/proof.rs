//! That the cache is as new as the API server was at some moment: for keys that someone else has worked on until then.

use std::{collections::BTreeMap, sync::Arc};

use kubewright_apimachinery::random::Random;
use serde::Deserialize;
use tracing::warn;

use super::{
    kind::{Arrival, Kind},
    store::{Row, Uid},
    watch::pause,
};
use crate::{
    client::{Client, ClientError, explain},
    object::{KindName, ObjectKey},
};

/// What a feed must show to be as new as a list was: its newest object, and the absence of what it lacked.
#[derive(Debug)]
pub(crate) struct Proof {
    kind: Arc<Kind>,
    feed: usize,
    scope: Option<String>,
    version: u64,
    /// What the cache had before the list was asked for, and the list hadn't.
    gone: Vec<(ObjectKey, Option<Uid>)>,
}

impl Proof {
    /// Asks the API server for the metadata of all that a kind's feeds show: one list for each. It tries until it is answered.
    pub(crate) async fn of(kind: &Arc<Kind>, api: &Client, random: &Random) -> Vec<Self> {
        let mut proofs = Vec::new();
        for (feed, scope) in kind.scopes().enumerate() {
            let mut failures = 0u32;
            loop {
                match Self::list(kind, feed, scope.map(Into::into), api).await {
                    Ok(proof) => break proofs.push(proof),
                    Err(error) => {
                        failures += 1;
                        // Again each time that it has lasted twice as long.
                        if failures.is_power_of_two() {
                            let (kind, error) = (kind.name(), explain(&error));
                            warn!(%kind, error, failures, "can't list {kind}: the keys that this replica took over wait");
                        }
                        tokio::time::sleep(pause(failures - 1, random.fraction())).await;
                    }
                }
            }
        }
        proofs
    }

    async fn list(kind: &Arc<Kind>, feed: usize, scope: Option<String>, api: &Client) -> Result<Self, ClientError> {
        let within = scope.as_deref();
        let known = |row: &Row| (row.key.clone(), row.uid.clone());
        let mut gone: BTreeMap<_, _> = kind.read(|store| store.within(within).map(known).collect());
        let listed: Vec<Listed> = api.list_metadata_as(kind.name(), within, kind.selection(within)).await?;
        let mut version = 0;
        for Listed { metadata } in listed {
            version = version.max(metadata.resource_version.parse().unwrap_or_default());
            gone.remove(&match metadata.namespace {
                Some(namespace) => ObjectKey::namespaced(&namespace, &metadata.name),
                None => ObjectKey::cluster(&metadata.name),
            });
        }
        Ok(Self { kind: kind.clone(), feed, scope, version, gone: gone.into_iter().collect() })
    }

    /// Whether the cache has come that far, or nobody reads the kind any more.
    pub(crate) fn is_shown(&mut self) -> bool {
        if self.kind.is_over() {
            return true;
        }
        // What is gone doesn't come back, so each is looked for until it is gone once.
        while let Some((key, uid)) = self.gone.last() {
            if self.kind.read(|store| store.get(key).is_some_and(|row| row.uid == *uid)) {
                return false;
            }
            self.gone.pop();
        }
        self.kind.has_arrived(self.scope.as_deref(), &Arrival::Version(self.version))
    }

    /// Makes the feed list anew, whatever its watch is waiting for: then it has come that far.
    pub(crate) fn force(&self) {
        // The newest object may be gone again by then.
        self.kind.wrote(self.scope.as_deref(), self.version);
        self.kind.relist(self.feed);
    }

    /// What it is of.
    pub(crate) fn kind(&self) -> &KindName {
        self.kind.name()
    }
}

/// What of an object is listed.
#[derive(Clone, Deserialize)]
struct Listed {
    metadata: ListedMetadata,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedMetadata {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    resource_version: String,
}
