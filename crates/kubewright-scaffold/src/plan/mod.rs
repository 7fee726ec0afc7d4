//! All that a command would write, before anything is written.
//!
//! A plan reads what is there and gathers what is to be; whatever stands in the way, it goes on, so that
//! [`finish`](Plan::finish) tells all of it at once. What is there already, letter for letter, is no change and in nobody's way: a command
//! that was killed half-way can be run again.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use kubewright_scaffold::{marker::Place, plan::Plan};
//!
//! let folder = BTreeMap::from([("src/lib.rs".to_owned(), "// +kubebuilder:scaffold:modules\n".to_owned())]);
//! let mut plan = Plan::new(&folder);
//! plan.create("src/api.rs", "//! Kinds.\n").insert("src/lib.rs", "modules", "pub mod api;", Place::Sorted);
//! let changes = plan.finish()?;
//! assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["src/api.rs", "src/lib.rs"]);
//! # Ok::<(), kubewright_scaffold::plan::PlanError>(())
//! ```

mod layers;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
};

use thiserror::Error;

use crate::{
    marker::{self, MarkerError, Place},
    project,
};

pub use self::layers::Layers;

/// Where a plan reads what is there.
pub trait Source {
    /// The text of a file, by its path below the project's folder with `/` between; none if it isn't there.
    ///
    /// # Errors
    /// If it is there and can't be read, or is no text.
    fn read(&self, path: &str) -> io::Result<Option<String>>;
}

/// Files in memory.
impl Source for BTreeMap<String, String> {
    fn read(&self, path: &str) -> io::Result<Option<String>> {
        Ok(self.get(path).cloned())
    }
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its path below the project's folder, with `/` between.
    pub path: String,
    /// What it holds now; none if it isn't there.
    pub before: Option<String>,
    /// What it is to hold.
    pub after: String,
}

/// What stands in the way of a plan.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A file is there and says something else.
    #[error("{path} is there already and differs: move it away{}", if *.may_force { ", or use --force to overwrite it" } else { "" })]
    Exists {
        /// The file.
        path: String,
        /// Whether the command can be told to overwrite it.
        may_force: bool,
    },
    /// A file in which something is to be put isn't there.
    #[error(
        "{path} is missing. Take it from your version control and try again, or add this where it belongs:\n{fragment}"
    )]
    Missing {
        /// The file.
        path: String,
        /// What would have been put in.
        fragment: String,
    },
    /// A file has not what is to be replaced.
    #[error("{path} has been changed where this command changes it. Put this there by hand:\n{wanted}")]
    Changed {
        /// The file.
        path: String,
        /// What is to be there.
        wanted: String,
    },
    /// A file doesn't say where.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// A file can't be read.
    #[error("{path} can't be read: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        why: io::Error,
    },
    /// A path that is none of the project's.
    #[error("{0:?} is no path in the project: use names with / between, without . and ..")]
    Path(String),
}

/// All that stands in the way of a plan. Nothing was written.
#[derive(Debug, Error)]
pub struct PlanError(pub Vec<Refusal>);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.0.iter().enumerate() {
            let lead = if index == 0 { "" } else { "\n" };
            write!(f, "{lead}{refusal}")?;
        }
        Ok(())
    }
}

/// What a command would write.
pub struct Plan<'a> {
    source: &'a dyn Source,
    /// Whether files are overwritten, if the command may.
    force: Option<bool>,
    files: BTreeMap<String, Change>,
    refusals: Vec<Refusal>,
    /// Files that have to be new.
    created: BTreeSet<String>,
    /// Files that a refusal was about: one is enough.
    refused: BTreeSet<String>,
}

impl fmt::Debug for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("files", &self.files).field("refusals", &self.refusals).finish_non_exhaustive()
    }
}

impl<'a> Plan<'a> {
    /// A plan for what `source` reads.
    pub fn new(source: &'a dyn Source) -> Self {
        let (files, refusals, created, refused) = Default::default();
        Self { source, force: None, files, refusals, created, refused }
    }

    /// Whether files that are there and differ are overwritten. By default they stand in the way; said once, refusals offer `--force`.
    pub fn force(&mut self, is_forced: bool) -> &mut Self {
        self.force = Some(is_forced);
        self
    }

    /// A new file.
    pub fn create(&mut self, path: &str, text: impl Into<String>) -> &mut Self {
        if let Some(before) = self.read(path) {
            self.put(path, before, text.into());
            self.created.insert(path.to_owned());
        }
        self
    }

    /// A new file, unless there is one of that name, which is left as it is.
    pub fn create_if_missing(&mut self, path: &str, text: impl Into<String>) -> &mut Self {
        if let Some(None) = self.read(path) {
            self.put(path, None, text.into());
        }
        self
    }

