//! Batched reading of the feed: a batch consists of one change and all others that have arrived with it.

use kubewright_apiserver::{Change, Feed, Lagged};

/// The maximum number of changes in a batch, so that a controller gets to act even while others write continuously.
const LARGEST: usize = 4096;

/// The changes since the last batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Whether the reader had fallen behind. Its state is then obsolete, and the changes start with a snapshot of all
    /// objects.
    pub(crate) restarted: bool,
    /// The changes, in order.
    pub(crate) changes: Vec<Change>,
}

/// Waits for a change, and returns it with all others that have arrived. Cancel-safe: no change is lost.
pub(crate) async fn next(feed: &mut Feed) -> Batch {
    let first = feed.next().await.map(Some);
    collect(feed, first)
}

/// Returns all changes that have arrived, without waiting. After an empty batch the reader has seen every write that
/// the API server has answered.
pub(crate) fn ready(feed: &mut Feed) -> Batch {
    let first = feed.try_next();
    collect(feed, first)
}

fn collect(feed: &mut Feed, mut next: Result<Option<Change>, Lagged>) -> Batch {
    let mut batch = Batch::default();
    loop {
        match next {
            Ok(Some(change)) => batch.changes.push(change),
            Ok(None) => return batch,
            Err(lagged) => {
                tracing::info!(%lagged, "a controller restarts from a snapshot");
                batch = Batch { restarted: true, changes: Vec::new() };
            }
        }
        // Checked before a change is taken from the feed, since a taken change must be returned.
        if batch.changes.len() >= LARGEST {
            return batch;
        }
        next = feed.try_next();
    }
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use kubewright_apiserver::ApiServer;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn batches_lose_nothing() {
        let api = ApiServer::builder().build();
        let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(api.client());
        let count = LARGEST + 10;
        for index in 0..count {
            let map = serde_json::from_value(json!({"metadata": {"name": format!("m{index}")}})).expect("a map");
            maps.create(&PostParams::default(), &map).await.expect("created");
        }
        let mut feed = api.feed();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let batch = next(&mut feed).await;
            assert!(!batch.restarted && batch.changes.len() <= LARGEST);
            seen.extend(
                batch
                    .changes
                    .iter()
                    .filter(|change| &*change.resource.kind == "ConfigMap")
                    .map(|change| change.revision),
            );
        }
        assert!(feed.is_synced());
        assert_eq!(seen.len(), count);
    }
}
