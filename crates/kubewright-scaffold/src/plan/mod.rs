//! The planned changes of a command, before anything is written.
//!
//! A plan reads existing files and collects changes. It continues after an obstacle, so that [`finish`](Plan::finish)
//! reports all obstacles together. A file that already has the planned content is neither a change nor an obstacle, so
//! that an interrupted command can be run again.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use kubewright_scaffold::{marker::InsertPosition, plan::Plan};
//!
//! let folder = BTreeMap::from([("src/lib.rs".to_owned(), "// +kubebuilder:scaffold:modules\n".to_owned())]);
//! let mut plan = Plan::new(&folder);
//! plan.create("src/api.rs", "//! Kinds.\n").insert("src/lib.rs", "modules", "pub mod api;", InsertPosition::Sorted);
//! let changes = plan.finish()?;
//! assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["src/api.rs", "src/lib.rs"]);
//! # Ok::<(), kubewright_scaffold::plan::PlanError>(())
//! ```

mod overlay;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
};

use thiserror::Error;

use crate::{
    marker::{self, InsertPosition, MarkerError},
    project,
};

pub use self::overlay::Overlay;

/// The files that a plan reads.
pub trait Source {
    /// Returns the content of a file by its path in the project, with `/` as the separator; `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// Returns an error if the file exists and cannot be read, or is not UTF-8.
    fn read(&self, path: &str) -> io::Result<Option<String>>;
}

/// Files in memory.
impl Source for BTreeMap<String, String> {
    fn read(&self, path: &str) -> io::Result<Option<String>> {
        Ok(self.get(path).cloned())
    }
}

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The path in the project, with `/` as the separator.
    pub path: String,
    /// The current content; `None` for a new file.
    pub before: Option<String>,
    /// The new content; `None` for a file to delete.
    pub after: Option<String>,
}

/// An obstacle to a plan.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanConflict {
    /// A new file already exists with other content.
    #[error("{path} already exists with other content: move it away{}", if *.may_force { ", or use --force to overwrite it" } else { "" })]
    Exists {
        /// The file.
        path: String,
        /// Whether `--force` overwrites the file.
        may_force: bool,
    },
    /// A file to insert into is missing.
    #[error(
        "{path} is missing: restore it from version control and run the command again, or add this to it:\n{fragment}"
    )]
    Missing {
        /// The file.
        path: String,
        /// The code to insert.
        fragment: String,
    },
    /// A file does not contain the lines to replace.
    #[error("{path} was edited where this command changes it: add this by hand:\n{wanted}")]
    Changed {
        /// The file.
        path: String,
        /// The new lines.
        wanted: String,
    },
    /// A file was edited where lines have to be removed.
    #[error(
        "{path} was edited where this command removes lines: remove these by hand, or use --force to leave them:\n{lines}"
    )]
    Entangled {
        /// The file.
        path: String,
        /// The lines to remove.
        lines: String,
    },
    /// A marker is missing or ambiguous.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// A file cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The reason.
        why: io::Error,
    },
    /// A path leads out of the project.
    #[error("{0:?} is not a path in the project: use relative paths without . and ..")]
    Path(String),
}

/// All obstacles to a plan. Nothing was written.
#[derive(Debug, Error)]
pub struct PlanError(pub Vec<PlanConflict>);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.0.iter().enumerate() {
            let lead = if index == 0 { "" } else { "\n" };
            write!(f, "{lead}{refusal}")?;
        }
        Ok(())
    }
}

/// The planned changes of a command.
pub struct Plan<'a> {
    source: &'a dyn Source,
    /// Whether existing files are overwritten, if the command supports it.
    force: Option<bool>,
    files: BTreeMap<String, Change>,
    conflicts: Vec<PlanConflict>,
    /// The files that must be new.
    created: BTreeSet<String>,
    /// The files with an obstacle. One obstacle per file is reported.
    refused: BTreeSet<String>,
}

impl fmt::Debug for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("files", &self.files).field("refusals", &self.conflicts).finish_non_exhaustive()
    }
}

impl<'a> Plan<'a> {
    /// Creates a plan for the files of `source`.
    pub fn new(source: &'a dyn Source) -> Self {
        let (files, conflicts, created, refused) = Default::default();
        Self { source, force: None, files, conflicts, created, refused }
    }

    /// Sets whether existing files are overwritten. After this call, errors suggest `--force`.
    pub fn force(&mut self, is_forced: bool) -> &mut Self {
        self.force = Some(is_forced);
        self
    }

    /// Creates a file.
    pub fn create(&mut self, path: &str, text: impl Into<String>) -> &mut Self {
        if let Some(before) = self.read(path) {
            self.put(path, before, Some(text.into()));
            self.created.insert(path.to_owned());
        }
        self
    }

    /// Creates a file, unless one with that name exists, which is left unchanged.
    pub fn create_if_missing(&mut self, path: &str, text: impl Into<String>) -> &mut Self {
        if let Some(None) = self.read(path) {
            self.put(path, None, Some(text.into()));
        }
        self
    }