    /// A file that is ours to write anew, such as `PROJECT` or what was generated.
    pub fn replace(&mut self, path: &str, text: impl Into<String>) -> &mut Self {
        if let Some(before) = self.read(path) {
            self.put(path, before, text.into());
        }
        self
    }

    /// Something above a [marker] of a file, which may be one of this plan.
    pub fn insert(&mut self, path: &str, marker: &str, fragment: &str, place: Place) -> &mut Self {
        let Some(there) = self.read(path) else { return self };
        let Some(text) = there else {
            // Each fragment is told, even if several are for one file.
            self.refusals.push(Refusal::Missing { path: path.into(), fragment: fragment.into() });
            return self;
        };
        match marker::insert(&text, path, marker, fragment, place) {
            Ok(Some(inserted)) => self.put(path, Some(text), inserted),
            Ok(None) => {}
            Err(error) => self.refusals.push(error.into()),
        }
        self
    }

    /// Whether a file, as this plan leaves it, has this text.
    pub fn has(&mut self, path: &str, text: &str) -> bool {
        self.read(path).flatten().is_some_and(|there| there.contains(text))
    }

    /// Other lines in the place of some that are in a file once, or of which the others are there already.
    pub fn swap(&mut self, path: &str, from: &str, to: &str) -> &mut Self {
        let Some(there) = self.read(path) else { return self };
        let text = there.clone().unwrap_or_default();
        // One may be a part of the other.
        let is_done = text.contains(to) && (to.contains(from) || !text.contains(from));
        if text.matches(from).count() == 1 && !is_done {
            self.put(path, there, text.replacen(from, to, 1));
        } else if !is_done {
            self.refusals.push(Refusal::Changed { path: path.into(), wanted: to.trim_end().into() });
        }
        self
    }

    /// What is to be written, in the order in which to write it: new files, then changed ones, then `PROJECT`, which says that
    /// they are there.
    ///
    /// # Errors
    /// With all that stands in the way.
    pub fn finish(mut self) -> Result<Vec<Change>, PlanError> {
        // Not until now: what is there may be all of it, with what was put in later.
        let may_force = self.force.is_some();
        let in_the_way = |path: &&String| {
            let change = &self.files[*path];
            self.force != Some(true) && change.before.as_ref().is_some_and(|there| *there != change.after)
        };
        let found: Vec<_> = self.created.iter().filter(in_the_way).cloned().collect();
        self.refusals.splice(0..0, found.into_iter().map(|path| Refusal::Exists { path, may_force }));
        if !self.refusals.is_empty() {
            return Err(PlanError(self.refusals));
        }
        Ok(in_order(self.files.into_values()))
    }

    /// What can be written in spite of all that stands in the way.
    pub(crate) fn possible(self) -> Vec<Change> {
        in_order(self.files.into_values())
    }

    /// What is there.
    pub(crate) fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// The text of a file as this plan leaves it, or none if there is no such file. Nothing if that isn't known, which is
    /// refused.
    fn read(&mut self, path: &str) -> Option<Option<String>> {
        if let Some(change) = self.files.get(path) {
            return Some(Some(change.after.clone()));
        }
        if !is_inside(path) {
            self.refuse(path, Refusal::Path(path.into()));
            return None;
        }
        match self.source.read(path) {
            Ok(text) => Some(text),
            Err(why) => {
                self.refuse(path, Refusal::Unreadable { path: path.into(), why });
                None
            }
        }
    }

    fn refuse(&mut self, path: &str, refusal: Refusal) {
        if self.refused.insert(path.to_owned()) {
            self.refusals.push(refusal);
        }
    }

    /// `before` is what is on disk only for a path that is new to the plan.
    fn put(&mut self, path: &str, before: Option<String>, after: String) {
        match self.files.get_mut(path) {
            Some(change) => change.after = after,
            None => drop(self.files.insert(path.to_owned(), Change { path: path.to_owned(), before, after })),
        }
    }
}

/// Those that change something, in the order in which to write them.
fn in_order(changes: impl Iterator<Item = Change>) -> Vec<Change> {
    let mut changes: Vec<_> = changes.filter(|change| change.before.as_ref() != Some(&change.after)).collect();
    changes.sort_by_key(|change| (change.path == project::FILE, change.before.is_some()));
    changes
}

/// Whether a path leads to a file in the folder, whatever that is. Where a link on it leads is for the writer to say.
pub(crate) fn is_inside(path: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
    !path.contains(['\\', '\0']) && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests;
