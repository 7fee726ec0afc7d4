//! Lists of answers that differ, with their reasons.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// How an answer differs from the recorded one.
pub(super) struct Difference {
    /// The reason that is generated for a case without one in the list.
    pub(super) reason: &'static str,
    pub(super) text: String,
}

/// The result of a comparison.
#[derive(Default)]
pub(super) struct Report {
    count: usize,
    unlisted: String,
    gone: Vec<String>,
}

impl Report {
    /// Compares the differences of a file with its list. With `KUBEWRIGHT_GENERATE`, the list is written.
    pub(super) fn compare<'a>(
        &mut self,
        lists: &Path,
        file: &str,
        names: impl Iterator<Item = &'a str> + Clone,
        found: &BTreeMap<String, Difference>,
    ) {
        self.count += names.clone().count();
        let mut known = Known::read(lists, file);
        for (case, Difference { reason, text }) in found {
            if !known.reasons.contains_key(case) {
                self.unlisted += &format!("{file}: {case}\n{text}\n");
            }
            // A generated reason follows what differs now.
            if known.reasons.get(case).is_none_or(|known| GENERATED.contains(&&**known)) {
                known.reasons.insert(case.clone(), (*reason).to_owned());
            }
        }
        known.reasons.retain(|case, _| {
            let differs = found.contains_key(case);
            if !differs {
                self.gone.push(format!("{file}: {case}"));
            }
            differs
        });
        if generates() {
            known.write(names);
        }
    }

    /// Asserts that the lists are complete and contain nothing else.
    #[track_caller]
    pub(super) fn check(&self) {
        assert!(self.count > 0, "no cases");
        let Self { unlisted, gone, .. } = self;
        assert!(generates() || unlisted.is_empty(), "these answers differ from those of Kubernetes:\n{unlisted}");
        assert!(generates() || gone.is_empty(), "the lists name answers that don't differ, remove them: {gone:#?}");
    }
}

fn generates() -> bool {
    std::env::var_os("KUBEWRIGHT_GENERATE").is_some()
}

/// The reasons that are generated for cases without a reason in the list.
pub(super) const ACCEPTED: &str = "# accepted, and refused by Kubernetes";
pub(super) const REFUSED: &str = "# refused, and accepted by Kubernetes";
pub(super) const CODE: &str = "# another code";
pub(super) const CAUSES: &str = "# other causes";
pub(super) const WARNINGS: &str = "# other warnings";
pub(super) const MESSAGE: &str = "# another message";
pub(super) const OTHER: &str = "# another body or header";
pub(super) const NO_ANSWER: &str = "# no answer";
pub(super) const NO_OBJECT: &str = "# the valid object is refused";
const GENERATED: &[&str] = &[ACCEPTED, REFUSED, CODE, CAUSES, WARNINGS, MESSAGE, OTHER, NO_ANSWER, NO_OBJECT];

/// A list of known differences: the reason of each case, by its name.
struct Known {
    path: PathBuf,
    reasons: BTreeMap<String, String>,
}

impl Known {
    /// Reads `<name>.txt` of a directory.
    fn read(directory: &Path, name: &str) -> Self {
        let path = directory.join(format!("{name}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut reasons = BTreeMap::new();
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            let (comments, cases): (Vec<_>, Vec<_>) = paragraph.trim().lines().partition(|line| line.starts_with("# "));
            assert!(!comments.is_empty(), "{}: no reason precedes {paragraph}", path.display());
            for case in cases {
                let twice = reasons.insert(case.to_owned(), comments.join("\n"));
                assert!(twice.is_none(), "{}: {case} is listed twice", path.display());
            }
        }
        Self { path, reasons }
    }

    /// Writes the cases by reason, each in the order of the given names.
    fn write<'a>(&self, names: impl Iterator<Item = &'a str>) {
        if self.reasons.is_empty() {
            let _ = fs::remove_file(&self.path);
            return;
        }
        let mut paragraphs: BTreeMap<&str, String> = BTreeMap::new();
        for name in names {
            if let Some(reason) = self.reasons.get(name) {
                *paragraphs.entry(reason).or_default() += &format!("\n{name}");
            }
        }
        let paragraphs: Vec<_> = paragraphs.iter().map(|(reason, cases)| format!("{reason}{cases}\n")).collect();
        fs::create_dir_all(self.path.parent().unwrap()).unwrap();
        fs::write(&self.path, paragraphs.join("\n")).unwrap();
    }
}