    /// Overwrites a generated file, such as `PROJECT`.
    pub fn replace(&mut self, path: &str, text: impl Into<String>) -> &mut Self {
        if let Some(before) = self.read(path) {
            self.put(path, before, Some(text.into()));
        }
        self
    }

    /// Deletes a file, if it exists.
    pub fn delete(&mut self, path: &str) -> &mut Self {
        if let Some(Some(before)) = self.read(path) {
            self.put(path, Some(before), None);
        }
        self
    }

    /// Inserts code above a [marker] in a file, which may be created by this plan.
    pub fn insert(&mut self, path: &str, marker: &str, fragment: &str, position: InsertPosition) -> &mut Self {
        let Some(there) = self.read(path) else { return self };
        let Some(text) = there else {
            // Each fragment is reported, even if several belong to one file.
            self.conflicts.push(PlanConflict::Missing { path: path.into(), fragment: fragment.into() });
            return self;
        };
        match marker::insert(&text, path, marker, fragment, position) {
            Ok(Some(inserted)) => self.put(path, Some(text), Some(inserted)),
            Ok(None) => {}
            Err(error) => self.conflicts.push(error.into()),
        }
        self
    }

    /// Returns whether a file contains a text after the planned changes.
    pub fn has(&mut self, path: &str, text: &str) -> bool {
        self.read(path).flatten().is_some_and(|there| there.contains(text))
    }

    /// Replaces lines that occur once in a file, unless the new lines are already there.
    pub fn swap(&mut self, path: &str, from: &str, to: &str) -> &mut Self {
        let Some(there) = self.read(path) else { return self };
        let text = there.clone().unwrap_or_default();
        // One text may contain the other.
        let is_done = text.contains(to) && (to.contains(from) || !text.contains(from));
        if text.matches(from).count() == 1 && !is_done {
            self.put(path, there, Some(text.replacen(from, to, 1)));
        } else if !is_done {
            self.conflicts.push(PlanConflict::Changed { path: path.into(), wanted: to.trim_end().into() });
        }
        self
    }

    /// Returns the changes in the order in which they must be written: new files, then changed ones, then deleted ones,
    /// then `PROJECT`, which records the others.
    ///
    /// # Errors
    /// Returns all obstacles.
    pub fn finish(mut self) -> Result<Vec<Change>, PlanError> {
        // Checked last: the existing content may include code that was inserted later.
        let may_force = self.force.is_some();
        let in_the_way = |path: &&String| {
            let change = &self.files[*path];
            self.force != Some(true) && change.before.as_ref().is_some_and(|there| change.after.as_ref() != Some(there))
        };
        let found: Vec<_> = self.created.iter().filter(in_the_way).cloned().collect();
        self.conflicts.splice(0..0, found.into_iter().map(|path| PlanConflict::Exists { path, may_force }));
        if !self.conflicts.is_empty() {
            return Err(PlanError(self.conflicts));
        }
        Ok(in_order(self.files.into_values()))
    }

    /// Returns the changes that are possible despite obstacles.
    pub(crate) fn possible(self) -> Vec<Change> {
        in_order(self.files.into_values())
    }

    /// Returns the source of the existing files.
    pub(crate) fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// Returns the content of a file after the planned changes, or `Some(None)` if it does not exist. Returns `None` if
    /// it cannot be read, which is recorded as an obstacle.
    fn read(&mut self, path: &str) -> Option<Option<String>> {
        if let Some(change) = self.files.get(path) {
            return Some(change.after.clone());
        }
        if !is_inside(path) {
            self.refuse(path, PlanConflict::Path(path.into()));
            return None;
        }
        match self.source.read(path) {
            Ok(text) => Some(text),
            Err(why) => {
                self.refuse(path, PlanConflict::Unreadable { path: path.into(), why });
                None
            }
        }
    }

    fn refuse(&mut self, path: &str, refusal: PlanConflict) {
        if self.refused.insert(path.to_owned()) {
            self.conflicts.push(refusal);
        }
    }

    /// Plans the content of a file. `before` is only used for a path that is new to the plan.
    fn put(&mut self, path: &str, before: Option<String>, after: Option<String>) {
        match self.files.get_mut(path) {
            Some(change) => change.after = after,
            None => drop(self.files.insert(path.to_owned(), Change { path: path.to_owned(), before, after })),
        }
    }
}

/// Returns the effective changes, in the order in which to write them.
fn in_order(changes: impl Iterator<Item = Change>) -> Vec<Change> {
    let mut changes: Vec<_> = changes.filter(|change| change.before != change.after).collect();
    changes.sort_by_key(|change| (change.path == project::FILE, change.after.is_none(), change.before.is_some()));
    changes
}

/// Returns whether a path stays within the directory. Symbolic links are checked when the files are written.
pub(crate) fn is_inside(path: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
    !path.contains(['\\', '\0']) && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests;
