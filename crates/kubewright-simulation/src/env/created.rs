//! A record of all objects of a kind that were ever created.

use std::collections::BTreeMap;

use kubewright_apiserver::Feed;

use super::{Namespaced, TestEnv};

/// All objects of a kind that were ever created in an environment, from its start.
#[derive(Debug)]
pub struct History {
    feed: Feed,
    kind: String,
    names: BTreeMap<String, String>,
}

impl History {
    /// Starts to record a kind.
    pub fn of<K: Namespaced>(env: &TestEnv) -> Self {
        Self { feed: env.cluster.api().feed(), kind: K::kind(&()).into_owned(), names: BTreeMap::new() }
    }

    /// Returns the number of objects created so far.
    pub fn created(&mut self) -> usize {
        while let Some(change) = self.feed.try_next().unwrap() {
            if change.object()["kind"] == self.kind.as_str() {
                let text = |field: &str| change.object()["metadata"][field].as_str().unwrap_or_default().to_owned();
                self.names.insert(text("uid"), text("name"));
            }
        }
        self.names.len()
    }

    /// Returns the sorted names of all objects created so far. Panics if a name was used twice.
    pub fn names(&mut self) -> Vec<String> {
        self.created();
        let mut names: Vec<_> = self.names.values().cloned().collect();
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "created twice: {names:?}");
        names
    }
}
