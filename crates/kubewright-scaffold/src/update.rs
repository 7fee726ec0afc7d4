//! Merging of a newer scaffold into an edited project: a three-way merge of each file, as in git.
//!
//! The base is the old scaffold from the [record](crate::record). One side is the file in the project, the other is the
//! new scaffold. Where both sides changed the same lines, the file gets both versions and the base between git's
//! conflict markers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use diffy::{ConflictStyle, IncompleteHunkStyle, MergeOptions};

use crate::{
    plan::{Plan, is_inside},
    project,
};

/// The files that `kubewright manifests` generates, which are not merged.
const GENERATED: [&str; 4] =
    ["config/crd/bases/", "config/rbac/role.yaml", "config/webhook/manifests.yaml", "config/webhook/role.yaml"];

/// Returns whether `kubewright manifests` generates a file.
pub fn is_generated(path: &str) -> bool {
    GENERATED.iter().any(|generated| path.starts_with(generated))
}

/// The outcome of an update for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Outcome {
    /// The file is new.
    Created,
    /// The file was not edited, and now has the content of the new scaffold.
    Replaced,
    /// The file contains both the edits and the changes of the scaffold, in different places.
    Merged,
    /// The same lines changed on both sides. The file contains conflict markers.
    Conflict,
    /// The file changed in the scaffold, but was deleted in the project. It stays deleted.
    Deleted,
    /// The file is no longer part of the scaffold. It is left for the user to delete.
    Obsolete,
}

/// Plans the update of all files except `PROJECT`, and returns the outcomes, omitting unchanged files. `base` is the
/// old scaffold, and `new` the new one.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn update(
    base: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    plan: &mut Plan<'_>,
) -> io::Result<BTreeMap<String, Outcome>> {
    let source = plan.source();
    let mut outcomes = BTreeMap::new();
    let is_to_merge = |path: &&String| *path != project::FILE && is_inside(path);
    let paths: BTreeSet<&String> = base.keys().chain(new.keys()).filter(is_to_merge).collect();
    for path in paths {
        let there =
            source.read(path).map_err(|why| io::Error::new(why.kind(), format!("cannot read {path}: {why}")))?;
        let Some((outcome, text)) = merge(path, base.get(path), there.as_ref(), new.get(path)) else { continue };
        if let Some(text) = text {
            plan.replace(path, text);
        }
        outcomes.insert(path.clone(), outcome);
    }
    Ok(outcomes)
}

