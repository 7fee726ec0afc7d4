//! Reading the feed in batches: one change and all that have come with it.

use kubewright_apiserver::{Change, Feed, Lagged};

/// The most changes of a batch, so that a controller gets to act while others write without a pause.
const LARGEST: usize = 4096;

/// What has happened since the last batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The reader had fallen behind. What it knows is void, and the changes begin to tell of all that exists.
    pub(crate) anew: bool,
    /// The changes, in order.
    pub(crate) changes: Vec<Change>,
}

/// Waits for a change and takes all that there are. It can be cancelled without losing any.
pub(crate) async fn next(feed: &mut Feed) -> Batch {
    let first = feed.next().await.map(Some);
    collect(feed, first)
}

/// Takes what there is, without waiting. An empty batch means that every write that has been answered has been told.
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
                tracing::info!(%lagged, "a controller begins anew");
                batch = Batch { anew: true, changes: Vec::new() };
            }
        }
        // Asked before more is taken: what is taken must be told.
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
            assert!(!batch.anew && batch.changes.len() <= LARGEST);
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
