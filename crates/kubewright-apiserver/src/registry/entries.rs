//! An immutable list of served resources, which is also sorted by the paths of requests.

use std::{cmp::Ordering, sync::Arc};

use super::resource::Resource;

/// The entries in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    all: Vec<Arc<Resource>>,
    /// The same entries by plural, group and version. Each request looks for its resource.
    by_path: Vec<Arc<Resource>>,
}

impl Entries {
    /// Returns the entries in the order in which they were added.
    pub(crate) fn all(&self) -> &[Arc<Resource>] {
        &self.all
    }

    /// Returns the entry served at `/apis/{group}/{version}/{plural}`. Takes a logarithmic number of comparisons.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let compare = |entry: &Arc<Resource>| compare(entry, group, version, plural);
        let first = self.by_path.partition_point(|entry| compare(entry).is_lt());
        self.by_path.get(first).filter(|entry| compare(entry).is_eq())
    }
}

impl From<Vec<Arc<Resource>>> for Entries {
    fn from(all: Vec<Arc<Resource>>) -> Self {
        let mut by_path = all.clone();
        by_path.sort_by(|one, other| compare(one, &other.group, &other.version, &other.plural));
        Self { all, by_path }
    }
}

/// Compares the path of an entry with another path, by what differs most first.
fn compare(entry: &Resource, group: &str, version: &str, plural: &str) -> Ordering {
    (&*entry.plural, &*entry.group, &*entry.version).cmp(&(plural, group, version))
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::random::Random;

    use super::*;
    use crate::registry::builtin;

    #[test]
    fn every_entry_is_found_by_its_path() {
        let all = builtin::registry(&Random::seeded(1), &builtin::Indexes::default()).all();
        let entries = Entries::from(all.clone());
        for entry in &all {
            let found = entries.find(&entry.group, &entry.version, &entry.plural).unwrap();
            assert!(Arc::ptr_eq(found, entry), "{} {} {}", entry.group, entry.version, entry.plural);
        }
        for (group, version, plural) in [("", "v2", "pods"), ("apps", "v1", "pods"), ("", "v1", "zz"), ("", "v1", "")] {
            assert!(entries.find(group, version, plural).is_none(), "{group} {version} {plural}");
        }
        assert!(Entries::default().find("", "v1", "pods").is_none());
    }
}
