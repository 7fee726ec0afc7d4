//! Checks that the cache has caught up with the API server, for keys that another replica has worked on until now.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::ObjectList;
use kubewright_apimachinery::random::Random;
use serde::Deserialize;
use tracing::warn;

use super::{
    expected::ExpectedState,
    kind::Kind,
    live::version_of_list,
    store::{Row, Uid},
    watch::{backoff, list_timeout},
};
use crate::{
    client::{Client, ClientError, explain},
    object::{KindName, ObjectKey},
};

/// The state of a watch at which it is as new as a list: it has seen the newest object, and objects that the list
/// lacked are gone.
#[derive(Debug)]
pub(crate) struct SyncCheck {
    kind: Arc<Kind>,
    watch: usize,
    scope: Option<String>,
    version: u64,
    /// The resource version of the list.
    list: u64,
    /// The objects that the cache had before the list was requested, and that the list lacked.
    absent: Vec<(ObjectKey, Option<Uid>)>,
}

impl SyncCheck {
    /// Lists the metadata of a kind's objects, once for each of its watches, until that succeeds. A list that takes too
    /// long is requested again, since its connection may be dead.
    pub(crate) async fn of(kind: &Arc<Kind>, api: &Client, random: &Random) -> Vec<Self> {
        let mut checks = Vec::new();
        for (watch, scope) in kind.scopes().enumerate() {
            let mut failures = 0u32;
            loop {
                let limit = list_timeout(true, failures);
                let list = Self::list(kind, watch, scope.map(Into::into), api);
                let error = match tokio::time::timeout(limit, list).await {
                    Ok(Ok(check)) => break checks.push(check),
                    // A kind that the API server doesn't serve any more has no changes to wait for.
                    Ok(Err(error)) if error.status().is_some_and(|status| status.code == 404) => break,
                    Ok(Err(error)) => explain(&error),
                    Err(_) => format!("no answer in {limit:?}"),
                };
                failures += 1;
                // The warning is repeated each time the number of failures has doubled.
                if failures.is_power_of_two() {
                    let kind = kind.name();
                    warn!(%kind, error, failures, "failed to list {kind}: the keys that this replica took over wait for it");
                }
                tokio::time::sleep(backoff(failures - 1, random.fraction())).await;
            }
        }
        checks
    }

    async fn list(kind: &Arc<Kind>, watch: usize, scope: Option<String>, api: &Client) -> Result<Self, ClientError> {
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
        Ok(Self { kind: kind.clone(), watch, scope, version, list, absent: absent.into_iter().collect() })
    }

    /// Returns whether the cache has caught up, or the kind is no longer watched.
    pub(crate) fn passes(&mut self) -> bool {
        if self.kind.has_ended() {
            return true;
        }
        // Each object is checked until it is gone once, or newer than the list: it may match the selector again.
        while let Some((key, uid)) = self.absent.last() {
            let is_old = |row: &Row| row.uid == *uid && row.version.number() <= Some(self.list);
            if self.kind.read(|store| store.get(key).is_some_and(is_old)) {
                return false;
            }
            self.absent.pop();
        }
        self.kind.shows(self.scope.as_deref(), &ExpectedState::Version(self.version))
    }

    /// Makes the watch list again, which makes the check pass.
    pub(crate) fn relist(&self) {
        // The newest object may be gone by then.
        self.kind.note_version(self.scope.as_deref(), self.version);
        self.kind.relist(self.watch);
    }

    /// Returns the checked kind.
    pub(crate) fn kind(&self) -> &KindName {
        self.kind.name()
    }
}

/// The listed part of an object.
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc, time::Duration};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kubewright_apimachinery::random::Random;

    use super::{
        super::{
            options::CacheOptions,
            script::{Answer, api_server},
        },
        *,
    };

    /// The definition of a kind that reconciles watch was deleted. There is nothing that the former owner of a key can
    /// have written since.
    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_gone_holds_no_key() {
        let name = KindName::of::<ConfigMap>();
        let kind = Arc::new(Kind::new(name.clone(), CacheOptions::new().of(&name, true, &BTreeSet::new())));
        kind.declare::<ConfigMap>();
        let missing = (0..10_000).map(|_| Answer::Refusal(404, "the server could not find the requested resource"));
        let (client, _) = api_server(missing);
        let (api, random) = (Client::new(client), Random::seeded(1));
        let checks = tokio::time::timeout(Duration::from_hours(1), SyncCheck::of(&kind, &api, &random)).await;
        assert!(checks.is_ok(), "all keys of the takeover wait for an hour");
    }
}
