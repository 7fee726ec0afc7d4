//! Several plans whose changes build on each other.

use std::{collections::BTreeMap, io};

use super::{Change, Source, in_order};

/// A source with the changes of earlier plans, so that each plan reads the results of the preceding ones.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use kubewright_scaffold::plan::{Overlay, Plan, Source};
///
/// let folder = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
/// let mut overlay = Overlay::new(&folder);
/// for text in ["2", "3"] {
///     let mut plan = Plan::new(&overlay);
///     plan.replace("a", text);
///     let changes = plan.finish()?;
///     overlay.add(changes);
/// }
/// assert_eq!(overlay.read("a")?.as_deref(), Some("3"));
/// let change = &overlay.finish()[0];
/// assert_eq!((change.before.as_deref(), change.after.as_deref()), (Some("1"), Some("3")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Overlay<'a> {
    below: &'a dyn Source,
    changes: BTreeMap<String, Change>,
}

impl std::fmt::Debug for Overlay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay").field("changes", &self.changes).finish_non_exhaustive()
    }
}

impl<'a> Overlay<'a> {
    /// Creates an overlay of `below` without changes.
    pub fn new(below: &'a dyn Source) -> Self {
        Self { below, changes: BTreeMap::new() }
    }

    /// Adds the changes of a plan that was made for this overlay.
    pub fn add(&mut self, changes: Vec<Change>) {
        for change in changes {
            match self.changes.get_mut(&change.path) {
                Some(there) => there.after = change.after,
                None => drop(self.changes.insert(change.path.clone(), change)),
            }
        }
    }

    /// Returns the changed files and their contents; `None` for deleted files.
    pub fn changed(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.changes.values().map(|change| (change.path.as_str(), change.after.as_deref()))
    }

    /// Returns all changes combined, in the order in which to write them.
    pub fn finish(self) -> Vec<Change> {
        in_order(self.changes.into_values())
    }
}

impl Source for Overlay<'_> {
    fn read(&self, path: &str) -> io::Result<Option<String>> {
        match self.changes.get(path) {
            Some(change) => Ok(change.after.clone()),
            None => self.below.read(path),
        }
    }
}