/// Returns the outcome for a file, with its new content if that changes; `None` if the file stays unchanged.
fn merge(
    path: &str,
    base: Option<&String>,
    there: Option<&String>,
    new: Option<&String>,
) -> Option<(Outcome, Option<String>)> {
    if base == new || there == new {
        return None;
    }
    let Some(new) = new else { return Some((Outcome::Obsolete, None)) };
    match (base, there) {
        (None, None) => Some((Outcome::Created, Some(new.clone()))),
        (Some(_), None) => Some((Outcome::Deleted, None)),
        (Some(base), Some(there)) if base == there => Some((Outcome::Replaced, Some(new.clone()))),
        (_, Some(_)) if is_generated(path) => None,
        (base, Some(there)) => {
            let base = base.map(String::as_str).unwrap_or_default();
            let mut options = MergeOptions::new();
            options.set_conflict_style(ConflictStyle::Diff3).set_incomplete_hunk_style(IncompleteHunkStyle::Git);
            match options.merge(base, there, new) {
                Ok(merged) if merged == *there => None,
                Ok(merged) => Some((Outcome::Merged, Some(merged))),
                Err(marked) => Some((Outcome::Conflict, Some(marked))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(base: Option<&str>, there: Option<&str>, new: Option<&str>) -> Option<(Outcome, Option<String>)> {
        let [base, there, new] = [base, there, new].map(|text| text.map(str::to_owned));
        merge("a", base.as_ref(), there.as_ref(), new.as_ref())
    }

    #[test]
    fn each_outcome_occurs() {
        let check = |base, there, new, outcome, text: Option<&str>| {
            assert_eq!(one(base, there, new), Some((outcome, text.map(str::to_owned))), "{base:?} {there:?} {new:?}");
        };
        check(None, None, Some("n"), Outcome::Created, Some("n"));
        check(Some("b"), Some("b"), Some("n"), Outcome::Replaced, Some("n"));
        check(Some("b"), None, Some("n"), Outcome::Deleted, None);
        check(Some("b"), Some("b"), None, Outcome::Obsolete, None);
        let (base, there, new) = ("1\n2\n3\n4\n", "1\nmine\n2\n3\n4\n", "1\n2\n3\nnew\n");
        check(Some(base), Some(there), Some(new), Outcome::Merged, Some("1\nmine\n2\n3\nnew\n"));
        for (base, there, new) in [
            (Some("b"), Some("mine"), Some("b")),
            (Some("b"), Some("n"), Some("n")),
            (Some("b"), None, Some("b")),
            (Some("b"), None, None),
            (None, Some("n"), Some("n")),
        ] {
            assert_eq!(one(base, there, new), None, "{base:?} {there:?} {new:?}");
        }
        let texts = ["b", "mine", "n"].map(str::to_owned);
        assert_eq!(merge("config/rbac/role.yaml", Some(&texts[0]), Some(&texts[1]), Some(&texts[2])), None);
    }

    #[test]
    fn a_conflict_has_both_sides_and_the_base() {
        let (outcome, text) = one(Some("1\nold\n2\n"), Some("1\nmine\n2\n"), Some("1\nnew\n2\n")).unwrap();
        assert_eq!(outcome, Outcome::Conflict);
        let marked = "1\n<<<<<<< ours\nmine\n||||||| original\nold\n=======\nnew\n>>>>>>> theirs\n2\n";
        assert_eq!(text.unwrap(), marked);
        // An existing file that is not part of the scaffold.
        let (outcome, text) = one(None, Some("mine"), Some("new")).unwrap();
        assert_eq!((outcome, text.unwrap().contains("mine\n|||||||")), (Outcome::Conflict, true));
    }

    #[test]
    fn files_are_planned_together() {
        let files = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
        };
        let (base, new) =
            (files(&[("a", "1"), ("b", "1"), ("PROJECT", "1")]), files(&[("a", "2"), ("c", "1"), ("PROJECT", "2")]));
        let there = files(&[("a", "1"), ("b", "mine"), ("PROJECT", "mine"), ("d", "mine")]);
        let mut plan = Plan::new(&there);
        let outcomes = update(&base, &new, &mut plan).unwrap();
        let expected = [("a", Outcome::Replaced), ("b", Outcome::Obsolete), ("c", Outcome::Created)];
        assert_eq!(outcomes, expected.map(|(path, outcome)| (path.to_owned(), outcome)).into());
        let changed: Vec<_> = plan.finish().unwrap().into_iter().map(|change| change.path).collect();
        assert_eq!(changed, ["c", "a"]);
    }

    fn lines() -> impl Strategy<Value = String> {
        proptest::collection::vec("[a-d]", 0..8).prop_map(|lines| lines.into_iter().map(|line| line + "\n").collect())
    }

    proptest! {
        /// Checks that each edited line is in the result.
        #[test]
        fn nothing_is_lost(base in lines(), edits in proptest::collection::vec((0_usize..9, "x[0-9]"), 0..4), new in lines()) {
            let mut there: Vec<&str> = base.lines().collect();
            for (place, line) in &edits {
                there.insert((*place).min(there.len()), line);
            }
            let there = there.iter().map(|line| format!("{line}\n")).collect::<String>();
            let text = match one(Some(&base), Some(&there), Some(&new)) {
                Some((_, Some(text))) => text,
                _ => there.clone(),
            };
            for (_, line) in &edits {
                prop_assert!(text.lines().any(|other| other == line), "{line} is not in {text}");
            }
        }
    }
}
