//! Every child there ever was.

use std::collections::BTreeMap;

use kubewright_apiserver::Feed;

use crate::{Object, World};

/// Every object of a kind there ever was, in a world that this watches from its beginning.
pub struct History {
    feed: Feed,
    kind: String,
    names: BTreeMap<String, String>,
}

impl History {
    /// Begins to watch a kind.
    pub fn of<K: Object>(world: &World) -> Self {
        Self { feed: world.cluster.api().feed(), kind: K::kind(&()).into_owned(), names: BTreeMap::new() }
    }

    /// How many were created so far.
    pub fn created(&mut self) -> usize {
        while let Some(change) = self.feed.try_next().unwrap() {
            if change.object["kind"] == self.kind.as_str() {
                let text = |field: &str| change.object["metadata"][field].as_str().unwrap_or_default().to_owned();
                self.names.insert(text("uid"), text("name"));
            }
        }
        self.names.len()
    }

    /// The names of those created so far, in their order; none may have been created twice.
    pub fn names(&mut self) -> Vec<String> {
        self.created();
        let mut names: Vec<_> = self.names.values().cloned().collect();
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "created twice: {names:?}");
        names
    }
}
