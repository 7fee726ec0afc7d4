//! That the cache is as new as the API server was at some moment: for keys that someone else has worked on until then.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::ObjectList;
use kubewright_apimachinery::random::Random;
use serde::Deserialize;
use tracing::warn;

use super::{
    kind::{Arrival, Kind},
    live::version_of_list,
    store::{Row, Uid},
    watch::{list_timeout, pause},
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
    /// The version of the list.
    list: u64,
    /// What the cache had before the list was asked for, and the list hadn't.
    absent: Vec<(ObjectKey, Option<Uid>)>,
}

impl Proof {
    /// Asks the API server for the metadata of all that a kind's feeds show: one list for each. A list that isn't complete in time
    /// is given up, for its connection may be dead. It tries until it is answered.
    pub(crate) async fn of(kind: &Arc<Kind>, api: &Client, random: &Random) -> Vec<Self> {
        let mut proofs = Vec::new();
        for (feed, scope) in kind.scopes().enumerate() {
            let mut failures = 0u32;
            loop {
                let limit = list_timeout(true, failures);
                let list = Self::list(kind, feed, scope.map(Into::into), api);
                let error = match tokio::time::timeout(limit, list).await {
                    Ok(Ok(proof)) => break proofs.push(proof),
                    Ok(Err(error)) => explain(&error),
                    Err(_) => format!("no answer in {limit:?}"),
                };
                failures += 1;
                // Again each time that it has lasted twice as long.
                if failures.is_power_of_two() {
                    let kind = kind.name();
                    warn!(%kind, error, failures, "can't list {kind}: the keys that this replica took over wait");
                }
                tokio::time::sleep(pause(failures - 1, random.fraction())).await;
            }
        }
        proofs
    }

    async fn list(kind: &Arc<Kind>, feed: usize, scope: Option<String>, api: &Client) -> Result<Self, ClientError> {
        let within = scope.as_deref();
        let known = |row: &Row| (row.key.clone(), row.uid.clone());
        let mut absent: BTreeMap<_, _> = kind.read(|store| store.within(within).map(known).collect());
        let listed: ObjectList<Listed> = api.list_metadata_as(kind.name(), within, kind.selection(within)).await?;
        let (list, mut version) = (version_of_list(&listed).unwrap_or(u64::MAX), 0);
        for Listed { metadata } in listed.items {
            version = version.max(metadata.resource_version.parse().unwrap_or_default());
            absent.remove(&match metadata.namespace {
                Some(namespace) => ObjectKey::namespaced(&namespace, &metadata.name),
                None => ObjectKey::cluster(&metadata.name),
            });
        }
        Ok(Self { kind: kind.clone(), feed, scope, version, list, absent: absent.into_iter().collect() })
    }

    /// Whether the cache has come that far, or nobody reads the kind any more.
    pub(crate) fn is_shown(&mut self) -> bool {
        if self.kind.is_over() {
            return true;
        }
        // Each is looked for until it is gone once, or is newer than the list: it may have come to match the selector again.
        while let Some((key, uid)) = self.absent.last() {
            let is_old = |row: &Row| row.uid == *uid && row.version.number() <= Some(self.list);
            if self.kind.read(|store| store.get(key).is_some_and(is_old)) {
                return false;
            }
            self.absent.pop();
        }
        self.kind.has_arrived(self.scope.as_deref(), &Arrival::Version(self.version))
    }

    /// Makes the feed list anew, whatever its watch is waiting for: then it has come that far.
    pub(crate) fn force(&self) {
        // The newest object may be gone again by then.
        self.kind.note_version(self.scope.as_deref(), self.version);
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
